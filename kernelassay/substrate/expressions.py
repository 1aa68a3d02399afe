"""Elementwise ATen operators as C expressions.

Each entry of :data:`EXPRESSIONS` gets an :class:`Operation` and returns the expression for one
element, the way a kernel author would write it. Operands are atoms (a temporary or a literal), so
expressions need no extra parentheses around them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelassay.errors import UnsupportedError
from kernelassay.substrate.ctypes import FLOATING, function, literal, value_type


@dataclass(frozen=True)
class Operand:
    """One argument: the C text of a tensor's element, or a Python number still without a type."""

    dtype: str
    text: str = ""
    number: float | int | bool | None = None

    def as_type(self, dtype: str) -> str:
        """The operand as an atom, or a cast of one, of ``dtype``."""
        if self.number is not None:
            return literal(self.number, dtype)
        if self.dtype == dtype:
            return self.text
        if dtype == "bool":
            return f"({self.text} != {literal(0, self.dtype)})"
        return f"({value_type(dtype)}){self.text}"


@dataclass(frozen=True)
class Operation:
    """An ATen call on one element: ``arguments`` by position, ``keywords``, the result's dtype."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    dtype: str

    def __getitem__(self, index: int) -> str:
        return self.operand(index).as_type(self.dtype)

    def operand(self, index: int) -> Operand:
        """Argument ``index``, which must be a tensor or a number."""
        value = self.arguments[index]
        if not isinstance(value, Operand):
            raise UnsupportedError(f"argument {index} is {value!r}, no number")
        return value

    def number(self, index: int, default: float) -> float:
        """Argument ``index`` as a Python number, ``default`` if left out or None."""
        if index >= len(self.arguments) or self.arguments[index] is None:
            return default
        value = self.operand(index).number
        if value is None:
            raise UnsupportedError(f"argument {index} must be a constant")
        return value

    def has(self, index: int) -> bool:
        """Whether argument ``index`` is given."""
        return index < len(self.arguments) and self.arguments[index] is not None

    def constant(self, value: float) -> str:
        """``value`` as a literal of the result's dtype."""
        return literal(value, self.dtype)

    def call(self, name: str, *arguments: str) -> str:
        """A call of the math function ``name`` in the result's precision."""
        if self.dtype not in FLOATING:
            raise UnsupportedError(f"{name} on {self.dtype}")
        return f"{function(name, self.dtype)}({', '.join(arguments)})"

    def common(self) -> str:
        """The dtype a comparison of the first two arguments is made in."""
        tensors = [a.dtype for a in self.arguments[:2] if a.number is None]
        floating = [dtype for dtype in tensors if dtype in FLOATING]
        fractional = any(isinstance(a.number, float) for a in self.arguments[:2])
        if floating:
            return max(floating)
        return "float32" if fractional else max(tensors, key=_WIDTH.index)


_WIDTH = ("bool", "uint8", "int8", "int16", "int32", "int64")
Expression = Callable[[Operation], str]


def _infix(symbol: str) -> Expression:
    return lambda op: f"{op[0]} {symbol} {op[1]}"


def _compare(symbol: str) -> Expression:
    def expression(op: Operation) -> str:
        dtype = op.common()
        return f"{op.operand(0).as_type(dtype)} {symbol} {op.operand(1).as_type(dtype)}"

    return expression


def _unary(name: str) -> Expression:
    return lambda op: op.call(name, op[0])


def _scaled(symbol: str) -> Expression:
    """``a + alpha * b``, as ``add`` and ``sub`` have it."""

    def expression(op: Operation) -> str:
        alpha = op.keywords.get("alpha", 1)
        if len(op.arguments) > 2:
            alpha = op.number(2, 1)
        right = op[1] if alpha == 1 else f"{op.constant(alpha)} * {op[1]}"
        return f"{op[0]} {symbol} {right}"

    return expression


def _reverse_sub(op: Operation) -> str:
    alpha = op.number(2, 1)
    right = op[0] if alpha == 1 else f"{op.constant(alpha)} * {op[0]}"
    return f"{op[1]} - {right}"


def _div_mode(op: Operation) -> str:
    mode = op.keywords.get("rounding_mode")
    if op.dtype not in FLOATING:
        raise UnsupportedError("integer division with a rounding mode")
    quotient = f"{op[0]} / {op[1]}"
    if mode is None:
        return quotient
    return op.call("floor" if mode == "floor" else "trunc", quotient)


