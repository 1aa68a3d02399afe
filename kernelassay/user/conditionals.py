"""Preprocessor conditionals of a user's file, decided: the branches not taken become blank lines.

Which type an alias names, or which of two definitions holds, must be known before anything is
compiled. A condition over the compiler's own macros, of which the value is not known here, stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelassay.compile.lexing import DIRECTIVE, NAME, NUMBER, Token, tokenize

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*(.*)", re.DOTALL)
_DEFINE = re.compile(r"([A-Za-z_]\w*)(\()?\s*(.*)", re.DOTALL)
# What both compilers of device code define.
_BUILT_IN = {"__CUDA_ARCH__": "900", "__CUDACC__": "1", "__cplusplus": "201703"}
_UNKNOWN = re.compile(r"__\w+|CUDA\w*VERSION")
_LEVELS = (
    ("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a or b)), "&&": lambda a, b: int(bool(a and b)),
    "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b), ">=": lambda a, b: int(a >= b),
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
}  # fmt: skip


class _UndecidedError(Exception):
    """A condition depends on what is not known here."""


@dataclass(slots=True)
class _Branch:
    """One open ``#if``: whether its lines are taken now, whether one was, whether it is decided."""

    outer: bool
    taken: bool
    decided: bool
    active: bool


def decided(text: str) -> str:
    """``text`` without the branches that are not taken; line numbers stay."""
    macros = dict(_BUILT_IN)
    stack: list[_Branch] = []
    out: list[str] = []
    at = 0
    for token in (t for t in tokenize(text) if t.kind == DIRECTIVE):
        match = _DIRECTIVE.match(token.text.replace("\\\n", " "))
        word, rest = (match[1], match[2].split("//")[0].strip()) if match else ("", "")
        active = not stack or stack[-1].active
        before = text[at : token.start]
        out.append(before if active else "\n" * before.count("\n"))
        keep = active
        if word in ("if", "ifdef", "ifndef"):
            stack.append(_opened(word, rest, macros, active))
            keep = active and not stack[-1].decided
        elif word in ("elif", "else", "endif") and stack:
            keep = stack[-1].outer and not stack[-1].decided
            _turned(word, rest, macros, stack)
        elif active and word == "define" and (found := _DEFINE.match(rest)):
            macros[found[1]] = "" if found[2] else found[3]
        elif active and word == "undef":
            macros.pop(rest, None)
        out.append(token.text if keep else "\n" * token.text.count("\n"))
        at = token.end
    rest = text[at:]
    out.append(rest if not stack or stack[-1].active else "\n" * rest.count("\n"))
    return "".join(out)


def _opened(word: str, rest: str, macros: Mapping[str, str], outer: bool) -> _Branch:
    try:
        if not outer:
            return _Branch(False, True, True, False)
        value = _holds(rest, macros) if word == "if" else _defined(rest, macros)
        value = value if word != "ifndef" else not value
        return _Branch(True, value, True, value)
    except _UndecidedError:
        return _Branch(outer, True, False, True)


def _turned(word: str, rest: str, macros: Mapping[str, str], stack: list[_Branch]) -> None:
    branch = stack[-1]
    if word == "endif":
        stack.pop()
    elif branch.decided and branch.outer:
        try:
            value = not branch.taken and (word == "else" or _holds(rest, macros))
        except _UndecidedError:  # `#elif` of a chain that began decided: all that follows stays
            value = True
        branch.active, branch.taken = value, branch.taken or value


def _defined(name: str, macros: Mapping[str, str]) -> bool:
    if name not in macros and _UNKNOWN.fullmatch(name):
        raise _UndecidedError
    return name in macros


def _holds(text: str, macros: Mapping[str, str]) -> bool:
    parser = _Condition([t for t in tokenize(text) if t.kind != DIRECTIVE], macros)
    value = parser.binary(0)
    if parser.at < len(parser.tokens):
        raise _UndecidedError
    return bool(value)


class _Condition:
    def __init__(self, tokens: list[Token], macros: Mapping[str, str], depth: int = 0) -> None:
        self.tokens = tokens
        self.macros = macros
        self.depth = depth
        self.at = 0

    def take(self) -> Token:
        if self.at >= len(self.tokens):
            raise _UndecidedError
        self.at += 1
        return self.tokens[self.at - 1]

    def binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self.unary()
        value = self.binary(level + 1)
        while self.at < len(self.tokens) and self.tokens[self.at].text in _LEVELS[level]:
            operation = _OPERATIONS.get(self.take().text)
            if operation is None:
                raise _UndecidedError
            value = operation(value, self.binary(level + 1))
        return value

    def unary(self) -> int:
        token = self.take()
        if token.text == "!":
            return int(not self.unary())
        if token.text == "-":
            return -self.unary()
        if token.text == "(":
            value = self.binary(0)
            self.take()
            return value
        if token.text == "defined":
            name = self.take()
            if name.text == "(":
                name = self.take()
                self.take()
            return int(_defined(name.text, self.macros))
        if token.kind == NUMBER:
            try:
                return int(token.text.rstrip("uUlL"), 0)
            except ValueError:
                raise _UndecidedError from None
        if token.kind != NAME or self.depth > 20:
            raise _UndecidedError
        if not _defined(token.text, self.macros):
            return 0
        inner = _Condition(tokenize(self.macros[token.text]), self.macros, self.depth + 1)
        return inner.binary(0)
