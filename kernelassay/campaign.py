"""A campaign: problems into plans, plans into units of work, units into cells.

Problems go to *lanes* (:mod:`kernelassay.engines`), each with one station of an engine. A unit of
work is a problem on one input; finished units are files, so an interrupted campaign is taken up
where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelassay import __version__, executors, plan
from kernelassay.cost import guess
from kernelassay.engines import Agenda, Engine, Lane, LocalEngine, Reporter
from kernelassay.engines.agenda import Cost
from kernelassay.errors import NothingToTestError
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.host import machine
from kernelassay.lazy import LAZY
from kernelassay.plan import PlanOptions
from kernelassay.problem import Problem
from kernelassay.session import Session, inputs_of
from kernelassay.timing import Stint

STINT_SECONDS = 5.0
"""How often a run notes how long it has been at work, so that one that is killed has noted it."""
STOP_SECONDS = 15.0
"""How long a stopped lane may finish a compilation; it writes nothing any more."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """What to run, in how many lanes. Two runs of equal problems and options have one digest.

    ``cuda`` has the options of the CUDA executor, ``devices`` the numbers of the GPUs it uses; None
    is the CPU executor.
    """

    problems: tuple[Problem, ...]
    options: PlanOptions
    jobs: int
    refused: tuple[tuple[Problem, str], ...] = ()
    cuda: CudaOptions | None = None
    devices: tuple[int, ...] = (0,)

    def manifest(self) -> dict[str, Any]:
        """The plan's identity, with the facts of this machine."""
        import torch

        from kernelassay.compile import nvrtc

        return {
            "version": __version__,
            "machine": machine(),
            "torch": torch.__version__,
            # PyTorch's switches, which only a GPU heeds; both stand as the references ran.
            "tf32": {
                "matmul": False if self.cuda else torch.backends.cuda.matmul.allow_tf32,
                "cudnn": self.cuda.tf32 if self.cuda else torch.backends.cudnn.allow_tf32,
            },
            **executors.facts(self.cuda),
            "identity": self.options.backend,
            "nvrtc": nvrtc.version() if self.options.backend == "nvrtc" else None,
            "max_inputs": self.options.max_inputs,
            "rules": [rule.id for rule in self.options.rules],
            "styles": list(self.options.styles),
            "quick": self.options.quick,
            "scale": self.options.scale,
            "sample": self.options.sample,
            "benign": self.options.benign,
            "cells": self.options.cells,
            "protocols": _names(self.options),
            "problems": {p.id: p.digest for p in (*self.problems, *(p for p, _ in self.refused))},
        }


def _names(options: PlanOptions) -> list[str] | None:
    """The protocols of a session; None for one of whole rows that was asked for none."""
    if options.protocols is None and options.cells != LAZY:
        return None
    return [protocol.name for protocol in options.decided]


def identity_backend(requested: str = "auto") -> str:
    """``"nvrtc"`` where it can be imported, else ``"host"``; ``requested`` overrides."""
    from kernelassay.compile import nvrtc

    if requested != "auto":
        return requested
    return "nvrtc" if nvrtc.available() else "host"


def run(
    campaign: Campaign,
    session: Session,
    reporter: Reporter,
    images: Path | None = None,
    *,
    engine: Engine | None = None,
    cost: Cost = guess,
) -> None:
    """Run a campaign to its end; what is finished already is not done again.

    Without an ``engine`` this machine does the work, and compiled code is kept in ``images``, by
    default with the session. Problems of more ``cost`` are begun first.
    Raises :class:`NothingToTestError` when no problem is selected. On ``KeyboardInterrupt`` the
    workers are ended and the exception goes on; finished units stay.
    """
    if not campaign.problems:
        reasons = "; ".join(f"{p.id}: {reason}" for p, reason in campaign.refused)
        raise NothingToTestError(
            f"no problem is left to run ({reasons})" if reasons else "no problem is selected",
            hint="see `kernelassay problems`",
        )
    for problem, reason in campaign.refused:
        session.write_plan(problem.id, plan.refused_plan(problem, reason))
    if engine is None:
        make = executors.tools(campaign.cuda)
        tools = make(session.images if images is None else images)
        engine = LocalEngine(tools, campaign.devices)
    agenda = Agenda(campaign.problems, cost)
    # There may be more lanes than problems: a worker is started only for a lane that has work.
    lanes = [
        Lane(session, engine.station(), campaign.options, reporter, agenda)
        for _ in range(max(1, campaign.jobs))
    ]
    stint = Stint.begin(len(lanes), len(campaign.devices) if campaign.cuda else 0)
    try:
        for lane in lanes:
            lane.start()
        noted = 0.0
        while alive := [lane for lane in lanes if lane.is_alive()]:
            alive[0].join(0.2)
            if time.monotonic() - noted > STINT_SECONDS:
                noted = time.monotonic()
                session.write_stint(stint.until_now())
            if any(lane.failure for lane in lanes):
                break
    finally:
        agenda.stop()
        for lane in lanes:
            lane.stop()
        for lane in lanes:
            if lane.ident is not None:  # else it could not be started, and that is being raised
                lane.join(STOP_SECONDS)
        session.write_stint(stint.until_now())  # last: where the disk is full it raises
    for lane in lanes:
        if lane.failure:
            raise lane.failure
    if isinstance(engine, LocalEngine):
        engine.forget()


def total_cells(plans: Sequence[dict[str, Any]]) -> int:
    """The number of cells in whole rows of some plans (controls and originals left out)."""
    return sum(
        sum(1 for _ in inputs_of(p))
        * (
            sum(1 for m in p["mutants"] if m["status"] == "distinct" and not m["unsupported"])
            + sum(1 for b in p["benign"] if not b["unsupported"])
        )
        for p in plans
        if not p["refused"]
    )


__all__ = ["Campaign", "Reporter", "identity_backend", "run", "total_cells"]