def _power(op: Operation) -> str:
    base, exponent = op[0], op.operand(1).number
    products = {1: base, 2: f"{base} * {base}", 3: f"{base} * {base} * {base}"}
    if exponent in products:
        return products[int(exponent)]
    if exponent == 0.5:
        return op.call("sqrt", base)
    if exponent == -1:
        return f"{op.constant(1)} / {base}"
    return op.call("pow", base, op[1])


def _relu(op: Operation) -> str:
    return _largest(op, op[0], op.constant(0))


def _largest(op: Operation, left: str, right: str) -> str:
    if op.dtype in FLOATING:
        return op.call("fmax", left, right)
    return f"{left} > {right} ? {left} : {right}"


def _smallest(op: Operation, left: str, right: str) -> str:
    if op.dtype in FLOATING:
        return op.call("fmin", left, right)
    return f"{left} < {right} ? {left} : {right}"


def _clamp(op: Operation) -> str:
    if op.dtype not in FLOATING and op.has(1) and op.has(2):
        return f"{op[0]} < {op[1]} ? {op[1]} : {op[0]} > {op[2]} ? {op[2]} : {op[0]}"
    value = _largest(op, op[0], op[1]) if op.has(1) else op[0]
    return _smallest(op, value, op[2]) if op.has(2) else value


def _hardtanh(op: Operation) -> str:
    low, high = op.number(1, -1.0), op.number(2, 1.0)
    return _smallest(op, _largest(op, op[0], op.constant(low)), op.constant(high))


def _leaky_relu(op: Operation) -> str:
    slope = op.constant(op.number(1, 0.01))
    return f"{op[0]} > {op.constant(0)} ? {op[0]} : {op[0]} * {slope}"


def _elu(op: Operation) -> str:
    alpha, scale, input_scale = (op.number(i, 1.0) for i in (1, 2, 3))
    x = op[0]
    inner = x if input_scale == 1 else f"{x} * {op.constant(input_scale)}"
    negative = op.call("expm1", inner)
    if alpha * scale != 1:
        negative = f"{op.constant(alpha * scale)} * {negative}"
    positive = x if scale == 1 else f"{op.constant(scale)} * {x}"
    return f"{x} > {op.constant(0)} ? {positive} : {negative}"


def _gelu(op: Operation) -> str:
    x, half, one = op[0], op.constant(0.5), op.constant(1)
    if op.keywords.get("approximate", "none") == "tanh":
        cubic = f"{x} + {op.constant(0.044715)} * {x} * {x} * {x}"
        scaled = op.call("tanh", f"{op.constant(0.7978845608028654)} * ({cubic})")
        return f"{half} * {x} * ({one} + {scaled})"
    erf = op.call("erf", f"{x} * {op.constant(0.7071067811865476)}")
    return f"{half} * {x} * ({one} + {erf})"


def _sigmoid(op: Operation) -> str:
    return f"{op.constant(1)} / ({op.constant(1)} + {op.call('exp', '-' + op[0])})"


def _silu(op: Operation) -> str:
    return f"{op[0]} / ({op.constant(1)} + {op.call('exp', '-' + op[0])})"


def _softplus(op: Operation) -> str:
    beta, threshold = op.number(1, 1.0), op.number(2, 20.0)
    x = op[0]
    scaled = x if beta == 1 else f"{op.constant(beta)} * {x}"
    smooth = op.call("log1p", op.call("exp", scaled))
    if beta != 1:
        smooth = f"{smooth} / {op.constant(beta)}"
    return f"{scaled} > {op.constant(threshold)} ? {x} : {smooth}"


def _mish(op: Operation) -> str:
    softplus = op.call("log1p", op.call("exp", op[0]))
    return f"{op[0]} * {op.call('tanh', softplus)}"


def _abs(op: Operation) -> str:
    if op.dtype in FLOATING:
        return op.call("fabs", op[0])
    return f"{op[0]} < 0 ? -{op[0]} : {op[0]}"


def _sign(op: Operation) -> str:
    zero = op.constant(0)
    return f"({value_type(op.dtype)})(({op[0]} > {zero}) - ({op[0]} < {zero}))"


def _fmod(op: Operation) -> str:
    return op.call("fmod", op[0], op[1]) if op.dtype in FLOATING else f"{op[0]} % {op[1]}"


def _remainder(op: Operation) -> str:
    if op.dtype in FLOATING:
        return f"{op[0]} - {op[1]} * {op.call('floor', f'{op[0]} / {op[1]}')}"
    return f"({op[0]} % {op[1]} + {op[1]}) % {op[1]}"


