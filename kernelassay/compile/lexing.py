"""A lexer for CUDA C++ that never fails, so that mutants which do not parse can still be split.

Only what the host side needs is told apart: comments, literals, names, preprocessor lines and
punctuation. Brackets are matched over tokens, never over characters, so a brace inside a comment
or a string does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

NAME = "name"
NUMBER = "number"
STRING = "string"
PUNCTUATION = "punctuation"
DIRECTIVE = "directive"

_TOKEN = re.compile(
    r"""(?P<skip>\s+ | //(?:\\\n|[^\n])* | /\*.*?(?:\*/|\Z) | \\\n)
      | (?P<directive>\#(?:\\\n|[^\n])*)
      | (?P<name>[A-Za-z_$][\w$]*)
      | (?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
      | (?P<string>"(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'?)
      | (?P<punctuation><<<|>>>|<<=|>>=|<=>|->\*|\.\.\.|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\|
                       |[-+*/%&|^]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN = {"(": ")", "[": "]", "{": "}"}
_CLOSE = frozenset(_OPEN.values())


class Token(NamedTuple):
    """One token; ``start`` and ``end`` are character offsets into the source."""

    kind: str
    text: str
    start: int
    end: int


def tokenize(text: str) -> list[Token]:
    """All tokens of ``text`` in order, without whitespace and comments; never raises."""
    return list(_tokens(text))


@lru_cache(maxsize=32)  # a source passes through several stages, each of which needs its tokens
def _tokens(text: str) -> tuple[Token, ...]:
    return tuple(
        Token(match.lastgroup, match.group(), match.start(), match.end())
        for match in _TOKEN.finditer(text)
        if match.lastgroup is not None and match.lastgroup != "skip"
    )


def matching(tokens: Sequence[Token], at: int) -> int | None:
    """Index of the token that closes the bracket at index ``at``; None if nothing does.

    Only brackets of the same kind are counted: a stray ``)`` inside a body does not hide its end.
    """
    opening = tokens[at].text
    closing = _OPEN[opening]
    depth = 0
    for index in range(at, len(tokens)):
        word = tokens[index].text
        if word == opening:
            depth += 1
        elif word == closing:
            depth -= 1
            if depth == 0:
                return index
    return None


def unbalanced(tokens: Iterable[Token]) -> Token | None:
    """The first bracket without a partner, or None when all of them pair up."""
    stack: list[Token] = []
    for token in tokens:
        if token.kind != PUNCTUATION:
            continue
        if token.text in _OPEN:
            stack.append(token)
        elif token.text in _CLOSE:
            if not stack or _OPEN[stack[-1].text] != token.text:
                return token
            stack.pop()
    return stack[-1] if stack else None


def split_commas(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at the commas outside all brackets; an empty sequence has no parts."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.text in _OPEN:
            depth += 1
        elif token.text in _CLOSE:
            depth -= 1
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


def join(tokens: Iterable[Token]) -> str:
    """Token texts with one space where two would otherwise fuse into one."""
    out: list[str] = []
    previous = ""
    for token in tokens:
        word = token.text
        if previous and _fuse(previous, word[0]):
            out.append(" ")
        out.append(word)
        previous = word
    return "".join(out)


def _fuse(before: str, right: str) -> bool:
    left = before[-1]
    if before[0].isdigit() or (before[0] == "." and before[1:2].isdigit()):
        # A number goes on over letters, dots and, after an exponent's letter, a sign: 0xe+1.
        return right.isalnum() or right in "_$.\"'" or (left in "eEpP" and right in "+-")
    if left.isalnum() or left in "_$":
        return right.isalnum() or right in "_$.\"'"
    return left in "+-*/<>=&|:.#^%!" and right in "+-*/<>=&|:.#0123456789"
