"""Operations on compiled expressions: conversions, operators and the known functions."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from kernelassay.compile import ctype
from kernelassay.compile.ctype import (
    BOOL,
    DIM3,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    UINT32,
    UINT64,
    CType,
    common,
    conversion,
    promoted,
    wrap,
)
from kernelassay.compile.values import NULL_POINTER, Expr, Frame, LaunchError, Run, constant, fold
from kernelassay.errors import KernelSyntaxError, UnsupportedError
from kernelassay.kernel import PointerArgument

_COMPARE = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_BITWISE = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
_NUMBER = re.compile(
    r"(?P<float>(?:\d[\d']*\.[\d']*|\.\d[\d']*|\d[\d']*(?=[eE]))(?:[eE][+-]?\d+)?)(?P<fs>[fF]?)\Z"
    r"|(?P<int>0[xX][\da-fA-F']+|0[bB][01']+|\d[\d']*)(?P<is>[uUlL]*)\Z"
)
MATH: dict[str, Callable[[float], float]] = {
    "ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt, "fabs": math.fabs,
    "log2": math.log2, "exp2": math.exp2,
}  # fmt: skip


class Builder:
    """Builds compiled expressions; a subclass knows where in the source it stands."""

    @property
    def where(self) -> str:
        """The place an error names."""
        return "launch"

    def syntax(self, what: str) -> NoReturn:
        """Raise for text that is no C++."""
        raise KernelSyntaxError(what, where=self.where)

    def unsupported(self, what: str) -> NoReturn:
        """Raise for a construct outside the subset."""
        raise UnsupportedError(
            f"{what} is not supported in launch",
            where=self.where,
            hint="use integer, float and dim3 variables, if, for, cudaMalloc and kernel<<<>>>",
        )

    def convert(self, expr: Expr, target: CType) -> Expr:
        """Implicit conversion, or ``KernelSyntaxError`` where C++ has none."""
        source = expr.type
        if source == target:
            return expr
        run = expr.run
        if source.arithmetic and target.arithmetic:
            change = conversion(source, target)
            if change is None:
                return Expr(target, run, expr.constant)
            result = Expr(target, lambda frame: change(run(frame)), expr.constant)
            return fold(result) if expr.constant else result
        if source.kind == "null" and target.kind == "pointer":
            return Expr(target, run, expr.constant)
        if source.kind == "pointer" and target == BOOL:
            return Expr(BOOL, lambda frame: run(frame) != NULL_POINTER)
        if source.kind == "pointer" and target.kind == "pointer" and _assignable(source, target):
            return Expr(target, run)
        if target is DIM3 and source.arithmetic:
            number = self.convert(expr, UINT32).run
            return Expr(DIM3, lambda frame: (number(frame), 1, 1))
        self.syntax(f"cannot convert {source.name!r} to {target.name!r}")

    def cast(self, expr: Expr, target: CType) -> Expr:
        """Explicit conversion; pointers may change their element."""
        if expr.type.kind == "pointer" and target.kind == "pointer":
            return Expr(target, expr.run)
        return self.convert(expr, target)

    def dim3(self, values: Sequence[Expr]) -> Expr:
        """``dim3`` from up to three numbers (missing ones are 1) or from another ``dim3``."""
        if len(values) == 1 and values[0].type is DIM3:
            return values[0]
        if len(values) > 3:
            self.syntax("dim3 takes at most three values")
        parts = [self.convert(value, UINT32) for value in values]
        parts += [constant(UINT32, 1)] * (3 - len(parts))
        x, y, z = (part.run for part in parts)
        whole = Expr(DIM3, lambda frame: (x(frame), y(frame), z(frame)))
        return fold(whole) if all(part.constant for part in parts) else whole

    def number(self, word: str) -> Expr:
        """The literal ``word``, typed as C++ types it."""
        match = _NUMBER.match(word)
        if match is None:
            self.syntax(f"{word!r} is no number")
        if match["float"]:
            value = float(match["float"].replace("'", ""))
            if match["fs"]:
                return constant(FLOAT32, ctype.round_float32(value))
            return constant(FLOAT64, value)
        digits, suffix = match["int"].replace("'", ""), match["is"].lower()
        octal = digits.isdigit() and len(digits) > 1 and digits[0] == "0"
        try:
            number = int(digits, 8 if octal else 0)
        except ValueError:
            self.syntax(f"{word!r} is no number")
        decimal = digits[0] != "0"
        for kind in (INT32, UINT32, INT64, UINT64):
            if "u" in suffix and kind.kind != "uint":
                continue
            if "l" in suffix and kind.size < 8:
                continue
            if decimal and "u" not in suffix and kind.kind == "uint":
                continue
            if number <= kind.limits[1]:
                return constant(kind, number)
        self.syntax(f"{word} does not fit any integer type")

    def prefix(self, word: str, operand: Expr) -> Expr:
        """``word operand`` for one of ``- + ~ !``."""
        if word == "!":
            run = self.convert(operand, BOOL).run
            return self.made(BOOL, lambda frame: not run(frame), operand)
        if not operand.type.arithmetic or (word == "~" and not operand.type.integral):
            self.syntax(f"operator {word!r} does not take {operand.type.name!r}")
        kind = promoted(operand.type)
        run = self.convert(operand, kind).run
        if word == "+":
            return Expr(kind, run, operand.constant)
        if kind.kind == "float":
            return self.made(kind, lambda frame: -run(frame), operand)
        reduce = wrap(kind)
        if word == "-":
            return self.made(kind, lambda frame: reduce(-run(frame)), operand)
        return self.made(kind, lambda frame: reduce(~run(frame)), operand)

    def made(self, kind: CType, run: Run, *parts: Expr) -> Expr:
        """An expression over ``parts``, folded when all of them are constant."""
        expr = Expr(kind, run, all(part.constant for part in parts))
        return fold(expr) if expr.constant else expr

    def operate(self, word: str, left: Expr, right: Expr) -> Expr:
        """The binary operation ``left word right``."""
        if word in ("&&", "||"):
            return self._logical(word, left, right)
        if left.type.kind in ("pointer", "null") or right.type.kind in ("pointer", "null"):
            return self._pointer(word, left, right)
        if not (left.type.arithmetic and right.type.arithmetic):
            self.syntax(
                f"operator {word!r} does not take {left.type.name!r} and {right.type.name!r}"
            )
        if word in ("<<", ">>"):
            return self._shift(word, left, right)
        kind = common(left.type, right.type)
        a, b = self.convert(left, kind).run, self.convert(right, kind).run
        if word in _COMPARE:
            compare = _COMPARE[word]
            return self.made(BOOL, lambda frame: compare(a(frame), b(frame)), left, right)
        if kind.kind == "float":
            return self.made(kind, self._float(word, kind, a, b), left, right)
        return self.made(kind, self._integer(word, kind, a, b), left, right)

    def _logical(self, word: str, left: Expr, right: Expr) -> Expr:
        a, b = self.convert(left, BOOL).run, self.convert(right, BOOL).run
        if word == "&&":
            return self.made(BOOL, lambda frame: a(frame) and b(frame), left, right)
        return self.made(BOOL, lambda frame: a(frame) or b(frame), left, right)

    def _pointer(self, word: str, left: Expr, right: Expr) -> Expr:
        a, b = left.run, right.run
        kinds = {left.type.kind, right.type.kind}
        if word in ("==", "!=") and kinds <= {"pointer", "null"}:
            compare = _COMPARE[word]
            return Expr(BOOL, lambda frame: compare(a(frame), b(frame)))
        if word == "+" and right.type.kind == "pointer":
            left, right, a, b = right, left, b, a
        element = left.type.element
        if word not in ("+", "-") or element is None or not right.type.integral:
            self.unsupported(f"operator {word!r} on {left.type.name!r} and {right.type.name!r}")
        scale = element.size if word == "+" else -element.size

        def move(frame: Frame) -> PointerArgument:
            base = a(frame)
            return PointerArgument(base.buffer, base.byte_offset + scale * b(frame))

        return Expr(left.type, move)

    def _shift(self, word: str, left: Expr, right: Expr) -> Expr:
        if not (left.type.integral and right.type.integral):
            self.syntax(f"operator {word!r} takes integers")
        kind = promoted(left.type)
        a, b = self.convert(left, kind).run, right.run
        reduce = wrap(kind)
        mask = 8 * kind.size - 1  # x86-64 uses the low bits of the count
        if word == "<<":
            run: Run = lambda frame: reduce(a(frame) << (b(frame) & mask))  # noqa: E731
        else:
            run = lambda frame: a(frame) >> (b(frame) & mask)  # noqa: E731
        return self.made(kind, run, left, right)

    def _integer(self, word: str, kind: CType, a: Run, b: Run) -> Run:
        reduce = wrap(kind)
        if word == "+":
            return lambda frame: reduce(a(frame) + b(frame))
        if word == "-":
            return lambda frame: reduce(a(frame) - b(frame))
        if word == "*":
            return lambda frame: reduce(a(frame) * b(frame))
        if word in ("/", "%"):
            return _division(word, kind, a, b, self.where)
        bitwise = _BITWISE[word]
        return lambda frame: reduce(bitwise(a(frame), b(frame)))

    def _float(self, word: str, kind: CType, a: Run, b: Run) -> Run:
        function = _FLOAT.get(word)
        if function is None:
            self.syntax(f"operator {word!r} does not take {kind.name!r}")
        if kind.size == 8:
            return lambda frame: function(a(frame), b(frame))
        # One operation on two binary32 values in binary64 and rounded is the binary32 result.
        return lambda frame: ctype.round_float32(function(a(frame), b(frame)))

    def extreme(self, name: str, values: Sequence[Expr], target: CType | None) -> Expr:
        """``min`` and ``max`` of two numbers, in ``target`` or their common type."""
        if not all(value.type.arithmetic for value in values):
            self.syntax(f"{name} takes numbers")
        kind = target or (
            values[0].type
            if values[0].type == values[1].type
            else common(values[0].type, values[1].type)
        )
        if name in ("fminf", "fmaxf"):
            kind = FLOAT32
        pick = min if "min" in name else max
        left, right = (self.convert(value, kind).run for value in values)
        return self.made(kind, lambda frame: pick(left(frame), right(frame)), *values)

    def math_call(self, name: str, value: Expr) -> Expr:
        """One of the functions of one number, as ``ceilf``."""
        kind = FLOAT32 if name.endswith("f") or value.type == FLOAT32 else FLOAT64
        run = self.convert(value, kind).run
        function = MATH[name.rstrip("f")]
        finish = conversion(FLOAT64, kind) or float

        def apply(frame: Frame) -> float:
            number = run(frame)
            try:
                return finish(float(function(number)))
            except (ValueError, OverflowError):  # Python refuses what C answers with nan or inf
                return number if name.startswith(("ceil", "floor")) else math.nan

        return self.made(kind, apply, value)


def _divide(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


_FLOAT: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divide,
}  # fmt: skip


def _division(word: str, kind: CType, a: Run, b: Run, where: str) -> Run:
    lowest = kind.limits[0] if kind.kind == "int" else None

    def divide(frame: Frame) -> int:
        left, right = a(frame), b(frame)
        if right == 0:
            raise LaunchError("launch divides by zero", where=where)
        if right == -1 and left == lowest:
            raise LaunchError("launch overflows in a division", where=where)
        quotient = abs(left) // abs(right)
        if (left < 0) != (right < 0):
            quotient = -quotient
        return quotient if word == "/" else left - quotient * right

    return divide


def _assignable(source: CType, target: CType) -> bool:
    """Whether C++ converts one pointer type into another without a cast."""
    if source.const_element and not target.const_element:
        return False
    if source.element is None or target.element is None:
        return False
    return target.element.kind == "void" or source.element == target.element
