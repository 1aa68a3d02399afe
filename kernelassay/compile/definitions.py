"""The kernels of one source, told apart, so that sources that agree in some compile those once.

A mutant of a source with several kernels mostly changes one of them. The code of a kernel follows
from its own definition and from all that stands outside of kernels: which helpers it calls is not
asked, so a change there makes every kernel another one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from kernelassay.compile.lexing import DIRECTIVE, Token, matching
from kernelassay.compile.source import LINE_BOUND

_GLOBAL = "__global__"
_PRAGMA = re.compile(r"#\s*pragma\b")


@dataclass(frozen=True, slots=True)
class Definition:
    """A kernel: its name, its place in the text in characters, and a key of what its code needs."""

    name: str
    start: int
    end: int
    key: str


def definitions(tokens: Sequence[Token], kernels: Collection[str]) -> tuple[Definition, ...]:
    """The definitions of ``kernels`` in device code; () where they cannot be told apart.

    That is where one stands inside other brackets or around a directive, is named a second time
    (declared before, or launched by another), or where code reads its own line number.
    """
    texts = [token.text for token in tokens]
    directives = " ".join(token.text for token in tokens if token.kind == DIRECTIVE)
    if LINE_BOUND.intersection(texts) or any(
        texts.count(name) != 1 or re.search(rf"\b{re.escape(name)}\b", directives)
        for name in kernels
    ):
        return ()
    spans: dict[str, tuple[int, int]] = {}
    for first, last in _items(tokens):
        if _GLOBAL in texts[first : last + 1]:
            name = _defined(tokens, first, last, kernels)
            if name is None:
                return ()
            spans[name] = first, last
    if spans.keys() != set(kernels):
        return ()
    around: list[str] = []
    end = 0
    for name, (first, last) in spans.items():
        around += [*texts[end:first], f"<{name}>"]
        end = last + 1
    around += texts[end:]
    return tuple(
        Definition(
            name, tokens[first].start, tokens[last].end, _key(around, texts[first : last + 1])
        )
        for name, (first, last) in spans.items()
    )


def _items(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """First and last token of each piece of file scope that ends at a semicolon or a brace."""
    depth, first = 0, 0
    for index, token in enumerate(tokens):
        if token.kind == DIRECTIVE:
            if depth == 0:
                first = index + 1
        elif token.text in ("(", "[", "{"):
            depth += 1
        elif token.text in (")", "]", "}"):
            depth -= 1
        if depth == 0 and token.text in (";", "}"):
            yield first, index
            first = index + 1


def _defined(
    tokens: Sequence[Token], first: int, last: int, kernels: Collection[str]
) -> str | None:
    """The kernel that an item defines, and nothing else; None if it is another thing."""
    for index in range(first, last):
        token = tokens[index]
        if token.text == "{":
            return None
        if token.text in kernels and tokens[index + 1].text == "(":
            close = matching(tokens, index + 1)
            if (
                close is None
                or tokens[close + 1].text != "{"
                or matching(tokens, close + 1) != last
            ):
                return None
            inside = tokens[first : last + 1]
            if any(t.kind == DIRECTIVE and not _PRAGMA.match(t.text) for t in inside):
                return None
            return token.text
    return None


def _key(around: Sequence[str], own: Sequence[str]) -> str:
    whole = "\0".join((*around, "", *own))
    return hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()
