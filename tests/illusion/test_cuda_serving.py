"""What a bench's process answers where its device fails; no CUDA is needed to tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kernelassay.errors import DeviceError, UnsupportedError
from kernelassay.execute.cuda.bench import CorruptedError
from kernelassay.execute.cuda.driver import FaultError
from kernelassay.execute.execution import Execution
from kernelassay.illusion.cuda_bench import Answer, Built, CudaTwinBench, Request
from kernelassay.illusion.cuda_serving import _answer
from kernelassay.user.kernel_file import kernel_of
from tests.illusion.kernel_texts import RIGHT

INPUT = np.ones((2, 3), np.float32)


def answer(error: Exception) -> Answer:
    def opened(bench: Any) -> Any:
        raise error

    image: Any = None
    return _answer(opened, Request(Built(kernel_of(RIGHT, "kernel.cu"), image), (INPUT,)))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (FaultError("illegal-address", "at 0"), "illegal-address"),
        (FaultError("infrastructure", "an uncorrectable error of memory"), "infrastructure"),
        (CorruptedError(), "crash"),
        (torch.OutOfMemoryError("no room"), "infrastructure"),
        (RuntimeError("unspecified launch failure"), "infrastructure"),
    ],
    ids=["a fault", "the machine's fault", "stray writes", "memory", "torch"],
)
def test_what_spoils_the_device_is_an_outcome_and_the_last_answer(error, outcome):
    found = answer(error)
    assert (found.found.outcome, found.found.output, found.spoilt) == (outcome, None, True)


def test_a_device_that_cannot_be_used_is_no_outcome():
    found = answer(DeviceError("is gone"))
    assert (str(found.found), found.spoilt) == ("is gone", True)


def test_what_the_executor_does_not_have_is_the_texts_doing_and_spoils_nothing():
    found = answer(UnsupportedError("no texture"))
    assert (found.found.outcome, found.spoilt) == ("raised", False)
    assert "no texture" in found.found.detail


def test_a_spoilt_process_is_ended_and_replaced_at_the_next_run(monkeypatch):
    bench = CudaTwinBench("cpu")
    try:
        assert bench.run(RIGHT, [INPUT]).outcome == "ok"
        process = bench._process
        lost = Answer(Execution("illegal-address", "at 0", None), spoilt=True)
        monkeypatch.setattr(bench, "_receive", lambda seconds: lost)
        assert bench.run(RIGHT, [INPUT]) is lost.found
        assert not process.is_alive()
        monkeypatch.undo()
        assert bench.run(RIGHT, [INPUT]).outcome == "ok"
    finally:
        bench.close()
