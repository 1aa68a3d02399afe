"""A problem's constants reach the compiler that tells equivalent mutants, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.compile import classify, nvrtc
from kernelassay.compile.fixed import ties, with_fixed
from kernelassay.execute.bench import ProblemBench
from kernelassay.execute.worker import CallInfo
from kernelassay.input_trials import settle
from kernelassay.plan import _with_ties
from kernelassay.suite import suite_problems

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


def test_a_kernel_is_told_which_of_its_arguments_are_one_size():
    told = with_fixed(SOURCE, {"pad": "n"})
    assert told == SOURCE.replace("int pad) {\n    int i", "int pad) {pad = n;\n    int i")
    swapped = with_fixed(SOURCE.replace("n, stride, pad);", "pad, stride, n);"), {"pad": "n"})
    assert "pad = n;" in swapped
    for changed in ("n = 2;", "pad += 1;"):
        source = SOURCE.replace("    pick<<<", f"    {changed}\n    pick<<<")
        assert with_fixed(source, {"pad": "n"}) == source
    alone = SOURCE.replace("n, stride, pad);", "n + 0, stride, pad);")
    assert with_fixed(alone, {"pad": "n"}) == alone


# Two sizes of a problem, A and B, and what a call's arguments are made of them.
SCALARS = {
    "rows": lambda a, b: a,
    "same": lambda a, b: a,
    "other": lambda a, b: b,
    "both": lambda a, b: a + b,
    "twice": lambda a, b: 2 * a,
    "odd": lambda a, b: a if a % 2 else a + 1,
    "tap": lambda a, b: 3,
    "scale": lambda a, b: float(a),
    "flag": lambda a, b: bool(a % 2),
}


def scalars(a, b):
    return {name: value(a, b) for name, value in SCALARS.items()}


@given(
    st.integers(1, 64),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=4),
)
def test_only_what_hangs_on_the_same_size_is_tied_whatever_the_inputs_share(size, sizes):
    """Both sizes are equal officially, and may be on every input there is."""
    runs = [scalars(size, size), *(scalars(*pair) for pair in sizes)]
    moves = [scalars(2 * size, size), scalars(size, 2 * size)]
    found = ties(runs, moves, ())
    assert found.pop("same") == "rows"
    # Equal only at odd sizes: an input or a move that is even tells, and 2 * size is even.
    assert found == {}
    assert ties(runs, moves, {"rows", "same"}) == {}


def test_what_never_moves_alone_is_not_tied():
    runs = [scalars(k, k) for k in range(1, 9)]
    assert ties(runs, [], ()) == ties([], [], ()) == {}
    assert ties(runs, [scalars(1, 5)], ()) == {}


def problem_ties(problem, size):
    bench = ProblemBench(problem, None)
    settled = settle(problem, size, bench.signature)
    given = [bench.arguments(spec.overrides) for spec in settled.specs]
    moved = [bench.arguments(move) for move in settled.moves]
    return {
        call.id.split("_", 1)[1]: ties(
            [arguments[call.id] for arguments in given if arguments],
            [arguments[call.id] for arguments in moved],
            call.fixed,
        )
        for call in bench.calls
    }


def test_a_constant_that_varies_on_some_input_or_move_is_not_told():
    call = CallInfo("k00", "conv1d", {}, (), (), {"stride": 2, "kernel": 3, "pad": 0})
    official = {"k00": {"stride": 2, "kernel": 3, "pad": 0}}
    assert _with_ties(call, [official], []).fixed == call.fixed
    wider = {"k00": {"stride": 2, "kernel": 5, "pad": 0}}
    padded = {"k00": {"stride": 2, "kernel": 3, "pad": 1}}
    assert _with_ties(call, [official, wider], [padded]).fixed == {"stride": 2}


SAME = {"out_d": "in_d", "out_h": "in_h", "out_w": "in_w"}


@pytest.mark.parametrize(
    ("name", "tied"),
    [
        ("matmul_square", {"matmul": {"N": "M", "K": "M"}}),
        ("matmul_rectangular", {"matmul": {}}),
        # Padding keeps each extent; height and width, though they share their official value and
        # the floor they are lowered to, stay two sizes.
        ("conv3d", {"conv3d": SAME}),
        ("avg_pool2d", {"avg_pool2d": {}}),
    ],
)
def test_extents_are_one_size_where_the_problem_makes_them_so(name, tied):
    (problem,) = (p for p in suite_problems() if p.id == f"suite/{name}")
    assert problem_ties(problem, "quick") == tied


@needs_nvrtc
@pytest.mark.parametrize(("fixed", "status"), [({"m": "n"}, "equivalent"), ({}, "distinct")])
def test_one_extent_for_another_is_equivalent_where_they_are_one_size(fixed, status):
    source = """extern "C" __global__ void k(const float* x, float* y, int n, int m) {
    int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n && col < m) y[(long long)row * m + col] = x[(long long)col * n + row];
}
void launch(const float* x, float* y, int n, int m) {
    k<<<dim3((m + 127) / 128, n), 128>>>(x, y, n, m);
}
"""
    mutants = [
        ("guard", source.replace("col < m", "col < n")),
        ("stride", source.replace("row * m", "row * n")),
    ]
    found = classify.classify(source, mutants, fixed=fixed)
    assert [found[name].status for name, _ in mutants] == [status] * len(mutants)


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
