"""The ladder on finished sessions: which problems, with what executor, and the whole account."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kernelassay import executors
from kernelassay.analysis.ground import why_aside
from kernelassay.errors import KernelassayError, NothingToTestError
from kernelassay.joined import JoinedSessions
from kernelassay.matrix import load
from kernelassay.plan import OFFICIAL
from kernelassay.replay import find_problem
from kernelassay.session import Session
from kernelassay.synthesis.generate.ladder import (
    Ladder,
    Options,
    Subject,
    Survivors,
    account,
    climb,
    survivors_of,
)
from kernelassay.synthesis.generate.target import Generator

NOBODY = Survivors({}, {})


def experiment(
    sessions: Sequence[Session],
    generators: Sequence[Generator],
    options: Options,
    kernelbench: Path | None = None,
    progress: Callable[[str], None] = lambda step: None,
    *,
    partial: bool = False,
) -> Ladder:
    """All rungs on all problems of some sessions, with the executor of the first.

    Raises :class:`NothingToTestError` if nothing survives the protocol, ``SessionError`` as
    :func:`kernelassay.matrix.load`, and ``DeviceError`` where a machine failed.
    """
    joined = JoinedSessions(sessions)
    official = sessions[0].manifest["scale"] == OFFICIAL
    subjects: list[Subject] = []
    aside: dict[str, str] = {}
    for matrix in load(joined, partial=partial):
        try:
            why = why_aside(matrix, options.protocol)
            who = NOBODY if why else survivors_of(matrix, options.protocol, options.tolerance)
            if who.missed or who.unobserved:
                problem = find_problem(matrix.plan, kernelbench)
                subjects.append(Subject(problem, matrix, who, official))
                continue
        except KernelassayError as error:
            why = str(error)
        aside[matrix.problem] = why or "nothing is left to kill"
    if not subjects:
        reasons = "; ".join(f"{problem}: {why}" for problem, why in aside.items())
        raise NothingToTestError(f"no problem has a survivor ({reasons})", where=joined.name)
    tools = executors.tools(executors.recorded(sessions[0].manifest))(sessions[0].images)
    found = list(climb(subjects, generators, tools, options, progress))
    found.sort(key=lambda climbed: climbed.rungs[0].problem)
    rungs = tuple(
        account(generator, subjects, [climbed.rungs[place] for climbed in found])
        for place, generator in enumerate(generators)
    )
    return Ladder(
        sessions=joined.name,
        protocol=options.protocol.name,
        tolerance=options.tolerance,
        budget=options.budget,
        seed=options.seed,
        survivors=sum(len(subject.who.missed) for subject in subjects),
        unobserved=sum(len(subject.who.unobserved) for subject in subjects),
        ceiling_cells=sum(climbed.ceiling_cells for climbed in found),
        aside=aside,
        rungs=rungs,
    )
