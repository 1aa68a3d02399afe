"""Processes that share a device take turns, for much memory and to run, and say that they wait."""

from __future__ import annotations

import threading

import pytest

from kernelassay.execute.cuda import sharing
from kernelassay.execute.cuda.sharing import LITTLE_BYTES, MARGIN_BYTES, occupied, room, turn

MUCH = LITTLE_BYTES + 1


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(sharing, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(sharing, "BEAT_SECONDS", 0.0)


def idle() -> bool:
    return False


def never() -> int:
    raise AssertionError("who needs little does not look")


def test_who_needs_little_does_not_wait(tmp_path):
    with (
        room(tmp_path / "lock", MUCH, lambda: 2 * MARGIN_BYTES, idle, lambda: None),
        room(tmp_path / "lock", LITTLE_BYTES, never, idle, lambda: None),
    ):
        pass


def test_one_takes_much_at_a_time_and_the_next_tells_that_it_waits(tmp_path):
    beats, inside, order = threading.Event(), threading.Event(), []

    def second() -> None:
        with room(tmp_path / "lock", MUCH, lambda: 1 << 50, idle, beats.set):
            order.append("second")
        inside.set()

    with room(tmp_path / "lock", MUCH, lambda: 1 << 50, idle, lambda: None):
        thread = threading.Thread(target=second)
        thread.start()
        assert beats.wait(30)
        order.append("first")
    assert inside.wait(30)
    thread.join()
    assert order == ["first", "second"]


def test_it_waits_until_there_is_enough(tmp_path):
    left = iter([0, MUCH, MUCH + MARGIN_BYTES - 1, MUCH + MARGIN_BYTES])
    with room(tmp_path / "lock", MUCH, lambda: next(left), idle, lambda: None):
        assert next(left, None) is None


def test_when_nothing_is_given_back_it_is_tried_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(sharing, "STUCK_SECONDS", 0.02)
    looked = []
    with room(tmp_path / "lock", MUCH, lambda: looked.append(0) or 0, idle, lambda: None):
        assert len(looked) > 1


def test_while_others_run_it_waits_however_long_that_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(sharing, "STUCK_SECONDS", 0.1)
    running = iter([True] * 20)
    with room(tmp_path / "lock", MUCH, lambda: 0, lambda: next(running, False), lambda: None):
        assert next(running, None) is None


def test_a_turn_that_is_taken_shows_and_one_that_is_given_back_does_not(tmp_path):
    locks = [tmp_path / "0", tmp_path / "1"]
    assert not occupied(locks)
    with turn(locks, lambda: None):
        assert occupied(locks)
    assert not occupied(locks)


def test_as_many_run_at_a_time_as_there_are_locks(tmp_path):
    locks = [tmp_path / "0", tmp_path / "1"]
    running, most, guard = [0], [0], threading.Lock()

    def run() -> None:
        with turn(locks, lambda: None):
            with guard:
                running[0] += 1
                most[0] = max(most[0], running[0])
            barrier.wait(30)
            with guard:
                running[0] -= 1

    barrier = threading.Barrier(2)  # passes only if two are inside
    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 2
