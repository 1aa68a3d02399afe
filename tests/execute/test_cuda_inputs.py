"""What a process that owns a GPU keeps of its inputs; no CUDA is needed to tell."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelassay import cell
from kernelassay.compile.cubins import CubinImage
from kernelassay.errors import UnsupportedError
from kernelassay.execute.cuda import child as children
from kernelassay.execute.cuda.bench import CorruptedError, CudaInputBench
from kernelassay.execute.cuda.child import Inputs, Task
from kernelassay.inputs import official_inputs
from kernelassay.kernel import LaunchPlan, Scratch

SPEC = official_inputs()[0]


class Values:
    """What a preparation has made when the memory runs out."""


@pytest.fixture
def inputs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    made = Inputs.__new__(Inputs)
    made._kept, made._most = OrderedDict(), 0
    return made


def test_a_second_attempt_has_the_memory_of_the_first(inputs):
    left = []

    def prepare(spec):
        values = Values()
        left.append(weakref.ref(values))
        if len(left) == 1:
            raise torch.OutOfMemoryError("2 GiB")
        return SimpleNamespace(first=left[0](), taken=0)

    inputs._prepare = prepare
    assert inputs.get(SPEC).first is None


def test_memory_that_does_not_do_twice_makes_an_input_unusable(inputs):
    def prepare(spec):
        raise torch.OutOfMemoryError("2 GiB\nof much")

    inputs._prepare = prepare
    with pytest.raises(UnsupportedError, match=r"too little memory: 2 GiB$"):
        inputs.get(SPEC)


def test_buffers_of_calls_count_when_memory_is_given_back(inputs):
    closed = []
    bench = CudaInputBench.__new__(CudaInputBench)
    bench.nbytes, bench._open = 1, {"k00": SimpleNamespace(arena=SimpleNamespace(nbytes=1 << 30))}
    bench.close = lambda: closed.append(bench)
    inputs._kept[SPEC], inputs._most = bench, 1 << 20
    inputs.shed()
    assert closed == [bench]


def test_an_input_that_kernels_of_another_wrote_over_ends_the_process_without_a_word(inputs):
    def corrupted():
        raise CorruptedError

    inputs._kept[SPEC] = SimpleNamespace(resume=corrupted)
    said = []
    task = Task(SimpleNamespace(spec=SPEC), (), fresh=True, singly=0)
    pipe = SimpleNamespace(send=said.append)
    assert not children._answer(pipe, inputs, task, [], [])
    assert said == []


def test_scratch_that_others_leave_no_room_for_is_not_the_kernels_doing():
    def full(plan):
        raise torch.OutOfMemoryError("no room")

    bench = CudaInputBench.__new__(CudaInputBench)
    bench._device = SimpleNamespace(total_bytes=1 << 30)
    bench._scratch = full
    image = CubinImage(Path(), (), ())

    def run(count):
        scratch = [Scratch(f"s{k}", 1 << 29) for k in range(count)]
        candidate = SimpleNamespace(image=image, role="mutant")
        return bench._execute(candidate, None, LaunchPlan(tuple(scratch), ()), 1.0, "forward")

    with pytest.raises(torch.OutOfMemoryError):
        run(2)
    assert run(3).outcome == cell.OUT_OF_MEMORY


def test_memory_that_runs_out_under_a_correct_kernel_says_nothing_of_it(inputs, tmp_path):
    def full(request):
        raise torch.OutOfMemoryError("no room\nat all")

    facts = SimpleNamespace(finite=True)
    inputs._kept[SPEC] = SimpleNamespace(
        resume=lambda: None,
        facts=lambda: facts,
        kernel_seconds={},
        prepare=full,
        close=lambda: None,
    )
    said = []
    task = Task(SimpleNamespace(spec=SPEC, originals={}), (), fresh=True, singly=0)
    pipe = SimpleNamespace(send=said.append)
    assert children._answer(pipe, inputs, task, [], [tmp_path / "turn"])
    assert said[0] is facts
    assert isinstance(said[1], UnsupportedError)


def test_a_calls_memory_is_looked_at_when_another_call_or_input_was_in_use():
    bench = CudaInputBench.__new__(CudaInputBench)
    bench._open = OrderedDict(a="memory of a", b="memory of b")
    bench._used = ""
    bench.require_sound = lambda: None
    tidied = []
    bench._tidy = tidied.append
    for call in "aab":
        bench._bind(call)
    assert tidied == ["memory of a", "memory of b"]
    bench.resume()
    bench._bind("b")
    assert tidied[2:] == ["memory of b"]
