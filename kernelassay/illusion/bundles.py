"""Bundles of the failures that a session of trials holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelassay.cell import unflattened
from kernelassay.errors import NothingToTestError
from kernelassay.illusion.bundle import STORED_BYTES, Bundle, Expected, about, elements, write
from kernelassay.illusion.campaign import device_of
from kernelassay.illusion.cases import case, inputs
from kernelassay.illusion.grids import Grid, grids
from kernelassay.illusion.op import Op
from kernelassay.illusion.oracle import Failure, Rule
from kernelassay.illusion.trials import SHOWN, Subject, Trials


def write_failures(trials: Trials, rule: Rule, out: Path, limit: int | None) -> int:
    """Write a bundle of every failing case of a kernel that is no mutant; how many.

    At most ``limit`` cases of a kernel, strategy by strategy. Raises
    :class:`NothingToTestError` if nothing fails.
    """
    written = 0
    for grid in grids(trials):
        for bundle in _of(trials, grid, rule, limit):
            write(out / bundle.name, bundle)
            written += 1
    if not written:
        raise NothingToTestError("no kernel fails", where=str(trials.root))
    return written


def _of(trials: Trials, grid: Grid, rule: Rule, limit: int | None) -> Iterator[Bundle]:
    where = trials.session.manifest["device"]
    device = device_of(grid.op.language, where)
    fails = grid.fails(rule)
    for at in grid.of(*SHOWN):
        subject = grid.rows[at]
        wanted = {
            (grid.strategies[column], int(grid.indices[column]))
            for column in fails[at].nonzero()[0][:limit]
        }
        for record in trials.of_kernel(grid.operator, subject.name):
            if (record["strategy"], record["index"]) in wanted:
                yield _bundle(grid.op, subject, record, rule, device)


def _bundle(op: Op, subject: Subject, record: Mapping[str, Any], rule: Rule, device: str) -> Bundle:
    one = case({**record, "sizes": json.loads(record["sizes"])})
    arrays = inputs(one, op.schema)
    small = sum(array.nbytes for array in arrays) <= STORED_BYTES
    verdict = unflattened(rule.reference, record)
    failure: Failure = record["failure"]
    if verdict is not None:
        failure = rule.of_verdict(verdict, record["tolerance"])
    return Bundle(
        kernel=subject.name,
        language=op.language,
        text=subject.text,
        reference=op.computes,
        schema=op.schema,
        case=one,
        rule=rule,
        tolerance=record["tolerance"],
        device=device,
        inputs_digest=record["input_digest"],
        elements=elements(arrays) if small else None,
        explicit=False,
        expected=Expected(
            outcome=record["outcome"],
            failure=failure,
            output_digest=record["output_digest"],
            verdict=verdict,
            # Programs run in one order everywhere but on a device.
            deterministic=device != "cuda" or "atomic" not in subject.text,
        ),
        about=about(),
    )
