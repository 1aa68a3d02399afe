"""The bench of CUDA kernel files: what becomes of a text, and of the process that ran it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kernelassay.compile import nvrtc
from kernelassay.errors import DeviceError, UsageError
from kernelassay.execute.toolbox import CpuToolbox
from kernelassay.illusion.cases import LAYOUTS, laid_out
from kernelassay.illusion.cuda_bench import CudaTwinBench
from kernelassay.kernel import BuildFailure
from tests.illusion import kernel_texts as texts


@pytest.fixture(scope="module")
def bench() -> Iterator[CudaTwinBench]:
    made = CudaTwinBench("cpu")
    yield made
    made.close()


def drawn(rows: int = 5, columns: int = 7, dtype: str = "float32") -> NDArray[Any]:
    x = np.random.default_rng(0).uniform(-9.0, 9.0, (rows, columns))
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_input_of_any_layout_and_dtype_is_what_the_kernel_sees(bench, layout, dtype):
    given = laid_out(drawn(dtype=dtype), layout)
    found = bench.run(texts.RIGHT, [given])
    assert (found.outcome, found.findings, found.unwritten) == ("ok", (), 0)
    assert found.output.dtype == dtype
    assert np.array_equal(found.output, 2 * given)


@pytest.mark.parametrize(
    ("text", "dtype", "told"),
    [
        (texts.DOES_NOT_COMPILE, "float32", "undeclared"),
        (texts.DOES_NOT_COMPILE, "float32", "does not compile"),
        (texts.NO_HEADER, "float32", "no header"),
        (texts.NO_SHAPE, "float32", "does not state the shape"),
        (texts.OTHER_INPUT, "float32", "arg1.shape, which there is not"),
        (texts.FLOAT32_ONLY, "float16", "which is float16"),
    ],
    ids=["compiler", "what", "header", "shape", "input", "dtype"],
)
def test_a_text_that_does_not_fit_has_raised_and_the_message_says_why(bench, text, dtype, told):
    found = bench.run(text, [drawn(dtype=dtype)])
    assert (found.outcome, found.output) == ("raised", None)
    assert told in found.detail


def test_inputs_of_several_or_other_dtypes_are_a_usage_error(bench):
    for inputs in ([drawn(), drawn(dtype="float16")], [drawn(dtype="float64")], []):
        with pytest.raises(UsageError, match="the inputs are"):
            bench.run(texts.RIGHT, inputs)


def test_elements_that_no_thread_wrote_are_counted_and_are_nan(bench):
    found = bench.run(texts.UNWRITTEN, [drawn()])
    assert (found.outcome, found.unwritten) == ("ok", 2)
    assert np.flatnonzero(np.isnan(found.output)).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (texts.PAST_THE_END, "oob-global-write"),
        (texts.CHANGES_ITS_INPUT, "input-write"),
        (texts.RACE, "race-shared"),
    ],
    ids=["past the end", "input", "race"],
)
def test_what_the_executor_finds_comes_with_an_output_and_decides_nothing(bench, text, kind):
    found = bench.run(text, [drawn()])
    assert found.outcome == "ok"
    assert kind in {finding.kind for finding in found.findings}
    assert found.output.shape == (5, 7)


def test_a_changed_input_is_named_by_its_position_and_the_callers_array_stays(bench):
    given = drawn()
    kept = given.copy()
    assert bench.run(texts.CHANGES_ITS_INPUT, [given]).changed == (0,)
    assert np.array_equal(given, kept)
    assert bench.run(texts.RIGHT, [given]).changed == ()


@pytest.mark.parametrize(
    ("text", "outcome"),
    [(texts.FAR_AWAY, "crash"), (texts.ENDLESS, "timeout"), (texts.TOO_WIDE, "launch-failure")],
    ids=["far away", "endless", "too wide"],
)
def test_a_kernel_that_does_not_end_well_is_an_outcome_and_the_next_one_runs(bench, text, outcome):
    found = bench.run(text, [drawn()])
    assert (found.outcome, found.output) == (outcome, None)
    assert bench.run(texts.RIGHT, [drawn()]).outcome == "ok"


def test_a_process_that_is_killed_says_nothing_of_the_kernel_and_is_replaced(bench):
    assert bench.run(texts.RIGHT, [drawn()]).outcome == "ok"
    os.kill(bench._process.pid, signal.SIGKILL)
    bench._process.join()
    found = bench.run(texts.RIGHT, [drawn()])
    assert (found.outcome, found.output) == ("infrastructure", None)
    assert "SIGKILL" in found.detail
    assert bench.run(texts.RIGHT, [drawn()]).outcome == "ok"


def test_a_run_past_its_seconds_is_a_timeout_and_the_process_is_replaced():
    bench = CudaTwinBench("cpu", seconds=0.5)
    try:
        found = bench.run(texts.ENDLESS, [drawn()])
        assert (found.outcome, found.detail) == ("timeout", "no answer within 0.5 s")
        assert bench._process is None
    finally:
        bench.close()


def test_a_process_that_does_not_answer_is_ended_and_replaced(bench, monkeypatch):
    assert bench.run(texts.RIGHT, [drawn()]).outcome == "ok"
    process = bench._process
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr(bench, "_seconds", 0.2)
    found = bench.run(texts.RIGHT, [drawn()])
    assert (found.outcome, found.output) == ("timeout", None)
    assert not process.is_alive()
    monkeypatch.undo()
    assert bench.run(texts.RIGHT, [drawn()]).outcome == "ok"


def test_a_number_without_dimensions_keeps_having_none(bench):
    found = bench.run(texts.RIGHT, [np.array(1.5, np.float32)])
    assert found.output.shape == ()
    assert found.output == 3.0


def test_a_text_is_compiled_once_for_each_dtype(bench, monkeypatch):
    built = []
    build = CpuToolbox.build

    def counted(tools: CpuToolbox, sources: dict[str, str]) -> Any:
        built.append(sources)
        return build(tools, sources)

    monkeypatch.setattr(CpuToolbox, "build", counted)
    text = texts.RIGHT + "// another text\n"
    for size in (3, 5):
        for dtype in ("float32", "float16"):
            assert bench.run(text, [drawn(size, dtype=dtype)]).outcome == "ok"
    assert len(built) == 2


def test_a_compiler_that_was_ended_says_nothing_of_the_text_and_is_asked_again(bench, monkeypatch):
    ended = BuildFailure("signal SIGKILL", transient=True)
    monkeypatch.setattr(CpuToolbox, "build", lambda tools, sources: {"": ended})
    text = texts.RIGHT + "// a text of its own\n"
    found = bench.run(text, [drawn()])
    assert (found.outcome, found.output) == ("infrastructure", None)
    monkeypatch.undo()
    assert bench.run(text, [drawn()]).outcome == "ok"


def test_a_closed_bench_starts_again_when_it_is_used(bench):
    bench.close()
    bench.close()
    assert bench.run(texts.RIGHT, [drawn()]).outcome == "ok"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC")
def test_without_a_gpu_the_cuda_device_is_an_error_and_no_outcome():
    bench = CudaTwinBench("cuda")
    try:
        with pytest.raises(DeviceError, match="cannot be used"):
            bench.run(texts.RIGHT, [drawn()])
    finally:
        bench.close()


def test_an_unknown_device_is_a_usage_error():
    with pytest.raises(UsageError, match="unknown device"):
        CudaTwinBench("tpu")  # type: ignore[arg-type]
