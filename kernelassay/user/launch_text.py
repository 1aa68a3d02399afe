"""The ``launch`` function of a user's kernel: made from the header, or the file's own, bound.

Every size becomes a parameter of ``launch``; everything else in the header is C text in its body,
so that geometry, counts and constants are ordinary source and mutate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelassay.compile.lexing import NAME, NUMBER, split_commas, tokenize
from kernelassay.compile.source import (
    KernelSignature,
    device_text,
    kernel_signatures,
    parameter,
    split,
)
from kernelassay.errors import UnsupportedError, UsageError, unknown_name
from kernelassay.user.extract import DeviceFile, parameter_line
from kernelassay.user.header import (
    Extent,
    Header,
    LaunchLine,
    Number,
    Property,
    Require,
    Scratch,
    Tensor,
    Zero,
)

PROBE = "kernelassay_probe"
_POINTER_WORDS = frozenset({"nullptr", "NULL"})
_WORDS = frozenset(
    {"sizeof", "dim3", "true", "false", "const", "unsigned", "signed", "int", "long", "short",
     "char", "float", "double", "bool", "size_t", "int64_t", "uint64_t", "int32_t", "uint32_t",
     "half", "__half", "float2", "float4", "half2", "__half2", "static_cast", "x", "y", "z",
     "INFINITY", "NAN", "FLT_MAX", "INT_MAX", "min", "max", "fminf", "fmaxf", "abs", "ceil",
     "floor", "sqrt", "fabs", "ceilf", "floorf", "sqrtf", "fabsf"}
    | _POINTER_WORDS
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Buffer:
    """A pointer parameter of ``launch`` and the tensor it is bound to.

    ``what`` describes the parameter for messages, ``line`` is where it is bound, ``shape`` that of
    an output, where it is stated.
    """

    parameter: str
    type: str
    reference: str
    start: str
    what: str
    line: int
    shape: tuple[Extent | int, ...] = ()

    @property
    def is_output(self) -> bool:
        """Whether it is an output of the problem."""
        return self.reference.startswith("out")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number ``launch`` takes: a size of a tensor, or (``axis`` "value") a plain-number input."""

    parameter: str
    type: str
    reference: str
    axis: int | str
    what: str
    line: int


@dataclass(frozen=True, slots=True)
class Bound:
    """A source with its ``launch`` and all that :class:`KernelFile` holds of it."""

    source: str
    buffers: tuple[Buffer, ...]
    quantities: tuple[Quantity, ...]
    probe: str
    probe_quantities: tuple[Quantity, ...]
    expressions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Use:
    """A name as an argument of a kernel, or as a parameter of the file's own ``launch``."""

    type: str
    what: str
    exact: bool
    line: int = 0


def make(file: DeviceFile, header: Header, device: str, names: Mapping[int, str]) -> Bound:
    """``device`` plus a ``launch`` made from the header; ``names`` has the kernel of each line.

    Raises ``UsageError`` naming the parameter where the header does not fit a kernel.
    """
    signatures = {signature.name: signature for signature in kernel_signatures(device)}
    uses: dict[str, list[_Use]] = {}
    for line in header.launches:
        signature = signatures[names[line.line]]
        _check_names(file, header, line)
        _check_arguments(file, header, line, signature, uses)
    buffers, quantities = _parameters(header, uses)
    body = [_statement(s, uses, names) for s in header.statements if not isinstance(s, Require)]
    body = [line for line in body if line]
    source = device + _function(buffers, quantities, body)
    requirements = [s.text for s in header.statements if isinstance(s, Require)]
    probe = ""
    if requirements:
        numbers = [_statement(s, uses, names) for s in header.statements if isinstance(s, Number)]
        probe = device + _probe(quantities, numbers, [("int", text) for text in requirements])
    return Bound(source, buffers, quantities, probe, quantities, ())


