"""What the compilation of a ``launch`` function works with: compiled expressions and scopes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelassay.compile.ctype import CType
from kernelassay.errors import KernelassayError
from kernelassay.kernel import PointerArgument

Frame = list[Any]
Run = Callable[[Frame], Any]

# A null pointer as a kernel argument: a buffer without a name.
NULL_POINTER = PointerArgument("")


class LaunchError(KernelassayError):
    """A ``launch`` function fails when it runs; callers record its ``outcome``, not an error."""

    outcome = "launch-failure"


class LaunchTimeoutError(LaunchError):
    """A ``launch`` function does not end."""

    outcome = "timeout"


class _Unset:
    """The value of a variable that has none."""

    __slots__ = ()


UNSET = _Unset()


@dataclass(frozen=True, slots=True)
class Expr:
    """A compiled expression. ``constant`` ones do not read the frame."""

    type: CType
    run: Run
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A name in scope."""

    name: str
    type: CType
    slot: int
    const: bool = False


class Scope:
    """Names in scope; slots are never reused, so a frame is a flat list."""

    def __init__(self, constants: Callable[[str], Expr | None]) -> None:
        self._stack: list[dict[str, Variable]] = [{}]
        self._constants = constants
        self.size = 0

    def push(self) -> None:
        """Enter a block."""
        self._stack.append({})

    def pop(self) -> None:
        """Leave a block."""
        self._stack.pop()

    def declare(self, name: str, kind: CType, const: bool = False) -> Variable | None:
        """A new variable; None if the block already has that name."""
        if name in self._stack[-1]:
            return None
        variable = Variable(name, kind, self.size, const)
        self.size += 1
        self._stack[-1][name] = variable
        return variable

    def find(self, name: str) -> Variable | None:
        """The innermost variable of that name."""
        for names in reversed(self._stack):
            if name in names:
                return names[name]
        return None

    def constant(self, name: str) -> Expr | None:
        """A file-scope constant."""
        return self._constants(name)


def constant(kind: CType, value: Any) -> Expr:
    """The expression that always has ``value``."""
    return Expr(kind, lambda frame: value, True)


def fold(expr: Expr) -> Expr:
    """Evaluate an expression of constants once; one that fails stays, to fail when reached."""
    try:
        return constant(expr.type, expr.run([]))
    except LaunchError:
        return expr
