"""A device that does not work costs work that is done again, and decides nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kernelassay.engines import WorkLostError
from kernelassay.engines.local import LocalEngine, LocalStation
from kernelassay.errors import DeviceError
from kernelassay.execute.worker import Worker
from kernelassay.inputs import official_inputs
from kernelassay.plan import PlanOptions
from kernelassay.suite import suite_problems

SPEC = official_inputs()[0]
RELU = next(p for p in suite_problems() if p.id == "suite/relu")


def broken(*_, **__):
    raise DeviceError("the device cannot be used: it fell off the bus")


@pytest.fixture
def station():
    worker = Worker(None)
    worker._send, worker._reopen, worker._receive = lambda message: None, lambda: None, broken
    return LocalStation(LocalEngine(SimpleNamespace(cache=None)), worker)


def test_a_problem_is_not_refused_for_it(station):
    with pytest.raises(WorkLostError, match="off the bus"):
        station.plan(RELU, PlanOptions((), True, "host"), lambda step: None)


def test_an_input_is_not_rejected_for_it(station, monkeypatch):
    station._open = RELU.id
    monkeypatch.setattr(station, "_built", lambda plan: {})
    record = {"id": SPEC.id, "spec": SPEC.to_json(), "valid": True}
    with pytest.raises(WorkLostError, match="off the bus"):
        station.measure(RELU, {"inputs": [record]}, record, [], lambda cell: None)
