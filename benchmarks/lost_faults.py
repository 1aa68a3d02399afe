"""What the loss of the official check rests on; a section of ``beside_published.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from columns import rate, table
from published import FAMILY_MISSED, MISSED

from kernelassay.analysis.mechanism import MECHANISMS, Survival, fates, survival
from kernelassay.analysis.score import MutantFacts, Share, mutant_facts
from kernelassay.analysis.where_fit import Finished
from kernelassay.inputs import SMALL
from kernelassay.matrix import ProblemMatrix
from kernelassay.protocols import V01
from kernelassay.report.tables import missed
from kernelassay.session import inputs_of


def difference(done: Finished) -> list[str]:
    """What the loss of the official check at 1e-2 rests on, where it is not the study's."""
    total = done.scored[V01.name].total
    if total is None:
        return ["the official check is scored on no problem"]
    fit = [m for m in done.matrices if m.problem in done.scored[V01.name].alone]
    facts = mutant_facts(fit, (), done.tolerance)
    found = survival(fit, facts, V01)
    found.check(total)
    return [
        *mixed(total.by_family),
        "",
        *reasons(found),
        "",
        *proofs(fit, facts, done.tolerance),
    ]


def mixed(ours: Mapping[str, Share]) -> list[str]:
    """The loss if the families had the shares that they have in the study."""
    known = {
        name: missed(ours[name]) for name in FAMILY_MISSED if ours.get(name, Share(0, 0)).total
    }
    weight = {name: FAMILY_MISSED[name][0] for name in known}
    there = sum(weight.values())
    at_mix = sum(weight[name] * share.count / share.total for name, share in known.items()) / there
    return [
        f"With the study's mix of families the loss were {100 * at_mix:.1f}%"
        f" (here {rate(total_of(known.values()))}, published {rate(MISSED)})."
    ]


def total_of(shares: Iterable[Share]) -> Share:
    """The sum of shares."""
    pairs = [(share.count, share.total) for share in shares]
    return Share(sum(count for count, _ in pairs), sum(total for _, total in pairs))


def reasons(found: Survival) -> list[str]:
    """Why faults survive, by family; asserts that each has one mechanism."""
    assert found.all.open.count == 0, "survivors without a mechanism"
    rows = []
    for family, tally in found.by_family.items():
        scored = tally.detected + tally.survivors
        counts = (tally.mechanisms[name].count for name in MECHANISMS)
        rows.append((family, str(scored), *(f"{n} ({rate(Share(n, scored))})" for n in counts)))
    return [
        *table(("survivors, of the scored", "scored", *MECHANISMS), rows),
        "Not infected: no official input changes what the faulty kernel writes. Masked: none",
        "changes the final output. Tolerated: it changes by less than 1e-2 sees.",
    ]


def proofs(
    fit: Sequence[ProblemMatrix], facts: Sequence[MutantFacts], tolerance: float
) -> list[str]:
    """The group of the first input, in the order of the plan, that proves each survivor wrong."""
    witnessed = {(fact.problem, fact.id) for fact in facts if fact.witnessed}
    first: Counter[str] = Counter()
    for matrix in fit:
        groups = [
            f"{record['group']}, {'small' if record['id'].startswith(SMALL) else 'own'} size"
            for record in inputs_of(matrix.plan)
        ]
        killing = matrix.killing(tolerance)
        fate = fates(matrix, V01)
        rows = [
            row
            for row, name in enumerate(matrix.candidates)
            if (matrix.problem, name) in witnessed and fate[row] in MECHANISMS
        ]
        first.update(groups[int(np.argmax(killing[row]))] for row in rows)
    told = [(name, str(n), rate(Share(n, first.total()))) for name, n in first.most_common()]
    return [
        *table(("survivors, by the first input that proves them", "count", "share"), told),
        "An official input proves a fault here where a checker cannot: memory that nothing wrote.",
    ]
