"""Everything ``kernelassay audit`` reports about a session, or several of one campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelassay.analysis.common import Common, common_ground
from kernelassay.analysis.ground import fitting, require_matches
from kernelassay.analysis.mechanism import MECHANISMS, Survival, survival
from kernelassay.analysis.plain import plain
from kernelassay.analysis.score import (
    Buckets,
    MutantFacts,
    ProtocolScore,
    Share,
    buckets,
    decided,
    mutant_facts,
    score,
    unproven,
    vacuous,
)
from kernelassay.errors import SessionError
from kernelassay.joined import JoinedSessions
from kernelassay.matrix import ProblemMatrix, load, measured
from kernelassay.mutation.catalogue import RULES
from kernelassay.protocols import Protocol, of_session
from kernelassay.session import Session

OTHER_TOLERANCES = (1e-2, 1e-4, None)
"""``None``: the tightest tolerance of each input that every correct kernel still passes."""


BARRIER_DROPS = ("barrier-delete", "loop-tail-barrier-delete", "syncwarp-delete")


@dataclass(frozen=True, slots=True)
class RuleCoverage:
    """What one rule did in a session; ``styles`` are those it generated mutants of."""

    rule: str
    family: str
    generated: int
    distinct: int
    witnessed: int
    styles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Denominator:
    """The witnessed mutants at one tolerance (``None``: each input's tightest)."""

    tolerance: float | None
    valid_inputs: int
    account: Buckets


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The audit of a session. ``tolerance`` is the one witnesses are counted at.

    ``mechanisms`` tells, by protocol, why its survivors survive; ``survivors`` has their counts.

    ``joined`` has the manifests of further sessions that were audited with it. ``cells`` counts
    those that were measured, ``implied`` the others. ``denominators`` leaves out the tolerances
    that implied cells leave open. ``aside`` has, by protocol, the problems that it cannot be scored
    on and its figures are without, with the reasons; ``not_scored`` the protocols that can be
    scored on none; ``common`` the scored ones where all of them can be.
    """

    session: str
    manifest: Mapping[str, Any]
    joined: tuple[Mapping[str, Any], ...]
    tolerance: float
    problems: int
    unfinished: tuple[str, ...]
    refused: Mapping[str, str]
    styles_not_admitted: Mapping[str, str]
    inputs: int
    invalid_inputs: Mapping[str, Mapping[str, str]]
    cells: int
    implied: int
    sample: Share
    """The mutants in the account, of those generated: all of them, unless a run took a sample."""
    account: Buckets
    account_by_family: Mapping[str, Buckets]
    account_by_style: Mapping[str, Buckets]
    denominators: tuple[Denominator, ...]
    scores: tuple[ProtocolScore, ...]
    aside: Mapping[str, Mapping[str, str]]
    not_scored: Mapping[str, str]
    common: Common | None
    vacuous: Mapping[str, Mapping[str, Sequence[str]]]
    survivors: Mapping[str, Mapping[str, int]]
    mechanisms: Mapping[str, Survival]
    findings: Mapping[str, int]
    false_findings: Share
    dropped_barriers: Share
    unflagged_barriers: tuple[tuple[str, str], ...]
    coverage: tuple[RuleCoverage, ...]
    official_shapes: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data; shares carry their rate."""
        return plain(self)


def audit_sessions(
    sessions: Sequence[Session],
    protocols: Sequence[Protocol] | None,
    tolerance: float,
    *,
    partial: bool = False,
    lenient: bool = False,
) -> AuditResult:
    """Score protocols on one session or several, or with ``partial`` on the finished problems.

    ``None`` means those of the session. Of these, and with ``lenient`` of all, those that it can
    score on no problem are told; else they are an error. Raises as :class:`JoinedSessions`,
    :func:`matrix.load`, :func:`mutant_facts` and :func:`score`.
    """
    session = JoinedSessions(sessions)
    matrices = load(session, partial=partial)
    wanted = of_session(sessions[0].manifest) if protocols is None else protocols
    require_matches(matrices, wanted)
    implied = sum(int(matrix.implied.sum()) for matrix in matrices)
    plans = session.finished_plans()
    facts = mutant_facts(matrices, (), tolerance)
    found, not_scored = _scored(matrices, facts, wanted, tolerance)
    if not_scored and protocols is not None and not lenient:
        first = next(protocol for protocol in wanted if protocol.name in not_scored)
        decided(matrices, facts, first)  # raises, with what to do about it
    if not found:
        raise SessionError(
            "the session holds the inputs of no protocol:"
            f" {next(iter(not_scored.values()), 'none is named')}",
            hint="name one that it can score, with --protocol",
        )
    scores = tuple(one.score for one in found)
    reasons = {one.score.protocol: one.survival for one in found}
    dropped = [fact for fact in facts if fact.rule in BARRIER_DROPS and fact.whole]
    unflagged = [fact for fact in dropped if not fact.flagged]
    return AuditResult(
        session=session.name,
        manifest=sessions[0].manifest,
        joined=tuple(other.manifest for other in sessions[1:]),
        tolerance=tolerance,
        problems=len(matrices),
        unfinished=tuple(session.unfinished()),
        refused={p["problem"]["id"]: p["refused"] for p in plans if p["refused"]},
        styles_not_admitted={
            f"{p['problem']['id']} {call['id']} {style}": reason
            for p in plans
            for call in p["calls"]
            for style, reason in call["not_admitted"].items()
        },
        inputs=sum(len(matrix.inputs) for matrix in matrices),
        invalid_inputs={
            m.problem: {r["id"]: r["reason"] for r in m.plan["inputs"] if not r["valid"]}
            for m in matrices
        },
        cells=sum(matrix.implied.size for matrix in matrices) - implied,
        implied=implied,
        sample=sample_share(plans),
        account=buckets(plans, facts),
        account_by_family=accounts(plans, facts, "family"),
        account_by_style=accounts(plans, facts, "style"),
        denominators=tuple(
            _denominator(plans, matrices, t)
            for t in OTHER_TOLERANCES
            if not any(unproven(matrix, t) for matrix in matrices)
        ),
        scores=scores,
        aside={one.score.protocol: one.aside for one in found if one.aside},
        not_scored=not_scored,
        common=common_ground(matrices, facts, [(one.protocol, one.aside) for one in found]),
        vacuous={one.score.protocol: one.vacuous for one in found},
        survivors={
            name: {reason: found.all.mechanisms[reason].count for reason in MECHANISMS}
            for name, found in reasons.items()
        },
        mechanisms=reasons,
        findings=dict(Counter(k for m in matrices for k in finding_kinds(m))),
        false_findings=false_findings(matrices),
        dropped_barriers=Share(len(dropped) - len(unflagged), len(dropped)),
        unflagged_barriers=tuple((f.problem, f.id) for f in unflagged),
        coverage=rule_coverage(plans, facts),
        official_shapes=all(p["problem"]["official_shape"] for p in plans),
    )


def sample_share(plans: Sequence[Mapping[str, Any]]) -> Share:
    """The mutants that plans hold, of those generated for them: a run may take a sample."""
    used = [p for p in plans if not p["refused"]]
    counts = [(len(p["mutants"]), p.get("generated", len(p["mutants"]))) for p in used]
    return Share(sum(taken for taken, _ in counts), sum(total for _, total in counts))


@dataclass(frozen=True, slots=True)
class _Found:
    """What an audit tells of one protocol, on the problems that it can be scored on."""

    protocol: Protocol
    score: ProtocolScore
    survival: Survival
    vacuous: Mapping[str, Sequence[str]]
    aside: Mapping[str, str]


def _scored(
    matrices: Sequence[ProblemMatrix],
    facts: Sequence[MutantFacts],
    protocols: Sequence[Protocol],
    tolerance: float,
) -> tuple[list[_Found], dict[str, str]]:
    """Each protocol where it can be scored; of those that can nowhere, why not on the first."""
    found: list[_Found] = []
    not_scored: dict[str, str] = {}
    for protocol in protocols:
        fit, aside = fitting(matrices, protocol)
        if not fit:
            problem, why = next(iter(aside.items()))
            not_scored[protocol.name] = f"{problem}: {why}"
            continue
        own = decided(fit, facts, protocol)
        scored = score(fit, own, protocol, tolerance)
        reasons = survival(fit, own, protocol)
        reasons.check(scored)
        found.append(_Found(protocol, scored, reasons, vacuous(fit, protocol), aside))
    return found, not_scored


def false_findings(matrices: Sequence[ProblemMatrix]) -> Share:
    """Cells of correct kernels (originals, benign variants) that carry a sanitizer finding."""
    cells = [
        bool(found)
        for matrix in matrices
        for name, row in zip(matrix.candidates, matrix.columns["findings"], strict=True)
        if name.startswith(("original/", "benign/"))
        for found in row
    ]
    return Share(sum(cells), len(cells))


def finding_kinds(matrix: ProblemMatrix) -> list[str]:
    """The kinds of sanitizer finding of each mutant, one entry per mutant and kind."""
    kinds: list[str] = []
    for mutant in filter(measured, matrix.plan["mutants"]):
        row = matrix.columns["findings"][matrix.index[mutant["id"]]]
        kinds += sorted({finding["kind"] for found in row for finding in found})
    return kinds


def rule_coverage(
    plans: Sequence[Mapping[str, Any]], facts: Sequence[MutantFacts]
) -> tuple[RuleCoverage, ...]:
    """Every rule of the catalogue with what it generated and what was witnessed."""
    generated: Counter[str] = Counter()
    styles: dict[str, set[str]] = {}
    distinct: Counter[str] = Counter()
    for plan in plans:
        generated.update(m["rule"] for m in plan["mutants"])
        for mutant in plan["mutants"]:
            styles.setdefault(mutant["rule"], set()).add(mutant["style"])
        distinct.update(m["rule"] for m in plan["mutants"] if m["status"] == "distinct")
    witnessed = Counter(fact.rule for fact in facts if fact.witnessed)
    return tuple(
        RuleCoverage(
            r.id,
            r.family,
            generated[r.id],
            distinct[r.id],
            witnessed[r.id],
            tuple(sorted(styles.get(r.id, ()))),
        )
        for r in RULES
    )


def accounts(
    plans: Sequence[Mapping[str, Any]], facts: Sequence[MutantFacts], key: str
) -> dict[str, Buckets]:
    """The account of every value that ``key`` ("family" or "style") takes among the mutants."""
    values = {mutant[key] for plan in plans for mutant in plan["mutants"]}
    return {
        value: buckets(
            [
                {**plan, "mutants": [m for m in plan["mutants"] if m[key] == value]}
                for plan in plans
            ],
            [fact for fact in facts if getattr(fact, key) == value],
        )
        for value in sorted(values)
    }


def _denominator(
    plans: Sequence[Mapping[str, Any]],
    matrices: Sequence[ProblemMatrix],
    tolerance: float | None,
) -> Denominator:
    facts = mutant_facts(matrices, (), tolerance)
    valid = sum(int(matrix.valid_at(tolerance).sum()) for matrix in matrices)
    return Denominator(tolerance, valid, buckets(plans, facts))
