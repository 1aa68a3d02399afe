"""The two halves of a kernel source: device code, and the host function ``launch``.

The split works on tokens and starts from the host function itself, so device code that a mutation
has broken (a lost brace, say) does not hide it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kernelassay.compile.lexing import (
    DIRECTIVE,
    NAME,
    Token,
    join,
    matching,
    split_commas,
    tokenize,
)
from kernelassay.errors import KernelSyntaxError

LAUNCH = "launch"
_SPECIFIERS = frozenset({"static", "inline", "extern", '"C"', "__host__"})
_DEFINE = re.compile(r"#\s*define\s+([A-Za-z_]\w*)(\()?")
_RESTRICT = frozenset({"__restrict__", "__restrict", "restrict"})
# Macros whose expansion depends on the line they stand on.
LINE_BOUND = frozenset({"__LINE__", "assert"})


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """A ``__global__`` function: its name and its parameters as (type text, name).

    The type text is the declared one, spaces normalised, without ``__restrict__``; an array
    parameter is a pointer: ``const float*``, ``unsigned int``, ``long long``.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Macro:
    """An object-like ``#define`` (``parameters`` is None) or a function-like one."""

    name: str
    parameters: tuple[str, ...] | None
    body: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class SourceParts:
    """One source, tokenised once. Indices are into ``tokens``, ``end`` is exclusive.

    ``launch_start:launch_end`` is the host function with its specifiers,
    ``parameters`` the tokens between its parentheses and ``body`` those between its braces;
    ``closed`` tells whether the last brace is there.
    """

    text: str
    tokens: tuple[Token, ...]
    launch_start: int
    launch_end: int
    parameters: tuple[Token, ...]
    body: tuple[Token, ...]
    closed: bool

    @property
    def launch_tokens(self) -> tuple[Token, ...]:
        """The tokens of the host function."""
        return self.tokens[self.launch_start : self.launch_end]

    @property
    def device_tokens(self) -> tuple[Token, ...]:
        """All other tokens, preprocessor lines included."""
        return self.tokens[: self.launch_start] + self.tokens[self.launch_end :]


@lru_cache(maxsize=64)
def split(source: str) -> SourceParts:
    """Find ``launch`` in ``source``.

    A body whose closing brace is missing reaches to the end of the text. Raises
    ``KernelSyntaxError`` if there is no definition of ``launch``.
    """
    tokens = tokenize(source)
    for index, token in enumerate(tokens):
        if token.text != LAUNCH or index == 0 or tokens[index - 1].text != "void":
            continue
        if index + 1 >= len(tokens) or tokens[index + 1].text != "(":
            continue
        close = matching(tokens, index + 1)
        if close is None or close + 1 >= len(tokens) or tokens[close + 1].text != "{":
            continue
        end = matching(tokens, close + 1)
        body_end = len(tokens) if end is None else end
        start = index - 1
        while start > 0 and tokens[start - 1].text in _SPECIFIERS:
            start -= 1
        return SourceParts(
            text=source,
            tokens=tuple(tokens),
            launch_start=start,
            launch_end=min(body_end + 1, len(tokens)),
            parameters=tuple(tokens[index + 2 : close]),
            body=tuple(tokens[close + 2 : body_end]),
            closed=end is not None,
        )
    raise KernelSyntaxError(
        "the source has no host function 'launch'",
        hint="define exactly one `void launch(<pointers>, <scalars>) { ... }`",
    )


def line_of(source: str, offset: int) -> int:
    """1-based line of a character offset."""
    return source.count("\n", 0, offset) + 1


def device_text(source: str) -> str:
    """``source`` with the host function blanked: as many bytes (UTF-8), the same lines.

    Raises ``KernelSyntaxError`` if there is no ``launch``.
    """
    parts = split(source)
    start = parts.tokens[parts.launch_start].start
    end = parts.tokens[parts.launch_end - 1].end
    lines = source[start:end].split("\n")
    blank = "\n".join(" " * len(line.encode()) for line in lines)
    return source[:start] + blank + source[end:]


