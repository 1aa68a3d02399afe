"""A problem's constants reach the compiler that tells equivalent mutants, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.compile import classify, nvrtc
from kernelassay.compile.fixed import Multiple, multiples, ties, with_fixed
from kernelassay.execute.bench import ProblemBench
from kernelassay.execute.messages import CallInfo
from kernelassay.execute.serving import tried
from kernelassay.input_trials import settle
from kernelassay.plan import with_known
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
    assert "{n = pad;" in swapped
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


def at(*pairs):
    """Sizes and what follows from them, the problem's own first."""
    return [({"a": a, "b": b}, scalars(a, b)) for a, b in pairs]


@given(
    st.integers(1, 64),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=4),
)
def test_only_what_hangs_on_the_same_size_is_tied_whatever_the_inputs_share(size, sizes):
    """Both sizes are equal officially, and may be on every input there is."""
    runs = [scalars(size, size), *(scalars(*pair) for pair in sizes)]
    moves = at((size, size), (2 * size, size), (size, 2 * size))
    found = ties(moves, runs, ())
    assert found.pop("same") == "rows"
    # Equal only at odd sizes: an input or a move that is even tells, and 2 * size is even.
    assert found == {}
    assert ties(moves, runs, {"rows", "same"}) == {}


def test_what_never_moves_alone_is_not_tied():
    runs = [scalars(k, k) for k in range(1, 9)]
    assert ties([], runs, ()) == ties([], [], ()) == {}
    assert ties(at((1, 1), (1, 5)), runs, ()) == {}
    assert ties(at((1, 1), (5, 5)), runs, ()) == {}


LEVERS = st.fixed_dictionaries({"a": st.integers(1, 40), "b": st.integers(1, 40)})


def course(compute, own, others):
    """Sizes and what follows: a problem's own, each size doubled alone, and some others."""
    moved = [{**own, name: 2 * size} for name, size in own.items()]
    return [(sizes, {"n": compute(**sizes), "scale": 4.0}) for sizes in (own, *moved, *others)]


@given(st.integers(1, 64), st.integers(0, 2), st.integers(0, 2), LEVERS, st.lists(LEVERS))
def test_the_factor_that_no_free_size_brings_is_told(factor, k, m, own, others):
    trials = course(lambda a, b: factor * a**k * b**m, own, others)
    given = [scalars for _, scalars in trials]
    power = factor & -factor
    expected = {"n": Multiple(power)} if power > 1 else {}
    assert multiples(trials, given, ()) == expected
    assert multiples(trials, given, {"n"}) == {}
    # An input that somebody gave may have any size.
    assert multiples(trials, [{"n": 2 * factor + 1}], ()) == {}
    # Without a move of each size alone, nobody knows what the factor hangs on.
    assert multiples(trials[:2], given, ()) == multiples([], given, ()) == {}


