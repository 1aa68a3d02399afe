"""Compilations share slots between threads and processes, and workers within a process."""

import multiprocessing
import threading
import time

import pytest

from kernelassay.compile import nvrtc
from kernelassay.compile.pool import WorkerPool, slot
from kernelassay.errors import ToolchainError

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.available(), reason=f"NVRTC: {nvrtc.unavailable_reason()}"
)
EMPTY = 'extern "C" __global__ void k() {}\n'


def test_no_more_are_at_work_than_there_are_slots(tmp_path):
    at_work, most, lock = 0, 0, threading.Lock()

    def work(worker, item):
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.01)
        with lock:
            at_work -= 1
        return item

    pools = [WorkerPool(4, tmp_path, 2) for _ in range(3)]  # as in three lanes
    results = [[] for _ in pools]
    threads = [
        threading.Thread(target=lambda p=p, r=r: r.extend(p.run(work, range(6))))
        for p, r in zip(pools, results, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sorted(result) for result in results] == [list(range(6))] * 3
    assert most == 2


def hold(folder, held):
    with slot(folder, 1):
        held.set()
        time.sleep(600)


def test_the_slot_of_a_dead_process_is_free(tmp_path):
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    process = context.Process(target=hold, args=(tmp_path, held))
    process.start()
    assert held.wait(300)
    process.kill()
    process.join()
    with slot(tmp_path, 1):
        assert [place.name for place in tmp_path.iterdir()] == ["000"]


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "000").mkdir()
    with pytest.raises(ToolchainError, match="slots cannot be used"), slot(tmp_path, 1):
        pass


@needs_nvrtc
def test_one_process_serves_many_pools():
    def compiled(worker, program):
        made = worker.compile(program, (), 60)
        return made.ok, worker._process.pid

    first = list(WorkerPool().run(compiled, [EMPTY, EMPTY]))
    second = list(WorkerPool(3).run(compiled, [EMPTY]))
    assert {ok for ok, _ in first + second} == {True}
    assert len({pid for _, pid in first + second}) == 1


@needs_nvrtc
def test_a_failure_ends_compilations_under_way_and_later_ones_have_other_workers():
    started = threading.Event()

    def work(worker, item):
        if item == "fails":
            started.wait(60)
            raise RuntimeError("this one")
        worker.compile(EMPTY, (), 60)
        started.set()
        for _ in range(10_000):
            worker.compile(EMPTY, (), 60)

    with pytest.raises(RuntimeError, match="this one"):
        list(WorkerPool(2).run(work, ["long", "fails"]))
    assert list(WorkerPool().run(lambda w, p: w.compile(p, (), 60).ok, [EMPTY])) == [True]


def test_what_another_is_at_comes_last_and_is_not_done_again(tmp_path):
    names = [f"batch {number}" for number in range(8)]
    kept, done, order, lock = {}, [], {}, threading.Lock()

    def work(worker, item):
        with lock:
            if item in kept:
                return kept[item]
        time.sleep(0.01)
        with lock:
            done.append(item)
            kept[item] = f"code of {item}"
        return kept[item]

    def run(pool):
        order[pool] = list(pool.run(work, names, str))

    pools = [WorkerPool(jobs, tmp_path, 8) for jobs in (1, 2, 3)]
    threads = [threading.Thread(target=run, args=(pool,)) for pool in pools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == names
    assert [sorted(order[pool]) for pool in pools] == [[f"code of {n}" for n in names]] * 3


def test_a_claim_ends_with_its_work_even_when_that_fails(tmp_path):
    def fail(worker, item):
        raise ToolchainError("no code")

    pool = WorkerPool(1, tmp_path, 1)
    with pytest.raises(ToolchainError, match="no code"):
        list(pool.run(fail, ["batch"], str))
    assert list(WorkerPool(1, tmp_path, 1).run(lambda _, item: item, ["batch"], str)) == ["batch"]
