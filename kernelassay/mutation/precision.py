"""The Precision family: the right operation in too few bits, or in an unstable form."""

from __future__ import annotations

from kernelassay.mutation import precision_bits as bits
from kernelassay.mutation import precision_math as math
from kernelassay.mutation import precision_reduction as reduction
from kernelassay.mutation import precision_rounding as rounding
from kernelassay.mutation.rule import Rule

#: The rules of the family in their fixed order.
RULES: tuple[Rule, ...] = (
    rounding.FP16_ACCUMULATOR,
    rounding.BF16_ACCUMULATOR,
    rounding.FP16_STORE_TEMP,
    rounding.BF16_STORE_TEMP,
    rounding.FP16_LOAD_TEMP,
    rounding.BF16_LOAD_TEMP,
    rounding.TF32_OPERAND,
    rounding.FP16_SHARED,
    math.FAST_EXP,
    math.FAST_LOG,
    math.FAST_SIN_COS,
    math.FAST_POW,
    math.FAST_TANH,
    math.FAST_DIVIDE,
    math.APPROX_RSQRT,
    math.APPROX_SQRT,
    reduction.DROP_STABILISER,
    reduction.TWO_MOMENT_VARIANCE,
    math.EPS_DROP,
    math.EPS_ENLARGE,
    math.RECIPROCAL_MULTIPLY,
    math.LOG1P_NAIVE,
    math.EXPM1_NAIVE,
    math.SIGMOID_NAIVE,
    math.TANH_NAIVE,
    math.SOFTPLUS_NAIVE,
    reduction.KAHAN_DROP,
    reduction.PAIRWISE_TO_SERIAL,
    bits.ROUND_TOWARD_ZERO,
    bits.FLOAT_TO_INT_TRUNC,
    bits.INT_ACCUMULATOR,
    bits.SATURATE_FP16,
    bits.FLUSH_DENORMALS,
    math.LOW_PRECISION_CONSTANT,
    bits.DOUBLE_TO_FLOAT,
    rounding.FP8_STORE_TEMP,
)
