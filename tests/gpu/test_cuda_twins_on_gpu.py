"""The CUDA twins of the corpus, and the bench that runs them, on a device.

Run on a machine with a CUDA device: ``python -m pytest -m gpu tests/gpu``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kernelassay.compile import nvrtc
from kernelassay.illusion.cases import LAYOUTS, laid_out
from kernelassay.illusion.corpus.cuda_twins import twin, twins
from kernelassay.illusion.cuda_bench import CudaTwinBench
from kernelassay.illusion.op import Op
from tests.illusion import kernel_texts as texts
from tests.illusion.twins import largest, on_cases, on_nonfinite, right, where_hidden

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (torch.cuda.is_available() and nvrtc.available()), reason="needs a CUDA device"
    ),
]

CONTROLS = [op for op in twins() if op.fault is None]
FAULTY = [op for op in twins() if op.fault is not None]
# Without functions whose last bits the two executors round differently.
EXACT = ("relu", "leaky_relu", "rmsnorm", "l2norm", "matmul", "matmul_naive")


@pytest.fixture(scope="module")
def bench() -> Iterator[CudaTwinBench]:
    made = CudaTwinBench("cuda")
    yield made
    made.close()


@pytest.fixture(scope="module")
def cpu_bench() -> Iterator[CudaTwinBench]:
    made = CudaTwinBench("cpu")
    yield made
    made.close()


def names(ops: list[Op]) -> list[str]:
    return [op.name for op in ops]


def drawn(dtype: str = "float32") -> NDArray[Any]:
    return np.random.default_rng(0).uniform(-9.0, 9.0, (5, 7)).astype(dtype)


@pytest.mark.parametrize("op", CONTROLS, ids=names(CONTROLS))
def test_a_control_is_right_without_a_finding_in_every_dtype_layout_and_kind_of_values(
    op: Op, bench: CudaTwinBench
) -> None:
    assert all(right(op, bench, given) for given in (*on_cases(op), *on_nonfinite(op)))
    assert all(right(op, bench, largest(op, dtype)) for dtype in op.dtypes)


@pytest.mark.parametrize("op", FAULTY, ids=names(FAULTY))
def test_a_faulty_twin_is_wrong_somewhere_and_right_where_the_fault_hides(
    op: Op, bench: CudaTwinBench
) -> None:
    assert not all(right(op, bench, given) for given in on_cases(op))
    assert all(right(op, bench, given) for given in where_hidden(op))


@pytest.mark.parametrize("name", EXACT)
def test_both_executors_give_the_same_bits(
    name: str, bench: CudaTwinBench, cpu_bench: CudaTwinBench
) -> None:
    op = twin(f"{name}_cuda")
    for given in on_cases(op):
        here, there = (one.run(op.text, given).output for one in (cpu_bench, bench))
        assert here is not None
        assert there is not None
        assert here.tobytes() == there.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_input_of_any_layout_and_dtype_is_what_the_kernel_sees(bench, layout, dtype):
    given = laid_out(drawn(dtype), layout)
    found = bench.run(texts.RIGHT, [given])
    assert (found.outcome, found.findings, found.unwritten) == ("ok", (), 0)
    assert np.array_equal(found.output, 2 * given)


def test_elements_that_no_thread_wrote_are_counted_and_are_nan(bench):
    found = bench.run(texts.UNWRITTEN, [drawn()])
    assert (found.outcome, found.unwritten) == ("ok", 2)
    assert np.flatnonzero(np.isnan(found.output)).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("text", "kind"),
    [(texts.PAST_THE_END, "oob-global-write"), (texts.CHANGES_ITS_INPUT, "input-write")],
    ids=["past the end", "input"],
)
def test_what_the_executor_finds_comes_with_an_output_and_decides_nothing(bench, text, kind):
    found = bench.run(text, [drawn()])
    assert found.outcome == "ok"
    assert [finding.kind for finding in found.findings] == [kind]
    assert np.array_equal(found.output, 2 * drawn())
    assert found.changed == ((0,) if kind == "input-write" else ())


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (texts.FAR_AWAY, "illegal-address"),
        (texts.ENDLESS, "timeout"),
        (texts.TOO_WIDE, "launch-failure"),
    ],
    ids=["far away", "endless", "too wide"],
)
def test_a_kernel_that_does_not_end_well_is_an_outcome_and_the_next_one_runs(bench, text, outcome):
    found = bench.run(text, [drawn()])
    assert (found.outcome, found.output) == (outcome, None), found.detail
    assert bench.run(texts.RIGHT, [drawn()]).outcome == "ok"


def test_a_text_that_does_not_compile_or_fit_has_raised(bench):
    for text, told in ((texts.DOES_NOT_COMPILE, "undeclared"), (texts.NO_SHAPE, "the shape")):
        found = bench.run(text, [drawn()])
        assert (found.outcome, found.output) == ("raised", None)
        assert told in found.detail