def device_key(source: str) -> str:
    """The device code up to layout: equal keys compile to the same image.

    Whitespace and comments go, preprocessor lines keep their own line. Code that reads its own
    line number keeps its layout.
    """
    tokens = split(source).device_tokens
    if any(token.text in LINE_BOUND for token in tokens):
        return device_text(source).rstrip()
    out: list[str] = []
    run: list[Token] = []
    for token in tokens:
        if token.kind == DIRECTIVE:
            out.extend((join(run), " ".join(token.text.split())))
            run = []
        else:
            run.append(token)
    out.append(join(run))
    return "\n".join(line for line in out if line)


def host_text(source: str) -> str:
    """What decides a launch, token-normalised: equal texts give equal launch plans.

    That is the function ``launch``, the macros and file-scope constants it uses (directly or
    through one another; a changed ``#define BLOCK`` may leave the device code alone), and the
    class of each kernel parameter, since arguments are converted to it.
    """
    parts = split(source)
    lines = [join(parts.launch_tokens)]
    definitions = _definitions(parts)
    kernels = kernel_signatures(source)
    pending = {token.text for token in parts.launch_tokens if token.kind == NAME}
    pending |= {word for k in kernels for kind, _ in k.parameters for word in kind.split()}
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        seen.add(name)
        for tokens in definitions.get(name, ()):
            lines.append(join(tokens))
            pending |= {token.text for token in tokens if token.kind == NAME} - seen
    for kernel in kernels:
        kinds = ",".join(parameter_class(kind) for kind, _ in kernel.parameters)
        lines.append(f"{kernel.name}({kinds})")
    return "\n".join([lines[0], *sorted(lines[1:])])


def host_grammar(source: str) -> tuple[object, ...]:
    """All that parsing ``launch`` depends on but the places of tokens; the parts are hashable."""
    parts = split(source)
    return (
        join(parts.launch_tokens),
        parts.closed,
        tuple(token.text for token in parts.tokens if token.kind == DIRECTIVE),
        tuple(join(tokens) for _, tokens in file_scope_constants(parts)),
        kernel_signatures(source),
    )


def parameter_class(kind: str) -> str:
    """The way an argument reaches a parameter of type ``kind``: equal classes, equal bits.

    Signedness does not show (the bits are the same); width, floating point and ``bool`` do.
    """
    words = set(kind.replace("*", " * ").split()) - {"const", "volatile"}
    if "*" in words:
        return "pointer"
    if words <= {"int", "unsigned", "signed", "int32_t", "uint32_t"}:
        return "i4"
    if words <= {"int", "unsigned", "signed", "long", "size_t", "int64_t", "uint64_t"}:
        return "i8"
    return " ".join(sorted(words))


@lru_cache(maxsize=512)
def kernel_signatures(source: str) -> tuple[KernelSignature, ...]:
    """The ``__global__`` functions of ``source`` that have a body, in source order."""
    tokens = tokenize(source)
    found = []
    for index, token in enumerate(tokens):
        if token.text == "__global__":
            signature = _signature(tokens, index + 1)
            if signature is not None:
                found.append(signature)
    return tuple(found)


def macros(source: str) -> tuple[str, ...]:
    """Names that ``source`` defines with ``#define``, in order, each once."""
    names = (
        match.group(1)
        for token in tokenize(source)
        if token.kind == DIRECTIVE and (match := _DEFINE.match(token.text))
    )
    return tuple(dict.fromkeys(names))


def macro_definitions(tokens: Sequence[Token]) -> dict[str, Macro]:
    """The macros among ``tokens``; a later definition of a name replaces an earlier one."""
    return {macro.name: macro for macro in _macros(tokens)}


