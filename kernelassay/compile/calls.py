"""Calls of a ``launch`` function: kernel launches and the runtime calls that a plan knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelassay.compile.ctype import DIM3, INT32, UINT64
from kernelassay.compile.expression import Parser
from kernelassay.compile.lexing import Token, tokenize
from kernelassay.compile.preprocess import Expander
from kernelassay.compile.source import KernelSignature
from kernelassay.compile.values import Expr, Frame, LaunchTimeoutError, Scope, constant
from kernelassay.kernel import Launch, Memset, PointerArgument, Scratch

MAX_ITERATIONS = 100_000
_IGNORED = frozenset(
    {"cudaFree", "cudaFreeAsync", "cudaDeviceSynchronize", "cudaStreamSynchronize"}
)
_ALLOCATIONS = frozenset({"cudaMalloc", "cudaMallocAsync"})
_FILLS = frozenset({"cudaMemset", "cudaMemsetAsync"})
NEXT, BREAK, CONTINUE, RETURN = range(4)

Step = Callable[["Run"], int]


class Run:
    """The state of one evaluation."""

    __slots__ = ("frame", "iterations", "names", "scratch", "steps")

    def __init__(self, frame: Frame, names: set[str]) -> None:
        self.frame = frame
        self.names = names
        self.scratch: list[Scratch] = []
        self.steps: list[Launch | Memset] = []
        self.iterations = 0

    def tick(self) -> None:
        """Count one loop iteration; raises ``LaunchTimeoutError`` past the limit."""
        self.iterations += 1
        if self.iterations > MAX_ITERATIONS:
            raise LaunchTimeoutError(f"launch loops more than {MAX_ITERATIONS} times")


class CallParser(Parser):
    """Parses the calls too, which need the kernels of the source."""

    def __init__(
        self,
        text: str,
        tokens: Sequence[Token],
        scope: Scope,
        expander: Expander,
        signatures: Mapping[str, KernelSignature],
    ) -> None:
        super().__init__(text, tokens, scope)
        self.expander = expander
        self.signatures = signatures

    def call_statement(self) -> Step | None:
        """A launch or runtime call, up to its ``;``; None if no such call starts here."""
        name = self.peek()
        following = self.peek(1)
        if following == "<<<":
            return self._launch()
        if following != "(":
            if name in self.signatures and following == "<":
                self.unsupported("a launch of a template")
            return None
        if name in _IGNORED:
            self.at += 2
            self.arguments(")")
            return lambda run: NEXT
        if name in _ALLOCATIONS:
            return self._allocation()
        if name in _FILLS:
            return self._fill()
        return None

    def _allocation(self) -> Step:
        name = self.take().text
        self.expect("(")
        if self.accept("("):  # (void**)&p
            if self.type() is None:
                self.syntax(f"{name} takes the address of a pointer")
            self.expect(")")
        self.expect("&")
        variable = self.scope.find(self.take().text)
        if variable is None or variable.type.kind != "pointer":
            self.at -= 1
            self.syntax(f"{name} takes the address of a pointer variable")
        self.expect(",")
        values = self.arguments(")")
        if len(values) != (2 if name.endswith("Async") else 1):
            self.syntax(f"{name} is called with the wrong number of arguments")
        size = _signed(self.convert(values[0], UINT64))
        slot, base = variable.slot, variable.name

        def allocate(run: Run) -> int:
            nbytes = size(run.frame)
            count, unique = 1, base
            while unique in run.names:
                count += 1
                unique = f"{base}.{count}"
            run.names.add(unique)
            run.scratch.append(Scratch(unique, nbytes))
            run.frame[slot] = PointerArgument(unique)
            return NEXT

        return allocate

    def _fill(self) -> Step:
        name = self.take().text
        self.expect("(")
        values = self.arguments(")")
        if len(values) not in ((3, 4) if name.endswith("Async") else (3,)):
            self.syntax(f"{name} is called with the wrong number of arguments")
        if values[0].type.kind != "pointer":
            self.syntax(f"{name} takes a pointer, not {values[0].type.name!r}")
        if values[0].type.const_element:
            self.syntax(f"{name} cannot write through {values[0].type.name!r}")
        target = values[0].run
        value = self.convert(values[1], INT32).run
        size = _signed(self.convert(values[2], UINT64))

        def fill(run: Run) -> int:
            frame = run.frame
            run.steps.append(Memset(target(frame), value(frame) & 0xFF, size(frame)))
            return NEXT

        return fill

    def _launch(self) -> Step:
        name = self.take().text
        signature = self.signatures.get(name)
        if signature is None:
            self.at -= 1
            self.syntax(f"no kernel is named {name!r}")
        self.expect("<<<")
        geometry = self.arguments(">>>")
        if not 2 <= len(geometry) <= 4:
            self.syntax("a launch takes a grid, a block, and perhaps shared bytes and a stream")
        grid, block = (self.convert(value, DIM3).run for value in geometry[:2])
        shared = _signed(
            self.convert(geometry[2] if len(geometry) > 2 else constant(INT32, 0), UINT64)
        )
        self.expect("(")
        values = self.arguments(")")
        arguments = self._arguments(signature, values)

        def launch(run: Run) -> int:
            frame = run.frame
            run.steps.append(
                Launch(
                    name,
                    _extent(grid(frame)),
                    _extent(block(frame)),
                    shared(frame),
                    tuple([argument(frame) for argument in arguments]),
                )
            )
            return NEXT

        return launch

    def _arguments(
        self, signature: KernelSignature, values: Sequence[Expr]
    ) -> list[Callable[[Frame], Any]]:
        if len(values) != len(signature.parameters):
            self.syntax(
                f"{signature.name} takes {len(signature.parameters)} arguments, "
                f"the launch gives {len(values)}"
            )
        converted = []
        for value, (text, name) in zip(values, signature.parameters, strict=True):
            tokens = self.expander.expand(tokenize(text))
            found = Parser(self.text, tokens, self.scope).type()
            if found is None:
                self.unsupported(f"the type {text!r} of parameter {name!r} of {signature.name}")
            converted.append(self.convert(value, found[0]).run)
        return converted


def _extent(value: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, z = value
    if (x | y | z) < 1 << 31:
        return value
    return _signed32(x), _signed32(y), _signed32(z)


def _signed32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


def _signed(expr: Expr) -> Callable[[Frame], int]:
    run = expr.run

    def read(frame: Frame) -> int:
        value: int = run(frame)
        return value - (1 << 64) if value >= 1 << 63 else value

    return read
