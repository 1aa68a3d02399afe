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
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from columns import NONE, rate, table
from lost_faults import difference
from published import (
    BLIND,
    DETECTED,
    DETECTED_BY_TARGETED,
    DETECTED_BY_TWO,
    FAMILY_MISSED,
    MISSED,
    STAGES,
)

from kernelassay.analysis.audit import accounts, sample_share
from kernelassay.analysis.score import (
    Buckets,
    Share,
    buckets,
)
from kernelassay.analysis.where_fit import Finished, Scored, finished, scored_on, survivors
from kernelassay.errors import KernelassayError
from kernelassay.mutation.rule import FAMILIES
from kernelassay.protocols import CURRENT, V01, VERIFIED, VERIFIED_INPUTS_AT_V01, of_session
from kernelassay.report.tables import missed, percent
from kernelassay.session import Session, inputs_of
from kernelassay.synthesis.pool import own_rule, pool
from kernelassay.synthesis.suites import curve

TOLERANCE = 1e-2
"""The study counts witnesses at the tolerance of the check that it scores."""

SHORT = 140
WIDTH = 100
WORST = 12
LARGE_LOSS = 0.4


def short(text: str) -> str:
    """The first line of a text, cut."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= SHORT else f"{line[: SHORT - 3]}..."


def conditions(done: Finished) -> list[str]:
    """What the figures were measured with, from the manifests; the study's own beside."""
    first = done.session.sessions[0].manifest
    sample, benign = first["sample"], first["benign"]
    cuda = first.get("cuda") or {}
    official = all(matrix.plan["problem"]["official_shape"] for matrix in done.matrices)
    # The switches are PyTorch's own, which only a GPU heeds.
    tf32 = [name for name, on in first.get("tf32", {}).items() if on and cuda]
    shapes = "" if official else " (not the official shapes)"
    facts = {
        "KernelBench commit": first.get("kernelbench_commit", "not a checkout"),
        "kernelassay": f"{first.get('version')}, {len(first.get('rules', ()))} rules",
        "styles with faults": ", ".join(first.get("styles", ())),
        "mutants": "all" if sample is None else f"a sample of at most {sample} per problem",
        "correct variants": "all" if benign is None else f"at most {benign} per problem",
        "cells": first["cells"],
        "sizes": f"{first['scale']}{shapes}; battery {'quick' if first.get('quick') else 'full'}",
        "executor": first.get("executor", "cpu"),
        "inputs drawn on": cuda.get("draw", "cpu"),
        "TF32 of references": ", ".join(tf32) or "off",
        "identity by": first.get("identity"),
    }
    lines = [f"{name + ':':20}{value}" for name, value in facts.items()]
    for session in done.session.sessions:
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
        "in naive substrates. Other by construction: rules, kernels that faults go into, inputs",
        "that prove a fault. A sample counts every problem alike, the study each by its mutants.",
    ]


def progress(done: Finished) -> list[str]:
    """Problems admitted, refused and unfinished; asserts that they are all that were selected."""
    refused = {p["problem"]["id"]: p["refused"] for p in done.plans if p["refused"]}
    unfinished = done.session.unfinished()
    selected = len(done.session.problems)
    assert selected == len(done.matrices) + len(refused) + len(unfinished), "problems"
    counts = {
        "selected": (selected, NONE),
        "admitted": (len(done.matrices), str(STAGES["admitted"])),
        "refused": (len(refused), NONE),
        "unfinished": (len(unfinished), NONE),
    }
    lines = table(
        ("problems", "ours", "published"), ((n, str(a), b) for n, (a, b) in counts.items())
    )
    lines += [f"refused: {name}: {short(reason)}" for name, reason in refused.items()]
    begun = {name: state(done, name) for name in unfinished}
    lines += [f"unfinished: {name}: {what}" for name, what in begun.items() if what]
    untouched = [name for name, what in begun.items() if not what]
    return [*lines, *wrapped(f"not planned yet ({len(untouched)}):", untouched)]


def wrapped(title: str, names: Sequence[str]) -> list[str]:
    """Names in lines of a readable width; none if there are none."""
    text = f"{title} {', '.join(names)}"
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False) if names else []


def state(done: Finished, problem: str) -> str:
    """How far an unfinished problem is; empty if it is not planned."""
    parts = []
    for session in done.session.sessions:
        plan = session.read_plan(problem)
        if plan is not None:
            names = [record["id"] for record in inputs_of(plan)]
            measured = sum(session.cell_path(problem, name).exists() for name in names)
            parts.append(f"{measured} of {len(names)} inputs measured")
    return "; ".join(parts)


def stages(done: Finished) -> list[str]:
    """Every mutant in its bucket; asserts that buckets close, by family, too."""
    account = buckets(done.plans, done.facts)
    parts = accounts(done.plans, done.facts, "family").values()
    assert sum(parts, Buckets(*[0] * len(Buckets.__slots__))) == account, "families"
    taken = sample_share(done.plans)
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


def families(done: Finished) -> list[str]:
    """Missed share of the official check by family, at both tolerances."""
    witnessed = Counter(fact.family for fact in done.facts if fact.witnessed)

    def lost(scored: Scored, family: str) -> str:
        if scored.total is None:
            return NONE
        return percent(missed(scored.total.by_family.get(family, Share(0, 0))))

    rows = [
        (
            family,
            str(witnessed[family]),
            lost(done.scored[V01.name], family),
            lost(done.scored[CURRENT.name], family),
            *map(str, FAMILY_MISSED.get(family, (NONE, NONE))),
        )
        for family in FAMILIES
    ]
    totals = (s.total for s in (done.scored[V01.name], done.scored[CURRENT.name]))
    overall = (NONE if t is None else percent(missed(t.detection)) for t in totals)
    rows.append(("all", str(witnessed.total()), *overall, str(STAGES["witnessed"]), rate(MISSED)))
    columns = ("family", "witnessed", "missed at 1e-2", "at 1e-4", "published", "missed at 1e-2")
    return [*table(columns, rows), "The families of the study sum to 7362, not to its 7384."]


def protocols(done: Finished) -> list[str]:
    """Detection and false rejection, on all problems of each and on those that all can score."""
    held = [scored for scored in done.scored.values() if scored.total is not None]
    common = [m for m in done.matrices if all(m.problem in s.alone for s in held)]
    same = {
        s.protocol.name: scored_on(common, s.protocol, done.tolerance).detection
        for s in held
        if common
    }
    rows = []
    lines = []
    for scored in held:
        total = scored.total
        assert total is not None
        name = scored.protocol.name
        detected, rejected = DETECTED.get(name, (NONE, NONE))
        false = total.false_rejection
        rows.append(
            (
                name,
                str(total.inputs),
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
        "inputs",
        "problems",
        "detected",
        f"on the {len(common)} all score",
        "published",
        "correct rejected",
        "published",
    )
    absent = [name for name, scored in done.scored.items() if scored.total is None]
    lines += [f"not scored on any problem: {name}" for name in absent]
    return [*table(columns, rows), *chosen_inputs(done), *gains(same), *lines]


def chosen_inputs(done: Finished) -> list[str]:
    """What inputs chosen on the mutants themselves detect; nothing where rows are not whole."""
    if any(matrix.implied.any() for matrix in done.matrices):
        return []
    pools = [pool(matrix, own_rule(TOLERANCE), done.tolerance) for matrix in done.matrices]
    two = curve(pools, "greedy", "", (2,)).detected[2]
    every = Share(sum(int(p.detects.any(axis=1).sum()) for p in pools), two.total)
    fit = sum(len(p.inputs) for p in pools)
    return [
        f"two inputs of each problem, chosen greedily: {percent(two)}"
        f" (published {DETECTED_BY_TWO})",
        f"all {fit} fit inputs of the {len(pools)} problems: {percent(every)}"
        f" (published {DETECTED_BY_TARGETED}, by about 8 of each)",
    ]


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
    if total.originals.count:
        lines.append(f"{name}: rejects {percent(total.originals)} of the kernels under mutation")
    if total.set_aside:
        lines.append(f"{name}: {total.set_aside} mutants of rejected 16-bit kernels not scored")
    if total.lost:
        lines.append(f"{name}: {total.lost} mutants not scored, a cell of theirs was lost")
    return lines


def distribution(done: Finished) -> list[str]:
    """How the loss at 1e-2 is spread over problems and kinds of kernel."""
    total = done.scored[V01.name].total
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
            ("  problems weighed by mutants generated", weighed(done.plans, lost), rate(MISSED)),
            ("median problem", f"{100 * statistics.median(rates.values()):.1f}%", "10%"),
            ("largest", f"{100 * max(rates.values()):.1f}%", "73%"),
            ("problems that lose 40% or more", many, "a tail, 40-73%"),
            (f"90% band over {len(rates)} problems", band(total.band_full), "closes on 16.9%"),
            ("90% band at 10 problems", band(total.band_ten), "[8, 29]%"),
        ),
    )
    kinds = {p["problem"]["id"]: [call["template"] for call in p["calls"]] for p in done.plans}
    worst = sorted(rates, key=lambda name: (-rates[name], name))[:WORST]
    rows = ((n, percent(lost[n]), ", ".join(dict.fromkeys(kinds[n]))) for n in worst)
    lines += ["", *table(("largest losses", "lost at 1e-2", "kernels"), rows)]
    by_kind = {name: missed(share) for name, share in total.by_template.items() if share.total}
    order = sorted(by_kind, key=lambda name: (-by_kind[name].count / by_kind[name].total, name))
    where = Counter(kind for name in rates for kind in set(kinds[name]))
    rows = ((kind, percent(by_kind[kind]), str(where[kind])) for kind in order)
    return [*lines, "", *table(("kind of kernel", "lost at 1e-2", "problems"), rows)]


