"""How often two executors give one verdict on the same mutants and inputs, and why they differ.

Usage: python benchmarks/compare_executors.py CPU_SESSION CUDA_SESSION

Both sessions are runs of the same problems and options, one per executor. A verdict is whether an
output passes ``allclose`` against float32 at a tolerance; a kernel that does not end is rejected.
Every disagreement is listed, by mutant, with its cause as far as the findings of either tell. CUDA
leaves open what a kernel does that races or leaves its buffers; the last share is of the pairs in
which neither executor saw the like.
"""

from __future__ import annotations

import math
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compare_sessions import cells, measured, shared_inputs

from kernelassay.cell import INFRASTRUCTURE, OK, Cell
from kernelassay.oracle import AcceptanceRule
from kernelassay.session import Session

TOLERANCES = (1e-2, 1e-4)
SYNCHRONIZATION = "synchronization"
DEFINED = "where CUDA says what happens"
NEAR = 0.1
"""Errors within this share of a tolerance are taken to fall on either side of it by rounding."""
UNSET = -struct.unpack("<f", b"\xfe" * 4)[0]
"""What the CPU executor finds in a variable that nothing set (``toolchain.py``), without sign."""

CAUSES = (
    ("order-dependent", "the output depends on which thread comes first"),
    ("race-shared", "threads race for shared memory"),
    ("race-global", "threads race for global memory"),
    ("oob-shared", "reads or writes outside of a shared array"),
    ("oob-local", "reads or writes outside of a thread's own array"),
    ("oob-global", "reads or writes outside of a buffer"),
    ("uninitialised", "reads memory that nothing wrote"),
    ("divergence", "threads part at a barrier or a warp operation"),
    ("misaligned", "an access is not aligned"),
)

Row = Mapping[str, Any]
Pair = tuple[str, str, Mapping[str, Any], Cell, Cell]


def pairs(cpu: Session, cuda: Session) -> Iterator[Pair]:
    """Problem, input, mutant record, and the two cells of all that both sessions measured."""
    plans = {plan["problem"]["id"]: plan for plan in cuda.plans() if not plan["refused"]}
    for plan in cpu.plans():
        problem = plan["problem"]["id"]
        if plan["refused"] or problem not in plans:
            continue
        mutants = {m["id"]: m for m in plan["mutants"]}
        for name in shared_inputs(plan, plans[problem]):
            here, there = cells(cpu, problem, name), cells(cuda, problem, name)
            for key in sorted(mutants.keys() & here.keys() & there.keys()):
                rows = here[key], there[key]
                if all(measured(row) and row["outcome"] != INFRASTRUCTURE for row in rows):
                    one, other = (Cell.from_row(row) for row in rows)
                    yield problem, name, mutants[key], one, other


def accepted(cell: Cell, tolerance: float) -> bool:
    """Whether a checker with this tolerance passes an output."""
    return cell.seen is not None and AcceptanceRule(tolerance).accepts(cell.seen)


def undefined(one: Cell, other: Cell) -> str:
    """What CUDA leaves open in a pair, as far as either executor saw it; empty if nothing."""
    found = [finding.kind for cell in (other, one) for finding in cell.findings]
    texts = (text for kind, text in CAUSES if any(kind in name for name in found))
    return next(texts, "")


def cause(one: Cell, other: Cell, tolerance: float) -> str:
    """Why the two differ, as far as it shows."""
    found = undefined(one, other)
    if found:
        return found
    if OK not in (one.outcome, other.outcome) or one.outcome != other.outcome:
        return f"{one.outcome} on the CPU, {other.outcome} on the device"
    assert one.seen is not None and other.seen is not None
    if one.seen is not None and math.isclose(one.seen.max_abs, UNSET, rel_tol=1e-6):
        return "a variable that nothing set, which the CPU executor fills"
    errors = [cell.seen.critical_tolerance for cell in (one, other) if cell.seen is not None]
    if min(errors) >= tolerance * (1 - NEAR) and max(errors) <= tolerance * (1 + NEAR):
        return "the error is at the tolerance, rounding decides"
    return "unexplained"


def main() -> None:
    """Compare two sessions."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    cpu, cuda = (Session.open(Path(name)) for name in sys.argv[1:])
    total: Counter[tuple[float, str]] = Counter()
    equal: Counter[tuple[float, str]] = Counter()
    causes: Counter[tuple[float, bool, str]] = Counter()
    listed: dict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for problem, name, mutant, one, other in pairs(cpu, cuda):
        for tolerance in TOLERANCES:
            same = accepted(one, tolerance) == accepted(other, tolerance)
            for key in (mutant["family"], *([] if undefined(one, other) else [DEFINED])):
                total[tolerance, key] += 1
                equal[tolerance, key] += same
            if same:
                continue
            why = cause(one, other, tolerance)
            causes[tolerance, mutant["family"] == SYNCHRONIZATION, why] += 1
            listed[problem, mutant["id"], mutant["rule"], why].add(name)
    if not total:
        sys.exit("the sessions share no cell")
    report(total, equal, causes)
    print(f"\nall mutants with a disagreement ({len(listed)} by cause), number of inputs:")
    for (problem, mutant_id, rule, why), names in sorted(listed.items()):
        print(f"  {problem} {mutant_id} {rule}: {why} ({len(names)})")


def report(
    total: Counter[tuple[float, str]],
    equal: Counter[tuple[float, str]],
    causes: Counter[tuple[float, bool, str]],
) -> None:
    """Shares by tolerance and family, and causes."""
    for tolerance in TOLERANCES:
        families = sorted(family for t, family in total if t == tolerance and family != DEFINED)
        for family in families:
            _share(f"{tolerance:g} {family}", equal[tolerance, family], total[tolerance, family])
        rest = [family for family in families if family != SYNCHRONIZATION]
        _share(
            f"{tolerance:g} all but {SYNCHRONIZATION}",
            sum(equal[tolerance, f] for f in rest),
            sum(total[tolerance, f] for f in rest),
        )
        _share(f"{tolerance:g} {DEFINED}", equal[tolerance, DEFINED], total[tolerance, DEFINED])
        for (t, synchronization, why), count in causes.most_common():
            if t == tolerance:
                where = SYNCHRONIZATION if synchronization else "other families"
                print(f"    {count:6} {where}: {why}")


def _share(what: str, count: int, total: int) -> None:
    print(f"{what}: {100 * count / max(1, total):.2f}% equal ({count}/{total})")


if __name__ == "__main__":
    main()
