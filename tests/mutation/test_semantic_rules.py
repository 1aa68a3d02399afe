"""The Semantic family: fused terms, activations, reductions, normalisation, masks, outputs."""

import pytest

from kernelassay.mutation.activations import activations
from kernelassay.mutation.examples import kernel
from kernelassay.mutation.rule import Example, Rule
from kernelassay.mutation.semantic import RULES
from kernelassay.mutation.tree import KernelTree
from tests.mutation.rewrites import assert_parses, cases, compile_error, rewritten

BY_ID = {rule.id: rule for rule in RULES}
INDEX = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"

LISTED = """
max-min-swap tie-break init-identity drop-activation replace-activation perturb-polynomial
shift-threshold clamp-bound-drop epilogue-reorder drop-bias drop-scale drop-residual
softmax-drop-normalise attention-drop-scale causal-off-by-one causal-drop biased-variance
unbiased-variance eps-inside-outside mean-vs-sum count-include-pad
scan-inclusive-exclusive scan-reverse norm-power exp-base log-base one-minus drop-abs
drop-square momentum-statistics ignore-parameter broadcast-wrong-dim stale-output
constant-output
"""


def test_the_family_holds_the_catalogue_in_its_order() -> None:
    assert [rule.id for rule in RULES] == LISTED.split()


@pytest.mark.parametrize(("rule", "example"), cases(RULES))
def test_an_example_yields_all_its_texts_in_order(rule: Rule, example: Example) -> None:
    assert tuple(rewritten(rule, example.before)) == example.after
    assert_parses(rule, example)


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("fmaxf(v, 0.0f)", "relu"),
        ("v > 0.0f ? v : v * 0.01f", "leaky-relu"),
        ("v > 0.0f ? v : 0.5f * expm1f(v)", "elu"),
        ("v > 0.0f ? 1.05f * v : 1.7f * expm1f(v)", "elu"),
        ("1.0f / (1.0f + expf(-v))", "sigmoid"),
        ("v / (1.0f + expf(-v))", "silu"),
        ("0.5f * v * (1.0f + erff(v * 0.70710678f))", "gelu-erf"),
        ("0.5f * v * (1.0f + tanhf(0.8f * v))", "gelu-tanh"),
        ("v > 20.0f ? v : log1pf(expf(v))", "softplus"),
        ("v * tanhf(log1pf(expf(v)))", "mish"),
        ("fmaxf(fminf(v, 6.0f), 0.0f)", "clamp"),
        ("tanhf(v)", "tanh"),
    ],
)
def test_an_activation_is_recognised_once(expression: str, kind: str) -> None:
    tree = KernelTree(kernel(f"    float v = x[0];\n    y[0] = {expression};"))
    assert [found.kind for found in activations(tree)] == [kind]


def test_a_running_maximum_is_no_activation() -> None:
    tree = KernelTree(kernel("    float m = x[0];\n    m = fmaxf(m, x[1]);\n    y[0] = m;"))
    assert not list(activations(tree))


def test_a_summed_product_is_neither_scale_nor_bias() -> None:
    source = kernel(
        "    float acc = 0.0f;\n    for (int k = 0; k < n; ++k) acc += x[k] * w[k];\n"
        "    y[0] = acc;",
        "const float* x, const float* w, float* y, int n",
    )
    for name in ("drop-scale", "drop-bias", "drop-residual"):
        assert not rewritten(BY_ID[name], source)


def test_the_only_read_of_a_fused_bias_is_not_ignored_and_dropped_alike() -> None:
    source = kernel(
        f"{INDEX}    y[i] = x[i] + bias[i % c];",
        "const float* x, const float* bias, float* y, int n, int c",
    )
    assert len(rewritten(BY_ID["drop-bias"], source)) == 1
    assert not rewritten(BY_ID["ignore-parameter"], source)


def test_scratch_between_two_kernels_is_no_parameter() -> None:
    source = (
        'extern "C" __global__ void first(const float* x, float* s) { s[0] = x[0] + x[1]; }\n'
        'extern "C" __global__ void second(const float* x, const float* s, float* y) {\n'
        "    y[threadIdx.x] = x[threadIdx.x] - s[0];\n}\n"
        "void launch(const float* x, float* y) {\n    float* s; cudaMalloc(&s, sizeof(float));\n"
        "    first<<<1, 1>>>(x, s);\n    second<<<1, 32>>>(x, s, y);\n}\n"
    )
    assert not rewritten(BY_ID["ignore-parameter"], source)


def test_an_operand_of_a_helper_has_the_role_of_what_the_kernel_passes() -> None:
    source = (
        "__device__ float apply(float a0, float a1) {\n    const float t0 = a0 * 2.0f;\n"
        "    const float t1 = t0 + a1;\n    return t1;\n}\n"
        'extern "C" __global__ void k(const float* in0, const float* in1, float* out, int n) {\n'
        f"{INDEX}    out[i] = apply(in0[i], in1[i]);\n}}\n"
        "void launch(const float* in0, const float* in1, float* out, int n) {\n"
        "    k<<<n, 32>>>(in0, in1, out, n);\n}\n"
    )
    (residual,) = rewritten(BY_ID["drop-residual"], source)
    assert "const float t1 = t0;" in residual
    (scale,) = rewritten(BY_ID["drop-scale"], source)
    assert "const float t0 = a0;" in scale
    assert not rewritten(BY_ID["drop-bias"], source)


def test_a_size_is_no_coordinate_to_broadcast_along() -> None:
    source = kernel(
        f"{INDEX}    int half = c / 2;\n    int channel = i % c;\n    y[i] = x[i] + bias[channel];",
        "const float* x, const float* bias, float* y, int n, int c",
    )
    assert not any("bias[half]" in text for text in rewritten(BY_ID["broadcast-wrong-dim"], source))


def test_a_store_by_one_thread_is_skipped_in_the_first_block_only() -> None:
    source = kernel("    if (threadIdx.x == 0) y[blockIdx.x] = x[0];")
    (text,) = rewritten(BY_ID["stale-output"], source)
    assert "if (blockIdx.x != 0) y[blockIdx.x] = x[0];" in text


def test_a_copy_kernel_has_no_identity_mutant() -> None:
    (text,) = rewritten(BY_ID["constant-output"], kernel(f"{INDEX}    y[i] = x[i];"))
    assert "y[i] = 0.0f;" in text


def test_a_loop_over_a_size_is_no_mask() -> None:
    source = kernel(
        "    int row = blockIdx.x / n;\n    float sum = 0.0f;\n"
        "    for (int j = 0; j < row; ++j) sum += x[j];\n    y[row] = sum;"
    )
    assert not rewritten(BY_ID["causal-off-by-one"], source)


@pytest.mark.parametrize(("rule", "example"), cases(RULES))
def test_a_mutant_of_an_example_compiles_if_the_example_does(rule: Rule, example: Example) -> None:
    if not compile_error(example.before):
        for text in example.after:
            assert not compile_error(text)
