"""Instances of template kernels: a name for each, and what its template parameters stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelassay.compile.lexing import Token, join, tokenize
from kernelassay.errors import UnsupportedError, UsageError
from kernelassay.user.header import template_arguments

_LITERAL = re.compile(r"-? ?\d+|true|false")
_TYPE_WORDS = frozenset(
    {
        *("float", "double", "__half", "__half2", "__nv_bfloat16", "__nv_bfloat162", "bool"),
        *("int", "unsigned", "signed", "char", "short", "long", "float2", "float4", "int4"),
        *("int8_t", "uint8_t", "int32_t", "int64_t", "uint32_t", "uint64_t"),
    }
)


@dataclass(frozen=True, slots=True)
class Instance:
    """A kernel to keep: its name in the file, its template arguments, the name it gets."""

    kernel: str
    template: tuple[str, ...] | None
    name: str


def instance_name(kernel: str, arguments: tuple[str, ...] | None, taken: Iterable[Instance]) -> str:
    """A name for an instance: the kernel's own for its first, with the arguments for others."""
    names = {instance.name for instance in taken}
    if kernel not in names:
        return kernel
    base = "_".join([kernel, *(re.sub(r"\W+", "_", a).strip("_") for a in arguments or ())])
    name, count = base, 1
    while name in names:
        count += 1
        name = f"{base}_{count}"
    return name


def same_arguments(
    instance: Instance, arguments: Sequence[str], aliases: Mapping[str, str], where: str
) -> bool:
    """Whether an instance is what a specialisation for ``arguments`` defines.

    Raises ``UsageError`` where that takes more than plain types and literals to tell.
    """
    given = [_plain(text, aliases) for text in instance.template or ()]
    wanted = [_plain(text, aliases) for text in arguments]
    pairs = list(zip(given, wanted, strict=False))
    if len(given) == len(wanted) and given == wanted:
        return True
    if any(a != b and _is_plain(a) and _is_plain(b) for a, b in pairs):
        return False
    raise UsageError(
        f"{instance.kernel} is specialised for <{', '.join(arguments)}>; whether"
        f" <{', '.join(instance.template or ())}> means that cannot be told",
        where=where,
        hint="give every template argument in the launch, as a plain type or a literal",
    )


def _plain(text: str, aliases: Mapping[str, str]) -> str:
    words = [aliases.get(token.text, token.text) for token in tokenize(text)]
    return " ".join("__half" if word == "half" else word for word in words)


def _is_plain(text: str) -> bool:
    """Whether equal meaning is equal text: a number, true or false, or words of C's types."""
    return bool(_LITERAL.fullmatch(text)) or set(text.split()) <= _TYPE_WORDS


def template_values(
    tokens: Sequence[Token], instance: Instance, where: str
) -> tuple[dict[str, str], str]:
    """The value of each template parameter, and the declarations that put them into the body.

    ``tokens`` are the parameters between the angle brackets; ``where`` places them for errors.

    Raises:
        UsageError: the arguments of ``instance`` do not fit the parameters.
        UnsupportedError: a parameter is a pack or a template.
    """
    parameters = template_arguments(list(tokens))
    given = instance.template or ()
    if len(given) > len(parameters):
        raise UsageError(
            f"{instance.kernel} has {len(parameters)} template parameters, the launch gives"
            f" {len(given)}: <{', '.join(given)}>",
            where=where,
        )
    values: dict[str, str] = {}
    lines: list[str] = []
    for position, parameter in enumerate(parameters):
        words = [token.text for token in parameter]
        if "..." in words or "template" in words:
            raise UnsupportedError(
                f"template parameter {position + 1} of {instance.kernel} is a pack or a template:"
                f" {join(parameter)}",
                where=where,
                hint="write the kernel with plain type and value parameters",
            )
        default = words.index("=") if "=" in words else len(words)
        at = _name_position(words[:default])
        name = words[at]
        if position < len(given):
            value = given[position]
        elif default < len(words):
            value = join(parameter[default + 1 :])
        else:
            raise UsageError(
                f"template parameter {position + 1} {name!r} of {instance.kernel} has no value",
                where=where,
                hint=f"launch it as {instance.kernel}<...><<<grid, block>>>(...)",
            )
        value = " ".join(values.get(t.text, t.text) for t in tokenize(value))
        values[name] = value
        if words[0] in ("typename", "class"):
            lines.append(f"using {name} = {value};")
        elif at < default - 1:
            lines.append(f"constexpr {join(parameter[:default])} = {value};")
        else:
            kind = join([t for t in parameter[: default - 1] if t.text != "const"])
            lines.append(f"constexpr {values.get(kind, kind)} {name} = {value};")
    return values, " ".join(lines)


def _name_position(words: Sequence[str]) -> int:
    """Where a template parameter's name stands: last, or inside as in ``T (*NAME)(const T&)``."""
    for at in range(2, len(words) - 1):
        if words[at - 2] == "(" and words[at - 1] in ("*", "&") and words[at + 1] == ")":
            return at
    return len(words) - 1
