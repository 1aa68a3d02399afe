"""Processes that share a device take turns for much memory, and say that they wait."""

from __future__ import annotations

import threading

import pytest

from kernelassay.execute.cuda import memory
from kernelassay.execute.cuda.memory import LITTLE_BYTES, MARGIN_BYTES, room

MUCH = LITTLE_BYTES + 1


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(memory, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(memory, "BEAT_SECONDS", 0.0)


def never() -> int:
    raise AssertionError("who needs little does not look")


def test_who_needs_little_does_not_wait(tmp_path):
    with (
        room(tmp_path / "lock", MUCH, lambda: 2 * MARGIN_BYTES, lambda: None),
        room(tmp_path / "lock", LITTLE_BYTES, never, lambda: None),
    ):
        pass


def test_one_takes_much_at_a_time_and_the_next_tells_that_it_waits(tmp_path):
    beats, inside, order = threading.Event(), threading.Event(), []

    def second() -> None:
        with room(tmp_path / "lock", MUCH, lambda: 1 << 50, beats.set):
            order.append("second")
        inside.set()

    with room(tmp_path / "lock", MUCH, lambda: 1 << 50, lambda: None):
        thread = threading.Thread(target=second)
        thread.start()
        assert beats.wait(30)
        order.append("first")
    assert inside.wait(30)
    thread.join()
    assert order == ["first", "second"]


def test_it_waits_until_there_is_enough(tmp_path):
    left = iter([0, MUCH, MUCH + MARGIN_BYTES - 1, MUCH + MARGIN_BYTES])
    with room(tmp_path / "lock", MUCH, lambda: next(left), lambda: None):
        assert next(left, None) is None


def test_when_nothing_is_given_back_it_is_tried_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "STUCK_SECONDS", 0.02)
    looked = []
    with room(tmp_path / "lock", MUCH, lambda: looked.append(0) or 0, lambda: None):
        assert len(looked) > 1
