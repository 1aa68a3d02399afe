"""The header of a user's kernel: ``// kernelassay:`` lines that say how its file is called.

The grammar, one statement a line (a statement goes on while a bracket is open)::

    NAME = argN                     input N of forward (a tensor, or a plain number)
    NAME = param:STATE.DICT.NAME    a parameter or buffer of the module
    NAME = out | outN               the output, or output N
    NAME = out from argN            the output, which starts as a copy of that input
    NAME = out[EXTENT, EXTENT]      the output, and its shape: X.shape, X.shape[I] or a number each
    NAME = scratch TYPE[COUNT]      a temporary buffer
    NAME = EXPRESSION               a number, in C
    KERNEL<TEMPLATE ARGUMENTS><<<GRID, BLOCK, SHARED>>>(ARGUMENTS)
    zero NAME                       fill a buffer with zero bytes
    require EXPRESSION              the shapes the kernel is meant for
    skip GLOB, GLOB                 inputs the kernel is not meant for, by id or values

An expression is C over literals, macros, constants of the file, earlier names, and the properties
``X.shape[I]`` and ``X.numel`` of ``argN``, ``param:...``, ``outN`` or a name bound to one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelassay.compile.lexing import Token, join, split_commas, tokenize
from kernelassay.errors import UsageError

GRAMMAR_HINT = "the header's grammar is in docs/guide/your-own-kernel.md"

_MARK = re.compile(r"^\s*//\s*kernelassay:(.*)$")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_REFERENCE = r"(?:arg\d+|out\d*|param:[A-Za-z_]\w*(?:\.\w+)*?)"
_TENSOR = re.compile(rf"({_REFERENCE})(?:\s+from\s+(arg\d+))?")
_SHAPED = re.compile(r"(out\d*)\s*\[(.*)\]", re.DOTALL)
_EXTENT = re.compile(r"(?P<of>[A-Za-z_]\w*)\s*\.\s*shape(?:\s*\[\s*(?P<axis>-?\d+)\s*\])?")
_SCRATCH = re.compile(r"scratch\s+([A-Za-z_][\w\s]*?)\s*\[(.*)\]", re.DOTALL)
_PROPERTY = re.compile(
    rf"(?<![\w.:])(?P<of>{_REFERENCE}|[A-Za-z_]\w*)\s*\.\s*(?:shape\s*\[\s*(?P<axis>-?\d+)\s*\]|(?P<numel>numel)\b)"
)
_BARE = re.compile(r"(?<![\w.:])(arg\d+|param:[\w.]+|out\d*)(?![\w.])")


@dataclass(frozen=True, slots=True)
class Extent:
    """Part of an output's stated shape: one extent of an input, or all of them without ``axis``."""

    reference: str
    axis: int | None


