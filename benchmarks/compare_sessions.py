"""Compare the cells that two sessions have in common, byte for byte.

Usage: python benchmarks/compare_sessions.py SESSION SESSION

Two runs of one plan have one digest. Where plans differ in part, as after a rule or an input was
added, what is in both must still be equal: a problem of the same digest, an input of the same
digest under the same conditions, a mutant of the same id (a hash over what it changes and where).
On a GPU, candidates whose output differed between two runs in either session are left out: their
cells depend on which thread came first. Ends with 1 if a cell differs, or if there is none to
compare.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from kernelassay.cell import IMPLIED
from kernelassay.session import Session, inputs_of

EXAMPLES = 10


def shared_inputs(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Ids of the inputs that both plans have, made by one spec with one digest."""
    there = {record["id"]: record for record in inputs_of(second)}
    return [
        record["id"]
        for record in inputs_of(first)
        if record["id"] in there
        and all(record[key] == there[record["id"]][key] for key in ("digest", "spec"))
    ]


def cells(session: Session, problem: str, name: str) -> dict[str, dict[str, Any]]:
    """The cells of one finished unit by candidate; none if it is not finished."""
    if not session.cell_path(problem, name).exists():
        return {}
    return {row["candidate"]: row for row in session.read_cells(problem, name).to_pylist()}


def measured(row: dict[str, Any]) -> bool:
    """Whether a stored cell was run: a lazy run leaves some out."""
    return bool(row["outcome"] != IMPLIED)


def main() -> None:
    """Compare two sessions."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    first, second = (Session.open(Path(name)) for name in sys.argv[1:])
    plans = {plan["problem"]["id"]: plan for plan in second.plans() if not plan["refused"]}
    count: Counter[str] = Counter()
    columns: Counter[str] = Counter()
    for plan in first.plans():
        problem = plan["problem"]["id"]
        other = plans.get(problem)
        if (
            plan["refused"]
            or other is None
            or other["problem"]["digest"] != plan["problem"]["digest"]
        ):
            continue
        count["problems"] += 1
        unsteady = first.unsteady(plan) | second.unsteady(other)
        count["unsteady"] += len(unsteady)
        for name in shared_inputs(plan, other):
            ours, theirs = cells(first, problem, name), cells(second, problem, name)
            shared = (ours.keys() & theirs.keys()) - unsteady
            both = sorted(n for n in shared if measured(ours[n]) and measured(theirs[n]))
            count["implied"] += len(shared) - len(both)
            count["inputs"] += bool(both)
            count["cells"] += len(both)
            for candidate in both:
                # A NaN is not equal to itself; its text is.
                differing = [
                    column
                    for column, value in ours[candidate].items()
                    if repr(value) != repr(theirs[candidate].get(column))
                ]
                columns.update(differing)
                count["differing"] += bool(differing)
                if differing and count["differing"] <= EXAMPLES:
                    print(f"{problem} {name} {candidate}: {', '.join(differing)}")
    for label, session in (("first", first), ("second", second)):
        print(f"{label}: {len(session.plans())} problems, torch {session.manifest['torch']}")
    print(
        f"{count['cells']} cells of {count['inputs']} inputs of {count['problems']} problems are in"
        f" both; {count['differing']} differ"
    )
    if count["unsteady"]:
        print(f"{count['unsteady']} candidates are left out: two runs on a GPU differed")
    if count["implied"]:
        print(f"{count['implied']} more are implied in one of them: a lazy run left them out")
    for column, number in columns.most_common():
        print(f"  {column}: {number}")
    sys.exit(1 if count["differing"] or not count["cells"] else 0)


if __name__ == "__main__":
    main()
