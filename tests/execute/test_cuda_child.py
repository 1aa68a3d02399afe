"""A handle on a process that owns a GPU, which here is a process without one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelassay.execute.cuda import workbench
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.execute.cuda.workbench import Child, ChildDiedError


@pytest.fixture
def child(monkeypatch):
    """Makes a handle on a process that does what it is given, and ends."""
    made = []

    def of(body, beat=lambda: None):
        monkeypatch.setattr(workbench, "run_child", lambda pipe, *_: body(pipe))
        made.append(Child(None, Path(), CudaOptions(), "0", beat))
        return made[-1]

    yield of
    for one in made:
        one.close()


def test_to_close_a_process_that_has_ended_by_itself_kills_nobody(child, monkeypatch):
    killed = []
    monkeypatch.setattr(os, "kill", lambda pid, signal: killed.append(pid))
    ended = child(lambda pipe: None)
    with pytest.raises(ChildDiedError, match="exit code 0"):
        ended.receive(30)
    ended.close()
    assert killed == []


def test_who_waits_for_a_process_says_so_until_it_has_been_silent_too_long(child, monkeypatch):
    monkeypatch.setattr(workbench, "BEAT_SECONDS", 0.01)
    beats = []
    silent = child(lambda pipe: pipe.recv(), lambda: beats.append(0))
    with pytest.raises(ChildDiedError, match="no answer") as raised:
        silent.receive(0.2)
    assert raised.value.why == workbench.SILENT
    assert beats
