"""Running one stored cell again, alone, and comparing every byte that was kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from kernelassay import executors
from kernelassay import plan as plans
from kernelassay.cell import IMPLIED, Cell
from kernelassay.errors import SessionError, UsageError, unknown_name
from kernelassay.execute.bench import ORIGINAL, Candidate
from kernelassay.execute.worker import Worker
from kernelassay.population import candidates_of
from kernelassay.problem import Problem, read_problem
from kernelassay.session import Session, first_input


@dataclass(frozen=True, slots=True)
class Replay:
    """A replayed cell beside the stored one; ``differences`` names the fields that differ.

    An implied cell has nothing to differ from: what it would have been is ``again``.
    """

    problem: str
    stored: Cell
    again: Cell
    differences: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def describe(self) -> str:
        """A few lines for a terminal."""
        cell = self.again
        lines = [
            f"{self.problem}  {cell.candidate}  on  {cell.input}",
            f"outcome: {cell.outcome} {cell.detail}".rstrip(),
            f"infected: {cell.infected}   propagated: {cell.propagated}"
            f"   unwritten: {cell.unwritten}",
            f"output digest: {cell.output_digest or '-'}",
        ]
        if cell.seen is not None and cell.exact is not None:
            lines.append(
                f"critical tolerance: {cell.seen.critical_tolerance:.6g} against float32,"
                f" {cell.exact.critical_tolerance:.6g} against float64"
            )
        lines += [f"finding: {f.kind} x{f.count}: {f.detail}" for f in cell.findings]
        same = "identical to the stored cell" if not self.differences else "DIFFERS"
        if self.stored.outcome == IMPLIED:
            same = f"the session did not measure this cell: {self.stored.detail}"
        return "\n".join([*lines, f"replay: {same}"])


def replay_cell(
    session: Session,
    candidate: str,
    input_id: str,
    problem: str | None = None,
    kernelbench: Path | None = None,
) -> Replay:
    """Run one cell again in a fresh worker, or for the first time if it is an implied one.

    Raises :class:`UsageError` for unknown names and :class:`SessionError` if the problem file
    changed since.
    """
    made = _plan_with(session, candidate, problem)
    record = _input(made, input_id)
    name = made["problem"]["id"]
    stored = _stored(session, name, candidate, input_id)
    tools = executors.tools(executors.recorded(session.manifest))(session.images)
    originals, candidates = candidates_of(made, tools)
    by_id: dict[str, Candidate] = {c.id: c for c in (*originals.values(), *candidates)}
    worker = Worker(tools)
    try:
        worker.open(find_problem(made, kernelbench))
        unit = worker.measure(
            plans.spec_of(record),
            originals,
            [by_id[candidate]] if candidate in by_id and not _fixed(candidate) else [],
            check_order=input_id == first_input(made),
        )
    finally:
        worker.close()
    if unit.rejected:
        raise SessionError(f"the input no longer runs: {unit.rejected}", where=f"{name} {input_id}")
    again = next(c for c in (*unit.fixed, *unit.cells) if c.candidate == candidate)
    # Fields, not rows: NaN verdict columns must compare equal to themselves.
    differing = tuple(
        field.name
        for field in fields(Cell)
        if stored.outcome != IMPLIED
        and repr(getattr(stored, field.name)) != repr(getattr(again, field.name))
    )
    return Replay(name, stored, again, differing)


def find_problem(made: Mapping[str, Any], kernelbench: Path | None) -> Problem:
    """The problem of a plan, read again from where it came from and checked by digest."""
    from kernelassay.kernelbench import kernelbench_problems
    from kernelassay.suite import suite_problems
    from kernelassay.user.kernel_file import read_kernel

    record = made["problem"]
    if record["origin"] == "suite":
        pool = {p.id: p for p in suite_problems()}
    elif record["origin"] == "kernelbench" and kernelbench is not None:
        pool = {p.id: p for p in kernelbench_problems(kernelbench, record["level"])}
    elif record["origin"] == "kernelbench" and not Path(record["path"]).exists():
        raise UsageError(
            f"{record['id']} comes from a KernelBench checkout", hint="name it: --kernelbench DIR"
        )
    else:
        found = read_problem(Path(record["path"]))
        pool = {
            record["id"]: replace(
                found, id=record["id"], level=record["level"], origin=record["origin"]
            )
        }
    if record["id"] not in pool:
        raise unknown_name("problem", record["id"], pool)
    shrunk = tuple((name, value) for name, value in record["shrunk"])
    kernel = read_kernel(record["kernel"]["path"]) if "kernel" in record else None
    problem = replace(pool[record["id"]], shrunk=shrunk, kernel=kernel)
    if kernel is not None and kernel.digest != record["kernel"]["digest"]:
        raise SessionError("the kernel changed since the session was made", where=kernel.path)
    if problem.digest != record["digest"]:
        raise SessionError(
            "the problem file changed since the session was made", where=str(record["path"])
        )
    return problem


def _fixed(candidate: str) -> bool:
    return candidate.startswith((f"{ORIGINAL}/", "control/"))


def _plan_with(session: Session, candidate: str, problem: str | None) -> dict[str, Any]:
    made = session.plans()
    if problem is not None:
        chosen = [p for p in made if p["problem"]["id"] == problem]
        if not chosen:
            raise unknown_name("problem", problem, (p["problem"]["id"] for p in made))
        return chosen[0]
    if _fixed(candidate) or candidate.startswith("benign/"):
        if len(made) == 1:
            return made[0]
        raise UsageError(f"{candidate!r} exists for many problems", hint="add --problem ID")
    for plan in made:
        for mutant in plan["mutants"]:
            if mutant["id"] == candidate:
                if mutant["status"] != "distinct":
                    raise UsageError(
                        f"mutant {candidate} was not run: it is {mutant['status']}",
                        hint=mutant["reason"] or f"twin: {mutant['twin']}",
                    )
                return plan
    raise unknown_name("mutant", candidate, (m["id"] for p in made for m in p["mutants"]))


def _input(made: Mapping[str, Any], input_id: str) -> dict[str, Any]:
    for record in made["inputs"]:
        if record["id"] == input_id:
            if not record["valid"]:
                raise UsageError(f"input {input_id!r} is not valid: {record['reason']}")
            return dict(record)
    raise unknown_name("input", input_id, (r["id"] for r in made["inputs"]))


def _stored(session: Session, problem: str, candidate: str, input_id: str) -> Cell:
    for row in session.read_cells(problem, input_id).to_pylist():
        if row["candidate"] == candidate:
            return Cell.from_row(row)
    raise UsageError(f"no cell of {candidate!r} on {input_id!r}", where=problem)
