"""Put generated inputs into the session they were made for, as a run would have measured them.

Every candidate of a problem runs on each, so that what reads a session (audits, explanations,
suites) knows no difference but the group of the input. The plan is written last: a session that is
broken off in between is the one it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelassay import cell, executors
from kernelassay.execute.crew import each
from kernelassay.execute.worker import Worker
from kernelassay.gate import VALIDITY_TOLERANCE
from kernelassay.gate_inputs import input_record
from kernelassay.inputs import GIVEN, InputSpec
from kernelassay.matrix import measured
from kernelassay.problem import Problem
from kernelassay.protocols import V01
from kernelassay.replay import find_problem
from kernelassay.session import Session
from kernelassay.synthesis.generate.bed import Bed
from kernelassay.synthesis.generate.ladder import Ladder


def extend(
    sessions: Sequence[Session],
    ladder: Ladder,
    kernelbench: Path | None = None,
    jobs: int = 1,
    progress: Callable[[str], None] = lambda step: None,
) -> dict[str, int]:
    """Add the valid inputs of all rungs to the sessions; how many are new, by session.

    Inputs that a session holds already are left alone. Raises :class:`SessionError` if another run
    holds a session, :class:`DeviceError` where a machine failed.
    """
    wanted: dict[str, dict[str, InputSpec]] = {}
    for rung in ladder.rungs:
        for one in rung.problems:
            fit = (made for made in one.inputs if not made.objection)
            mine = wanted.setdefault(one.problem, {})
            mine.update({made.id: InputSpec.from_json(made.spec) for made in fit})
    added = {}
    for session in sessions:
        store = Session.create(session.root, session.manifest)  # which locks it
        try:
            added[store.name] = _extend(store, wanted, kernelbench, jobs, progress)
        finally:
            store.close()
    return added


def _extend(
    store: Session,
    wanted: Mapping[str, Mapping[str, InputSpec]],
    kernelbench: Path | None,
    jobs: int,
    progress: Callable[[str], None],
) -> int:
    plans = {plan["problem"]["id"]: plan for plan in store.finished_plans() if not plan["refused"]}
    new = {
        name: [s for s in wanted[name].values() if s.id not in {r["id"] for r in plan["inputs"]}]
        for name, plan in plans.items()
        if name in wanted
    }
    problems = [find_problem(plans[name], kernelbench) for name, specs in new.items() if specs]
    tools = executors.tools(executors.recorded(store.manifest))(store.images)

    def one(problem: Problem, worker: Worker) -> int:
        plan = plans[problem.id]
        names = [m["id"] for m in plan["mutants"] if measured(m)]
        bed = Bed(plan, problem, worker, tools, V01, VALIDITY_TOLERANCE, names)
        records: list[dict[str, Any]] = []
        for made in new[problem.id]:
            progress(f"{problem.id}: measuring {made.id}")
            kept = _kept(store, made)
            unit = bed.measure(kept, names)
            record = input_record(kept, unit)
            if record["valid"]:
                cells = cell.table([*unit.fixed, *unit.cells])
                store.write_cells(problem.id, kept.id, cells)
                records.append(record)
        store.write_plan(problem.id, {**plan, "inputs": [*plan["inputs"], *records]})
        return len(records)

    count = sum(each(problems, tools, jobs, one)) if problems else 0
    store.write_tables()
    return count


def _kept(store: Session, made: InputSpec) -> InputSpec:
    """An input whose values, if they are data, lie in the session itself."""
    if not made.transform.startswith(GIVEN):
        return made
    found = Path(made.transform.removeprefix(GIVEN))
    mine = store.given.resolve() / found.name
    if mine != found:
        mine.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found, mine)
    return replace(made, transform=f"{GIVEN}{mine}")