def file_scope_constants(parts: SourceParts) -> tuple[tuple[str, tuple[Token, ...]], ...]:
    """File-scope ``const``/``constexpr`` declarations, as (name, tokens up to the semicolon)."""
    return _file_scope_constants(parts.text)


@lru_cache(maxsize=64)
def _file_scope_constants(source: str) -> tuple[tuple[str, tuple[Token, ...]], ...]:
    found: list[tuple[str, tuple[Token, ...]]] = []
    depth = 0
    statement: list[Token] = []
    for token in split(source).device_tokens:
        if token.kind == DIRECTIVE:
            continue
        word = token.text
        if word in "({[":
            depth += 1
        elif word in ")}]":
            depth -= 1
        statement.append(token)
        if depth == 0 and word in (";", "}"):
            if word == ";":
                found.extend(_constant(statement))
            statement = []
    return tuple(found)


def _constant(statement: Sequence[Token]) -> Iterator[tuple[str, tuple[Token, ...]]]:
    """The constant that a statement declares, if it does."""
    words = [part.text for part in statement]
    if {"const", "constexpr"} & set(words) and "=" in words:
        at = words.index("=") - 1
        if at >= 0 and statement[at].kind == NAME:
            yield words[at], tuple(statement)


def _definitions(parts: SourceParts) -> dict[str, list[tuple[Token, ...]]]:
    found: dict[str, list[tuple[Token, ...]]] = {}
    for macro in _macros(parts.device_tokens):
        head = Token(NAME, f"#{macro.name}({','.join(macro.parameters or ())})", 0, 0)
        found.setdefault(macro.name, []).append((head, *macro.body))
    for name, tokens in file_scope_constants(parts):
        found.setdefault(name, []).append(tokens)
    return found


def _macros(tokens: Sequence[Token]) -> Iterator[Macro]:
    for token in tokens:
        if token.kind != DIRECTIVE or not (match := _DEFINE.match(token.text)):
            continue
        rest = tokenize(token.text[match.end(1) :].replace("\\\n", "  "))
        parameters: tuple[str, ...] | None = None
        if match.group(2):
            close = matching(rest, 0)
            if close is None:
                continue
            parameters = tuple(part[0].text for part in split_commas(rest[1:close]) if part)
            rest = rest[close + 1 :]
        line = token.start
        body = tuple(Token(part.kind, part.text, line, line) for part in rest)
        yield Macro(match.group(1), parameters, body)


def _signature(tokens: Sequence[Token], index: int) -> KernelSignature | None:
    """The signature whose specifiers start at ``index``; None for what is no definition."""
    while index + 1 < len(tokens):
        token, following = tokens[index], tokens[index + 1]
        if token.kind == NAME and following.text == "(":
            close = matching(tokens, index + 1)
            if close is None:
                return None
            if token.text.startswith("__"):  # __launch_bounds__(256), __cluster_dims__(2)
                index = close + 1
                continue
            if close + 1 >= len(tokens) or tokens[close + 1].text != "{":
                return None
            declared = split_commas(tokens[index + 2 : close])
            parameters = tuple(
                parameter(part) for part in declared if [t.text for t in part] != ["void"]
            )
            return KernelSignature(token.text, parameters)
        if token.text in (";", "{", "}"):
            return None
        index += 1
    return None


def parameter(tokens: Sequence[Token]) -> tuple[str, str]:
    """(type text, name) of one parameter declaration; the name is "" when it has none."""
    words = [token for token in tokens if token.text not in _RESTRICT]
    for index, token in enumerate(words):
        if token.text == "=":  # default argument
            words = words[:index]
            break
    array = False
    while words and words[-1].text == "]":
        array = True
        while words and words.pop().text != "[":
            pass
    name = ""
    if len(words) > 1 and words[-1].kind == NAME:
        name = words.pop().text
    if words and words[-1].text == "const" and any(word.text == "*" for word in words):
        words.pop()  # a const pointer variable: the pointee's const is what matters
    kind = join(words)
    return (kind + "*" if array else kind), name