@dataclass(frozen=True, slots=True)
class Tensor:
    """``NAME = argN``, ``param:...``, ``outN``; ``start`` is the input an output begins as.

    ``shape`` is that of an output, where it is stated.
    """

    name: str
    reference: str
    start: str
    line: int
    shape: tuple[Extent | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scratch:
    """``NAME = scratch TYPE[COUNT]``; ``count`` is C text."""

    name: str
    type: str
    count: str
    line: int


@dataclass(frozen=True, slots=True)
class Number:
    """``NAME = EXPRESSION``; ``text`` is C text."""

    name: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """A launch statement; ``template`` holds the C texts of its template arguments.

    ``template`` is None where none are written, ``geometry`` and ``arguments`` are C texts.
    """

    kernel: str
    template: tuple[str, ...] | None
    geometry: tuple[str, ...]
    arguments: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Zero:
    """``zero NAME``; ``nbytes`` is C text."""

    name: str
    nbytes: str
    line: int


@dataclass(frozen=True, slots=True)
class Require:
    """``require EXPRESSION``: ``text`` as C, ``shown`` as written."""

    text: str
    shown: str
    line: int


@dataclass(frozen=True, slots=True)
class Property:
    """A size in an expression: extent ``axis`` of a tensor, or its ``numel`` or ``nbytes``.

    ``parameter`` is the C name that stands for it.
    """

    parameter: str
    reference: str
    axis: int | str
    line: int


Statement = Tensor | Scratch | Number | LaunchLine | Zero | Require


@dataclass(frozen=True, slots=True)
class Header:
    """The statements of one file in order, the sizes they use, and the inputs to leave out."""

    path: str
    statements: tuple[Statement, ...]
    properties: tuple[Property, ...]
    skip: tuple[str, ...]

    def at(self, line: int) -> str:
        """``path:line``."""
        return f"{self.path}:{line}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensor bindings."""
        return tuple(s for s in self.statements if isinstance(s, Tensor))

    @property
    def launches(self) -> tuple[LaunchLine, ...]:
        """The launch statements."""
        return tuple(s for s in self.statements if isinstance(s, LaunchLine))


def read_header(text: str, path: str) -> Header:
    """The header of a kernel file.

    Raises ``UsageError`` with file and line for a statement that does not follow the grammar, a
    name bound twice, or a file without any statement.
    """
    reader = _Reader(path)
    for line, statement in _statements(text, path):
        reader.read(line, statement)
    if not reader.statements:
        raise UsageError(
            "the kernel has no header: no line `// kernelassay: ...` says how it is called",
            where=path,
            hint=f"bind its parameters and write its launch; {GRAMMAR_HINT}",
        )
    return Header(path, tuple(reader.statements), tuple(reader.properties), tuple(reader.skip))


def _statements(text: str, path: str) -> Iterator[tuple[int, str]]:
    """(line, statement), continuation lines joined."""
    pending, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        match = _MARK.match(line)
        if match is None:
            continue
        start = start if pending else number
        pending = f"{pending} {match[1].strip()}".strip()
        if _open_brackets(pending) > 0:
            continue
        if pending:
            yield start, pending
        pending = ""
    if pending:
        raise UsageError(
            f"a bracket is not closed in {pending!r}", where=f"{path}:{start}", hint=GRAMMAR_HINT
        )


def _open_brackets(text: str) -> int:
    words = [token.text for token in tokenize(text)]
    return sum(word in "([{" for word in words) - sum(word in ")]}" for word in words)


class _Reader:
    """Collects statements, and gives each size that occurs a C name."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.statements: list[Statement] = []
        self.properties: list[Property] = []
        self.skip: list[str] = []
        self.names: dict[str, Statement] = {}

    def fail(self, line: int, what: str, hint: str = GRAMMAR_HINT) -> UsageError:
        return UsageError(what, where=f"{self.path}:{line}", hint=hint)

    def read(self, line: int, text: str) -> None:
        text = text.rstrip(";").strip()
        word, _, rest = text.partition(" ")
        if word == "zero" and _IDENTIFIER.fullmatch(rest.strip()):
            self._add(self._zero(rest.strip(), line))
        elif word == "require" and rest.strip():
            self._add(Require(self._expression(rest.strip(), line), rest.strip(), line))
        elif word == "skip" and rest.strip():
            self.skip += [part.strip() for part in rest.split(",") if part.strip()]
        elif "<<<" in text:
            self._add(self._launch(text, line))
        elif re.match(r"[A-Za-z_]\w*\s*=(?!=)", text):
            name, _, source = text.partition("=")
            self._bind(name.strip(), source.strip(), line)
        else:
            raise self.fail(line, f"{text!r} is no statement of the header")

    def _add(self, statement: Statement) -> None:
        self.statements.append(statement)

    def _bind(self, name: str, source: str, line: int) -> None:
        if name in self.names:
            raise self.fail(
                line,
                f"{name!r} is bound twice, first in line {self.names[name].line}",
                "give each binding a name of its own",
            )
        # `out = out` gives a tensor the name that it has anyway, which kernels often use.
        own_name = re.fullmatch(_REFERENCE, name) and _canonical(name) == _canonical(
            re.split(r"[ \[]", source)[0]
        )
        if not own_name and re.fullmatch(r"arg\d+|out\d*|launch|zero|require|skip|scratch", name):
            raise self.fail(line, f"{name!r} is a word of the header", "choose another name")
        statement: Tensor | Scratch | Number
        if tensor := _TENSOR.fullmatch(source):
            reference, start = _canonical(tensor[1]), tensor[2] or ""
            if start and not reference.startswith("out"):
                raise self.fail(line, f"only an output can start as a copy: {source!r}")
            statement = Tensor(name, reference, start, line)
        elif shaped := _SHAPED.fullmatch(source):
            shape = tuple(self._extent(part, line) for part in shaped[2].split(","))
            statement = Tensor(name, _canonical(shaped[1]), "", line, shape)
        elif scratch := _SCRATCH.fullmatch(source):
            statement = Scratch(name, scratch[1], self._expression(scratch[2], line), line)
        elif not source:
            raise self.fail(line, f"{name!r} is bound to nothing")
        else:
            before = len(self.properties)
            statement = Number(name, self._expression(source, line), line)
            if len(self.properties) > before and self.properties[-1].parameter == statement.text:
                # A size alone is a parameter of `launch` under the user's own name.
                self.properties[-1] = replace(self.properties[-1], parameter=name)
                self.names[name] = statement
                return
        self.names[name] = statement
        self._add(statement)

    def _extent(self, text: str, line: int) -> Extent | int:
        text = text.strip()
        if text.isdecimal():
            return int(text)
        match = _EXTENT.fullmatch(text)
        if match is None:
            raise self.fail(line, f"{text!r} is no extent: write X.shape, X.shape[0] or a number")
        bound = self.names.get(match["of"])
        reference = bound.reference if isinstance(bound, Tensor) else match["of"]
        if not re.fullmatch(r"arg\d+", reference):
            raise self.fail(line, f"{match['of']!r} is no input bound before this line")
        return Extent(reference, None if match["axis"] is None else int(match["axis"]))

    def _zero(self, name: str, line: int) -> Zero:
        bound = self.names.get(name)
        if isinstance(bound, Scratch):
            return Zero(name, f"({bound.count}) * sizeof({bound.type})", line)
        if isinstance(bound, Tensor) and bound.reference.startswith("out"):
            return Zero(name, self._size(bound.reference, "nbytes", line), line)
        raise self.fail(
            line, f"{name!r} is no output and no scratch bound before", "bind it in a line above"
        )

    def _launch(self, text: str, line: int) -> LaunchLine:
        tokens = tokenize(self._expression(text, line))
        at = next(i for i, token in enumerate(tokens) if token.text == "<<<")
        close = next((i for i, token in enumerate(tokens) if token.text == ">>>"), None)
        if close is None:
            raise self.fail(line, "the launch has no `>>>`")
        kernel, template = self._kernel(tokens[:at], line)
        tail = tokens[close + 1 :]
        if len(tail) < 2 or tail[0].text != "(" or tail[-1].text != ")":
            raise self.fail(line, "a launch is written `kernel<<<grid, block>>>(arguments)`")
        geometry = tuple(join(part) for part in split_commas(tokens[at + 1 : close]))
        if not 2 <= len(geometry) <= 3:
            raise self.fail(
                line, f"a launch takes a grid, a block and perhaps shared bytes, not {geometry}"
            )
        arguments = tuple(join(part) for part in split_commas(tail[1:-1]))
        return LaunchLine(kernel, template, geometry, arguments, line)

    def _kernel(self, tokens: list[Token], line: int) -> tuple[str, tuple[str, ...] | None]:
        words = [token.text for token in tokens]
        while len(words) > 2 and words[1] == "::":  # namespaces are flattened
            tokens, words = tokens[2:], words[2:]
        if not words or not _IDENTIFIER.fullmatch(words[0]):
            raise self.fail(line, "a launch starts with the kernel's name")
        if len(words) == 1:
            return words[0], None
        if words[1] != "<" or words[-1] not in (">", ">>"):
            raise self.fail(line, f"{join(tokens)!r} is no kernel's name")
        return words[0], tuple(join(part) for part in template_arguments(tokens[2:-1]))

    def _expression(self, text: str, line: int) -> str:
        """``text`` with every size replaced by the C name of its property."""

        def named(match: re.Match[str]) -> str:
            return self._property(match, line)

        replaced = _PROPERTY.sub(named, text)
        bare = next((m for m in _BARE.finditer(replaced) if m[1] not in self.names), None)
        if bare is not None:
            raise self.fail(
                line,
                f"{bare[1]} stands inside an expression",
                "bind it to a name first; sizes are written X.shape[0] and X.numel",
            )
        return replaced

    def _property(self, match: re.Match[str], line: int) -> str:
        reference = match["of"]
        bound = self.names.get(reference)
        if isinstance(bound, Tensor):
            reference = bound.reference
        elif not re.fullmatch(_REFERENCE, reference):
            raise self.fail(line, f"{reference!r} is no tensor bound before this line")
        axis = int(match["axis"]) if match["axis"] is not None else "numel"
        return self._size(_canonical(reference), axis, line)

    def _size(self, reference: str, axis: int | str, line: int) -> str:
        for known in self.properties:
            if (known.reference, known.axis) == (reference, axis):
                return known.parameter
        stem = re.sub(r"\W", "_", reference)
        suffix = axis if isinstance(axis, str) else f"shape_{axis}".replace("-", "m")
        found = Property(f"{stem}_{suffix}", reference, axis, line)
        self.properties.append(found)
        return found.parameter


def _canonical(reference: str) -> str:
    return "out0" if reference == "out" else reference


def stated_shape(
    extents: Iterable[Extent | int], shapes: Mapping[str, Sequence[int]], where: str
) -> tuple[int, ...]:
    """The shape that a header states, where inputs (``arg0``, ...) have ``shapes``.

    Raises ``UsageError`` for an input or an extent that there is not.
    """
    found: list[int] = []
    for extent in extents:
        if isinstance(extent, int):
            found.append(extent)
            continue
        known, axis = shapes.get(extent.reference), extent.axis
        if known is None or (axis is not None and not -len(known) <= axis < len(known)):
            at = "" if axis is None else f"[{axis}]"
            raise UsageError(
                f"the output's shape is stated by {extent.reference}.shape{at}, which there is not",
                where=where,
                hint=f"there is {', '.join(f'{name} {list(s)}' for name, s in shapes.items())}",
            )
        found += known if axis is None else [known[axis]]
    return tuple(found)


def template_arguments(tokens: list[Token]) -> list[list[Token]]:
    """Split at commas outside brackets and angle brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += {"(": 1, "<": 1, ")": -1, ">": -1, ">>": -2}.get(token.text, 0)
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []
