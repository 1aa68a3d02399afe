"""A campaign on levels 1 and 2 of KernelBench, beside the published study of the same question.

Usage: python benchmarks/beside_published.py SESSION...

Sessions of one campaign are read together. Problems that a run has not finished are named and left
out. Where a protocol cannot be scored on a problem (an input of it is not valid there, a control
misbehaves), that problem is named and set aside for that protocol alone. Published figures are
facts of arXiv 2609.22220 (one H100); "-" stands where it gives none.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelassay.analysis.audit import accounts, sample_share, survival_reasons
from kernelassay.analysis.score import (
    Buckets,
    MutantFacts,
    ProtocolScore,
    Share,
    buckets,
    mutant_facts,
    score,
    undecided,
)
from kernelassay.errors import ControlError, KernelassayError
from kernelassay.joined import JoinedSessions
from kernelassay.matrix import ProblemMatrix, load
from kernelassay.mutation.rule import FAMILIES
from kernelassay.protocols import CURRENT, PROTOCOLS, V01, VERIFIED, VERIFIED_INPUTS_AT_V01
from kernelassay.protocols import Protocol as Checker
from kernelassay.report.tables import missed, percent
from kernelassay.session import Session, inputs_of

TOLERANCE = 1e-2
"""The study counts witnesses at the tolerance of the check that it scores."""

NONE = "-"
SHORT = 100
WORST = 12
LARGE_LOSS = 0.4

STAGES = {
    "admitted": 188,
    "generated": 10303,
    "stillborn": 1594,
    "duplicate": 279,
    "equivalent": 177,
    "distinct": 8253,
    "witnessed": 7384,
}
MISSED = Share(1248, 7384)
FAMILY_MISSED = {
    "arithmetic": (3349, "8.7%"),
    "indexing": (749, "14.4%"),
    "semantic": (858, "14.9%"),
    "boundary": (1735, "22.9%"),
    "synchronization": (400, "27.8%"),
    "precision": (271, "78.6%"),
}
DETECTED = {
    V01.name: ("80.0%", "0"),
    VERIFIED_INPUTS_AT_V01.name: ("84.0%", "0"),
    VERIFIED.name: ("88.5%", "0"),
}
BLIND = {"Softmax": 28, "LogSoftmax": 9}
"""Tolerance-blind survivors, by the KernelBench problem's name; of all mutants, not a sample."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One protocol where it can be scored: over all problems (``None`` if on none), and on each.

    ``aside`` has the other problems, with the reason.
    """

    protocol: Checker
    total: ProtocolScore | None
    alone: Mapping[str, ProtocolScore]
    aside: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is finished of some sessions, and all protocols on it."""

    session: JoinedSessions
    plans: Sequence[Mapping[str, Any]]
    matrices: Sequence[ProblemMatrix]
    facts: Sequence[MutantFacts]
    scored: Mapping[str, Scored]

    @property
    def loose(self) -> Scored:
        """The official check at 1e-2."""
        return self.scored[V01.name]

    @property
    def tight(self) -> Scored:
        """The official check at 1e-4."""
        return self.scored[CURRENT.name]


def read(roots: Iterable[Path]) -> Campaign:
    """Read and score sessions; raises as ``JoinedSessions``, ``load`` and ``mutant_facts``."""
    session = JoinedSessions([Session.open(root) for root in roots])
    matrices = load(session, partial=True)
    return Campaign(
        session,
        session.finished_plans(),
        matrices,
        mutant_facts(matrices, (), TOLERANCE),
        {protocol.name: scored_where_fit(matrices, protocol) for protocol in PROTOCOLS},
    )


def scored_where_fit(matrices: Sequence[ProblemMatrix], protocol: Checker) -> Scored:
    """Score a protocol on the problems that have its inputs and whose controls behave."""
    alone: dict[str, ProtocolScore] = {}
    aside: dict[str, str] = {}
    for matrix in matrices:
        missing = protocol.missing_in(matrix.plan)
        if missing:
            aside[matrix.problem] = f"no valid input {', '.join(missing)}"
            continue
        try:
            alone[matrix.problem] = scored_on((matrix,), protocol)
        except ControlError as error:
            aside[matrix.problem] = error.what
    fit = [matrix for matrix in matrices if matrix.problem in alone]
    return Scored(protocol, scored_on(fit, protocol) if fit else None, alone, aside)


