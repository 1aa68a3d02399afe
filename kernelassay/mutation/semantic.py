"""The Semantic family: a correct-looking kernel that computes another operation."""

from __future__ import annotations

from kernelassay.mutation import semantic_activation as activation
from kernelassay.mutation import semantic_divisors as divisors
from kernelassay.mutation import semantic_fusion as fusion
from kernelassay.mutation import semantic_normalise as normalise
from kernelassay.mutation import semantic_output as output
from kernelassay.mutation import semantic_reduction as reduction
from kernelassay.mutation import semantic_scan as scan
from kernelassay.mutation import semantic_statistics as statistics
from kernelassay.mutation.rule import Rule

#: The rules of the family in their fixed order.
RULES: tuple[Rule, ...] = (
    reduction.MAX_MIN_SWAP,
    reduction.TIE_BREAK,
    reduction.INIT_IDENTITY,
    activation.DROP_ACTIVATION,
    activation.REPLACE_ACTIVATION,
    activation.PERTURB_POLYNOMIAL,
    activation.SHIFT_THRESHOLD,
    activation.CLAMP_BOUND_DROP,
    fusion.EPILOGUE_REORDER,
    fusion.DROP_BIAS,
    fusion.DROP_SCALE,
    fusion.DROP_RESIDUAL,
    normalise.SOFTMAX_DROP_NORMALISE,
    normalise.ATTENTION_DROP_SCALE,
    normalise.CAUSAL_OFF_BY_ONE,
    normalise.CAUSAL_DROP,
    statistics.BIASED_VARIANCE,
    statistics.UNBIASED_VARIANCE,
    statistics.EPS_INSIDE_OUTSIDE,
    divisors.MEAN_VS_SUM,
    divisors.COUNT_INCLUDE_PAD,
    scan.SCAN_INCLUSIVE_EXCLUSIVE,
    scan.SCAN_REVERSE,
    reduction.NORM_POWER,
    activation.EXP_BASE,
    activation.LOG_BASE,
    activation.ONE_MINUS,
    activation.DROP_ABS,
    activation.DROP_SQUARE,
    statistics.MOMENTUM_STATISTICS,
    output.IGNORE_PARAMETER,
    output.BROADCAST_WRONG_DIM,
    output.STALE_OUTPUT,
    output.CONSTANT_OUTPUT,
)
