"""``kernelassay run``: fill a kill matrix."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from kernelassay.cli.executor import chosen_executor, executor_options
from kernelassay.cli.selection import (
    Selection,
    emit_json,
    json_option,
    kernel_option,
    problem_options,
    sample_option,
    selected_rules,
    style_option,
)
from kernelassay.errors import NothingToTestError, UsageError
from kernelassay.problem import Problem

if TYPE_CHECKING:
    from kernelassay.campaign import Campaign
    from kernelassay.engines.ray import RayEngine


class ProgressLines:
    """Progress as lines on standard error: one per planned and per finished problem."""

    def __init__(self, problems: int) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False)
        self._total = problems
        self._finished = 0
        self._cells: dict[str, int] = {}
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._status = self._console.status("starting")
        self._steps: dict[str, str] = {}

    def __enter__(self) -> ProgressLines:
        self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._status.stop()

    def problem_step(self, problem: str, step: str) -> None:
        """Show what a lane is doing."""
        with self._lock:
            self._steps[problem] = step
            self._refresh()

    def problem_planned(self, problem: str, plan: dict[str, Any]) -> None:
        """One line with the problem's account."""
        with self._lock:
            if plan["refused"]:
                return
            status = [m["status"] for m in plan["mutants"]]
            valid = sum(record["valid"] for record in plan["inputs"])
            generated = plan.get("generated", len(status))
            sampled = f" sampled of {generated}" if generated > len(status) else ""
            self._steps[problem] = (
                f"{status.count('distinct')} distinct of {len(status)}{sampled} mutants,"
                f" {valid} of {len(plan['inputs'])} inputs valid"
            )
            self._refresh()

    def cells_done(self, problem: str, count: int) -> None:
        """Count cells."""
        with self._lock:
            self._cells[problem] = self._cells.get(problem, 0) + count
            self._refresh()

    def problem_done(self, problem: str, plan: dict[str, Any]) -> None:
        """One line per finished problem."""
        with self._lock:
            self._finished += 1
            step = self._steps.pop(problem, "")
            cells = self._cells.pop(problem, 0)
            seconds = time.monotonic() - self._start
            head = f"[{self._finished}/{self._total}] {problem}"
            note = "" if plan["problem"]["official_shape"] else " (not the official shape)"
            if plan["refused"]:
                reason = plan["refused"].splitlines()[0]
                self._console.print(f"{head}: not admitted: {reason}{note}", markup=False)
            else:
                self._console.print(
                    f"{head}: {step}, {cells} cells measured{note} ({seconds:.0f} s)",
                    markup=False,
                )

    def _refresh(self) -> None:
        parts = [
            f"{problem}: {self._cells.get(problem) or step}"
            for problem, step in sorted(self._steps.items())
        ]
        self._status.update("; ".join(parts))