def scored_on(matrices: Sequence[ProblemMatrix], protocol: Checker) -> ProtocolScore:
    """The score of one protocol on some problems that it can be scored on."""
    return score(matrices, mutant_facts(matrices, (protocol,), TOLERANCE), protocol, TOLERANCE)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    cells = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def rate(share: Share) -> str:
    """A share as a percentage alone."""
    return NONE if share.rate is None else f"{100 * share.rate:.1f}%"


def short(text: str) -> str:
    """The first line of a text, cut."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= SHORT else f"{line[: SHORT - 3]}..."


def conditions(campaign: Campaign) -> list[str]:
    """What the figures were measured with, from the manifests; the study's own beside."""
    first = campaign.session.sessions[0].manifest
    sample = first["sample"]
    cuda = first.get("cuda") or {}
    facts = {
        "KernelBench commit": first.get("kernelbench_commit", "not a checkout"),
        "kernelassay": f"{first.get('version')}, {len(first.get('rules', ()))} rules",
        "styles with faults": ", ".join(first.get("styles", ())),
        "mutants": "all" if sample is None else f"a sample of at most {sample} per problem",
        "cells": first["cells"],
        "sizes": f"{first['scale']}; battery {'quick' if first.get('quick') else 'full'}",
        "executor": first.get("executor", "cpu"),
        "inputs drawn on": cuda.get("draw", "cpu"),
        "TF32 of references": first.get("tf32"),
        "identity by": first.get("identity"),
    }
    lines = [f"{name + ':':20}{value}" for name, value in facts.items()]
    for session in campaign.session.sessions:
        m = session.manifest
        machines = m.get("machine", {})
        places = Counter(
            f"{one.get('cpu')}, {one.get('cores')} cores, {one.get('system')}"
            for one in machines.get("nodes", [machines])
        )
        where = "; ".join(f"{n} x {place}" if n > 1 else place for place, n in places.items())
        device = f"{m['device']}; " if m.get("device") else ""
        lines.append(
            f"{session.name}: {len(session.problems)} problems, {device}{where};"
            f" torch {m.get('torch')}, {m.get('compiler')}"
        )
    return [
        *lines,
        "",
        "Published: arXiv 2609.22220, one H100; every mutant of 124 rules (its families sum to 96)",
        "in naive substrates. Not comparable by construction: rules, kernels that faults go into,",
        "inputs that prove a fault, and any sample.",
    ]


def progress(campaign: Campaign) -> list[str]:
    """Problems admitted, refused and unfinished; asserts that they are all that were selected."""
    refused = {p["problem"]["id"]: p["refused"] for p in campaign.plans if p["refused"]}
    unfinished = campaign.session.unfinished()
    selected = len(campaign.session.problems)
    assert selected == len(campaign.matrices) + len(refused) + len(unfinished), "problems"
    counts = {
        "selected": (selected, NONE),
        "admitted": (len(campaign.matrices), str(STAGES["admitted"])),
        "refused": (len(refused), NONE),
        "unfinished": (len(unfinished), NONE),
    }
    lines = table(
        ("problems", "ours", "published"), ((n, str(a), b) for n, (a, b) in counts.items())
    )
    lines += [f"refused: {name}: {short(reason)}" for name, reason in refused.items()]
    lines += [f"unfinished: {name}: {state(campaign, name)}" for name in unfinished]
    return lines


def state(campaign: Campaign, problem: str) -> str:
    """How far an unfinished problem is."""
    found = "not planned"
    for session in campaign.session.sessions:
        plan = session.read_plan(problem)
        if plan is not None:
            names = [record["id"] for record in inputs_of(plan)]
            done = sum(session.cell_path(problem, name).exists() for name in names)
            found = f"{done} of {len(names)} inputs measured"
    return found


