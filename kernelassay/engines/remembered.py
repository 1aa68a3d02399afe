"""Inputs that the gate has measured, kept while a problem is being planned.

With lazy cells nearly all cells of a problem are measured while it is planned, which may take
minutes. What is measured of each input is kept beside compiled code until the plan is written, so
that a run that is interrupted goes on where it was. A file is found again by a hash of all that it
depends on: the problem, the input, the text of every kernel that ran, the executor and versions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from kernelassay import __version__, cell
from kernelassay.cell import Cell
from kernelassay.errors import SessionError
from kernelassay.execute.bench import Candidate, InputFacts
from kernelassay.execute.messages import CallInfo, Trials
from kernelassay.execute.worker import UnitResult, Worker
from kernelassay.input_shapes import Small
from kernelassay.inputs import InputSpec
from kernelassay.problem import Problem
from kernelassay.session import slug, write_table, write_whole
from kernelassay.timing import UnitTiming

_TUPLES = ("shapes", "output_shape", "output_dtypes")


class RememberingWorker:
    """A worker for the planning of one problem, that measures no input twice.

    ``folder`` is where what was measured is kept; it may be deleted at any time. ``settings`` are
    the toolbox's. ``recalled`` tells that the last input was measured before.
    """

    def __init__(
        self, worker: Worker, folder: Path, problem: Problem, settings: Sequence[str]
    ) -> None:
        self._worker = worker
        self._problem = problem
        self._versions = [__version__, torch.__version__, *settings]
        self.folder = folder / slug(problem.id)
        self.recalled = False

    def open(self, problem: Problem) -> tuple[CallInfo, ...]:
        """As :meth:`Worker.open`."""
        return self._worker.open(problem)

    def battery(self, size: str, small: Small | None = None, kinds: tuple[str, ...] = ()) -> Trials:
        """As :meth:`Worker.battery`."""
        return self._worker.battery(size, small, kinds)

    def measure(
        self,
        spec: InputSpec,
        originals: Mapping[str, Candidate],
        candidates: Sequence[Candidate],
        *,
        check_order: bool = False,
        on_cell: Callable[[Cell], None] = lambda _: None,
    ) -> UnitResult:
        """As :meth:`Worker.measure`, where it was not measured before.

        What a machine may be to blame for is not kept: rejected inputs, and cells that were lost.
        """
        path = self.folder / self._key(spec, originals, candidates, check_order=check_order)
        unit = _read(path)
        self.recalled = unit is not None
        if unit is not None:
            for found in unit.cells:
                on_cell(found)
            return unit
        unit = self._worker.measure(
            spec, originals, candidates, check_order=check_order, on_cell=on_cell
        )
        whole = unit.facts is not None and not unit.rejected and not unit.broken
        if whole and not any(found.lost for found in (*unit.fixed, *unit.cells)):
            with contextlib.suppress(SessionError):  # somebody deletes the folder: it may be done
                _write(path, unit)
        return unit

    def forget(self) -> None:
        """Delete what is kept: the plan has it now."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _key(
        self,
        spec: InputSpec,
        originals: Mapping[str, Candidate],
        candidates: Iterable[Candidate],
        *,
        check_order: bool,
    ) -> str:
        kernels = [
            (one.id, one.call, one.style, one.source) for one in (*originals.values(), *candidates)
        ]
        problem = [self._problem.digest, self._problem.shrunk]
        told = [self._versions, problem, spec.to_json(), check_order, kernels]
        return hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()


def _write(path: Path, unit: UnitResult) -> None:
    """The cells, then what else there is: without that a file of cells is nothing."""
    assert unit.facts is not None
    facts = {**asdict(unit.facts), "work": None}
    told = {
        "facts": facts,
        "fixed": [found.candidate for found in unit.fixed],
        "cells": [found.candidate for found in unit.cells],
        "timed": unit.timed().to_json(),
    }
    write_table(path.with_suffix(".parquet"), cell.table([*unit.fixed, *unit.cells]))
    write_whole(path.with_suffix(".json"), json.dumps(told).encode())


def _read(path: Path) -> UnitResult | None:
    """What was kept; None if nothing was, or it is damaged."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        told: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
        rows = pq.read_table(path.with_suffix(".parquet")).to_pylist()
        cells = {row["candidate"]: Cell.from_row(row) for row in rows}
        timed = UnitTiming.from_json(told["timed"])
        facts = {**told["facts"], **{name: _tuple(told["facts"][name]) for name in _TUPLES}}
        return UnitResult(
            facts=InputFacts(**{**facts, "work": timed.work}),
            fixed=[cells[name] for name in told["fixed"]],
            cells=[cells[name] for name in told["cells"]],
            timing=timed.timing,
        )
    return None


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