def bind_own(file: DeviceFile, header: Header, device: str) -> Bound:
    """``device``, which has its own ``launch``, with the header's bindings for its parameters.

    Raises ``UsageError`` naming the parameter of ``launch`` that has no fitting binding.
    """
    for statement in header.statements:
        if isinstance(statement, Scratch | Zero):
            raise UsageError(
                "the file has a `launch` of its own, so the header only binds its parameters",
                where=header.at(statement.line),
                hint="allocate and fill buffers in `launch`, with cudaMalloc and cudaMemset",
            )
    parts = split(file.text)
    bound = {s.name: s for s in header.statements if isinstance(s, Tensor | Number)}
    sizes = {p.parameter: p for p in header.properties}
    buffers: list[Buffer] = []
    quantities: list[Quantity] = []
    expressions: list[tuple[str, str]] = []
    for position, tokens in enumerate(split_commas(parts.parameters)):
        kind, name = parameter(tokens)
        what = f"parameter {position + 1} {name!r} ({kind}) of launch at {file.where(tokens[0])}"
        binding = bound.get(name)
        if kind.endswith("*"):
            if not isinstance(binding, Tensor):
                raise _no_binding(header, what, "a tensor", f"// kernelassay: {name} = arg0")
            buffers.append(_buffer(binding, [_Use(kind, what, True)], header))
        elif name in sizes:
            quantities.append(_quantity(sizes[name], [_Use(kind, what, True)]))
        elif isinstance(binding, Tensor):
            quantities.append(_value(binding, [_Use(kind, what, True)]))
        elif isinstance(binding, Number):
            expressions.append((kind, name))
        else:
            raise _no_binding(header, what, "a number", f"// kernelassay: {name} = arg0.shape[0]")
    requirements = [s.text for s in header.statements if isinstance(s, Require)]
    probe, inputs = "", tuple(quantities)
    if expressions or requirements:
        taken = {q.parameter for q in quantities}
        inputs += tuple(_quantity(p, ()) for p in header.properties if p.parameter not in taken)
        numbers = [_statement(s, {}, {}) for s in header.statements if isinstance(s, Number)]
        wanted = [*expressions, *(("int", text) for text in requirements)]
        probe = device_text(device) + _probe(inputs, numbers, wanted)
    return Bound(
        device,
        tuple(buffers),
        tuple(quantities),
        probe,
        inputs,
        tuple(name for _, name in expressions),
    )


# ---- checks -----------------------------------------------------------------------------------


def _check_names(file: DeviceFile, header: Header, line: LaunchLine) -> None:
    """Refuse a name that nothing defines, with the nearest known ones."""
    known = {s.name for s in header.statements if isinstance(s, Tensor | Number | Scratch)}
    known |= {p.parameter for p in header.properties}
    defined = {name for item in file.layout.items for name in item.defines}
    for text in (*line.geometry, *line.arguments):
        for token in tokenize(text):
            if token.kind == NAME and token.text not in known | defined | _WORDS:
                error = unknown_name("name", token.text, known)
                raise UsageError(
                    f"{error.what} in the launch of {line.kernel}",
                    where=header.at(line.line),
                    hint=f"bind it: // kernelassay: {token.text} = ... ({error.hint})",
                )


def _check_arguments(
    file: DeviceFile,
    header: Header,
    line: LaunchLine,
    signature: KernelSignature,
    uses: dict[str, list[_Use]],
) -> None:
    buffers = {s.name: s for s in header.statements if isinstance(s, Tensor | Scratch)}
    given, wanted = len(line.arguments), len(signature.parameters)
    if given > wanted:
        raise UsageError(
            f"{line.kernel} has {wanted} parameters, the launch gives {given} arguments;"
            f" {line.arguments[wanted]!r} has no parameter",
            where=header.at(line.line),
        )
    for position, (kind, name) in enumerate(signature.parameters):
        place = parameter_line(file, line.kernel, position)
        what = f"parameter {position + 1} {name!r} ({kind}) of {line.kernel} at {place}"
        if position >= given:
            raise UsageError(
                f"{what} gets no argument: the launch gives {given}, the kernel has {wanted}",
                where=header.at(line.line),
                hint="write one argument for each parameter, in order",
            )
        text = line.arguments[position]
        names = [token.text for token in tokenize(text) if token.kind == NAME]
        _check_argument(text, names, kind, what, buffers, header.at(line.line))
        for used in names:
            uses.setdefault(used, []).append(_Use(kind, what, text == used, line.line))


def _check_argument(
    text: str,
    names: Sequence[str],
    kind: str,
    what: str,
    buffers: Mapping[str, Tensor | Scratch],
    where: str,
) -> None:
    """Whether the argument ``text`` can be passed to ``what``, a parameter of type ``kind``."""
    if kind.count("*") > 1 or not _known_type(kind):
        raise UnsupportedError(
            f"{what} has a type no binding fits",
            where=where,
            hint="kernels take numbers and pointers to numbers",
        )
    pointers = [name for name in names if name in buffers]
    if kind.endswith("*"):
        if not pointers and not _POINTER_WORDS & set(names):
            raise UsageError(
                f"{what} needs a buffer, the launch gives {text!r}",
                where=where,
                hint="bind it to argN, param:..., out or scratch",
            )
    elif pointers and not (text == pointers[0] and _is_argument(buffers[text])):
        raise UsageError(
            f"{what} needs a number, the launch gives the buffer {pointers[0]!r}",
            where=where,
            hint=f"sizes are written {pointers[0]}.shape[0] and {pointers[0]}.numel",
        )


def _is_argument(bound: Tensor | Scratch) -> bool:
    """Whether a name is an argument of ``forward``, which may be a number there."""
    return isinstance(bound, Tensor) and bound.reference.startswith("arg")


def _known_type(kind: str) -> bool:
    from kernelassay.compile.expression import Parser
    from kernelassay.compile.values import Scope

    found = Parser(kind, tokenize(kind), Scope(lambda name: None)).type()
    return found is not None and (found[0].arithmetic or found[0].kind == "pointer")


