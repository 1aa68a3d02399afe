"""Processes that share a device divide its memory and take turns, and say that they wait."""

from __future__ import annotations

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.execute.cuda import sharing
from kernelassay.execute.cuda.sharing import (
    CONTEXT_BYTES,
    SHARES,
    Locks,
    Room,
    kept_bytes,
    shares_of,
    turn,
)

H200 = 140 << 30


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(sharing, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(sharing, "BEAT_SECONDS", 0.0)


@pytest.fixture
def locks(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return Locks.of("0")


def nothing() -> None:
    pass


@given(need=st.integers(1, H200), more=st.integers(0, H200), lanes=st.integers(1, 32))
def test_shares_grow_with_the_need_and_are_enough_for_it(need, more, lanes):
    count = shares_of(need, H200, lanes)
    assert 0 <= count <= shares_of(need + more, H200, lanes) <= SHARES
    if 0 < count < SHARES:
        shared = H200 - lanes * (CONTEXT_BYTES + 2 * kept_bytes(H200, lanes))
        assert need <= count / SHARES * shared
    if not count:
        assert need <= kept_bytes(H200, lanes)


def test_what_is_more_than_the_device_has_is_all_of_it():
    assert shares_of(1 << 50, H200, 8) == SHARES
    assert shares_of(1 << 30, 2 << 30, 8) == SHARES  # lanes take more than there is


def test_who_needs_little_does_not_wait(locks):
    all_of_it, nothing_of_it = Room(locks), Room(locks)
    all_of_it.take(SHARES, nothing)
    nothing_of_it.take(0, nothing)
    assert (all_of_it.held, nothing_of_it.held) == (SHARES, 0)
    all_of_it.leave()


def test_who_wants_more_than_is_left_waits_and_tells_so(locks):
    first, second = Room(locks), Room(locks)
    first.take(SHARES - 1, nothing)
    beats = threading.Event()
    thread = threading.Thread(target=second.take, args=(2, beats.set))
    thread.start()
    assert beats.wait(30)
    assert second.held < 2
    first.leave()
    thread.join(30)
    assert second.held == 2
    second.leave()


def test_little_does_not_pass_by_much_that_waits(locks):
    holder, much, little = Room(locks), Room(locks), Room(locks)
    holder.take(1, nothing)
    order, waiting = [], threading.Event()

    def take(room: Room, count: int, name: str, beat) -> None:
        room.take(count, beat)
        order.append(name)
        room.leave()

    first = threading.Thread(target=take, args=(much, SHARES, "much", waiting.set))
    first.start()
    assert waiting.wait(30)
    behind = threading.Event()
    second = threading.Thread(target=take, args=(little, 1, "little", behind.set))
    second.start()
    assert behind.wait(30)
    holder.leave()
    first.join(30)
    second.join(30)
    assert order == ["much", "little"]


def test_two_that_want_more_than_they_have_do_not_wait_for_each_other(locks):
    rooms = [Room(locks), Room(locks)]
    for room in rooms:
        room.take(SHARES // 2, nothing)

    def take_all(room: Room) -> None:
        room.take(SHARES, nothing)
        room.leave()

    threads = [threading.Thread(target=take_all, args=(room,)) for room in rooms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_a_wait_that_is_broken_off_leaves_nothing_taken(locks):
    first, second, third = Room(locks), Room(locks), Room(locks)
    first.take(SHARES - 1, nothing)

    def broken() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        second.take(2, broken)
    assert second.held == 0
    third.take(1, nothing)
    first.leave()
    third.leave()


def test_what_is_given_back_is_free_though_a_process_forked_meanwhile_lives(locks):
    room = Room(locks)
    room.take(SHARES, nothing)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        os._exit(0)
    room.leave()
    other = Room(locks)
    other.take(SHARES, nothing)
    assert other.held == SHARES
    other.leave()
    os.write(writing, b"x")
    os.waitpid(child, 0)


def test_the_shares_of_a_process_that_is_killed_are_free(locks):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        Room(locks).take(SHARES, nothing)
        os.write(writing, b"x")
        threading.Event().wait()
    os.read(reading, 1)
    os.kill(child, 9)
    os.waitpid(child, 0)
    room = Room(locks)
    room.take(SHARES, nothing)
    assert room.held == SHARES
    room.leave()


def test_as_many_run_at_a_time_as_there_are_locks(tmp_path):
    locks = [tmp_path / "0", tmp_path / "1"]
    running, most, guard = [0], [0], threading.Lock()

    def run() -> None:
        with turn(locks, nothing):
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


def test_nobody_else_may_write_where_the_locks_are(locks):
    for folder in (locks.door.parent, locks.door.parent.parent):
        assert folder.stat().st_mode & 0o077 == 0
