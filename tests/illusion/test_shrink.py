"""Shrinking executes the kernel at every step, and what it gives still fails in the same way."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay.errors import UsageError
from kernelassay.illusion import bundle_file
from kernelassay.illusion.bundle import write
from kernelassay.illusion.cases import LAYOUTS, Case
from kernelassay.illusion.corpus import entry
from kernelassay.illusion.oracle import Rule
from kernelassay.illusion.replay import replay
from kernelassay.illusion.schema import Schema
from kernelassay.illusion.shrink import EXECUTIONS, shrink
from kernelassay.illusion.trial import Examiner
from kernelassay.illusion.values import VALUES
from tests.illusion.benches import NumpyBench

SOFTMAX = entry("softmax")
WIDE = Schema({"B": (1, 2, 8), "S": (1, 7, 128), "H": (256, 257)}, {"x": "BSH"}, tuple("BSH"))

PAD_TO_POWER = """
import numpy as np
def run(x):
    n = x.shape[-1]
    padded = np.zeros((*x.shape[:-1], 1 << (n - 1).bit_length()), np.float32)
    padded[..., :n] = x
    e = np.exp(padded - padded.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True))[..., :n].astype(x.dtype)
"""
ELEMENTWISE = "import numpy as np\ndef run(x):\n    return np.asarray({}, x.dtype)\n"


def kernel(text, reference="relu", schema=WIDE):
    dtypes = ("float32", "float16")
    return replace(SOFTMAX, name="k", text=text, reference=reference, schema=schema, dtypes=dtypes)


def a_case(schema=WIDE, **changed):
    fields = {
        "strategy": "default",
        "index": 0,
        "seed": 11,
        "dtype": "float32",
        "layout": "stepped",
        "sizes": tuple((name, sizes[-1]) for name, sizes in schema.dims.items()),
        "values": "uniform",
    }
    return Case(**{**fields, **changed})


def shrunk(op, case=None, rule=None, **options):
    bench = NumpyBench(forks=False)
    found = shrink(
        Examiner(op, rule or Rule()), bench, case or a_case(op.schema), device="numpy", **options
    )
    if op.reference_text is None:
        assert found.executions == bench.runs
    return found


def sizes_of(found):
    return tuple(size for _, size in found.case.sizes)


def test_a_fault_that_is_right_at_every_power_of_two_shrinks_to_three():
    found = shrunk(kernel(PAD_TO_POWER, "softmax"))
    assert sizes_of(found) == (1, 1, 3)
    assert [x.ravel().tolist() for x in found.inputs] == [[0.0, 0.0, 0.0]]
    assert (found.case.layout, found.case.dtype) == ("contiguous", "float32")
    assert "output 0 [0, 0, 0] is 0.25, not 0.333333" in found.wrong
    assert found.finished and found.executions <= 40
    assert replay(found.bundle, NumpyBench()).differences == ()


def test_sizes_stay_among_the_candidates_if_asked():
    found = shrunk(kernel(PAD_TO_POWER, "softmax"), any_size=False)
    assert sizes_of(found) == (1, 1, 257)


def test_a_fault_past_a_threshold_shrinks_to_it():
    text = ELEMENTWISE.format("np.maximum(x, 0) + (x.shape[-1] >= 77)")
    found = shrunk(kernel(text))
    assert sizes_of(found) == (1, 1, 77)
    assert found.finished


def test_one_bad_element_among_thousands_is_isolated_and_made_simple():
    text = ELEMENTWISE.format("np.where((x > 9) & (x < 9.5), 0, np.maximum(x, 0))")
    found = shrunk(kernel(text), a_case(sizes=(("B", 2), ("S", 7), ("H", 257))))
    assert sizes_of(found) == (1, 1, 1)
    (value,) = found.inputs[0].ravel().tolist()
    assert 9 < value < 9.5
    assert value == pytest.approx(float(f"{value:.1e}"))
    assert found.explicit


def test_a_fault_of_a_layout_keeps_the_layout():
    text = ELEMENTWISE.format("np.maximum(x, 0) + (not x.flags.c_contiguous)")
    found = shrunk(kernel(text), a_case(layout="transposed", sizes=(("B", 2), ("S", 7), ("H", 9))))
    # A transposed matrix with one row or one column is contiguous.
    assert (found.case.layout, sizes_of(found)) == ("transposed", (1, 2, 2))
    assert not found.inputs[0].flags.c_contiguous
    assert replay(found.bundle, NumpyBench()).differences == ()


def test_all_inputs_with_a_dimension_lose_the_same_slices():
    schema = Schema({"M": (7,), "K": (16,), "N": (15,)}, {"a": "MK", "b": "KN"}, tuple("MN"))
    text = "def run(a, b):\n    return a[:, -1:] @ b[-1:]\n"
    found = shrunk(kernel(text, "matmul", schema))
    assert sizes_of(found) == (1, 2, 1)
    a, b = found.inputs
    assert (a.tolist(), b.tolist()) == ([[1.0, 0.0]], [[1.0], [0.0]])


def test_a_failure_does_not_become_one_of_another_kind():
    text = ELEMENTWISE.format("np.maximum(x, 0) + 1 if x.shape[-1] > 4 else x[0]")
    found = shrunk(kernel(text))
    assert found.bundle.expected.failure == "tolerance"
    assert sizes_of(found) == (1, 1, 5)
    crash = "def run(x):\n    raise ValueError if x.shape[-1] > 4 else SystemExit\n"
    assert shrunk_in_children(crash).bundle.expected.outcome == "raised"


def shrunk_in_children(text):
    case = a_case(sizes=(("B", 1), ("S", 1), ("H", 8)))
    return shrink(Examiner(kernel(text), Rule()), NumpyBench(), case, device="numpy")


def test_a_kernel_without_run_fails_on_the_smallest_case():
    found = shrunk_in_children("x = 1\n")
    assert (sizes_of(found), found.bundle.expected.outcome) == ((1, 1, 1), "raised")
    assert "defines no function run" in found.wrong


def test_the_limit_on_executions_holds_and_is_told():
    text = ELEMENTWISE.format("np.maximum(x, 0) + (x.shape[-1] >= 77)")
    steps = []
    for limit in (2, 3, 10):
        found = shrunk(kernel(text), executions=limit, progress=steps.append)
        assert (found.executions, found.finished) == (limit, False)
        assert found.bundle.expected.failure == "tolerance"
    assert steps and all("executions: " in step for step in steps)


def test_a_case_that_passes_cannot_be_shrunk():
    with pytest.raises(UsageError, match="does not fail on B=8 S=128 H=257"):
        shrunk(SOFTMAX, a_case())


def test_a_kernel_that_is_not_deterministic_is_told_so():
    text = "import numpy as np\ndef run(x):\n    return x + 5 + np.random.rand(*x.shape) / 9\n"
    text = text.replace("return ", "return np.float32(").rstrip() + ")\n"
    found = shrunk(kernel(text))
    assert not found.bundle.expected.deterministic
    assert replay(found.bundle, NumpyBench()).differences == ()


def test_explicit_inputs_are_shrunk_as_they_are():
    text = ELEMENTWISE.format("np.maximum(x, 0) + (x == 7)")
    x = np.zeros((2, 3, 4), np.float32)
    x[1, 2, 3] = 7
    case = a_case(sizes=(("B", 2), ("S", 3), ("H", 4)))
    found = shrunk(kernel(text), case, inputs=[x])
    assert found.explicit
    assert found.inputs[0].tolist() == [[[7.0]]]
    assert found.bundle.name != replace(found.bundle, explicit=False).name


def test_a_failure_by_a_nan_stays_one():
    text = ELEMENTWISE.format("np.where(np.isnan(x), np.nan, np.maximum(x, 0))")
    found = shrunk(kernel(text), a_case(values="nan-injected"))
    assert found.bundle.expected.failure == "nonfinite"
    assert sizes_of(found) == (1, 1, 1)
    assert not np.isfinite(found.inputs[0]).any()
    assert found.to_json()["inputs"] in ([[[["nan"]]]], [[[["inf"]]]])


def test_a_reference_that_refuses_an_input_bounds_the_search():
    text = "import numpy as np\ndef reference(x):\n    assert x.shape[-1] > 2\n    return x\n"
    schema = Schema({"H": (5,)}, {"x": ("H",)}, ("H",))
    op = replace(kernel("def run(x): return x + 1\n", "own.py", schema=schema), reference_text=text)
    found = shrunk(op, a_case(schema))
    assert sizes_of(found) == (3,)
    assert shrunk(op, a_case(schema), executions=4).executions == 4


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    dtype=st.sampled_from(["float32", "float16"]),
    layout=st.sampled_from(LAYOUTS),
    values=st.sampled_from(sorted(VALUES)),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 9)),
    text=st.sampled_from(
        [
            PAD_TO_POWER,
            ELEMENTWISE.format("np.where(x < 0, x, 1)"),
            ELEMENTWISE.format("x[..., ::-1]"),
            ELEMENTWISE.format("np.cumsum(np.float32(x), -1)"),
            "def run(x): return x[..., :3]",
        ]
    ),
    limit=st.integers(2, 60),
    any_size=st.booleans(),
)
def test_a_shrunk_case_still_fails_alike_is_no_larger_and_is_found_again(
    tmp_path_factory, seed, dtype, layout, values, sizes, text, limit, any_size
):
    op = kernel(text, "softmax")
    case = a_case(
        seed=seed,
        dtype=dtype,
        layout=layout,
        values=values,
        sizes=tuple(zip("BSH", sizes, strict=True)),
    )
    examiner = Examiner(op, Rule())
    before = examiner.run(NumpyBench(forks=False), case)
    if not before.failure:
        return
    first, second = (shrunk(op, case, executions=limit, any_size=any_size) for _ in range(2))
    assert first.bundle == second.bundle
    assert first.executions <= limit
    after = examiner.run(NumpyBench(forks=False), first.case, first.inputs)
    assert after.kind == before.kind
    assert all(new <= old for (_, new), (_, old) in zip(first.case.sizes, case.sizes, strict=True))
    if not any_size:
        for (name, new), (_, old) in zip(first.case.sizes, case.sizes, strict=True):
            assert new == old or new in op.schema.dims[name]
    path = write(tmp_path_factory.mktemp("b"), first.bundle)
    assert replay(bundle_file.read(path), NumpyBench(forks=False)).differences == ()


def test_by_default_a_search_may_take_two_hundred_executions():
    assert EXECUTIONS == 200
