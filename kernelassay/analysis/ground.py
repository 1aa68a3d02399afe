"""The mutants and correct kernels that several protocols are all scored on.

Protocols are compared on the same candidates. What one of them cannot be scored on is set aside for
all, with the protocol and the reason.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelassay.analysis.score import MutantFacts
from kernelassay.analysis.verdicts import (
    check_controls,
    exact_originals,
    rejected_originals,
    rejects,
    undecided,
    verdicts,
)
from kernelassay.errors import ControlError, SessionError
from kernelassay.matrix import Bools, ProblemMatrix
from kernelassay.protocols.protocol import Protocol, is_glob

Candidates = tuple[tuple[str, str], ...]
"""Pairs of problem and candidate."""


@dataclass(frozen=True, slots=True)
class Aside:
    """A problem that a protocol cannot be scored on, and why."""

    problem: str
    protocol: str
    why: str


@dataclass(frozen=True, slots=True)
class Gap:
    """A protocol whose verdicts the cells of a lazy run leave open: what, where, what to do."""

    protocol: str
    what: str
    where: str
    hint: str


@dataclass(frozen=True, slots=True)
class Ground:
    """What some protocols are all scored on.

    ``mutants`` are witnessed, ``variants`` benign, ``originals`` the correct kernels that mutants
    are made of.
    Left out are ``set_aside`` mutants, whose own correct kernel some protocol rejects: it would
    reject them whatever their fault; and ``lost`` candidates, which some protocol may reject: an
    infrastructure error, or what is kept of an output, leaves it open.
    """

    matrices: tuple[ProblemMatrix, ...]
    aside: tuple[Aside, ...]
    mutants: Candidates
    variants: Candidates
    originals: Candidates
    set_aside: int
    lost: int

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems' ids."""
        return tuple(matrix.problem for matrix in self.matrices)


def why_aside(matrix: ProblemMatrix, protocol: Protocol) -> str:
    """Why a protocol cannot be scored on a problem; empty if it can.

    Raises :class:`SessionError` if the cells that were not measured leave a verdict open.
    """
    missing = protocol.missing_in(matrix.plan)
    if missing:
        return f"no valid input {', '.join(missing)}"
    try:
        check_controls(matrix)
    except ControlError as error:
        return error.what
    return ""


def ground(
    matrices: Iterable[ProblemMatrix], facts: Sequence[MutantFacts], protocols: Sequence[Protocol]
) -> Ground:
    """What all of the protocols are scored on; ``facts`` tell who is witnessed.

    Raises as :func:`why_aside`.
    """
    fit: list[ProblemMatrix] = []
    aside: list[Aside] = []
    for matrix in matrices:
        reasons = ((p.name, why) for p in protocols if (why := why_aside(matrix, p)))
        reason = next(reasons, None)
        if reason is None:
            fit.append(matrix)
        else:
            aside.append(Aside(matrix.problem, *reason))
    unfair = {key for protocol in protocols for key in rejected_originals(fit, protocol)}
    return shared(fit, aside, facts, protocols, unfair)


def shared(
    fit: Sequence[ProblemMatrix],
    aside: Sequence[Aside],
    facts: Iterable[MutantFacts],
    protocols: Sequence[Protocol],
    unfair: Container[tuple[str, str, str]],
) -> Ground:
    """The ground on problems that ``fit`` all protocols.

    ``unfair`` are the (problem, call, style) whose mutants are set aside. Raises as
    :func:`verdicts.rejects`.
    """
    lost = {m.problem: {name for p in protocols for name in undecided(m, p)} for m in fit}
    proven = [fact for fact in facts if fact.witnessed and fact.problem in lost]
    fair = [f for f in proven if (f.problem, f.call, f.style) not in unfair]
    mutants = tuple((f.problem, f.id) for f in fair if f.id not in lost[f.problem])
    variants, originals = _correct(fit, lost)
    return Ground(
        matrices=tuple(fit),
        aside=tuple(aside),
        mutants=mutants,
        variants=variants,
        originals=originals,
        set_aside=len(proven) - len(fair),
        lost=len(fair) - len(mutants),
    )


def _correct(
    matrices: Iterable[ProblemMatrix], lost: Mapping[str, Container[str]]
) -> tuple[Candidates, Candidates]:
    """The benign variants and the kernels under mutation of some problems, without the lost."""
    used = list(matrices)
    variants = (
        (matrix.problem, record["id"])
        for matrix in used
        for record in matrix.plan["benign"]
        if not record["unsupported"]
    )
    originals = ((matrix.problem, name) for matrix in used for name in exact_originals(matrix))

    def left(candidates: Iterable[tuple[str, str]]) -> Candidates:
        return tuple((problem, name) for problem, name in candidates if name not in lost[problem])

    return left(variants), left(originals)


def rejected(
    matrices: Iterable[ProblemMatrix], candidates: Candidates, protocol: Protocol
) -> Bools:
    """Which candidates a protocol rejects. Raises as :func:`verdicts.rejects`."""
    found: Mapping[str, Mapping[str, bool]] = {
        matrix.problem: dict(zip(matrix.candidates, verdicts(matrix, protocol), strict=True))
        for matrix in matrices
    }
    return np.array([found[problem][name] for problem, name in candidates], dtype=bool)


def require_matches(matrices: Iterable[ProblemMatrix], protocols: Iterable[Protocol]) -> None:
    """Raises :class:`SessionError` for a glob that stands for no input of any problem."""
    plans = [matrix.plan for matrix in matrices]
    for protocol in protocols:
        for name in filter(is_glob, protocol.inputs):
            one = replace(protocol, inputs=(name,))
            if plans and not any(one.inputs_in(p) or one.unfit_in(p) for p in plans):
                raise SessionError(
                    f"{protocol.name}: no input of the session matches {name!r}",
                    hint="`inputs.parquet` of a session lists its inputs",
                )


def gap(matrices: Iterable[ProblemMatrix], protocol: Protocol) -> Gap | None:
    """The first verdicts of a protocol that cells leave open, on problems that have its inputs."""
    for matrix in matrices:
        if not protocol.missing_in(matrix.plan):
            try:
                rejects(matrix, protocol)
            except SessionError as error:
                return Gap(protocol.name, error.what, error.where, error.hint)
    return None


def fitting(
    matrices: Iterable[ProblemMatrix], protocol: Protocol
) -> tuple[list[ProblemMatrix], dict[str, str]]:
    """The problems that a protocol has its inputs and its verdicts on; why it has not on others."""
    fit: list[ProblemMatrix] = []
    aside: dict[str, str] = {}
    for matrix in matrices:
        missing = protocol.missing_in(matrix.plan)
        found = gap((matrix,), protocol)
        if missing:
            aside[matrix.problem] = f"no valid input {', '.join(missing)}"
        elif found:
            aside[matrix.problem] = found.what
        else:
            fit.append(matrix)
    return fit, aside
