"""What the witnessed mutants of a session are made of: who misses which, and which add something.

Two halves. Verdicts tell which protocols miss a mutant together. Whole rows of the kill matrix tell
which inputs kill a mutant, and so which mutants are minimal; implied cells leave that open.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelassay.analysis.ground import fitting, ground
from kernelassay.analysis.plain import plain
from kernelassay.analysis.score import MutantFacts, Share, buckets, mutant_facts, score
from kernelassay.analysis.subsumption import firsts, minimal
from kernelassay.analysis.verdicts import ROWS_HINT, check_controls
from kernelassay.errors import SessionError
from kernelassay.joined import JoinedSessions
from kernelassay.matrix import ProblemMatrix, load
from kernelassay.mutation.rule import FAMILIES
from kernelassay.protocols import Protocol, of_session
from kernelassay.session import Session

TARGETED = "targeted"

Pair = tuple[str, str]
"""A problem and a mutant of it."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The mutants that exactly these protocols miss; none for those that every one detects."""

    missed_by: tuple[str, ...]
    mutants: Share


@dataclass(frozen=True, slots=True)
class Core:
    """The mutants that every protocol misses, of those that every protocol scores."""

    mutants: Share
    by_family: Mapping[str, Share]
    by_problem: Mapping[str, Share]
    members: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class MissedRules:
    """The rules all of whose mutants are missed, with how many those are; of ``rules`` in all."""

    rules: int
    by_protocol: Mapping[str, Mapping[str, int]]
    by_every: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class GroupKills:
    """What a group of inputs kills, and what none but its inputs kill."""

    group: str
    inputs: int
    kills: Share
    alone: Share


@dataclass(frozen=True, slots=True)
class ProblemMinimal:
    """One problem's mutants: those whose row is known, its kinds of row, and the minimal ones."""

    problem: str
    mutants: int
    kinds: int
    minimal: int
    disjoint: int


@dataclass(frozen=True, slots=True)
class MinimalScore:
    """What a protocol detects of all witnessed mutants, of the minimal and the disjoint ones."""

    protocol: str
    all: Share
    minimal: Share
    disjoint: Share


