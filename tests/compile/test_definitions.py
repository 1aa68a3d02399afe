"""Kernels of one source, told apart by text: what they share, and where that is not tried."""

import pytest

from kernelassay.compile.batch import kernel_homes, program, unit

SOURCE = """
#define SCALE 2.0f
struct Pair { float a; float b; };
__device__ float twice(float v) { return SCALE * v; }
extern "C" __global__ void __launch_bounds__(128) first(float* y, int n) {
    #pragma unroll
    for (int i = 0; i < n; ++i) y[i] = twice(y[i]);
}
static const int WIDTH = 4;
extern "C" __global__ void second(float* y) {
    y[threadIdx.x % WIDTH] = 1.0f;
}
void launch(float* y, int n) {
    first<<<1, 1>>>(y, n);
    second<<<1, 1>>>(y);
}
"""


def changed(before, after):
    assert before in SOURCE, before
    return SOURCE.replace(before, after, 1)


def keys(source):
    return {part.name: part.key for part in unit("", source).definitions}


def test_a_change_in_one_kernel_leaves_the_others_as_they_are():
    original = keys(SOURCE)
    assert original.keys() == {"first", "second"}
    for name, source in (("first", changed("i < n", "i <= n")), ("second", changed("1.0f", "2.f"))):
        found = keys(source)
        assert {kernel for kernel in original if original[kernel] != found[kernel]} == {name}


@pytest.mark.parametrize(
    "source",
    [
        changed("SCALE * v", "SCALE + v"),
        changed("SCALE 2.0f", "SCALE 3.0f"),
        changed("float a; float b;", "float b; float a;"),
        changed("WIDTH = 4", "WIDTH = 5"),
        changed("__device__ float twice", "__device__ __noinline__ float twice"),
    ],
)
def test_a_change_outside_of_kernels_makes_every_kernel_another_one(source):
    original, found = keys(SOURCE), keys(source)
    assert found.keys() == original.keys()
    assert all(found[name] != original[name] for name in original)


def test_a_kernel_that_moves_past_a_definition_is_another_one():
    moved = changed("static const int WIDTH = 4;\n", "").replace(
        "extern", "static const int WIDTH = 4;\nextern", 1
    )
    assert keys(moved)["first"] != keys(SOURCE)["first"]


@pytest.mark.parametrize(
    "source",
    [
        changed("#pragma unroll", "#undef SCALE"),
        changed("second(float* y) {", "second(\n#if 1\nfloat* y) {\n#endif\n"),
        changed("1.0f;", "__LINE__;"),
        changed("static const", 'extern "C" __global__ void second(float* y);\nstatic const'),
        changed("1.0f;", "1.0f; first<<<1, 1>>>(y, 1);"),
        changed("SCALE 2.0f", "SCALE 2.0f\n#define other second"),
        changed("struct Pair", "namespace inner {\nstruct Pair").replace("static", "}\nstatic"),
    ],
)
def test_kernels_that_cannot_be_told_apart_are_compiled_together(source):
    assert unit("", source).kernels == ("first", "second")
    assert keys(source) == {}


def test_a_lone_kernel_has_nothing_to_share():
    start = SOURCE.index("static const")
    assert keys(SOURCE[:start] + "void launch(float* y, int n) { first<<<1, 1>>>(y, n); }") == {}


def test_a_kernel_in_common_stands_in_a_program_once_and_lines_stay():
    units = [
        (0, unit("a", changed("i < n", "i <= n"))),
        (1, unit("b", changed("1.0f", "2.0f"))),
        (2, unit("c", SOURCE)),
    ]
    homes = kernel_homes(units)
    assert homes == {
        0: {"first": 0, "second": 2},
        1: {"first": 2, "second": 1},
        2: {"first": 2, "second": 2},
    }
    text = program(units, homes)
    assert text.count("twice(y[i])") == 2
    assert text.count("threadIdx.x % WIDTH") == 2
    assert text.count("\n") == program(units).count("\n")
