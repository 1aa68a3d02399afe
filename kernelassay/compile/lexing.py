"""A lexer for CUDA C++ that never fails, so that mutants which do not parse can still be split.

Only what the host side needs is told apart: comments, literals, names, preprocessor lines and
punctuation. Brackets are matched over tokens, never over characters, so a brace inside a comment
or a string does not count.

A mutant is a text lexed before but for a few characters, so only those are lexed again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from operator import attrgetter
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


# Without the keyword handling of the named tuple, which costs as much as the match.
_token = partial(tuple.__new__, Token)
_start, _end = attrgetter("start"), attrgetter("end")

LOOKAHEAD = 4
"""A token depends on fewer characters than this past its end."""
_KEPT_TEXTS = 6
_NEAR = 0.95  # of a text shared with a kept one: no nearer is looked for
_WORTH_KEEPING = 400  # characters; a shorter text is lexed at once
_recent: tuple[tuple[str, tuple[Token, ...]], ...] = ()


def tokenize(text: str) -> list[Token]:
    """All tokens of ``text`` in order, without whitespace and comments; never raises."""
    return list(_tokens(text))


def lexed(text: str, at: int = 0) -> Iterator[Token]:
    """The tokens from a token's start or end on, each made when it is asked for."""
    for match in _TOKEN.finditer(text, at):
        kind = match.lastgroup
        if kind != "skip":
            yield _token((kind, match.group(), *match.span()))


@lru_cache(maxsize=128)  # a source passes through several stages, each of which needs its tokens
def _tokens(text: str) -> tuple[Token, ...]:
    global _recent  # noqa: PLW0603
    if len(text) < _WORTH_KEEPING:
        return tuple(lexed(text))
    best, chosen = (0, 0), None
    for pair in _recent:
        shared = _shared(text, pair[0])
        if sum(shared) > sum(best):
            best, chosen = shared, pair
        if sum(best) > _NEAR * len(text):
            break
    if chosen is not None and 2 * sum(best) > len(text):
        return _relexed(text, *chosen, *best)
    tokens = tuple(lexed(text))
    _recent = ((text, tokens), *_recent[: _KEPT_TEXTS - 1])
    return tokens


def _relexed(
    text: str, near: str, known: tuple[Token, ...], before: int, after: int
) -> tuple[Token, ...]:
    """The tokens of ``text``, from those of ``near``.

    They share ``before`` characters at the front, ``after`` at the back. Tokens follow from the
    text after the one before alone. So those well inside the front stand, and from the first in
    the back that begins where one of ``near`` does, all do.
    """
    kept = bisect_right(known, before - LOOKAHEAD, key=_end)
    shift = len(text) - len(near)
    tail = bisect_left(known, len(near) - after, key=_start)
    fresh: list[Token] = []
    for token in lexed(text, known[kept - 1].end if kept else 0):
        place = token.start - shift
        while tail < len(known) and known[tail].start < place:
            tail += 1
        if place >= len(near) - after and tail < len(known) and known[tail].start == place:
            break
        fresh.append(token)
    else:
        tail = len(known)
    rest: Iterable[Token] = known[tail:]
    if shift:
        rest = [_token((kind, word, s + shift, e + shift)) for kind, word, s, e in rest]
    return (*known[:kept], *fresh, *rest)


def _shared(one: str, other: str) -> tuple[int, int]:
    """How many characters two texts share at the front, and behind that at the back."""
    limit = min(len(one), len(other))
    front, high = 0, limit
    while front < high:
        middle = (front + high + 1) // 2
        if one[front:middle] == other[front:middle]:
            front = middle
        else:
            high = middle - 1
    back, high = 0, limit - front
    while back < high:
        middle = (back + high + 1) // 2
        ends = (len(one) - middle, len(one) - back), (len(other) - middle, len(other) - back)
        if one[slice(*ends[0])] == other[slice(*ends[1])]:
            back = middle
        else:
            high = middle - 1
    return front, back


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


@lru_cache(maxsize=1 << 16)  # a source has few pairs of words, and many times each
def _fuse(before: str, right: str) -> bool:
    left = before[-1]
    if before[0].isdigit() or (before[0] == "." and before[1:2].isdigit()):
        # A number goes on over letters, dots and, after an exponent's letter, a sign: 0xe+1.
        return right.isalnum() or right in "_$.\"'" or (left in "eEpP" and right in "+-")
    if left.isalnum() or left in "_$":
        return right.isalnum() or right in "_$.\"'"
    return left in "+-*/<>=&|:.#^%!" and right in "+-*/<>=&|:.#0123456789"