@dataclass(frozen=True, slots=True)
class Rows:
    """What whole rows tell.

    ``mutants`` are those without a lost cell, of the witnessed. ``groups`` are the groups of
    inputs, ``transforms`` the families of values of the targeted ones. ``minimal`` mutants are
    subsumed by none but their equals, ``disjoint`` are one mutant of each minimal kind of row (the
    least id), which ``members`` names. ``without_minimal`` has the rules with no minimal mutant, of
    ``rules``, and how many mutants each has.
    """

    mutants: Share
    groups: tuple[GroupKills, ...]
    several: Share
    transforms: tuple[GroupKills, ...]
    minimal: Share
    disjoint: Share
    by_problem: tuple[ProblemMinimal, ...]
    scores: tuple[MinimalScore, ...]
    rules: int
    without_minimal: Mapping[str, int]
    members: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The anatomy of a session. ``tolerance`` is the one that witnesses are counted at.

    ``unscored`` are the witnessed mutants that some protocol does not score (see
    :class:`ProtocolScore`): they are in no pattern. ``rows`` is ``None`` where implied cells leave
    open which inputs kill a mutant; ``no_rows`` and ``hint`` then say so.
    """

    session: str
    tolerance: float
    problems: int
    unfinished: tuple[str, ...]
    refused: tuple[str, ...]
    protocols: tuple[str, ...]
    not_scored: Mapping[str, str]
    witnessed: Share
    unscored: int
    patterns: tuple[Pattern, ...]
    core: Core
    missed_rules: MissedRules
    rows: Rows | None
    no_rows: str
    hint: str

    def to_json(self) -> dict[str, Any]:
        """Plain data; shares carry their rate."""
        return plain(self)


def anatomy(sessions: Sequence[Session], tolerance: float, *, partial: bool = False) -> Anatomy:
    """The anatomy of one session or several, or with ``partial`` of the finished problems.

    Its protocols are those of the session, as far as it can score them. Raises as
    :func:`audit_sessions`.
    """
    session = JoinedSessions(sessions)
    matrices = load(session, partial=partial)
    protocols, missing = _scorable(matrices, of_session(sessions[0].manifest))
    for matrix in matrices:
        check_controls(matrix)
    plans = session.finished_plans()
    facts = mutant_facts(matrices, protocols, tolerance)
    account = buckets(plans, facts)
    witnessed = [fact for fact in facts if fact.witnessed]
    common = set(ground(matrices, facts, protocols).mutants)
    scored = [fact for fact in witnessed if _pair(fact) in common]
    names = tuple(protocol.name for protocol in protocols)
    implied = [fact for fact in witnessed if not fact.whole]
    assert len(witnessed) == account.witnessed + account.witnessed_by_stop
    return Anatomy(
        session=session.name,
        tolerance=tolerance,
        problems=len(matrices),
        unfinished=tuple(session.unfinished()),
        refused=tuple(p["problem"]["id"] for p in plans if p["refused"]),
        protocols=names,
        not_scored=missing,
        witnessed=Share(len(witnessed), account.distinct),
        unscored=len(witnessed) - len(scored),
        patterns=patterns(scored, names),
        core=_core(scored, names),
        missed_rules=_missed_rules(scored, names),
        rows=None if implied else _rows(matrices, witnessed, protocols, tolerance),
        no_rows=f"{len(implied)} of {len(witnessed)} witnessed mutants have cells that were not"
        " measured (implied): which inputs kill them is not known"
        if implied
        else "",
        hint=ROWS_HINT if implied else "",
    )


def _scorable(
    matrices: Sequence[ProblemMatrix], protocols: Sequence[Protocol]
) -> tuple[list[Protocol], dict[str, str]]:
    """The protocols that can be scored on every problem; why others cannot, on the first."""
    left: list[Protocol] = []
    not_scored: dict[str, str] = {}
    for protocol in protocols:
        _, aside = fitting(matrices, protocol)
        if aside:
            problem, why = next(iter(aside.items()))
            not_scored[protocol.name] = f"{problem}: {why}"
        else:
            left.append(protocol)
    if not left:
        raise SessionError(
            f"the session can score no protocol on all problems: {next(iter(not_scored.values()))}",
            hint="`kernelassay audit` tells the problems that each can be scored on",
        )
    return left, not_scored


def patterns(facts: Sequence[MutantFacts], protocols: Sequence[str]) -> tuple[Pattern, ...]:
    """How many mutants each set of protocols misses, the most first; they sum to all."""
    counts = Counter(missed_by(fact, protocols) for fact in facts)
    assert sum(counts.values()) == len(facts)
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Pattern(names, Share(count, len(facts))) for names, count in order)


def missed_by(fact: MutantFacts, protocols: Iterable[str]) -> tuple[str, ...]:
    """The protocols that miss a witnessed mutant, in their order."""
    return tuple(name for name in protocols if not fact.detected[name])


def _core(facts: Sequence[MutantFacts], protocols: Sequence[str]) -> Core:
    missed = {_pair(f) for f in facts if len(missed_by(f, protocols)) == len(protocols)}

    def shares(key: Callable[[MutantFacts], str], order: Iterable[str]) -> dict[str, Share]:
        of = {name: [f for f in facts if key(f) == name] for name in order}
        return {
            name: Share(sum(_pair(f) in missed for f in some), len(some))
            for name, some in of.items()
        }

    return Core(
        Share(len(missed), len(facts)),
        shares(lambda f: f.family, FAMILIES),
        shares(lambda f: f.problem, sorted({f.problem for f in facts})),
        tuple(sorted(missed)),
    )


def _missed_rules(facts: Sequence[MutantFacts], protocols: Sequence[str]) -> MissedRules:
    of = _by_rule(facts)

    def always(names: Sequence[str]) -> dict[str, int]:
        return {
            rule: len(some)
            for rule, some in of.items()
            if not any(fact.detected[name] for fact in some for name in names)
        }

    return MissedRules(len(of), {name: always((name,)) for name in protocols}, always(protocols))


def _by_rule(facts: Iterable[MutantFacts]) -> dict[str, list[MutantFacts]]:
    of: dict[str, list[MutantFacts]] = {}
    for fact in sorted(facts, key=lambda fact: fact.rule):
        of.setdefault(fact.rule, []).append(fact)
    return of


def _pair(fact: MutantFacts) -> Pair:
    return fact.problem, fact.id


# ---- whole rows --------------------------------------------------------------------------------


def _rows(
    matrices: Sequence[ProblemMatrix],
    witnessed: Sequence[MutantFacts],
    protocols: Sequence[Protocol],
    tolerance: float,
) -> Rows:
    known: list[MutantFacts] = []
    killers: dict[Pair, frozenset[str]] = {}
    least: set[Pair] = set()
    members: list[Pair] = []
    by_problem: list[ProblemMinimal] = []
    for matrix in matrices:
        own = {f.id: f for f in witnessed if f.problem == matrix.problem}
        names = sorted(n for n in own if not matrix.lost[matrix.index[n]].any())
        kills = matrix.killing(tolerance)[matrix.rows(names)]
        known += [own[name] for name in names]
        for name, row in zip(names, kills, strict=True):
            killers[matrix.problem, name] = frozenset(
                input_id for input_id, hit in zip(matrix.inputs, row, strict=True) if hit
            )
        some = minimal(kills)
        kinds = firsts(kills)
        one_each = [names[row] for row in kinds if some[row]]
        least |= {(matrix.problem, name) for name, hit in zip(names, some, strict=True) if hit}
        members += [(matrix.problem, name) for name in one_each]
        counts = (len(names), len(kinds), int(some.sum()), len(one_each))
        by_problem.append(ProblemMinimal(matrix.problem, *counts))
    of_rules = _by_rule(known)
    groups = _kills_by(_groups(matrices), killers)
    alone = sum(group.alone.count for group in groups)
    several = sum(len(found) > 1 for found in _hit(_groups(matrices), killers).values())
    assert alone + several == len(known), "a witnessed mutant is killed by one group or several"
    return Rows(
        mutants=Share(len(known), len(witnessed)),
        groups=groups,
        several=Share(several, len(known)),
        transforms=tuple(
            g for g in _kills_by(_groups(matrices, families=True), killers) if ": " in g.group
        ),
        minimal=Share(len(least), len(known)),
        disjoint=Share(len(members), len(known)),
        by_problem=tuple(by_problem),
        scores=tuple(_scores(matrices, known, protocols, tolerance, least, set(members))),
        rules=len(of_rules),
        without_minimal={
            rule: len(some)
            for rule, some in of_rules.items()
            if not any(_pair(fact) in least for fact in some)
        },
        members=tuple(members),
    )


def _scores(
    matrices: Sequence[ProblemMatrix],
    known: Sequence[MutantFacts],
    protocols: Sequence[Protocol],
    tolerance: float,
    *sets: set[Pair],
) -> Iterable[MinimalScore]:
    for protocol in protocols:
        chosen = [known, *([f for f in known if _pair(f) in some] for some in sets)]
        shares = [score(matrices, facts, protocol, tolerance).detection for facts in chosen]
        yield MinimalScore(protocol.name, *shares)


def transform_family(name: str) -> str:
    """A transform without its magnitude: ``huge`` for ``huge-3e5``."""
    return re.sub(r"-[0-9][0-9.e-]*$", "", name)


def _groups(
    matrices: Iterable[ProblemMatrix], *, families: bool = False
) -> dict[tuple[str, str], str]:
    """The group of every input, by problem and id; with ``families`` targeted ones in families."""

    def group(record: Mapping[str, Any]) -> str:
        if families and record["group"] == TARGETED:
            return f"{TARGETED}: {transform_family(record['spec']['transform'])}"
        return str(record["group"])

    return {
        (matrix.problem, record["id"]): group(record)
        for matrix in matrices
        for record in matrix.plan["inputs"]
        if record["id"] in matrix.inputs
    }


def _hit(
    groups: Mapping[tuple[str, str], str], killers: Mapping[Pair, frozenset[str]]
) -> dict[Pair, frozenset[str]]:
    """The groups that kill each mutant."""
    return {
        (problem, mutant): frozenset(groups[problem, name] for name in names)
        for (problem, mutant), names in killers.items()
    }


def _kills_by(
    groups: Mapping[tuple[str, str], str], killers: Mapping[Pair, frozenset[str]]
) -> tuple[GroupKills, ...]:
    hit = _hit(groups, killers)
    inputs = Counter(groups.values())
    kills = Counter(name for found in hit.values() for name in found)
    alone = Counter(next(iter(found)) for found in hit.values() if len(found) == 1)
    return tuple(
        GroupKills(name, count, Share(kills[name], len(hit)), Share(alone[name], len(hit)))
        for name, count in inputs.items()
    )
