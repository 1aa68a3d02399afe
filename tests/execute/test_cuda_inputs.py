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
from kernelassay.execute.cuda import child as children
from kernelassay.execute.cuda.bench import CorruptedError, CudaInputBench
from kernelassay.execute.cuda.child import Inputs, Task, TooLittle
from kernelassay.execute.cuda.sharing import Locks
from kernelassay.execute.outputs import without_output
from kernelassay.inputs import official_inputs
from kernelassay.kernel import LaunchPlan, Scratch

SPEC = official_inputs()[0]


class Values:
    """What a preparation has made when the memory runs out."""


LOCKS = Locks(Path(), (), (Path(),), (Path(),))


@pytest.fixture
def inputs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    made = Inputs.__new__(Inputs)
    made._kept, made._most = OrderedDict(), 0
    return made


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
    task = Task(SimpleNamespace(spec=SPEC), (), fresh=True, singly=0, heavy=False)
    pipe = SimpleNamespace(send=said.append)
    assert not children._answer(pipe, inputs, task, [], LOCKS)
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


def test_memory_that_does_not_do_is_given_back_before_that_is_told(inputs):
    """All of it, what was made before it ran out included: the error holds that."""
    made = []

    def prepare(spec):
        values = Values()
        made.append(weakref.ref(values))
        raise torch.OutOfMemoryError("2 GiB\nof much")

    inputs._prepare = prepare
    inputs._kept["another"] = SimpleNamespace(taken=0, close=lambda: None)
    task = Task(SimpleNamespace(spec=SPEC, originals={}), (), fresh=True, singly=0, heavy=True)
    said = []

    def send(word):
        assert not inputs._kept
        assert made[0]() is None
        said.append(word)

    assert children._answer(SimpleNamespace(send=send), inputs, task, [], LOCKS)
    assert said == [TooLittle("2 GiB")]


def test_memory_that_runs_out_under_a_correct_kernel_says_nothing_of_it(inputs, tmp_path):
    def full(request):
        raise torch.OutOfMemoryError("no room\nat all")

    facts = SimpleNamespace(runs=True)
    inputs._kept[SPEC] = SimpleNamespace(
        resume=lambda: None,
        facts=lambda: facts,
        kernel_seconds={},
        prepare=full,
        close=lambda: None,
    )
    said = []
    task = Task(SimpleNamespace(spec=SPEC, originals={}), (), fresh=True, singly=0, heavy=False)
    locks = Locks(Path(), (), (), (tmp_path / "turn",))
    pipe = SimpleNamespace(send=said.append)
    assert children._answer(pipe, inputs, task, [], locks)
    assert said == [facts, TooLittle("no room")]


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


@pytest.mark.parametrize(
    ("nbytes", "checking", "told"),
    [
        (1 << 20, 1e9, [1, 1, 1]),  # few values are looked at after every run
        (1 << 30, 0.0, [1, 1, 1]),  # many, where that takes next to no time
        (1 << 30, 1e9, [3]),  # else at the end
    ],
)
def test_cells_are_told_once_memory_is_known_to_be_sound(nbytes, checking, told):
    bench = CudaInputBench.__new__(CudaInputBench)
    bench.nbytes, bench._checking_seconds = nbytes, checking
    bench.seconds = 1.0
    bench.run = lambda candidate: without_output(candidate.id, SPEC.id, cell.CRASH, "")
    bench.require_sound = lambda: None
    pending = tuple(SimpleNamespace(id=name) for name in "abc")
    request = SimpleNamespace(check_order=False, spec=SPEC)
    said = []
    task = Task(request, pending, fresh=False, singly=0, heavy=True)
    assert children._candidates(SimpleNamespace(send=said.append), bench, task, [])
    assert [len(results.cells) for results in said] == told
