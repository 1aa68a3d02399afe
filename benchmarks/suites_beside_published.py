"""Suites chosen on a kill matrix, beside the published study of the same question.

Usage: python benchmarks/suites_beside_published.py [--doubt] [--splits] SESSION...

Sessions of one campaign are read together, finished problems only. Detected are the mutants
witnessed at 1e-2 that allclose at 1e-2 rejects on an input of the suite. Of ours the denominator is
all witnessed mutants, and then those that any input of the pool detects. Published figures are
facts of arXiv 2609.22220 (one H100, 152 problems, naive substrates): other mutants, other inputs.
With --doubt: what other constants of the smoothed choice would give, all held out. With --splits:
halves divided in twenty ways, the mean and the least and greatest.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from columns import NONE, rate, table
from published import OFFICIAL_BESIDE_SUITES, SUITES

from kernelassay.analysis.score import Share
from kernelassay.errors import KernelassayError
from kernelassay.joined import JoinedSessions
from kernelassay.session import Session
from kernelassay.synthesis import choosers
from kernelassay.synthesis.folds import HELD_OUT, parts
from kernelassay.synthesis.pool import Pool
from kernelassay.synthesis.suites import SCORED, WITHOUT_PRIOR, Asked, curve, pools_of

BUDGETS = (1, 2, 3, 5)
TOLERANCE = 1e-2
SPLITS = 20
DOUBTS, PRIORS = (0.02, 0.05, 0.1, 0.2, 0.3), (0.0, 10.0, 30.0)


def beside(pools: Sequence[Pool], way: str) -> list[str]:
    """Every chooser by budget, what is published, and the official inputs."""
    mutants = sum(len(one.mutants) for one in pools)
    reachable = sum(int(one.detects.any(axis=1).sum()) for one in pools)
    rows = []
    for chooser in SCORED:
        if way == "problem" and chooser in WITHOUT_PRIOR:
            continue
        found = curve(pools, chooser, way, BUDGETS)
        rows.append((chooser, *(rate(found.detected[b]) for b in BUDGETS)))
        if reachable < mutants:
            rows.append(("  of those detectable", *(rate(found.reached[b]) for b in BUDGETS)))
    if way in SUITES:
        rows.append(("published (greedy)", *(SUITES[way][b] for b in BUDGETS)))
    five = Share(sum(int(one.official.sum()) for one in pools), mutants)
    official = OFFICIAL_BESIDE_SUITES.get(way, NONE)
    return [
        *table(("inputs per problem", *map(str, BUDGETS)), rows),
        f"the five official inputs: {rate(five)} (published {official})",
    ]


def constants(pools: Sequence[Pool], ways: Sequence[str]) -> list[str]:
    """The smoothed choice with other constants."""
    kept = choosers.DOUBT, choosers.PRIOR
    rows = []
    for doubt in DOUBTS:
        for prior in PRIORS:
            choosers.DOUBT, choosers.PRIOR = doubt, prior
            for way in ways:
                if way != "problem" or prior:
                    found = curve(pools, "smoothed", way, BUDGETS).detected
                    rows.append(
                        (f"{doubt:g}", f"{prior:g}", way, *(rate(found[b]) for b in BUDGETS))
                    )
    choosers.DOUBT, choosers.PRIOR = kept
    return table(("doubt", "prior", "held out", *map(str, BUDGETS)), rows)


def splits(pools: Sequence[Pool]) -> list[str]:
    """What choosers detect of held-out halves, over many ways to halve."""
    rows = []
    for way in ("id", "rule"):
        for chooser in SCORED:
            found = [curve(pools, chooser, way, BUDGETS, f"{salt}") for salt in range(SPLITS)]
            cells = []
            for budget in BUDGETS:
                rates = [100 * (one.detected[budget].rate or 0.0) for one in found]
                mean = statistics.fmean(rates)
                cells.append(f"{mean:.1f} ({min(rates):.1f} to {max(rates):.1f})")
            rows.append((chooser, way, *cells))
    return table(("chosen", "halves by", *map(str, BUDGETS)), rows)


def main(arguments: Sequence[str]) -> None:
    """Print all tables of the sessions named."""
    names = [name for name in arguments if name not in ("--doubt", "--splits")]
    if not names:
        sys.exit(__doc__)
    try:
        stores = [Session.open(Path(name)) for name in names]
        pools = pools_of(JoinedSessions(stores), Asked(tolerance=TOLERANCE), partial=True)
    except KernelassayError as error:
        sys.exit(f"error: {error}")
    mutants = [mutant for one in pools for mutant in one.mutants]
    detectable = sum(int(one.detects.any(axis=1).sum()) for one in pools)
    inputs = sum(len(one.inputs) for one in pools)
    print(
        f"{len(pools)} problems, {len(mutants)} mutants witnessed at {TOLERANCE:g};"
        f" {detectable} of them detectable by some of {inputs} fit inputs"
    )
    ways = [way for way in HELD_OUT if len(parts(mutants, way)) > 1]
    titles = {"": "chosen on all mutants, scored on them"}
    titles |= {way: f"held out by {way}" for way in ways}
    for way, title in titles.items():
        print("\n".join(["", title, "=" * len(title), *beside(pools, way)]))
    if "--splits" in arguments:
        title = f"{SPLITS} ways to halve: % detected of the half held out"
        print("\n".join(["", title, "=" * len(title), *splits(pools)]))
    if "--doubt" in arguments:
        title = "the smoothed choice with other constants"
        print("\n".join(["", title, "=" * len(title), *constants(pools, ways)]))


if __name__ == "__main__":
    main(sys.argv[1:])