def _logical(symbol: str) -> Expression:
    def expression(op: Operation) -> str:
        return f"{op.operand(0).as_type('bool')} {symbol} {op.operand(1).as_type('bool')}"

    return expression


def _isnan(op: Operation) -> str:
    text = op.operand(0).text
    return f"{text} != {text}"


def _isinf(op: Operation) -> str:
    operand = op.operand(0)
    return f"{function('fabs', operand.dtype)}({operand.text}) == INFINITY"


def _addcmul(op: Operation) -> str:
    value = op.keywords.get("value", 1)
    factor = "" if value == 1 else f"{op.constant(value)} * "
    return f"{op[0]} + {factor}{op[1]} * {op[2]}"


def _addcdiv(op: Operation) -> str:
    value = op.keywords.get("value", 1)
    factor = "" if value == 1 else f"{op.constant(value)} * "
    return f"{op[0]} + {factor}{op[1]} / {op[2]}"


_FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc floor ceil trunc"
)

EXPRESSIONS: dict[str, Expression] = {
    **{f"aten.{name}.default": _unary(name) for name in _FUNCTIONS.split()},
    **{f"aten.add.{kind}": _scaled("+") for kind in ("Tensor", "Scalar")},
    **{f"aten.sub.{kind}": _scaled("-") for kind in ("Tensor", "Scalar")},
    **{f"aten.mul.{kind}": _infix("*") for kind in ("Tensor", "Scalar")},
    **{f"aten.div.{kind}": _infix("/") for kind in ("Tensor", "Scalar")},
    **{f"aten.div.{kind}_mode": _div_mode for kind in ("Tensor", "Scalar")},
    **{f"aten.fmod.{kind}": _fmod for kind in ("Tensor", "Scalar")},
    **{f"aten.remainder.{kind}": _remainder for kind in ("Tensor", "Scalar")},
    **{
        f"aten.{name}.{kind}": _compare(symbol)
        for name, symbol in zip(
            ("eq", "ne", "lt", "le", "gt", "ge"), ("==", "!=", "<", "<=", ">", ">="), strict=True
        )
        for kind in ("Tensor", "Scalar")
    },
    "aten.rsub.Scalar": _reverse_sub,
    "aten.pow.Tensor_Scalar": _power,
    "aten.pow.Tensor_Tensor": lambda op: op.call("pow", op[0], op[1]),
    "aten.pow.Scalar": lambda op: op.call("pow", op[0], op[1]),
    "aten.atan2.default": lambda op: op.call("atan2", op[0], op[1]),
    "aten.round.default": _unary("rint"),
    "aten.abs.default": _abs,
    "aten.neg.default": lambda op: f"-{op[0]}",
    "aten.sign.default": _sign,
    "aten.reciprocal.default": lambda op: f"{op.constant(1)} / {op[0]}",
    "aten.square.default": lambda op: f"{op[0]} * {op[0]}",
    "aten.relu.default": _relu,
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp,
    "aten.clamp_min.default": lambda op: _largest(op, op[0], op[1]),
    "aten.clamp_max.default": lambda op: _smallest(op, op[0], op[1]),
    "aten.hardtanh.default": _hardtanh,
    "aten.leaky_relu.default": _leaky_relu,
    "aten.elu.default": _elu,
    "aten.gelu.default": _gelu,
    "aten.sigmoid.default": _sigmoid,
    "aten.silu.default": _silu,
    "aten.softplus.default": _softplus,
    "aten.mish.default": _mish,
    "aten.maximum.default": lambda op: _largest(op, op[0], op[1]),
    "aten.minimum.default": lambda op: _smallest(op, op[0], op[1]),
    "aten.addcmul.default": _addcmul,
    "aten.addcdiv.default": _addcdiv,
    "aten.where.self": lambda op: f"{op.operand(0).as_type('bool')} ? {op[1]} : {op[2]}",
    "aten.logical_not.default": lambda op: f"!{op.operand(0).as_type('bool')}",
    "aten.logical_and.default": _logical("&&"),
    "aten.logical_or.default": _logical("||"),
    "aten.logical_xor.default": _logical("!="),
    "aten.bitwise_not.default": lambda op: ("!" if op.dtype == "bool" else "~") + op[0],
    **{
        f"aten.bitwise_{name}.{kind}": _infix(symbol)
        for name, symbol in (("and", "&"), ("or", "|"), ("xor", "^"))
        for kind in ("Tensor", "Scalar")
    },
    "aten.isnan.default": _isnan,
    "aten.isinf.default": _isinf,
    "aten._to_copy.default": lambda op: op[0],
}