def _no_binding(header: Header, what: str, kind: str, example: str) -> UsageError:
    return UsageError(
        f"{what} is not bound to {kind}", where=header.path, hint=f"write for example `{example}`"
    )


# ---- parameters of launch ---------------------------------------------------------------------


def _parameters(
    header: Header, uses: Mapping[str, Sequence[_Use]]
) -> tuple[tuple[Buffer, ...], tuple[Quantity, ...]]:
    buffers: list[Buffer] = []
    quantities: list[Quantity] = []
    for tensor in header.tensors:
        used = uses.get(tensor.name, ())
        pointers = [use for use in used if use.type.endswith("*")]
        numbers = [use for use in used if not use.type.endswith("*")]
        if pointers and numbers:
            raise UsageError(
                f"{numbers[0].what} needs a number, the launch gives the buffer {tensor.name!r}",
                where=header.at(numbers[0].line),
                hint=f"sizes are written {tensor.name}.shape[0] and {tensor.name}.numel",
            )
        if pointers:
            buffers.append(_buffer(tensor, pointers, header))
        elif numbers:
            quantities.append(_value(tensor, numbers))
    for size in header.properties:
        quantities.append(_quantity(size, uses.get(size.parameter, ())))
    return tuple(buffers), tuple(quantities)


def _buffer(tensor: Tensor, uses: Sequence[_Use], header: Header) -> Buffer:
    writable = [use for use in uses if "const" not in use.type.split()]
    use = writable[0] if writable else uses[0]
    if tensor.reference.startswith("out") and not writable:
        raise UsageError(
            f"{use.what} is const, but bound to the output {tensor.reference}",
            where=header.at(tensor.line),
            hint="bind the output to a parameter the kernel writes",
        )
    reference, line = tensor.reference, tensor.line
    return Buffer(
        tensor.name, use.type, reference, tensor.start, use.what, line, shape=tensor.shape
    )


def _value(tensor: Tensor, uses: Sequence[_Use]) -> Quantity:
    use = uses[0]
    return Quantity(tensor.name, _plain(use.type), tensor.reference, "value", use.what, tensor.line)


def _quantity(size: Property, uses: Sequence[_Use]) -> Quantity:
    exact = next((use for use in uses if use.exact), None)
    kind = _plain(exact.type) if exact else ("long long" if size.axis == "nbytes" else "int")
    what = exact.what if exact else f"{size.reference}.{size.axis}"
    return Quantity(size.parameter, kind, size.reference, size.axis, what, size.line)


def _plain(kind: str) -> str:
    return " ".join(word for word in kind.split() if word not in ("const", "volatile"))


# ---- text -------------------------------------------------------------------------------------


def _statement(
    statement: object, uses: Mapping[str, Sequence[_Use]], names: Mapping[int, str]
) -> str:
    if isinstance(statement, Scratch):
        kind = statement.type
        return (
            f"{kind}* {statement.name};\n"
            f"    cudaMalloc(&{statement.name}, ({statement.count}) * sizeof({kind}));"
        )
    if isinstance(statement, Number):
        kind = _number_type(statement, uses.get(statement.name, ()))
        return f"const {kind} {statement.name} = {statement.text};"
    if isinstance(statement, Zero):
        return f"cudaMemset({statement.name}, 0, {statement.nbytes});"
    if isinstance(statement, LaunchLine):
        geometry = ", ".join(statement.geometry)
        return f"{names[statement.line]}<<<{geometry}>>>({', '.join(statement.arguments)});"
    return ""


def _number_type(number: Number, uses: Sequence[_Use]) -> str:
    exact = [use.type for use in uses if use.exact and not use.type.endswith("*")]
    if exact:
        return _plain(exact[0])
    literals = [token.text for token in tokenize(number.text) if token.kind == NUMBER]
    is_float = any(re.search(r"\.|\de[-+]?\d", t) and not t.startswith("0x") for t in literals)
    return "float" if is_float else "int"


def _function(
    buffers: Iterable[Buffer], quantities: Iterable[Quantity], body: Sequence[str]
) -> str:
    declared = [f"{b.type} {b.parameter}" for b in buffers]
    declared += [f"{q.type} {q.parameter}" for q in quantities]
    parameters = ", ".join(declared)
    lines = "".join(f"    {line}\n" for line in body)
    return f"\nvoid launch({parameters}) {{\n{lines}}}\n"


def _probe(
    quantities: Sequence[Quantity], numbers: Sequence[str], wanted: Sequence[tuple[str, str]]
) -> str:
    """A ``launch`` that hands the values of expressions to a kernel that does nothing."""
    parameters = ", ".join(f"{kind} v{i}" for i, (kind, _) in enumerate(wanted))
    arguments = ", ".join(f"({text})" for _, text in wanted)
    body = [*numbers, f"{PROBE}<<<1, 1>>>({arguments});"]
    return f"\n__global__ void {PROBE}({parameters}) {{}}\n" + _function((), quantities, body)