def stages(campaign: Campaign) -> list[str]:
    """Every mutant in its bucket; asserts that buckets close, by family, too."""
    account = buckets(campaign.plans, campaign.facts)
    families = accounts(campaign.plans, campaign.facts, "family").values()
    assert sum(families, Buckets(*[0] * len(Buckets.__slots__))) == account, "families"
    taken = sample_share(campaign.plans)
    assert taken.count == account.generated <= taken.total, "sample"
    proven = account.witnessed + account.witnessed_by_stop

    def row(
        name: str, count: int, total: int, published: str = "", of: str = ""
    ) -> tuple[str, ...]:
        there = STAGES.get(published)
        beside = Share(there, STAGES[of]) if there is not None and of else None
        return (
            name,
            str(count),
            rate(Share(count, total)),
            NONE if there is None else str(there),
            NONE if beside is None else rate(beside),
        )

    a, n, d = account, account.generated, account.distinct
    rows = [
        row("generated", taken.total, 0, "generated"),
        row("taken (all below)", n, taken.total),
        row("  stillborn", a.stillborn, n, "stillborn", "generated"),
        row("  duplicate", a.duplicate, n, "duplicate", "generated"),
        row("  equivalent", a.equivalent, n, "equivalent", "generated"),
        row("  distinct", d, n, "distinct", "generated"),
        row("    witnessed", proven, d, "witnessed", "distinct"),
        row("      by output", a.witnessed, d),
        row("      by crash or hang", a.witnessed_by_stop, d),
        row("    flagged only", a.flagged_only, d),
        row("    unobserved", a.unobserved, d),
        row("      never infected", a.never_infected, d),
        row("    unmeasured", a.unmeasured, d),
    ]
    return [
        *table(("mutants", "ours", "share", "published", "share"), rows),
        "Shares of stillborn to distinct are of the mutants taken, those below of the distinct.",
        "Buckets close: checked over all mutants and by family.",
    ]


def families(campaign: Campaign) -> list[str]:
    """Missed share of the official check by family, at both tolerances."""
    witnessed = Counter(fact.family for fact in campaign.facts if fact.witnessed)

    def lost(scored: Scored, family: str) -> str:
        if scored.total is None:
            return NONE
        return percent(missed(scored.total.by_family.get(family, Share(0, 0))))

    rows = [
        (
            family,
            str(witnessed[family]),
            lost(campaign.loose, family),
            lost(campaign.tight, family),
            *map(str, FAMILY_MISSED.get(family, (NONE, NONE))),
        )
        for family in FAMILIES
    ]
    totals = (s.total for s in (campaign.loose, campaign.tight))
    overall = (NONE if t is None else percent(missed(t.detection)) for t in totals)
    rows.append(("all", str(witnessed.total()), *overall, str(STAGES["witnessed"]), rate(MISSED)))
    columns = ("family", "witnessed", "missed at 1e-2", "at 1e-4", "published", "missed at 1e-2")
    return table(columns, rows)


def protocols(campaign: Campaign) -> list[str]:
    """Detection and false rejection, on all problems of each and on those that all can score."""
    held = [scored for scored in campaign.scored.values() if scored.total is not None]
    common = [m for m in campaign.matrices if all(m.problem in s.alone for s in held)]
    same = {s.protocol.name: scored_on(common, s.protocol).detection for s in held if common}
    rows = []
    lines = []
    for scored in held:
        total = scored.total
        assert total is not None
        account_for(campaign, scored)
        name = scored.protocol.name
        detected, rejected = DETECTED.get(name, (NONE, NONE))
        false = total.false_rejection
        rows.append(
            (
                name,
                str(len(scored.alone)),
                percent(total.detection),
                percent(same.get(name, Share(0, 0))),
                detected,
                f"{false.count}/{false.total}",
                rejected,
            )
        )
        lines += notes(scored)
    columns = (
        "protocol",
        "problems",
        "detected",
        f"on the {len(common)} all score",
        "published",
        "correct rejected",
        "published",
    )
    absent = [name for name, scored in campaign.scored.items() if scored.total is None]
    lines += [f"not scored on any problem: {name}" for name in absent]
    return [*table(columns, rows), *gains(same), *lines]