@click.command()
@problem_options
@kernel_option
@click.option("--session", type=click.Path(path_type=Path), help="Session directory to fill.")
@click.option("--quick", is_flag=True, help="A quick selection of problems and inputs.")
@click.option("--shrink", is_flag=True, help="Scale foreign problems down to what a CPU can run.")
@click.option("--rules", multiple=True, help="Rule id, glob or family; may be repeated.")
@style_option
@sample_option
@click.option(
    "--benign",
    type=click.IntRange(0),
    metavar="N",
    help="At most N correct variants of a problem's kernels, chosen like a sample.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=None,
    show_default="the number of cores, of all nodes with Ray",
    help="Worker processes at the same time: each takes a problem, or, when none is left,"
    " inputs of another's.",
)
@click.option(
    "--identity",
    type=click.Choice(["auto", "nvrtc", "host"]),
    default="auto",
    show_default=True,
    help="What tells equivalent mutants: sm_90 machine code (nvrtc) or the host compiler.",
)
@executor_options
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where the work is done: on this machine, or on the nodes of a Ray cluster.",
)
@click.option(
    "--ray-address",
    metavar="HOST:PORT",
    help="The Ray cluster, by default the environment's RAY_ADDRESS; without either, a cluster is"
    " started on this machine for the run.",
)
@click.option(
    "--cells",
    type=click.Choice(["rows", "lazy"]),
    default="rows",
    show_default=True,
    help="What to measure of each mutant: its whole row, which choosing inputs needs, or lazily"
    " what the known protocols need for their verdicts, and a witness.",
)
@click.option(
    "--protocol",
    "asked",
    multiple=True,
    metavar="NAME|all",
    help="Protocol to draw the inputs of, beside the battery, and to decide with lazy cells; may be"
    " repeated. Default: those that need no inputs of their own.",
)
@json_option
def run(
    names: tuple[str, ...],
    kernelbench: Path | None,
    level: int | None,
    files: tuple[Path, ...],
    kernel: Path | None,
    session: Path | None,
    quick: bool,
    shrink: bool,
    rules: tuple[str, ...],
    styles: tuple[str, ...],
    sample: int | None,
    benign: int | None,
    jobs: int | None,
    identity: str,
    executor: str,
    draw: str | None,
    tf32: bool,
    devices: str | None,
    engine: str,
    ray_address: str | None,
    cells: str,
    asked: tuple[str, ...],
    as_json: bool,
) -> None:
    """Mutate, compile and run problems; fill the kill matrix.

    PROBLEM names may be globs; without any, the whole own suite runs. An interrupted run is
    taken up by the same command.
    """
    from kernelassay import campaign as campaigns
    from kernelassay.plan import OFFICIAL, OWN, PlanOptions
    from kernelassay.protocols import asked_for
    from kernelassay.session import Session
    from kernelassay.styles import choose

    where = chosen_executor(executor, draw, tf32, devices)
    if ray_address is not None and engine != "ray":
        raise UsageError("--ray-address: of no meaning on this machine", hint="add --engine ray")
    if engine == "ray" and devices:
        raise UsageError(
            "--devices: Ray shares out the GPUs of its nodes itself",
            hint="start its nodes with CUDA_VISIBLE_DEVICES set to those that it may use",
        )
    selection = Selection(names, kernelbench, level, files, quick, kernel)
    chosen = selected_rules(rules)
    wanted = choose(styles)
    problems = selection.problems()
    refused: tuple[tuple[Problem, str], ...] = ()
    scaled: dict[str, dict[str, Any]] = {}
    if shrink:
        problems, refused, scaled = shrunk(problems)
    official = not shrink and any(problem.origin != "suite" for problem in problems)
    place = where.sharing(
        official,
        None if engine == "ray" else jobs,  # Ray shares out GPUs itself
    )
    options = PlanOptions(
        chosen,
        quick,
        _identity_backend(identity),
        styles=wanted,
        scale=OFFICIAL if place.cuda and official else OWN,
        sample=sample,
        benign=benign,
        cells=cells,
        protocols=asked_for(asked),
    )
    root = session or Path("sessions") / time.strftime("%Y%m%d-%H%M%S")
    with contextlib.ExitStack() as stack:
        cluster = None
        if engine == "ray":
            from kernelassay.engines.ray import RayEngine

            cluster = RayEngine(ray_address, backend=options.backend, cpus=jobs, cuda=place.cuda)
            stack.enter_context(cluster)
        lanes = jobs or (cluster.places if cluster else place.lanes)
        campaign = campaigns.Campaign(
            problems, options, lanes, refused, place.cuda, place.devices or (0,)
        )
        store = Session.create(root, _manifest(campaign, kernelbench, cluster))
        stack.callback(store.close)
        with ProgressLines(len(problems)) as progress:
            campaigns.run(campaign, store, progress, engine=cluster)
        store.write_tables()
        summary = {**_summary(store), "scaled": scaled}
    _print(summary, root, as_json)
    if not summary["distinct"]:
        reasons = "; ".join(f"{name}: {why}" for name, why in summary["refused"].items())
        raise NothingToTestError(
            f"no mutant was measured{f' ({reasons})' if reasons else ''}", where=str(root)
        )


def _identity_backend(asked: str) -> str:
    """What tells equivalent mutants; says so where it is the lesser way."""
    from kernelassay.campaign import identity_backend

    backend = identity_backend(asked)
    if backend == "host":
        click.echo(
            "note: NVRTC is not installed, so equivalent mutants are told by the host compiler",
            err=True,
        )
    return backend


def _manifest(
    campaign: Campaign, kernelbench: Path | None, cluster: RayEngine | None
) -> dict[str, Any]:
    manifest = campaign.manifest()
    if cluster is not None:
        manifest["machine"]["nodes"] = cluster.nodes
    if kernelbench is not None:
        from kernelassay.kernelbench import checkout_commit

        manifest["kernelbench_commit"] = checkout_commit(kernelbench)
    return manifest


def _print(summary: dict[str, Any], root: Path, as_json: bool) -> None:
    if as_json:
        emit_json("run", summary)
    else:
        click.echo(f"session: {root}")
        click.echo(f"digest:  {summary['digest']}")


def shrunk(
    problems: tuple[Problem, ...],
) -> tuple[tuple[Problem, ...], tuple[tuple[Problem, str], ...], dict[str, dict[str, Any]]]:
    """Foreign problems scaled down, those that cannot be, with the reason, and what was scaled.

    Problem code runs in limited workers.
    """
    from kernelassay.admission import Shrinking
    from kernelassay.shrink import shrink_limited

    fitting: list[Problem] = []
    refused: list[tuple[Problem, str]] = []
    scaled: dict[str, dict[str, Any]] = {}
    for problem in problems:
        if problem.origin == "suite":
            fitting.append(problem)
            continue
        report = shrink_limited(problem)
        if report.reason:
            refused.append((problem, f"cannot be shrunk: {report.reason}"))
        else:
            fitting.append(report.problem)
            scaled[problem.id] = asdict(Shrinking.of(report))
    return tuple(fitting), tuple(refused), scaled


def _summary(store: Any) -> dict[str, Any]:
    plans = store.plans()
    return {
        "session": str(store.root),
        "digest": store.digest(),
        "admitted": sum(not plan["refused"] for plan in plans),
        "distinct": sum(m["status"] == "distinct" for plan in plans for m in plan["mutants"]),
        "refused": {p["problem"]["id"]: p["refused"] for p in plans if p["refused"]},
    }


COMMANDS = (run,)
