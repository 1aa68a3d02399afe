"""Several problems at a time, each in a worker process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import TypeVar

from kernelassay.execute.toolbox import Toolbox
from kernelassay.execute.worker import Worker
from kernelassay.problem import Problem

T = TypeVar("T")


def each(
    problems: Sequence[Problem], tools: Toolbox, jobs: int, one: Callable[[Problem, Worker], T]
) -> Iterator[T]:
    """``one`` of every problem, as they are done, by at most ``jobs`` workers at a time.

    Closing the iterator, or an interrupt, ends the workers. Raises what ``one`` raises.
    """
    owned = [Worker(tools) for _ in range(max(1, min(jobs, len(problems))))]
    free: SimpleQueue[Worker] = SimpleQueue()
    for worker in owned:
        free.put(worker)

    def lent(problem: Problem) -> T:
        worker = free.get()
        try:
            return one(problem, worker)
        finally:
            free.put(worker)

    pool = ThreadPoolExecutor(len(owned))
    try:
        for future in as_completed([pool.submit(lent, problem) for problem in problems]):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in owned:
            worker.stop()
