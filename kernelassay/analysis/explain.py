"""All that a session knows of one mutant: what it is, who misses it and why, and what kills it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.analysis.mechanism import (
    MECHANISMS,
    OPEN,
    fates,
    mechanisms,
)
from kernelassay.analysis.plain import plain
from kernelassay.analysis.score import problem_facts, unproven
from kernelassay.cell import OK
from kernelassay.errors import SessionError, UsageError, unknown_name
from kernelassay.joined import JoinedSessions
from kernelassay.matrix import Bools, ProblemMatrix, measured, of_plan, require_finished
from kernelassay.mutation import RULES, diff, mutant_text
from kernelassay.oracle import CRITICAL
from kernelassay.protocols import Protocol, of_session
from kernelassay.session import Session

ACCEPTED = "accepted"
"""The verdict on a mutant whose fate is a mechanism of surviving; other fates are verdicts."""

BEYOND, NOT_FINITE = "beyond the tolerance", "NaN or infinity"

UNMEASURED, NOT_ADMITTED = "unmeasured", "not admitted"
NEAREST = 3
SHORT = 4
"""An id is not shortened below this many digits where the nearest are named."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A mutant on one input of a protocol.

    ``margin`` is the critical tolerance that the checker sees, over its tolerance: beyond 1 the
    output is rejected, and so is one of other NaNs or infinities. ``None`` if nothing ran to an
    end. ``how`` says what came of it, ``detail`` why nothing did.
    """

    input: str
    rejected: bool
    critical_tolerance: float | None
    margin: float | None
    how: str
    detail: str


@dataclass(frozen=True, slots=True)
class Cheapest:
    """The input that a protocol would do best to add for a mutant that it misses.

    ``fit`` tells whether correct kernels pass it at the protocol's tolerance, with the gate's
    headroom; one that is not is named only where no other kills. ``margin`` and ``how`` are as in
    :class:`Judged`.
    """

    input: str
    elements: int
    margin: float | None
    how: str
    fit: bool
    why: str


@dataclass(frozen=True, slots=True)
class ProtocolVerdict:
    """What a protocol makes of a mutant.

    ``reason`` tells why it accepts (RIPR), ``first`` is the first input that it rejects on.
    ``set_aside``: it rejects the correct kernel of this style, so its verdict counts for nothing.
    """

    protocol: str
    tolerance: float
    verdict: str
    reason: str
    first: str
    set_aside: bool
    inputs: tuple[Judged, ...]
    cheapest: Cheapest | None


@dataclass(frozen=True, slots=True)
class Killer:
    """An input that proves a mutant wrong: a kill witness.

    ``sizes`` are those that differ from the problem's own, ``elements`` counts those of the input
    tensors, ``unwritten`` those of the call's output that no thread wrote: NaN to a proof, zero to
    most checkers. ``critical_tolerance`` is against float64, ``margin`` that over the tolerance at
    which witnesses count here; both are ``None`` after a stop. ``margins`` are, by protocol, what
    its checker would see over its tolerance.
    """

    input: str
    group: str
    sizes: Mapping[str, int]
    elements: int
    how: str
    unwritten: int
    critical_tolerance: float | None
    margin: float | None
    margins: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Flag:
    """A kind of sanitizer finding: on how many inputs, and what the first one says."""

    kind: str
    inputs: int
    first: str
    detail: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one mutant. ``bucket`` is its place in the account of all mutants, or
    ``open`` where implied cells leave it so.

    ``valid`` inputs of the problem are ``ran`` (to an end or a stop), ``implied`` or ``lost``.
    ``not_held`` has the protocols that the problem lacks inputs of, with these. ``duplicates`` are
    the mutants with the same image.
    """

    session: str
    tolerance: float
    id: str
    problem: str
    call: str
    template: str
    style: str
    line: int
    rule: str
    family: str
    what: str
    bug: str
    bucket: str
    reason: str
    twin: str
    duplicates: tuple[str, ...]
    diff: str
    official_shape: bool
    valid: int
    ran: int
    implied: int
    lost: int
    protocols: tuple[ProtocolVerdict, ...]
    not_held: Mapping[str, tuple[str, ...]]
    killers: tuple[Killer, ...]
    flags: tuple[Flag, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return plain(self)


def explain(
    sessions: Sequence[Session],
    name: str,
    tolerance: float,
    protocols: Sequence[Protocol] | None = None,
    *,
    partial: bool = False,
) -> Explanation:
    """Explain the mutant whose id is, or alone begins with, ``name``; witnesses at ``tolerance``.

    Without ``protocols`` those of the session tell what they make of it.

    Raises :class:`UsageError` for an unknown or ambiguous name, and :class:`SessionError` if its
    problem is not finished (without ``partial``: if any is not).
    """
    joined = JoinedSessions(sessions)
    if not partial:
        require_finished(joined)
    finished = {plan["problem"]["id"]: plan for plan in joined.finished_plans()}
    planned = {p["problem"]["id"]: p for s in sessions for p in s.plans()} | finished
    plan, record = find(tuple(planned.values()), name)
    problem = plan["problem"]["id"]
    if problem not in finished:
        raise SessionError(
            f"mutant {record['id']} is of a problem that is not finished: {problem}",
            where=joined.name,
            hint="start the run again with the same command to complete it",
        )
    ran = measured(record) and not plan["refused"]
    view = _View(of_plan(joined, plan), record, tolerance) if ran else None
    wanted = of_session(sessions[0].manifest) if protocols is None else protocols
    held = [p for p in wanted if not p.missing_in(plan)] if view else []
    rule = next((rule for rule in RULES if rule.id == record["rule"]), None)
    original = _call(plan, record)["sources"][record["style"]]
    label = f"{record['rule']} ({record['id']})"
    return Explanation(
        session=joined.name,
        tolerance=tolerance,
        id=record["id"],
        problem=problem,
        call=record["call"],
        template=_call(plan, record)["template"],
        style=record["style"],
        line=record["line"],
        rule=record["rule"],
        family=record["family"],
        what=rule.what if rule else "",
        bug=rule.bug if rule else "",
        bucket=view.bucket if view else _unrun(plan, record),
        reason=plan["refused"] or record["reason"] or record["unsupported"],
        twin=record["twin"] or "",
        duplicates=tuple(m["id"] for m in plan["mutants"] if m["twin"] == record["id"]),
        diff=diff(original, mutant_text(record, original), label),
        official_shape=plan["problem"]["official_shape"],
        valid=len(view.matrix.inputs) if view else 0,
        ran=int(view.ran.sum()) if view else 0,
        implied=int(view.implied.sum()) if view else 0,
        lost=int(view.lost.sum()) if view else 0,
        protocols=tuple(view.verdict(p) for p in held) if view else (),
        not_held={p.name: p.missing_in(plan) for p in wanted if p not in held} if view else {},
        killers=tuple(view.killer(column, held) for column in view.killing) if view else (),
        flags=view.flags() if view else (),
    )


def find(plans: Sequence[Mapping[str, Any]], name: str) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The plan and the record of the mutant that ``name`` is, or alone begins.

    Raises :class:`UsageError` that names the nearest if it is of none, or of several.
    """
    found = {m["id"]: (plan, m) for plan in plans for m in plan["mutants"]}
    if name in found:
        return found[name]
    matching = sorted(known for known in found if name and known.startswith(name))
    if not matching:
        raise unknown_name("mutant", name, {known[: max(len(name), SHORT)] for known in found})
    if len(matching) > 1:
        more = ", ..." if len(matching) > NEAREST else ""
        raise UsageError(
            f"{len(matching)} mutants begin with {name!r}",
            hint=f"name one of them: {', '.join(matching[:NEAREST])}{more}",
        )
    return found[matching[0]]


def _call(plan: Mapping[str, Any], record: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(call for call in plan["calls"] if call["id"] == record["call"])


def _unrun(plan: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    if plan["refused"]:
        return NOT_ADMITTED
    return UNMEASURED if record["status"] == "distinct" else str(record["status"])


class _View:
    """One measured mutant's row of its problem's matrix. Arrays have shape [inputs]."""

    def __init__(self, matrix: ProblemMatrix, record: Mapping[str, Any], tolerance: float) -> None:
        self.matrix = matrix
        self.record = record
        self.tolerance = tolerance
        self.row = matrix.index[record["id"]]
        facts = {fact.id: fact for fact in problem_facts(matrix, (), tolerance)}
        undecided = record["id"] in unproven(matrix, tolerance)
        self.bucket = OPEN if undecided else facts[record["id"]].bucket
        self.implied: Bools = matrix.implied[self.row]
        self.lost: Bools = matrix.lost[self.row]
        self.ran: Bools = ~(self.implied | self.lost)
        self.kills: Bools = matrix.killing(tolerance)[self.row]
        self.specs = {spec["id"]: spec for spec in matrix.plan["inputs"]}

    @property
    def killing(self) -> NDArray[np.intp]:
        """The columns of the kill witnesses."""
        return np.flatnonzero(self.kills)

    def cell(self, column: str, at: int) -> Any:
        """One value of the row."""
        return self.matrix.columns[column][self.row, at]

    def seen(self, protocol: Protocol, at: int) -> float | None:
        """The critical tolerance that a protocol's checker sees; ``None`` without an output."""
        name = CRITICAL[self.matrix.rule_of(protocol).form]
        ran = self.cell("outcome", at) == OK
        return float(self.cell(f"{protocol.view}_{name}", at)) if ran else None

    def margin(self, protocol: Protocol, at: int) -> float | None:
        """:meth:`seen` over the protocol's tolerance."""
        seen = self.seen(protocol, at)
        return None if seen is None else self.matrix.rule_of(protocol).margin(seen)

    def verdict(self, protocol: Protocol) -> ProtocolVerdict:
        """What a protocol that the problem has the inputs of makes of the mutant."""
        columns = self.matrix.positions(protocol)
        cells = self.matrix.rejected_by(protocol)
        rejected = cells[self.row]
        original = self.matrix.index[f"original/{self.record['call']}/{self.record['style']}"]
        fate = str(fates(self.matrix, protocol)[self.row])
        accepted = fate in MECHANISMS
        return ProtocolVerdict(
            protocol=protocol.name,
            tolerance=self.matrix.rule_of(protocol).tolerance,
            verdict=ACCEPTED if accepted else fate,
            reason=fate if accepted else "",
            first=next((self.matrix.inputs[at] for at in columns if rejected[at]), ""),
            set_aside=bool(cells[original, columns].any()),
            inputs=tuple(self._judged(protocol, at, bool(rejected[at])) for at in columns),
            cheapest=self._cheapest(protocol, rejected) if accepted else None,
        )

    def _judged(self, protocol: Protocol, at: int, rejected: bool) -> Judged:
        margin = self.margin(protocol, at)
        if margin is None:
            how = str(self.cell("outcome", at))
        elif rejected:
            how = BEYOND if margin > 1 else NOT_FINITE
        else:
            how = str(mechanisms(self.matrix, np.array([at]), protocol.view)[self.row])
        return Judged(
            input=self.matrix.inputs[at],
            rejected=rejected,
            critical_tolerance=self.seen(protocol, at),
            margin=margin,
            how=how,
            detail=str(self.cell("detail", at)),
        )

    def _cheapest(self, protocol: Protocol, rejected: Bools) -> Cheapest | None:
        """Of the kill witnesses that the protocol's rule rejects, the one that costs least."""
        limits = self.matrix.limits(self.matrix.rule_of(protocol).tolerance, self.record["style"])
        would = np.flatnonzero(self.kills & rejected)
        fit = [int(at) for at in would if not np.isnan(limits[at])]
        pool = fit or [int(at) for at in would]
        if not pool:
            return None
        own = [at for at in pool if not self._spec(at)["spec"]["overrides"]]
        best = min(own or pool, key=self._elements)  # the earliest of equals
        sizes = "official" if self.matrix.plan["problem"]["official_shape"] else "problem's own"
        if len(pool) == 1:
            why = "no other would do"
        elif own:
            which = "only one" if len(own) == 1 else f"smallest of {len(own)}"
            why = f"the {which} at the {sizes} sizes, of {len(pool)} in all"
        else:
            why = f"the smallest of {len(pool)}, none of which has the {sizes} sizes"
        if self.implied.any():
            why += f"; {int(self.implied.sum())} inputs were not measured"
        if not fit:
            why += "; correct kernels stray on it, too, for this tolerance"
        judged = self._judged(protocol, best, True)
        return Cheapest(
            judged.input, self._elements(best), judged.margin, judged.how, bool(fit), why
        )

    def _spec(self, at: int) -> Mapping[str, Any]:
        return self.specs[self.matrix.inputs[at]]

    def _elements(self, at: int) -> int:
        return sum(prod(shape) for shape in self._spec(at)["shapes"])

    def killer(self, at: int, protocols: Sequence[Protocol]) -> Killer:
        """One of the kill witnesses."""
        limit = self.matrix.limits(self.tolerance, self.record["style"])[at]
        ran = self.cell("outcome", at) == OK
        exact = float(self.cell("exact_critical_tolerance", at)) if ran else None
        if exact is None:
            how = str(self.cell("outcome", at))
        else:
            how = BEYOND if exact > limit else NOT_FINITE
        return Killer(
            input=self.matrix.inputs[at],
            group=self._spec(at)["group"],
            sizes=self._spec(at)["spec"]["overrides"],
            elements=self._elements(at),
            how=how,
            unwritten=int(self.cell("unwritten", at)),
            critical_tolerance=exact,
            margin=None if exact is None else exact / float(limit),
            margins={protocol.name: self.margin(protocol, at) for protocol in protocols},
        )

    def flags(self) -> tuple[Flag, ...]:
        """The sanitizer findings by kind, in the order of the inputs that show them."""
        found: dict[str, list[tuple[str, str]]] = {}
        for name, cell in zip(
            self.matrix.inputs, self.matrix.columns["findings"][self.row], strict=True
        ):
            for finding in cell:
                found.setdefault(finding["kind"], []).append((name, finding["detail"]))
        return tuple(Flag(kind, len(some), *some[0]) for kind, some in found.items())
