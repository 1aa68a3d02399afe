"""Benign rewrites are controls: they fire only where a correct kernel stays correct."""

import pytest

from kernelassay.mutation.benign import BENIGN
from kernelassay.mutation.examples import kernel
from kernelassay.mutation.precision import RULES as PRECISION
from kernelassay.mutation.rule import FAMILIES, Example, Rule
from kernelassay.mutation.semantic import RULES as SEMANTIC
from tests.mutation.rewrites import assert_parses, cases, compile_error, rewritten

BY_ID = {rule.id: rule for rule in BENIGN}
DOT = "const float* a, const float* b, float* y, int n"


@pytest.mark.parametrize(("rule", "example"), cases(BENIGN))
def test_an_example_yields_all_its_texts_in_order(rule: Rule, example: Example) -> None:
    assert tuple(rewritten(rule, example.before)) == example.after
    assert_parses(rule, example)


@pytest.mark.parametrize(("rule", "example"), cases(BENIGN))
def test_a_benign_text_compiles(rule: Rule, example: Example) -> None:
    for text in example.after:
        error = compile_error(text)
        assert not error, f"{rule.id}: {error}"


def test_benign_rewrites_are_no_fault_family() -> None:
    assert {rule.family for rule in BENIGN} == {"benign"}
    assert "benign" not in FAMILIES
    faults = {rule.id for rule in (*SEMANTIC, *PRECISION)}
    assert not faults & {rule.id for rule in BENIGN}


@pytest.mark.parametrize(
    "body",
    [
        "        run += a[k];\n        y[k] = run;",  # a prefix sum
        "        run = run * b[k] + a[k];",  # a recurrence
        "        if (a[k] < 0.0f) break;\n        run += a[k];",  # ends early
        "        run += a[k];\n        __syncthreads();",  # a barrier
        "        run += a[k] * run;",  # a product in disguise
    ],
)
def test_a_loop_whose_order_matters_is_not_reversed(body: str) -> None:
    source = kernel(
        "    float run = 0.0f;\n    for (int k = 0; k < n; ++k) {\n"
        f"{body}\n    }}\n    y[0] = run;",
        DOT,
    )
    assert not rewritten(BY_ID["reverse-serial-sum"], source)


def test_an_unsigned_loop_is_not_reversed() -> None:
    source = kernel(
        "    float run = 0.0f;\n    for (unsigned k = 0; k < n; ++k) run += a[k];\n    y[0] = run;",
        DOT,
    )
    assert not rewritten(BY_ID["reverse-serial-sum"], source)


@pytest.mark.parametrize(
    "body",
    [
        "    __shared__ float s[256];\n    s[threadIdx.x] = x[i];\n    y[i] = s[threadIdx.x];",
        "    y[i] = __shfl_down_sync(~0u, x[i], 1);",
        "    y[i] = x[blockIdx.x];",
    ],
)
def test_a_kernel_that_depends_on_its_block_size_keeps_it(body: str) -> None:
    index = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    source = kernel(index + body, grid="(n + 255) / 256", block="256")
    for size in (64, 128, 512):
        assert not rewritten(BY_ID[f"block-size-{size}"], source)


def test_two_launches_of_one_block_size_keep_it() -> None:
    source = (
        'extern "C" __global__ void k(const float* x, float* y, int n) {\n'
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = x[i];\n}\n"
        "void launch(const float* x, float* y, int n) {\n    const int threads = 256;\n"
        "    k<<<(n + 255) / 256, threads>>>(x, y, n);\n"
        "    k<<<(n + 255) / 256, threads>>>(y, y, n);\n}\n"
    )
    assert not rewritten(BY_ID["block-size-512"], source)


def test_a_sum_that_is_exchanged_between_threads_stays_float() -> None:
    source = kernel(
        "    float acc = 0.0f;\n    for (int k = 0; k < n; ++k) acc += a[k];\n"
        "    acc = __shfl_down_sync(~0u, acc, 16);\n    y[0] = acc;",
        DOT,
    )
    assert not rewritten(BY_ID["double-accumulator"], source)


def test_a_kernel_that_returns_twice_gets_no_grid_stride_loop() -> None:
    source = kernel(
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i >= n) return;\n"
        "    if (x[i] < 0.0f) return;\n    y[i] = x[i];",
        grid="(n + 255) / 256",
        block="256",
    )
    assert not rewritten(BY_ID["grid-stride"], source)


def test_a_thread_that_starts_at_a_multiple_of_its_number_gets_no_grid_stride_loop() -> None:
    source = kernel(
        "    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;\n    if (i >= n) return;\n"
        "    y[i] = x[i];",
        grid="(n / 4 + 255) / 256",
        block="256",
    )
    assert not rewritten(BY_ID["grid-stride"], source)
