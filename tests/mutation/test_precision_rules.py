"""The Precision family: its mutants compile on their own and lose the bits they say they lose."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.mutation.examples import kernel
from kernelassay.mutation.precision import RULES
from kernelassay.mutation.rule import Example, Rule
from kernelassay.mutation.semantic_activation import significant_digits, truncated
from tests.mutation.rewrites import assert_parses, cases, compile_error, rewritten

BY_ID = {rule.id: rule for rule in RULES}

LISTED = """fp16-accumulator bf16-accumulator fp16-store-temp bf16-store-temp fp16-load-temp
bf16-load-temp tf32-operand fp16-shared fast-exp fast-log fast-sin-cos fast-pow fast-tanh
fast-divide approx-rsqrt approx-sqrt drop-stabiliser two-moment-variance eps-drop eps-enlarge
reciprocal-multiply log1p-naive expm1-naive sigmoid-naive tanh-naive softplus-naive kahan-drop
pairwise-to-serial round-toward-zero float-to-int-trunc int-accumulator saturate-fp16
flush-denormals low-precision-constant double-to-float fp8-store-temp"""

NORM = kernel(
    """    __shared__ float partial[32];
    float sum = 0.0f;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) sum += x[j];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 16; s > 0; s >>= 1) {
        if (threadIdx.x < s) partial[threadIdx.x] += partial[threadIdx.x + s];
        __syncthreads();
    }
    const float mean = partial[0] / cols;
    float squares = 0.0f;
    for (int j = 0; j < cols; ++j) squares += (x[j] - mean) * (x[j] - mean);
    const float scale = rsqrtf(squares / cols + 1e-5f);
    const float4 v = reinterpret_cast<const float4*>(x)[threadIdx.x];
    reinterpret_cast<float4*>(y)[threadIdx.x] = v;
    y[threadIdx.x] = tanhf((x[threadIdx.x] - mean) * scale) / (1.0f + expf(-x[0]));""",
    "const float* x, float* y, int rows, int cols",
)


def test_the_family_holds_the_catalogue_in_its_order() -> None:
    assert [rule.id for rule in RULES] == LISTED.split()


@pytest.mark.parametrize(("rule", "example"), cases(RULES))
def test_an_example_yields_all_its_texts_in_order(rule: Rule, example: Example) -> None:
    assert tuple(rewritten(rule, example.before)) == example.after
    assert_parses(rule, example)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_mutant_of_a_small_norm_compiles(rule: Rule) -> None:
    for text in rewritten(rule, NORM):
        error = compile_error(text)
        assert not error, f"{error}\n{text}"


def test_a_source_that_has_the_header_gets_no_second_one() -> None:
    source = "#include <cuda_fp16.h>\n" + kernel("    y[0] = x[0] * 2.0f;")
    (text,) = rewritten(BY_ID["fp16-store-temp"], source)
    assert text.count("#include") == 1


def test_accumulators_of_one_declaration_change_together() -> None:
    source = kernel(
        "    float a = 0.0f, b = 0.0f;\n"
        "    for (int k = 0; k < n; ++k) {\n        a += x[k];\n        b += x[k] * x[k];\n    }\n"
        "    y[0] = a + b;"
    )
    (text,) = rewritten(BY_ID["fp16-accumulator"], source)
    assert text.count("__float2half") == 2


def test_a_load_into_a_shared_tile_is_the_tiles_site_only() -> None:
    source = kernel(
        "    __shared__ float tile[32];\n    tile[threadIdx.x] = x[threadIdx.x];\n"
        "    __syncthreads();\n    y[threadIdx.x] = tile[0];"
    )
    assert len(rewritten(BY_ID["fp16-shared"], source)) == 1
    assert not rewritten(BY_ID["fp16-load-temp"], source)


def test_a_stabiliser_goes_from_all_passes_at_once() -> None:
    source = kernel(
        "    float m = -INFINITY, s = 0.0f;\n    for (int j = 0; j < n; ++j) {\n"
        "        const float grown = fmaxf(m, x[j]);\n"
        "        s = s * expf(m - grown) + expf(x[j] - grown);\n        m = grown;\n    }\n"
        "    y[threadIdx.x] = expf(x[threadIdx.x] - m) / s;"
    )
    (text,) = rewritten(BY_ID["drop-stabiliser"], source)
    assert "s * expf(0.0f) + expf(x[j])" in text
    assert "expf(x[threadIdx.x]) / s" in text


@given(st.floats(1e-3, 1e5), st.integers(1, 8))
def test_a_cut_literal_keeps_its_leading_digits(value: float, digits: int) -> None:
    text = f"{value:.9f}f"
    cut = truncated(text, digits)
    kept = float(cut.rstrip("f"))
    exact = float(text.rstrip("f"))
    assert cut.endswith("f")
    assert kept <= exact
    assert exact - kept <= 10.0 ** (math.floor(math.log10(exact)) - digits + 1) * (1 + 1e-9)
    assert significant_digits(f"{kept:.12g}") <= max(digits, 1) or kept >= 10**digits


@given(st.floats(allow_nan=False, width=32))
def test_the_tf32_mask_leaves_ten_bits_of_mantissa(value: float) -> None:
    bits = struct.unpack("<I", struct.pack("<f", value))[0] & 0xFFFFE000
    rounded = struct.unpack("<f", struct.pack("<I", bits))[0]
    assert abs(rounded) <= abs(value)
    if math.isfinite(value) and abs(value) >= 2.0**-126:
        assert abs(value - rounded) <= 2.0**-10 * abs(value)