def gains(same: Mapping[str, Share]) -> list[str]:
    """What the inputs and the tolerance of KernelBench-Verified add, on the same problems."""
    rates = [same[p.name].rate for p in (V01, VERIFIED_INPUTS_AT_V01, VERIFIED) if p.name in same]
    points = [100 * rate for rate in rates if rate is not None]
    if len(points) < 3:
        return []
    return [
        f"KernelBench-Verified adds {points[1] - points[0]:+.1f} points by its inputs and"
        f" {points[2] - points[1]:+.1f} by its tolerance (published +4.0 and +4.5)"
    ]


def notes(scored: Scored) -> list[str]:
    """What a protocol was not scored on, and which correct kernels it rejects."""
    total = scored.total
    assert total is not None
    name = scored.protocol.name
    lines = [f"{name}: set aside {problem}: {short(why)}" for problem, why in scored.aside.items()]
    lines += [f"{name}: rejects {who} of {problem}" for problem, who in total.falsely_rejected]
    if total.set_aside:
        lines.append(f"{name}: {total.set_aside} mutants of rejected 16-bit kernels not scored")
    if total.lost:
        lines.append(f"{name}: {total.lost} mutants not scored, a cell of theirs was lost")
    return lines


def account_for(campaign: Campaign, scored: Scored) -> None:
    """Assert that a protocol scores, or leaves out for a reason, every witnessed mutant."""
    total = scored.total
    assert total is not None
    proven = Counter(fact.problem for fact in campaign.facts if fact.witnessed)
    aside = sum(proven[problem] for problem in scored.aside)
    counted = total.detection.total + total.set_aside + total.lost
    assert counted + aside == proven.total(), scored.protocol.name
    for share in ("detection", "false_rejection"):
        parts = [getattr(one, share) for one in scored.alone.values()]
        whole = getattr(total, share)
        assert whole == Share(sum(p.count for p in parts), sum(p.total for p in parts)), share


def distribution(campaign: Campaign) -> list[str]:
    """How the loss at 1e-2 is spread over problems and kinds of kernel."""
    total = campaign.loose.total
    if total is None:
        return ["the official check is scored on no problem"]
    lost = {name: missed(share) for name, share in total.by_problem.items() if share.total}
    rates = {name: share.count / share.total for name, share in lost.items()}
    if not rates:
        return ["no mutant is witnessed"]
    large = sum(rate >= LARGE_LOSS for rate in rates.values())
    many = f"{large} of {len(rates)}"
    lines = table(
        ("share lost at 1e-2", "ours", "published"),
        (
            ("overall", percent(missed(total.detection)), rate(MISSED)),
            ("median problem", f"{100 * statistics.median(rates.values()):.1f}%", "10%"),
            ("largest", f"{100 * max(rates.values()):.1f}%", "73%"),
            ("problems that lose 40% or more", many, "a tail, 40-73%"),
            (f"90% band over {len(rates)} problems", band(total.band_full), "closes on 16.9%"),
            ("90% band at 10 problems", band(total.band_ten), "[8, 29]%"),
        ),
    )
    kinds = {p["problem"]["id"]: [call["template"] for call in p["calls"]] for p in campaign.plans}
    worst = sorted(rates, key=lambda name: (-rates[name], name))[:WORST]
    rows = ((n, percent(lost[n]), ", ".join(dict.fromkeys(kinds[n]))) for n in worst)
    lines += ["", *table(("largest losses", "lost at 1e-2", "kernels"), rows)]
    by_kind = {name: missed(share) for name, share in total.by_template.items() if share.total}
    order = sorted(by_kind, key=lambda name: (-by_kind[name].count / by_kind[name].total, name))
    where = Counter(kind for name in rates for kind in set(kinds[name]))
    rows = ((kind, percent(by_kind[kind]), str(where[kind])) for kind in order)
    return [*lines, "", *table(("kind of kernel", "lost at 1e-2", "problems"), rows)]


