"""The statements of a ``launch`` function, compiled to steps over the state of one evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelassay.compile.calls import BREAK, CONTINUE, NEXT, RETURN, CallParser, Run, Step
from kernelassay.compile.ctype import BOOL, DIM3, INT32, VOID, CType
from kernelassay.compile.expression import Parser
from kernelassay.compile.lexing import Token, split_commas
from kernelassay.compile.preprocess import Expander
from kernelassay.compile.source import file_scope_constants, kernel_signatures, parameter, split
from kernelassay.compile.values import (
    UNSET,
    Expr,
    Frame,
    Scope,
    Variable,
    constant,
)
from kernelassay.errors import KernelSyntaxError, UnsupportedError


class Compiler:
    """Compiles the statements of one source."""

    def __init__(self, source: str) -> None:
        self.parts = split(source)
        self.expander = Expander(self.parts)
        signatures = {signature.name: signature for signature in kernel_signatures(source)}
        self.scope = Scope(self._file_constant)
        self.parser = CallParser(
            source, self.expander.expand(self.parts.body), self.scope, self.expander, signatures
        )
        self._constants = dict(file_scope_constants(self.parts))
        self._known: dict[str, Expr] = {}

    def parameters(self) -> list[tuple[Variable, str]]:
        """Declare the parameters of ``launch``; (variable, type text) in order."""
        found: list[tuple[Variable, str]] = []
        for tokens in split_commas(self.expander.expand(self.parts.parameters)):
            text, name = parameter(tokens)
            kind, const = self._parameter_type(tokens, text)
            variable = self.scope.declare(name, kind, const)
            if not name or variable is None:
                raise KernelSyntaxError(f"launch has an unnamed or repeated parameter {text!r}")
            found.append((variable, text))
        return found

    def body(self) -> Step:
        """Compile the statements of ``launch``; call :meth:`parameters` first."""
        if not self.parts.closed:
            raise KernelSyntaxError("a brace of launch is not closed")
        self.scope.push()
        return self._statements(until="")

    # -- declarations outside the body ----------------------------------------------------------

    def _parameter_type(self, tokens: Sequence[Token], text: str) -> tuple[CType, bool]:
        found = Parser(self.parts.text, tokens, self.scope).type()
        if found is None or not (found[0].arithmetic or found[0].kind == "pointer"):
            raise UnsupportedError(f"a parameter of type {text!r} of launch is not supported")
        return found

    def _file_constant(self, name: str) -> Expr | None:
        if name not in self._constants:
            return None
        if name not in self._known:
            tokens = self.expander.expand(self._constants[name])
            start = next(
                i for i, token in enumerate(tokens) if token.text in ("const", "constexpr")
            )
            parser = Parser(self.parts.text, tokens[start:], Scope(self._file_constant))
            found = parser.type()
            if found is None or parser.take().text != name:
                parser.unsupported(f"the file-scope constant {name!r}")
            parser.expect("=")
            value = parser.convert(parser.expression(), found[0])
            if not value.constant:
                parser.unsupported(f"the value of the file-scope constant {name!r}")
            self._known[name] = value
        return self._known[name]

    # -- statements -----------------------------------------------------------------------------

    def _statements(self, until: str) -> Step:
        steps: list[Step] = []
        parser = self.parser
        while parser.peek() != until or (parser.at < len(parser.tokens) and not until):
            if parser.at >= len(parser.tokens):
                parser.syntax("a brace of launch is not closed")
            steps.append(self._statement())
        if until:
            parser.expect(until)
        return _sequence(steps)

    def _statement(self) -> Step:
        parser = self.parser
        word = parser.peek()
        handler = {
            "{": self._block, "if": self._if, "for": self._for, "while": self._while,
            ";": self._simple, "return": self._simple, "break": self._simple,
            "continue": self._simple,
        }.get(word)  # fmt: skip
        if handler is not None:
            return handler()
        if word in ("do", "switch", "goto", "try", "struct", "using", "typedef", "enum"):
            parser.unsupported(f"the statement {word!r}")
        if word.startswith("#"):
            parser.unsupported("a preprocessor line")
        declaration = self._declaration()
        if declaration is not None:
            return declaration
        step = parser.call_statement()
        if step is None:
            step = _effect(parser.expression())
        parser.expect(";")
        return step

    def _block(self) -> Step:
        self.parser.expect("{")
        self.scope.push()
        body = self._statements(until="}")
        self.scope.pop()
        return body

    def _simple(self) -> Step:
        word = self.parser.take().text
        if word != ";":
            self.parser.expect(";")
        code = {"break": BREAK, "continue": CONTINUE, "return": RETURN}.get(word, NEXT)
        return lambda run: code

    def _condition(self) -> Callable[[Frame], Any]:
        self.parser.expect("(")
        test = self.parser.convert(self.parser.expression(), BOOL).run
        self.parser.expect(")")
        return test

    def _scoped(self) -> Step:
        self.scope.push()
        step = self._statement()
        self.scope.pop()
        return step

    def _if(self) -> Step:
        self.parser.expect("if")
        self.parser.accept("constexpr")
        test = self._condition()
        yes = self._scoped()
        no: Step = self._scoped() if self.parser.accept("else") else (lambda run: NEXT)
        return lambda run: yes(run) if test(run.frame) else no(run)

    def _while(self) -> Step:
        self.parser.expect("while")
        test = self._condition()
        return _loop(test, lambda run: NEXT, self._scoped())

    def _for(self) -> Step:
        parser = self.parser
        parser.expect("for")
        parser.expect("(")
        self.scope.push()
        start: Step = lambda run: NEXT  # noqa: E731
        if not parser.accept(";"):
            declared = self._declaration()
            if declared is None:
                declared = self._effects(";")
            start = declared
        test = constant(BOOL, True).run
        if parser.peek() != ";":
            test = parser.convert(parser.expression(), BOOL).run
        parser.expect(";")
        update: Step = lambda run: NEXT  # noqa: E731
        if not parser.accept(")"):
            update = self._effects(")")
        body = self._scoped()
        self.scope.pop()
        loop = _loop(test, update, body)
        return _sequence([start, loop])

    def _effects(self, close: str) -> Step:
        """Expressions joined by commas, up to ``close``."""
        steps = [_effect(self.parser.expression())]
        while self.parser.accept(","):
            steps.append(_effect(self.parser.expression()))
        self.parser.expect(close)
        return _sequence(steps)

    # -- declarations ---------------------------------------------------------------------------

    def _declaration(self) -> Step | None:
        parser = self.parser
        start = parser.at
        while parser.peek() in ("static", "const", "constexpr"):
            parser.at += 1
        if parser.peek() == "auto":
            constant_auto = parser.at > start
            parser.at += 1
            step = self._declarator(None, constant_auto)
            parser.expect(";")
            return step
        parser.at = start
        found = parser.type()
        if found is None or parser.peek() in ("(", "{"):
            parser.at = start
            return None
        kind, const = found
        base = kind
        while base.element is not None:
            base = base.element
        steps = [self._declarator(kind, const)]
        while parser.accept(","):
            steps.append(self._declarator(*parser.stars(base, const)))
        parser.expect(";")
        return _sequence(steps)

    def _declarator(self, kind: CType | None, const: bool) -> Step:
        parser = self.parser
        name = parser.take().text
        if not name.isidentifier():
            parser.at -= 1
            parser.syntax(f"expected a name but found {name!r}")
        value = self._initial(kind)
        if value is None and kind is not None and kind is DIM3:
            value = parser.dim3([])
        if kind is None:
            if value is None or value.type.kind in ("null", "void"):
                parser.syntax(f"auto {name!r} needs a value")
            kind = value.type
        if kind is VOID:
            parser.syntax(f"{name!r} cannot be void")
        run = parser.convert(value, kind).run if value is not None else None
        variable = self.scope.declare(name, kind, const)
        if variable is None:
            parser.syntax(f"{name!r} is declared twice")
        slot = variable.slot

        def store(state: Run) -> int:
            # A declaration without a value inside a loop starts afresh each time.
            state.frame[slot] = UNSET if run is None else run(state.frame)
            return NEXT

        return store

    def _initial(self, kind: CType | None) -> Expr | None:
        parser = self.parser
        if parser.accept("="):
            if kind is DIM3 and parser.accept("{"):
                return parser.dim3(parser.arguments("}"))
            return parser.expression()
        if parser.peek() in ("(", "{"):
            close = {"(": ")", "{": "}"}[parser.take().text]
            values = parser.arguments(close)
            if kind is DIM3:
                return parser.dim3(values)
            if len(values) == 0 and close == "}" and kind is not None and kind.arithmetic:
                return parser.convert(constant(INT32, 0), kind)
            if len(values) != 1:
                parser.unsupported(f"an initialiser of {len(values)} values")
            return values[0]
        if parser.peek() == "[":
            parser.unsupported("a host array")
        return None


def _effect(expr: Expr) -> Step:
    run_expr = expr.run

    def step(run: Run) -> int:
        run_expr(run.frame)
        return NEXT

    return step


def _sequence(steps: Sequence[Step]) -> Step:
    if len(steps) == 1:
        return steps[0]

    def run_all(run: Run) -> int:
        for step in steps:
            code = step(run)
            if code:
                return code
        return NEXT

    return run_all


def _loop(test: Callable[[Frame], Any], update: Step, body: Step) -> Step:
    def run_loop(run: Run) -> int:
        while test(run.frame):
            run.tick()
            code = body(run)
            if code == BREAK:
                break
            if code == RETURN:
                return code
            update(run)
        return NEXT

    return run_loop