@given(LEVERS, st.lists(LEVERS), st.sampled_from(["pool", "border", "least"]))
def test_what_is_no_product_of_sizes_is_told_only_where_the_trials_show_a_product(
    own, others, kind
):
    """Rounded down, it may be even wherever it is tried; one trial that is no product tells."""
    compute = {
        "pool": lambda a, b: 4 * ((a + 1) // 2) * b,
        "border": lambda a, b: 4 * (a + 2) * b,
        "least": lambda a, b: 4 * min(a, b),
    }[kind]
    telling = [{"a": a, "b": b} for a, b in ((7, 5), (8, 5), (5, 7), (6, 6))]
    trials = course(compute, own, [*others, *telling])
    assert multiples(trials, [], ()) == {}


def test_extents_behind_a_pooling_are_not_told_to_be_even():
    """At all sizes that the battery tries, the pooled planes may hold a factor of four."""
    problems = {p.id: p for p in suite_problems()}
    for name in ("conv3d_softplus_maxpool", "max_pool3d"):
        problem = problems[f"suite/{name}"]
        bench = ProblemBench(problem)
        settled = settle(problem, "full", bench.signature)
        course = list(tried(bench, settled))
        assert course
        for call in bench.calls:
            mine = [(sizes, some[call.id]) for sizes, some in course if call.id in some]
            for told, power in multiples(mine, [], ()).items():
                assert told not in ("cols", "out_d", "out_h", "out_w"), (call.id, told, power)


VECTORISED = """extern "C" __global__ void k(const float* x, float* y, long long n) {
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, groups = n / 4;
    for (long long v = first; v < groups; v += (long long)gridDim.x * blockDim.x)
        reinterpret_cast<float4*>(y)[v] = reinterpret_cast<const float4*>(x)[v];
    for (long long i = groups * 4 + first; i < n; i += (long long)gridDim.x * blockDim.x)
        y[i] = x[i];
}
void launch(const float* x, float* y, long long n) {
    k<<<(n / 4 + 256) / 256, 256>>>(x, y, n);
}
"""


@needs_nvrtc
@pytest.mark.parametrize(
    ("fixed", "tail", "groups"),
    [
        ({}, "distinct", "distinct"),
        ({"n": Multiple(2)}, "distinct", "distinct"),
        ({"n": Multiple(8)}, "equivalent", "distinct"),
        ({"n": 1}, "distinct", "equivalent"),
    ],
)
def test_a_fault_in_a_part_that_a_count_of_elements_leaves_out_is_equivalent(fixed, tail, groups):
    mutants = [
        ("tail", VECTORISED.replace("y[i] = x[i];", "y[i] = -x[i];")),
        ("groups", VECTORISED.replace("v < groups", "v < groups - 1")),
    ]
    found = classify.classify(VECTORISED, mutants, fixed=fixed, backend="nvrtc")
    assert found["tail"].status == tail
    assert found["groups"].status == groups


def test_a_multiple_that_the_problem_fixes_is_told():
    """Rotary tables are as wide as half a head, which the problem does not vary."""
    problems = {p.id: p for p in suite_problems()}
    bench = ProblemBench(problems["suite/rotary_embedding"])
    course = list(tried(bench, settle(bench.problem, "quick", bench.signature)))
    for call in (call for call in bench.calls if call.template == "pointwise"):
        mine = [(sizes, some[call.id]) for sizes, some in course]
        assert multiples(mine, [], ())["n"].of >= 4, call.id


def problem_ties(problem, size):
    bench = ProblemBench(problem)
    settled = settle(problem, size, bench.signature)
    course = [(sizes, some) for sizes, some in tried(bench, settled) if some]
    return {
        call.id.split("_", 1)[1]: ties(
            [(sizes, some[call.id]) for sizes, some in course],
            [some[call.id] for _, some in course],
            call.fixed,
        )
        for call in bench.calls
    }


def test_a_constant_that_varies_on_some_input_or_move_is_not_told():
    call = CallInfo("k00", "conv1d", {}, (), (), {"stride": 2, "kernel": 3, "pad": 0})
    official = {"k00": {"stride": 2, "kernel": 3, "pad": 0}}
    assert with_known(call, [official], []).fixed == call.fixed
    wider = {"k00": {"stride": 2, "kernel": 5, "pad": 0}}
    padded = {"k00": {"stride": 2, "kernel": 3, "pad": 1}}
    assert with_known(call, [official, wider], [({"n": 2}, padded)]).fixed == {"stride": 2}


def test_extents_that_a_filter_has_in_common_are_told_to_be_one():
    call = CallInfo("k00", "conv2d", {}, (), (), {"kernel_w": "kernel_h"})
    square = {"k00": {"kernel_h": 3, "kernel_w": 3}}
    assert with_known(call, [square], []).fixed == {"kernel_w": "kernel_h"}
    flat = {"k00": {"kernel_h": 3, "kernel_w": 5}}
    assert with_known(call, [square, flat], []).fixed == {}
    told = {
        problem.id: call.fixed.get("kernel_w")
        for problem in suite_problems()
        if problem.id in ("suite/conv2d", "suite/conv2d_depthwise")
        for call in ProblemBench(problem).calls
        if call.template == "conv2d"
    }
    assert told == {"suite/conv2d": None, "suite/conv2d_depthwise": "kernel_h"}


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
