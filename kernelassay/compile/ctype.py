"""The C++ types a ``launch`` function may use, and conversions between their values.

Values are Python ``int``, ``float``, ``bool``. Integers wrap in their type, also where C++ leaves
signed overflow undefined; float to integer follows x86-64, where an unrepresentable value becomes
the smallest integer. Sizes are those of x86-64 and CUDA (``long`` has 8 bytes).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_FLOAT32 = struct.Struct("<f")


@dataclass(frozen=True, slots=True)
class CType:
    """A type. ``kind``: bool, int, uint, float, pointer, dim3, void, null or opaque.

    A pointer has its ``element`` and whether that is ``const``. An opaque type (``__half``) can be
    pointed to, and has a size, but no values here.
    """

    name: str
    size: int
    kind: str
    element: CType | None = None
    const_element: bool = False

    @property
    def arithmetic(self) -> bool:
        """Whether values are numbers."""
        return self.kind in ("bool", "int", "uint", "float")

    @property
    def integral(self) -> bool:
        """Whether values are integers or bool."""
        return self.kind in ("bool", "int", "uint")

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        if self.kind == "bool":
            return 0, 1
        if self.kind == "uint":
            return 0, (1 << 8 * self.size) - 1
        half = 1 << (8 * self.size - 1)
        return -half, half - 1


VOID = CType("void", 1, "void")
NULL = CType("nullptr_t", 8, "null")
DIM3 = CType("dim3", 12, "dim3")
BOOL = CType("bool", 1, "bool")
INT8, UINT8 = CType("signed char", 1, "int"), CType("unsigned char", 1, "uint")
INT16, UINT16 = CType("short", 2, "int"), CType("unsigned short", 2, "uint")
INT32, UINT32 = CType("int", 4, "int"), CType("unsigned int", 4, "uint")
INT64, UINT64 = CType("long long", 8, "int"), CType("unsigned long long", 8, "uint")
FLOAT32, FLOAT64 = CType("float", 4, "float"), CType("double", 8, "float")

_VECTOR_BASES = {
    "char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4,
    "float": 4, "long": 8, "longlong": 8, "double": 8,
}  # fmt: skip
_OPAQUE = {
    "__half": 2, "half": 2, "__nv_bfloat16": 2, "nv_bfloat16": 2,
    "__half2": 4, "half2": 4, "__nv_bfloat162": 4, "nv_bfloat162": 4, "bfloat16": 2,
}  # fmt: skip

NAMED: dict[str, CType] = {
    "void": VOID, "bool": BOOL, "dim3": DIM3, "float": FLOAT32, "double": FLOAT64,
    "int8_t": INT8, "uint8_t": UINT8, "int16_t": INT16, "uint16_t": UINT16,
    "int32_t": INT32, "uint32_t": UINT32, "uint": UINT32, "int64_t": INT64, "uint64_t": UINT64,
    "size_t": UINT64, "ptrdiff_t": INT64, "ssize_t": INT64,
    **{
        f"{base}{count}": CType(f"{base}{count}", size * count, "opaque")
        for base, size in _VECTOR_BASES.items()
        for count in (2, 4)
    },
    **{name: CType(name.strip("_").removeprefix("nv_"), size, "opaque")
       for name, size in _OPAQUE.items()},
}  # fmt: skip
WORDS = frozenset({"int", "unsigned", "signed", "long", "short", "char"})


def from_words(words: tuple[str, ...]) -> CType | None:
    """The integer type spelled by ``words`` (``unsigned long long``), in any order."""
    counts = {word: words.count(word) for word in words}
    unsigned = "unsigned" in counts
    if "char" in counts:
        return UINT8 if unsigned else INT8
    if "short" in counts:
        return UINT16 if unsigned else INT16
    if counts.get("long", 0) > 2:
        return None
    if "long" in counts:
        return UINT64 if unsigned else INT64
    return UINT32 if unsigned else INT32


def pointer(element: CType, const: bool) -> CType:
    """The type of a pointer to ``element``."""
    return CType(f"{'const ' if const else ''}{element.name}*", 8, "pointer", element, const)


def promoted(kind: CType) -> CType:
    """Integer promotion: types narrower than ``int`` become ``int``."""
    return INT32 if kind.integral and kind.size < 4 else kind


def common(left: CType, right: CType) -> CType:
    """The usual arithmetic conversions ([expr.arith.conv] of the C++ standard)."""
    if left.kind == "float" or right.kind == "float":
        return max((t for t in (left, right) if t.kind == "float"), key=lambda t: t.size)
    left, right = promoted(left), promoted(right)
    if left.size != right.size:
        return left if left.size > right.size else right
    return left if left.kind == "uint" else right


def wrap(kind: CType) -> Callable[[int], int]:
    """The function that reduces any integer into the range of an integer type."""
    low, high = kind.limits
    mask = (1 << 8 * kind.size) - 1

    def reduce(value: int) -> int:
        return value if low <= value <= high else ((value - low) & mask) + low

    return reduce


def round_float32(value: float) -> float:
    """``value`` rounded to the nearest binary32; past the range it is infinite."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def _truncate(kind: CType) -> Callable[[float], int]:
    reduce = wrap(kind)
    # x86-64 converts through a wider signed register, except into the widest type.
    width = 64 if kind.kind == "uint" or kind.size == 8 else 32
    limit = 1 << (width - 1)

    def convert(value: float) -> int:
        if math.isfinite(value) and -limit <= int(value) < limit:
            return reduce(int(value))
        return reduce(-limit)

    return convert


def conversion(source: CType, target: CType) -> Callable[[Any], Any] | None:
    """The function that converts a number; None when the value stays as it is."""
    if source == target:
        return None
    if target.kind == "bool":
        return bool
    if target.kind == "float":
        if target.size == 4:
            return round_float32
        return None if source.kind == "float" else float
    if source.kind == "float":
        return _truncate(target)
    if source.kind == "bool":
        return int
    low, high = source.limits
    target_low, target_high = target.limits
    return None if target_low <= low and high <= target_high else wrap(target)
