"""The corpus in CUDA on the CPU executor, which checks every access."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kernelassay.errors import UsageError
from kernelassay.illusion.corpus import entries
from kernelassay.illusion.corpus.cuda_twins import counterpart, twin, twins
from kernelassay.illusion.cuda_bench import CudaTwinBench
from kernelassay.illusion.op import Op
from tests.illusion.twins import on_cases, on_nonfinite, right, where_hidden

CONTROLS = [op for op in twins() if op.fault is None]
FAULTY = [op for op in twins() if op.fault is not None]


@pytest.fixture(scope="module")
def bench() -> Iterator[CudaTwinBench]:
    made = CudaTwinBench("cpu")
    yield made
    made.close()


def names(ops: list[Op]) -> list[str]:
    return [op.name for op in ops]


def test_every_entry_of_the_corpus_has_one_twin() -> None:
    assert sorted(counterpart(op.name).name for op in twins()) == sorted(e.name for e in entries())
    assert (len(CONTROLS), len(FAULTY), len({op.name for op in twins()})) == (16, 10, 26)


@pytest.mark.parametrize("op", twins(), ids=names(list(twins())))
def test_a_twin_is_judged_as_its_counterpart_is(op: Op) -> None:
    other = counterpart(op.name)
    assert op.language == "cuda"
    assert (op.schema, op.dtypes) == (other.schema, other.dtypes)
    assert (op.reference, op.tolerances) == (other.reference, other.tolerances)
    assert twin(op.name) is op


@pytest.mark.parametrize("op", FAULTY, ids=names(FAULTY))
def test_a_faulty_twin_is_its_control_but_for_one_edit_of_the_counterparts_fault(op: Op) -> None:
    control, other = twin(op.control), counterpart(op.name)
    assert op.fault is not None
    assert other.fault is not None
    assert (op.fault.what, op.fault.hides) == (other.fault.what, other.fault.hides)
    head, _, tail = control.text.partition(op.fault.before)
    assert op.text == head + op.fault.after + tail
    lines = zip(control.text.splitlines(), op.text.splitlines(), strict=True)
    assert sum(before != after for before, after in lines) == 1


def test_an_unknown_twin_is_an_error_that_offers_a_near_one() -> None:
    for find in (twin, counterpart):
        with pytest.raises(UsageError, match="gelu_cuda"):
            find("gelu_cud")


@pytest.mark.parametrize("op", CONTROLS, ids=names(CONTROLS))
def test_a_control_is_right_without_a_finding_in_every_dtype_layout_and_kind_of_values(
    op: Op, bench: CudaTwinBench
) -> None:
    assert all(right(op, bench, given) for given in (*on_cases(op), *on_nonfinite(op)))


@pytest.mark.parametrize("op", CONTROLS, ids=names(CONTROLS))
def test_a_control_is_right_at_sizes_that_no_schema_has(op: Op, bench: CudaTwinBench) -> None:
    for size in (127, 129, 2049):
        rng = np.random.default_rng(size)
        shapes = {
            "matmul": ((33, size), (size, 17)),
            "attention": ((5, 40), (size, 40), (size, 40)),
        }.get(op.reference, ((3, size),))
        drawn = tuple(rng.uniform(-1.0, 1.0, shape).astype(np.float32) for shape in shapes)
        assert right(op, bench, drawn)


@pytest.mark.parametrize("op", FAULTY, ids=names(FAULTY))
def test_a_faulty_twin_is_wrong_somewhere_and_right_where_the_fault_hides(
    op: Op, bench: CudaTwinBench
) -> None:
    assert not all(right(op, bench, given) for given in on_cases(op))
    assert all(right(op, bench, given) for given in where_hidden(op))


def test_layernorm_keeps_the_digits_of_a_small_spread_far_from_zero(bench: CudaTwinBench) -> None:
    steps = np.arange(1, 2001, dtype=np.float32)[:, None] * np.float32(2.0**-20)
    rows = np.concatenate([np.full_like(steps, 9.0), 9.0 + steps], axis=1)
    assert right(twin("layernorm_cuda"), bench, (rows,))