def weighed(plans: Sequence[Mapping[str, Any]], lost: Mapping[str, Share]) -> str:
    """The missed share if each problem's sample stands for all its mutants."""
    weights = {plan["problem"]["id"]: sample_share([plan]).rate for plan in plans}
    scale = {name: 1.0 / (weights[name] or 1.0) for name in lost}
    witnessed = sum(scale[name] * share.total for name, share in lost.items())
    return f"{100 * sum(scale[n] * share.count for n, share in lost.items()) / witnessed:.1f}%"


def band(limits: tuple[float, float] | None) -> str:
    """A band of shares."""
    return NONE if limits is None else f"[{100 * limits[0]:.1f}, {100 * limits[1]:.1f}]%"


def problems(done: Finished) -> list[str]:
    """One line per problem."""
    witnessed = Counter(fact.problem for fact in done.facts if fact.witnessed)

    def cells(scored: Scored, problem: str) -> tuple[str, str]:
        one = scored.alone.get(problem)
        if one is None:
            return NONE, NONE
        false = one.false_rejection
        return str(missed(one.detection).count), f"{false.count}/{false.total}"

    rows = []
    for matrix in done.matrices:
        name = matrix.problem
        distinct = sum(m["status"] == "distinct" for m in matrix.plan["mutants"])
        (loose, loosely), (tight, tightly) = (
            cells(s, name) for s in (done.scored[V01.name], done.scored[CURRENT.name])
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


def blind(done: Finished) -> list[str]:
    """The survivors of the official check at 1e-2 in softmax kernels."""
    loose, tight = done.scored[V01.name], done.scored[CURRENT.name]
    rows = []
    for matrix in done.matrices:
        calls = {call["id"] for call in matrix.plan["calls"] if "softmax" in call["template"]}
        if not calls or matrix.problem not in loose.alone:
            continue
        one = survivors(matrix, calls, loose, tight, done.tolerance)
        published = BLIND.get(matrix.problem)
        counts = (one.measured, one.survive, one.tolerated, one.caught, published)
        rows.append((matrix.problem, *(NONE if n is None else str(n) for n in counts)))
    if not rows:
        return ["no softmax kernel among the problems scored"]
    columns = ("problem", "measured", "survive", "tolerated", "caught at 1e-4", "published blind")
    return [
        *table(columns, rows),
        "Mutants in softmax calls that are proven wrong, at 1e-2 or tighter, and pass. Tolerated:",
        "an official input changes the final output, by less than the check sees. The study has",
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
    "7. What the loss at 1e-2 rests on": difference,
}


def main() -> None:
    """Print all tables of the sessions named on the command line."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        stores = [Session.open(Path(name)) for name in sys.argv[1:]]
        done = finished(stores, TOLERANCE, of_session(stores[0].manifest))
        for title, section in SECTIONS.items():
            print("\n".join([title, "=" * len(title), *section(done), ""]))
    except KernelassayError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