def band(limits: tuple[float, float] | None) -> str:
    """A band of shares."""
    return NONE if limits is None else f"[{100 * limits[0]:.1f}, {100 * limits[1]:.1f}]%"


def problems(campaign: Campaign) -> list[str]:
    """One line per problem."""
    witnessed = Counter(fact.problem for fact in campaign.facts if fact.witnessed)

    def cells(scored: Scored, problem: str) -> tuple[str, str]:
        one = scored.alone.get(problem)
        if one is None:
            return NONE, NONE
        false = one.false_rejection
        return str(missed(one.detection).count), f"{false.count}/{false.total}"

    rows = []
    for matrix in campaign.matrices:
        name = matrix.problem
        distinct = sum(m["status"] == "distinct" for m in matrix.plan["mutants"])
        (loose, loosely), (tight, tightly) = (
            cells(s, name) for s in (campaign.loose, campaign.tight)
        )
        rows.append((name, str(distinct), str(witnessed[name]), loose, tight, loosely, tightly))
    columns = (
        "problem",
        "distinct",
        "witnessed",
        "missed 1e-2",
        "missed 1e-4",
        "correct rejected 1e-2",
        "1e-4",
    )
    return table(columns, rows)


def blind(campaign: Campaign) -> list[str]:
    """The survivors of the official check at 1e-2 in softmax kernels.

    Proven wrong at 1e-2, or at the tightest tolerance of an input: a lazy run measures the whole
    row of what has no witness at 1e-2, so this leaves out none.
    """
    rows = []
    for matrix in campaign.matrices:
        of_softmax = {c["id"] for c in matrix.plan["calls"] if "softmax" in c["template"]}
        if not of_softmax or matrix.problem not in campaign.loose.alone:
            continue
        tight = (matrix.witnessing(None) | matrix.stopping(None)).any(axis=1)
        tested = [
            replace(fact, by_output=fact.by_output or bool(tight[matrix.index[fact.id]]))
            for fact in mutant_facts((matrix,), (V01,), TOLERANCE)
            if fact.call in of_softmax
        ]
        reasons = survival_reasons((matrix,), tested, V01)
        lost = undecided(matrix, V01)
        survivors = {
            f.id for f in tested if f.witnessed and not f.detected[V01.name] and f.id not in lost
        }
        caught = NONE
        if matrix.problem in campaign.tight.alone:
            facts = mutant_facts((matrix,), (CURRENT,), TOLERANCE)
            caught = str(sum(f.detected[CURRENT.name] for f in facts if f.id in survivors))
        rows.append(
            (
                matrix.problem,
                str(len(tested)),
                str(len(survivors)),
                str(reasons["tolerated"]),
                caught,
                str(BLIND.get(matrix.problem.rpartition("_")[2], NONE)),
            )
        )
    if not rows:
        return ["no softmax kernel among the problems scored"]
    columns = (
        "problem",
        "measured",
        "survive 1e-2",
        "of them tolerated",
        "die at 1e-4",
        "published blind",
    )
    return [
        *table(columns, rows),
        "Mutants in softmax calls alone. Tolerated: an official input changes the final output, by",
        "less than 1e-2 sees; the others, no official input shows. The published counts are of",
        "every mutant of the problem.",
    ]


SECTIONS = {
    "Conditions": conditions,
    "1. Problems": progress,
    "1. Mutants; witnesses count at 1e-2": stages,
    "2. Missed by the official check, by family": families,
    "3. Protocols": protocols,
    "4. Distribution over problems": distribution,
    "5. Problems; of the official check": problems,
    "6. Softmax survivors of the official check at 1e-2": blind,
}


def main() -> None:
    """Print all tables of the sessions named on the command line."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        campaign = read(map(Path, sys.argv[1:]))
        for title, section in SECTIONS.items():
            print("\n".join([title, "=" * len(title), *section(campaign), ""]))
    except KernelassayError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
