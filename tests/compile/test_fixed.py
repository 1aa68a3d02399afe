"""A problem's constants reach the compiler that tells equivalent mutants, and nothing else does."""

import pytest

from kernelassay.compile import classify, nvrtc
from kernelassay.compile.fixed import with_fixed

needs_nvrtc = pytest.mark.skipif(bool(nvrtc.unavailable_reason()), reason="needs NVRTC")

SOURCE = """\
extern "C" __global__ void pick(const float* x, float* y, int n, int stride, int pad) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i * stride - pad];
}

void launch(const float* x, float* y, int n, int stride, int pad) {
    pick<<<(n + 127) / 128, 128>>>(x, y, n, stride, pad);
}
"""
ASSUMED = "__builtin_assume(stride == 1); __builtin_assume(pad == 0);"


def test_a_kernel_is_told_the_arguments_that_never_change():
    told = with_fixed(SOURCE, {"stride": 1, "pad": 0})
    assert told == SOURCE.replace("int pad) {\n    int i", "int pad) {" + ASSUMED + "\n    int i")


def test_without_constants_the_source_is_untouched():
    assert with_fixed(SOURCE, {}) is SOURCE
    assert with_fixed(SOURCE, {"dilation": 2}) == SOURCE


def test_only_integers_passed_on_as_they_stand_are_told():
    computed = SOURCE.replace("y, n, stride, pad);", "y, n, stride + 1, pad);")
    assert with_fixed(computed, {"stride": 1}) == computed


@pytest.mark.parametrize("change", ["stride = 2;", "stride += 1;", "++stride;", "stride--;"])
def test_a_parameter_that_launch_changes_is_not_told(change):
    changed = SOURCE.replace("    pick<<<", f"    {change}\n    pick<<<")
    assert with_fixed(changed, {"stride": 1}) == changed


def test_swapped_arguments_swap_what_is_told():
    swapped = SOURCE.replace("n, stride, pad);", "n, pad, stride);")
    told = with_fixed(swapped, {"stride": 1, "pad": 0})
    assert "__builtin_assume(stride == 0); __builtin_assume(pad == 1);" in told


def test_launches_that_disagree_tell_only_what_they_share():
    again = SOURCE.replace(
        "n, stride, pad);\n", "n, stride, pad);\n    pick<<<1, 1>>>(x, y, n, 5, pad);\n"
    )
    told = with_fixed(again, {"stride": 1, "pad": 0})
    assert "stride ==" not in told and "__builtin_assume(pad == 0);" in told


@needs_nvrtc
@pytest.mark.parametrize(("stride", "status"), [(1, "equivalent"), (2, "distinct")])
def test_a_dropped_stride_is_equivalent_where_the_stride_is_one(stride, status):
    mutant = SOURCE.replace("i * stride - pad", "i - pad")
    found = classify.classify(SOURCE, [("m", mutant)], fixed={"stride": stride}, backend="nvrtc")
    assert found["m"].status == status


@needs_nvrtc
def test_without_the_constant_the_dropped_stride_is_distinct():
    mutant = SOURCE.replace("i * stride - pad", "i - pad")
    assert classify.classify(SOURCE, [("m", mutant)], backend="nvrtc")["m"].status == "distinct"
