"""A device that does not work costs work that is done again, and decides nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kernelassay import cell
from kernelassay.compile import classify
from kernelassay.compile.batch import Refusal
from kernelassay.engines import WorkLostError
from kernelassay.engines.local import LocalEngine, LocalStation
from kernelassay.errors import DeviceError, KernelassayError
from kernelassay.execute.cpu import build as cpu_build
from kernelassay.execute.outputs import ended
from kernelassay.execute.worker import UnitResult, Worker
from kernelassay.gate_inputs import gate_inputs
from kernelassay.inputs import official_inputs
from kernelassay.kernel import BuildFailure
from kernelassay.plan import PlanOptions
from kernelassay.population import CorrectKernels, correct_kernels
from kernelassay.suite import suite_problems

SPEC = official_inputs()[0]
RELU = next(p for p in suite_problems() if p.id == "suite/relu")


def broken(*_, **__):
    raise DeviceError("the device cannot be used: it fell off the bus")


@pytest.fixture
def station(tmp_path):
    worker = Worker(None)
    worker._send, worker._reopen, worker._receive = lambda message: None, lambda: None, broken
    return LocalStation(LocalEngine(SimpleNamespace(cache=tmp_path, settings=())), worker)


def test_a_problem_is_not_refused_for_it(station):
    with pytest.raises(WorkLostError, match="off the bus"):
        station.plan(RELU, PlanOptions((), True, "host"), lambda step: None)


@pytest.mark.parametrize("which", ["fixed", "cells"])
def test_a_problem_is_not_refused_for_a_correct_kernel_that_was_lost_with_its_process(which):
    gone = ended("benign/k00/plain", SPEC.id, cell.INFRASTRUCTURE, "no answer within 120 s")
    unit = UnitResult(**{which: [gone]})
    worker = SimpleNamespace(measure=lambda *_, **__: unit)
    with pytest.raises(DeviceError, match="no answer within 120 s"):
        gate_inputs(
            {"inputs": []},
            RELU,
            worker,
            CorrectKernels({}, (), ()),
            [SPEC],
            lambda *_: None,
            None,
            full_size=False,
        )


def test_a_problem_is_not_refused_for_a_compiler_that_was_ended(tmp_path, monkeypatch):
    def slow(worker, part):
        return Refusal("compiler stopped after 62 s", transient=True)

    monkeypatch.setattr(classify, "place_lone", slow)
    source = "__global__ void k(float* y) {}\nvoid launch(float* y) { k<<<1, 1>>>(y); }\n"
    with pytest.raises(DeviceError, match="stopped after 62 s"):
        classify.classify(source, [], cache=tmp_path, backend="nvrtc")


def test_nor_for_a_host_compiler_and_a_mutant_is_not_stillborn_for_it(tmp_path, monkeypatch):
    source = (
        "__global__ void k(float* y) { y[0] = 1; }\nvoid launch(float* y) { k<<<1, 1>>>(y); }\n"
    )
    mutant = source.replace("= 1", "= 2")
    of_host = cpu_build.image_bytes

    def statuses(*ended):
        def made(text, compiler):
            stopped = any(word in text for word in ended)
            return BuildFailure("signal 9", transient=True) if stopped else of_host(text, compiler)

        monkeypatch.setattr(cpu_build, "image_bytes", made)
        found = classify.classify(source, [("m", mutant)], cache=tmp_path, backend="host")
        return found["m"].status, found["m"].reason

    with pytest.raises(DeviceError, match="signal 9"):
        statuses("= 1", "= 2")
    assert statuses("= 2") == (classify.DISTINCT, "no machine code to compare: signal 9")
    assert statuses() == (classify.DISTINCT, "")


def test_an_original_without_an_image_is_the_machines_doing_if_the_compiler_was_ended():
    class Tools:
        def __init__(self, transient):
            self.failure = BuildFailure("stopped", transient=transient)

        def build(self, texts):
            return dict.fromkeys(texts, self.failure)

    text = 'extern "C" __global__ void k(float* y) {}\nvoid launch(float* y) { k<<<1, 1>>>(y); }\n'
    call = SimpleNamespace(id="k00", sources={"optimised": text, "plain": text})
    for transient, kind in ((True, DeviceError), (False, KernelassayError)):
        with pytest.raises(KernelassayError, match="does not build: stopped") as raised:
            correct_kernels("p", [call], Tools(transient), ("optimised",), rewrites=False)
        assert type(raised.value) is kind


def test_a_unit_is_not_lost_with_the_run_for_a_compiler_that_was_ended(station, monkeypatch):
    """Its kernels were built in planning; it may be that their images were deleted since."""
    text = "__global__ void k(float* y) {}\nvoid launch(float* y) { k<<<1, 1>>>(y); }\n"
    plan = {
        "calls": [{"id": "k00", "styles": ["plain"], "sources": {"plain": text}}],
        "inputs": [{"id": SPEC.id, "spec": SPEC.to_json(), "valid": True}],
        "benign": [],
        "mutants": [],
    }
    for transient, kind in ((True, WorkLostError), (False, RuntimeError)):
        failure = BuildFailure("stopped", transient=transient)
        tools = SimpleNamespace(build=lambda texts, made=failure: dict.fromkeys(texts, made))
        monkeypatch.setattr(station, "_engine", LocalEngine(tools))
        monkeypatch.setattr(station, "_task", lambda function, *arguments: function(*arguments))
        with pytest.raises((WorkLostError, RuntimeError)) as raised:
            station.measure(RELU, plan, plan["inputs"][0], [], lambda cell: None)
        assert type(raised.value) is kind


def test_an_input_is_not_rejected_for_it(station, monkeypatch):
    station._open = RELU.id
    monkeypatch.setattr(station, "_built", lambda plan: {})
    record = {"id": SPEC.id, "spec": SPEC.to_json(), "valid": True}
    with pytest.raises(WorkLostError, match="off the bus"):
        station.measure(RELU, {"inputs": [record]}, record, [], lambda cell: None)
