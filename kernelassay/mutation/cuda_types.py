"""Static types of CUDA expressions, as far as a mutation rule has to tell them apart.

Not a C++ front end: declared types of parameters, locals, shared arrays and struct members are
read off the syntax tree, expressions get the usual arithmetic conversions, and what cannot be
told (template parameters, unknown calls) is ``unknown``, so that typed rules leave it alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

KINDS = ("float", "half", "double", "int", "long", "bool", "pointer", "unknown")

_BASES = {
    "float": "float",
    "double": "double",
    "half": "half",
    "__half": "half",
    "__nv_bfloat16": "half",
    "nv_bfloat16": "half",
    "__nv_fp8_e4m3": "half",
    "bool": "bool",
    "int": "int",
    "unsigned": "int",
    "signed": "int",
    "short": "int",
    "char": "int",
    "wchar_t": "int",
    "int8_t": "int",
    "uint8_t": "int",
    "int16_t": "int",
    "uint16_t": "int",
    "int32_t": "int",
    "uint32_t": "int",
    "uint": "int",
    "ushort": "int",
    "uchar": "int",
    "long": "long",
    "int64_t": "long",
    "uint64_t": "long",
    "ulong": "long",
    "size_t": "long",
    "ptrdiff_t": "long",
}
_VECTOR = re.compile(
    r"^(float|double|half|__half|__nv_bfloat16|int|uint|long|longlong|uchar)[1-4]$"
)
_QUALIFIERS = re.compile(
    r"\b(const|constexpr|volatile|static|extern|register|inline|__restrict__|__restrict|restrict"
    r"|__shared__|__constant__|__device__|__global__|struct)\b"
)


@dataclass(frozen=True, slots=True)
class CType:
    """A base type, without qualifiers, under ``depth`` pointer or array levels."""

    base: str
    depth: int = 0

    @property
    def kind(self) -> str:
        """One of :data:`KINDS`."""
        return "pointer" if self.depth > 0 else base_kind(self.base)

    def pointee(self) -> CType:
        """The type of ``*p`` or ``p[i]``."""
        return CType(self.base, self.depth - 1) if self.depth > 0 else UNKNOWN

    def pointer(self) -> CType:
        """The type of ``&value``."""
        return CType(self.base, self.depth + 1)


UNKNOWN = CType("unknown")
FLOAT = CType("float")
DOUBLE = CType("double")
HALF = CType("half")
INT = CType("int")
LONG = CType("long")
BOOL = CType("bool")


def parse_type(text: str) -> CType:
    """The type a declaration or cast spells, such as ``const float4*`` or ``unsigned int``."""
    depth = text.count("*")
    words = _QUALIFIERS.sub(" ", text.replace("*", " ").replace("&", " ")).split()
    return CType(" ".join(words) or "unknown", depth)


def base_kind(base: str) -> str:
    """The kind of a base type that is no pointer."""
    words = base.split()
    kinds = [_BASES.get(word, "unknown") for word in words]
    if not words or "unknown" in kinds:
        return "unknown"
    for kind in ("double", "float", "half", "bool", "long"):
        if kind in kinds:
            # `long double` has no device meaning; it counts as double.
            return kind
    return "int"


def member_type(base: str) -> CType | None:
    """The component type of a CUDA vector type (``float4`` has ``float``), else None."""
    match = _VECTOR.match(base)
    if match is None:
        return None
    name = match.group(1)
    return CType({"uint": "unsigned", "longlong": "long", "uchar": "int"}.get(name, name))


def literal_type(text: str) -> CType:
    """The type of a number literal."""
    lowered = text.lower()
    if lowered.startswith(("0x", "0b")):
        return LONG if "l" in lowered else INT
    if lowered.endswith("f"):
        return FLOAT
    if "." in lowered or "e" in lowered:
        return DOUBLE
    return LONG if "l" in lowered else INT


_RANK = {"bool": 1, "int": 2, "long": 3, "half": 4, "float": 5, "double": 6}
_PROMOTED = {"int": INT, "long": LONG, "half": HALF, "float": FLOAT, "double": DOUBLE}


def promote(left: CType, right: CType) -> CType:
    """The usual arithmetic conversions; a pointer plus an integer is the pointer."""
    if left.depth or right.depth:
        return left if left.depth else right
    one, two = left.kind, right.kind
    if one == "unknown" or two == "unknown":
        # A vector type or a template parameter absorbs a scalar.
        return left if left.base == right.base else UNKNOWN
    kind = one if _RANK[one] >= _RANK[two] else two
    return _PROMOTED.get(kind, INT)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FLOAT_CALLS = _words(
    """__fdividef __frcp_rn __frsqrt_rn __fsqrt_rn __expf __exp10f __logf __log2f __log10f __sinf
    __cosf __tanf __powf __saturatef __fadd_rn __fadd_rz __fmul_rn __fmul_rz __fmaf_rn
    __fdiv_rn __fsub_rn __half2float __bfloat162float __int2float_rn __low2float __high2float
    __int_as_float __uint_as_float __uint2float_rn __ll2float_rn __fmaf_rz"""
)
_DOUBLE_CALLS = _words(
    """exp log sqrt rsqrt pow sin cos tan tanh sinh cosh erf erfc log1p expm1 exp2 log2 fabs
    floor ceil fmax fmin fma rint round trunc fmod hypot cbrt"""
)
_HALF_CALLS = _words(
    """__float2half __float2half_rn __float2half_rz __float2bfloat16 __float2bfloat16_rn __hadd
    __hsub __hmul __hdiv __hfma __hmax __hmin __hneg __habs hexp hlog hsqrt hrsqrt __low2half
    __high2half"""
)
_INT_CALLS = _words(
    """__float2int_rn __float2int_rz __float2int_rd __float2int_ru __popc __ffs __clz
    __ballot_sync __activemask __float_as_int __float_as_uint __umulhi __mulhi lrintf lroundf
    __syncthreads_count __syncthreads_or __syncthreads_and"""
)
_BOOL_CALLS = _words("""isnan isinf isfinite signbit __any_sync __all_sync""")
#: Calls whose result has the type of one argument, by its position.
SAME_AS_ARGUMENT = {
    "__shfl_sync": 1,
    "__shfl_up_sync": 1,
    "__shfl_down_sync": 1,
    "__shfl_xor_sync": 1,
    "abs": 0,
    "__reduce_add_sync": 1,
    "__reduce_max_sync": 1,
    "atomicAdd": 1,
    "atomicMax": 1,
    "atomicMin": 1,
    "atomicExch": 1,
    "atomicCAS": 1,
}
#: Calls that read through a pointer argument.
READS_POINTER = frozenset({"__ldg", "__ldcs", "__ldca", "__ldcg"})
_FLOAT_MATH = re.compile(r"^[a-z]+[0-9]?[a-z]*f$")


def call_type(name: str) -> CType:
    """The result type of a CUDA built-in by its name; ``UNKNOWN`` for anything else."""
    if name in _DOUBLE_CALLS:
        return DOUBLE
    if name in _HALF_CALLS:
        return HALF
    if name in _INT_CALLS:
        return INT
    if name in _BOOL_CALLS:
        return BOOL
    if name in _FLOAT_CALLS or name == "log1pf" or _FLOAT_MATH.match(name):
        return FLOAT
    if member_type(name.removeprefix("make_")) is not None and name.startswith("make_"):
        return CType(name.removeprefix("make_"))
    return UNKNOWN


NAMED_CONSTANTS = {
    "INFINITY": FLOAT,
    "NAN": FLOAT,
    "FLT_MAX": FLOAT,
    "FLT_MIN": FLOAT,
    "FLT_EPSILON": FLOAT,
    "CUDART_INF_F": FLOAT,
    "CUDART_NAN_F": FLOAT,
    "M_PI": DOUBLE,
    "INT_MAX": INT,
    "INT_MIN": INT,
    "warpSize": INT,
}
