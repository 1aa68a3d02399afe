"""The host function ``launch`` as a Python function: scalar values in, a launch plan out.

``launch`` is parsed once into closures; evaluating it for one input takes some microseconds.
Integer semantics are those of C++ on x86-64 (:mod:`kernelassay.compile.ctype`). Grid and block
extents pass through ``dim3``'s 32-bit members, shared and allocation sizes through ``size_t``; a
value past the signed range of those is shown as the negative number it was computed from, so that
an executor can tell a geometry no device accepts.

The subset: variables of number, ``dim3`` and pointer type, assignments, ``if``, ``for``,
``while``, ``cudaMalloc``, ``cudaMemset``, ``kernel<<<...>>>(...)``, macros, and file-scope
constants. Everything else raises ``UnsupportedError`` naming the construct and its line; text
that C++ itself refuses raises ``KernelSyntaxError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kernelassay.compile.calls import MAX_ITERATIONS, Run, Step
from kernelassay.compile.ctype import BOOL, FLOAT32, FLOAT64, conversion
from kernelassay.compile.statements import Compiler
from kernelassay.compile.values import (
    NULL_POINTER,
    UNSET,
    Frame,
    LaunchError,
    LaunchTimeoutError,
    Variable,
)
from kernelassay.errors import UsageError
from kernelassay.kernel import LaunchPlan, PointerArgument, Scalar


@dataclass(frozen=True, slots=True)
class Launcher:
    """A parsed ``launch``. Parameters are (name, type text), in declaration order."""

    pointer_parameters: tuple[tuple[str, str], ...]
    scalar_parameters: tuple[tuple[str, str], ...]
    _pointers: tuple[Variable, ...]
    _scalars: tuple[Variable, ...]
    _frame_size: int
    _body: Step

    def plan(self, scalars: Mapping[str, Scalar]) -> LaunchPlan:
        """What ``launch`` does for these scalar values; further names in ``scalars`` are ignored.

        Raises ``UsageError`` for a missing value or one of another kind, and ``LaunchError`` when
        the function itself fails (a division by zero) or does not end.
        """
        frame: Frame = [UNSET] * self._frame_size
        for variable in self._pointers:
            frame[variable.slot] = PointerArgument(variable.name)
        for variable in self._scalars:
            if variable.name not in scalars:
                raise UsageError(f"launch needs a value for its parameter {variable.name!r}")
            frame[variable.slot] = _admit(variable, scalars[variable.name])
        run = Run(frame, {variable.name for variable in self._pointers})
        self._body(run)
        return LaunchPlan(tuple(run.scratch), tuple(run.steps))


def launch_plan(
    source: str, scalars: Mapping[str, Scalar], pointers: Sequence[str] | None = None
) -> LaunchPlan:
    """Evaluate ``launch`` of ``source``; see :meth:`Launcher.plan`.

    ``pointers``, if given, are the buffers the caller has; a pointer parameter that is not among
    them raises ``UsageError``.
    """
    launcher = parse_launcher(source)
    if pointers is not None:
        for name, _ in launcher.pointer_parameters:
            if name not in pointers:
                raise UsageError(f"launch needs a buffer for its parameter {name!r}")
    return launcher.plan(scalars)


@lru_cache(maxsize=4096)
def parse_launcher(source: str) -> Launcher:
    """Parse and type-check ``launch``.

    Raises ``KernelSyntaxError`` for text a C++ compiler refuses, ``UnsupportedError`` for what
    lies outside the subset.
    """
    compiler = Compiler(source)
    parameters = compiler.parameters()
    body = compiler.body()
    pointers = [(var, text) for var, text in parameters if var.type.kind == "pointer"]
    scalars = [(var, text) for var, text in parameters if var.type.kind != "pointer"]
    return Launcher(
        tuple((variable.name, text) for variable, text in pointers),
        tuple((variable.name, text) for variable, text in scalars),
        tuple(variable for variable, _ in pointers),
        tuple(variable for variable, _ in scalars),
        compiler.scope.size,
        body,
    )


def _admit(variable: Variable, value: Scalar) -> Scalar:
    """A value from outside, in the declared type of the parameter."""
    kind = variable.type
    if kind.kind == "float":
        number = float(value)
        change = conversion(FLOAT64, kind) if kind == FLOAT32 else None
        return change(number) if change else number  # type: ignore[no-any-return]
    if isinstance(value, float):
        raise UsageError(f"parameter {variable.name!r} of launch is {kind.name}, not a float")
    if kind == BOOL:
        return bool(value)
    low, high = kind.limits
    if not low <= value <= high:
        raise UsageError(f"{value} does not fit parameter {variable.name!r} ({kind.name})")
    return int(value)


__all__ = [
    "MAX_ITERATIONS",
    "NULL_POINTER",
    "LaunchError",
    "LaunchTimeoutError",
    "Launcher",
    "launch_plan",
    "parse_launcher",
]
