"""C++ expressions of a ``launch`` function, compiled to Python closures.

A closure takes the frame, a list with one slot per variable. The parser is a small precedence
climber that knows the names in scope, so ``dim3 grid(a * b);`` and ``(a) - b`` have one meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelassay.compile import ctype
from kernelassay.compile.ctype import (
    BOOL,
    DIM3,
    INT32,
    NULL,
    UINT32,
    UINT64,
    CType,
    common,
    promoted,
)
from kernelassay.compile.lexing import NAME, NUMBER, STRING, Token
from kernelassay.compile.operators import MATH, Builder
from kernelassay.compile.source import line_of
from kernelassay.compile.values import (
    NULL_POINTER,
    UNSET,
    Expr,
    Frame,
    LaunchError,
    Scope,
    constant,
)

_QUALIFIERS = frozenset({"const", "constexpr", "static", "__restrict__", "__restrict", "volatile"})
_PRECEDENCE = {
    "*": 10, "/": 10, "%": 10, "+": 9, "-": 9, "<<": 8, ">>": 8,
    "<": 7, ">": 7, "<=": 7, ">=": 7, "==": 6, "!=": 6, "&": 5, "^": 4, "|": 3, "&&": 2, "||": 1,
}  # fmt: skip
ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^="})
_TEMPLATES = frozenset({"static_cast", "reinterpret_cast", "min", "max"})
_FUNCTIONS = frozenset({"min", "max", "fminf", "fmaxf", "abs"})


class Parser(Builder):
    """Recursive descent over a token list; ``at`` is the next token."""

    def __init__(self, text: str, tokens: Sequence[Token], scope: Scope) -> None:
        self.text = text
        self.tokens = tokens
        self.scope = scope
        self.at = 0

    # -- tokens ---------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> str:
        """Text of a token to come, "" past the end."""
        index = self.at + ahead
        return self.tokens[index].text if index < len(self.tokens) else ""

    def take(self) -> Token:
        """The next token, consumed."""
        if self.at >= len(self.tokens):
            self.syntax("the text of launch ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, word: str) -> bool:
        """Consume ``word`` if it is next."""
        if self.peek() == word:
            self.at += 1
            return True
        return False

    def expect(self, word: str) -> None:
        """Consume ``word``, which must be next."""
        if not self.accept(word):
            self.syntax(f"expected {word!r} but found {self.peek()!r}")

    @property
    def where(self) -> str:
        """The line of the next token."""
        if not self.tokens:
            return "launch"
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        return f"line {line_of(self.text, token.start)}"

    # -- types ----------------------------------------------------------------------------------

    def type(self) -> tuple[CType, bool] | None:
        """(type, const) if a type starts here, consumed with its ``*``; else None."""
        start = self.at
        const = False
        words: list[str] = []
        named: CType | None = None
        while True:
            word = self.peek()
            if word in _QUALIFIERS:
                const = const or word in ("const", "constexpr")
            elif word == "std" and self.peek(1) == "::" and self.peek(2) in ctype.NAMED:
                self.at += 1
            elif word == "::" and self.at > start:
                pass
            elif word in ctype.WORDS and named is None:
                words.append(word)
            elif word in ctype.NAMED and named is None and not words:
                named = ctype.NAMED[word]
            else:
                break
            self.at += 1
        kind = named or (ctype.from_words(tuple(words)) if words else None)
        if kind is None:
            self.at = start
            return None
        return self.stars(kind, const)

    def stars(self, kind: CType, const: bool) -> tuple[CType, bool]:
        """Consume ``*`` and the qualifiers after each; (type, const of the outermost)."""
        while self.accept("*"):
            kind, const = ctype.pointer(kind, const), False
            while self.peek() in _QUALIFIERS:
                const = const or self.peek() == "const"
                self.at += 1
        return kind, const

    # -- expressions ----------------------------------------------------------------------------

    def expression(self) -> Expr:
        """An expression without a top-level comma operator."""
        start = self.at
        left = self.binary(1)
        word = self.peek()
        if word == "?":
            return self._conditional(left)
        if word in ASSIGNMENTS:
            return self._assignment(start, left)
        return left

    def arguments(self, close: str) -> list[Expr]:
        """Expressions up to ``close``, which is consumed."""
        found: list[Expr] = []
        if self.accept(close):
            return found
        while True:
            found.append(self.expression())
            if self.accept(close):
                return found
            self.expect(",")

    def _conditional(self, condition: Expr) -> Expr:
        test = self.convert(condition, BOOL).run
        self.expect("?")
        first = self.expression()
        self.expect(":")
        second = self.expression()
        if first.type.arithmetic and second.type.arithmetic:
            kind = first.type if first.type == second.type else common(first.type, second.type)
        else:
            kind = second.type if first.type is NULL else first.type
        yes, no = self.convert(first, kind).run, self.convert(second, kind).run
        return Expr(kind, lambda frame: yes(frame) if test(frame) else no(frame))

    def _assignment(self, start: int, left: Expr) -> Expr:
        store, kind = self._place(start)
        word = self.take().text
        right = self.expression()
        if word != "=":
            right = self.operate(word[:-1], left, right)
        value = self.convert(right, kind).run
        return Expr(kind, lambda frame: store(frame, value(frame)))

    def _place(self, start: int) -> tuple[Callable[[Frame, Any], Any], CType]:
        """How to store into the variable or dim3 member spelled by the tokens from ``start``."""
        words = [token.text for token in self.tokens[start : self.at]]
        while len(words) > 2 and words[0] == "(" and words[-1] == ")":
            words = words[1:-1]
        words = [word for word in words if word not in ("++", "--")]
        variable = self.scope.find(words[0])
        if variable is None or len(words) not in (1, 3):
            self.syntax(f"cannot assign to {' '.join(words)!r}")
        if variable.const:
            self.syntax(f"cannot assign to {variable.name!r}, which is const")
        slot = variable.slot
        if len(words) == 3:
            axis = self._axis(variable.type, words[2])

            def store_member(frame: Frame, value: int) -> int:
                old = frame[slot]
                frame[slot] = (*old[:axis], value, *old[axis + 1 :])
                return value

            return store_member, UINT32

        def store(frame: Frame, value: Any) -> Any:
            frame[slot] = value
            return value

        return store, variable.type

    def _axis(self, kind: CType, member: str) -> int:
        if kind is not DIM3 or member not in ("x", "y", "z"):
            self.syntax(f"{kind.name!r} has no member {member!r}")
        return "xyz".index(member)

    def binary(self, lowest: int) -> Expr:
        """Precedence climbing."""
        left = self.unary()
        while _PRECEDENCE.get(self.peek(), 0) >= lowest:
            word = self.take().text
            right = self.binary(_PRECEDENCE[word] + 1)
            left = self.operate(word, left, right)
        return left

    def unary(self) -> Expr:
        """A prefix operator, a cast, ``sizeof``, or a postfix expression."""
        word = self.peek()
        if word in ("-", "+", "~", "!"):
            self.at += 1
            return self.prefix(word, self.unary())
        if word in ("++", "--"):
            self.at += 1
            start = self.at
            operand = self.unary()
            store, kind = self._place(start)
            value = self.convert(self.operate(word[0], operand, constant(INT32, 1)), kind).run
            return Expr(kind, lambda frame: store(frame, value(frame)))
        if word == "&":
            return self._address()
        if word == "*":
            self.unsupported("reading device memory on the host (*pointer)")
        if word == "sizeof":
            self.at += 1
            return constant(UINT64, self._sizeof())
        if word == "(":
            start = self.at
            self.at += 1
            found = self.type()
            if found is not None and self.accept(")"):
                return self.cast(self.unary(), found[0])
            self.at = start
        return self._postfix()

    def _address(self) -> Expr:
        """``&p[i]``: the address of an element."""
        self.expect("&")
        base = self._primary()
        if base.type.kind != "pointer" or not self.accept("["):
            self.unsupported("taking an address, other than &pointer[index] or in cudaMalloc(&p)")
        index = self.expression()
        self.expect("]")
        return self.operate("+", base, index)

    def _sizeof(self) -> int:
        if self.accept("("):
            found = self.type()
            if found is not None:
                size = found[0].size
            else:
                size = self._sizeof() if self.peek() == "*" else self.expression().type.size
            self.expect(")")
            return size
        if self.accept("*"):
            kind = self._primary().type
            if kind.element is None:
                self.syntax(f"{kind.name!r} is no pointer")
            return kind.element.size
        return self.unary().type.size

    def _postfix(self) -> Expr:
        start = self.at
        expr = self._primary()
        while True:
            word = self.peek()
            if word == ".":
                self.at += 1
                axis = self._axis(expr.type, self.take().text)
                run = expr.run
                expr = Expr(UINT32, lambda frame, run=run, axis=axis: run(frame)[axis])  # type: ignore[misc]
            elif word in ("++", "--"):
                self.at += 1
                expr = self._postfix_step(word[0], start, expr)
            elif word == "[":
                self.unsupported("reading an element on the host (pointer[index])")
            else:
                return expr

    def _postfix_step(self, word: str, start: int, expr: Expr) -> Expr:
        store, kind = self._place(start)
        old = expr.run
        new = self.convert(self.operate(word, expr, constant(INT32, 1)), kind).run

        def step(frame: Frame) -> Any:
            value = old(frame)
            store(frame, new(frame))
            return value

        return Expr(kind, step)

    def _primary(self) -> Expr:
        token = self.take()
        word = token.text
        if token.kind == NUMBER:
            return self.number(word)
        if token.kind == STRING:
            self.unsupported(f"the literal {word}")
        if word == "(":
            expr = self.expression()
            if self.peek() == ",":
                self.unsupported("the comma operator")
            self.expect(")")
            return expr
        if token.kind != NAME:
            self.at -= 1
            self.syntax(f"unexpected {word!r}")
        if word in ("true", "false"):
            return constant(BOOL, word == "true")
        if word in ("nullptr", "NULL"):
            return constant(NULL, NULL_POINTER)
        if word == "std" and self.accept("::"):
            word = self.take().text
        self.at -= 1
        found = self.type()
        if found is not None:
            return self._constructed(found[0])
        self.at += 1
        if self.peek() in ("(", "<") and (self.peek() == "(" or word in _TEMPLATES):
            return self._call(word)
        return self._variable(word)

    def _variable(self, word: str) -> Expr:
        variable = self.scope.find(word)
        if variable is None:
            known = self.scope.constant(word)
            if known is not None:
                return known
            self.at -= 1
            self.syntax(f"{word!r} is not declared")
        slot = variable.slot

        def read(frame: Frame) -> Any:
            value = frame[slot]
            if value is UNSET:
                raise LaunchError(f"launch reads {word!r} before it has a value")
            return value

        return Expr(variable.type, read)

    def _constructed(self, kind: CType) -> Expr:
        """``int(x)``, ``dim3(a, b)``, ``dim3{a}``."""
        close = {"(": ")", "{": "}"}.get(self.peek())
        if close is None:
            self.syntax(f"unexpected type {kind.name!r}")
        self.at += 1
        values = self.arguments(close)
        if kind is DIM3:
            return self.dim3(values)
        if len(values) != 1:
            self.unsupported(f"{kind.name}(...) with {len(values)} arguments")
        return self.cast(values[0], kind)

    def _call(self, name: str) -> Expr:
        target: CType | None = None
        if self.accept("<"):
            found = self.type()
            if found is None:
                self.unsupported(f"{name}<{self.peek()}>")
            target = found[0]
            self.expect(">")
        if name not in _TEMPLATES and name.rstrip("f") not in MATH and name not in _FUNCTIONS:
            self.at -= 1
            self.unsupported(f"the call of {name!r}")
        self.expect("(")
        values = self.arguments(")")
        if name in ("static_cast", "reinterpret_cast"):
            if target is None or len(values) != 1:
                self.syntax(f"{name} takes one type and one value")
            return self.cast(values[0], target)
        if name in _FUNCTIONS and len(values) == 2:
            return self.extreme(name, values, target)
        if name.rstrip("f") in MATH and len(values) == 1:
            return self.math_call(name, values[0])
        if name == "abs" and len(values) == 1 and values[0].type.arithmetic:
            kind = promoted(values[0].type)
            run = self.convert(values[0], kind).run
            return self.made(kind, lambda frame: abs(run(frame)), values[0])
        self.syntax(f"{name} does not take {len(values)} arguments")
