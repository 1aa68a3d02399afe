"""Linting many problems, each in limited worker processes, several at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from typing import Any

from kernelassay.errors import LimitError, ProblemError, UnsupportedError, UsageError
from kernelassay.execute.sandbox import run_limited
from kernelassay.lint.finding import Options, Report, failed
from kernelassay.problem import Problem

DEVICE_SECONDS = 120.0


def lint(
    problems: Sequence[Problem],
    options: Options,
    jobs: int = 1,
    on_report: Callable[[Report], None] = lambda _: None,
) -> tuple[Report, ...]:
    """One report per problem, in their order; ``on_report`` is called as they finish.

    A problem that hangs, exits or takes all memory ends its worker only. Raises ``UsageError``
    when the device does not exist.
    """
    # Imported before any fork: workers share it, and no thread may fork amid an import.
    import kernelassay.lint.examine
    import kernelassay.shrink  # noqa: F401

    stopped = threading.Event()
    run = partial(_limited, options, stopped)
    if options.device != "cpu":
        run(DEVICE_SECONDS, options.device, _require_cuda)
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(_lint_one, p, options, run): i for i, p in enumerate(problems)}
        reports: dict[int, Report] = {}
        try:
            for future in as_completed(futures):
                reports[futures[future]] = future.result()
                on_report(future.result())
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(reports[index] for index in range(len(problems)))


def _lint_one(problem: Problem, options: Options, run: Callable[..., Any]) -> Report:
    """Shrink the problem if asked for, then examine it; each in a worker with the limits."""
    from kernelassay.lint.examine import examine

    began = time.monotonic()
    note = ""
    if options.shrink:
        problem, note = _shrunk(problem, options, run)
    try:
        report: Report = run(options.seconds, problem.id, examine, problem, options, note)
    except LimitError as error:
        report = Report(
            problem.id, problem.digest, shrunk=problem.shrunk, note=note, unjudged=error.what
        )
    except ProblemError as error:
        report = replace(failed(problem, "not-loadable", error.what), note=note)
    return replace(report, seconds=time.monotonic() - began)


def _shrunk(problem: Problem, options: Options, run: Callable[..., Any]) -> tuple[Problem, str]:
    """The problem at the sizes ``run --shrink`` gives it, and a remark.

    Where there are none, at larger ones; where these do not exist either, as it was.
    """
    from kernelassay.shrink import shrink
    from kernelassay.shrink_search import Budget

    try:
        found = run(options.seconds, problem.id, shrink, problem)
        if not found.reason or found.problem.shrunk:
            return found.problem, "; ".join(found.notes)
        # Networks stay above the budget of a mutation run; here few passes are made. The first
        # sizes that do are kept: nothing may grow past the length of 1.
        budget = Budget(6_000_000_000, 64 << 20, operations=20_000, longest=1, evaluations=60)
        larger = run(options.seconds, problem.id, partial(shrink, budget=budget), problem)
    except (ProblemError, UnsupportedError) as error:
        return problem, f"not shrunk: {error.what}"
    if larger.reason:
        return problem, f"not shrunk: {found.reason}"
    return larger.problem, f"larger than in a run, which cannot shrink it: {found.reason}"


def _limited(
    options: Options,
    stopped: threading.Event,
    seconds: float,
    where: str,
    function: Callable[..., Any],
    *args: Any,
) -> Any:
    return run_limited(
        function,
        args,
        seconds=seconds,
        memory_bytes=options.memory_bytes,
        where=where,
        reserves_space=options.device != "cpu",
        stopped=stopped,
    )


def _require_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            "torch finds no CUDA device", where="--device cuda", hint="use --device cpu"
        )
