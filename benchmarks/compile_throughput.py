"""How many distinct mutants per second this machine's cores tell apart and build for a GPU.

No GPU is needed. The kernels of some suite problems, spread over the suite, go through the stages
of a run, each with one process per job and one piece of work per kernel and style:

- *identify*: mutants are generated, refused by the compiler's front end (stillborn), and told apart
  by their machine code, where the sizes that the problem fixes are known to the compiler;
- *build*: the distinct ones are compiled as they stand, into modules to be launched. Where nothing
  is fixed, identification has left the code already;
- *code generation*: some distinct ones from the start again: in batches by all processes, and a
  few of them each in a program of its own, in one process.

Processes and compilers are started before the clock. All caches are empty. Wall time is that of a
machine with nothing else to do; CPU seconds, of our processes and the compilers', compare where it
has, and are told by stage.

Usage: python benchmarks/compile_throughput.py [--size 24 | --problems suite/relu ...] [--json]
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeVar

from record import commit

from kernelassay.compile import nvrtc
from kernelassay.compile.batch import BATCH
from kernelassay.compile.classify import DISTINCT, STATUSES, classify
from kernelassay.compile.cubins import CubinImage
from kernelassay.compile.fixed import Fixed
from kernelassay.compile.pool import WorkerPool
from kernelassay.compile.worker import Worker
from kernelassay.execute.cuda.build import build_cubins
from kernelassay.host import machine
from kernelassay.mutation import mutants
from kernelassay.problem import Problem
from kernelassay.styles import DEFAULT, mutated
from kernelassay.suite import suite_problems
from kernelassay.tasks import collect_rarely

R = TypeVar("R")
LONE_MUTANTS = 32
"""How many are compiled one at a time."""
BATCHED_MUTANTS = 72
"""How many are compiled in batches, for each process."""
START_SECONDS = 120.0
JOBS_OF_A_PIECE = 4
"""Compilers that one process may use: the last pieces get the cores that others have left."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One kernel in one style, with what its problem fixes."""

    problem: str
    call: str
    style: str
    source: str
    fixed: Fixed


@dataclass(frozen=True, slots=True)
class Identified:
    """The mutants of a piece: how many there are of each status, and the texts of the distinct.

    ``generation`` has the CPU seconds that it took to make them.
    """

    counts: dict[str, int]
    texts: dict[str, str]
    generation: float


@dataclass(frozen=True, slots=True)
class Built:
    """What a build made: images, failures, and the device codes among the images."""

    images: int
    failures: int
    codes: int


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of some work: in NVRTC's front end alone, in all of NVRTC, in our process."""

    front_end: float
    code_generation: float
    own: float


class Meter:
    """The CPU seconds that the compilers of this process have spent, by what was asked of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: Counter[bool] = Counter()

    def start(self) -> None:
        """Count every compilation from here on."""
        compile_ = Worker.compile

        def counted(
            worker: Worker, program: str, extra: tuple[str, ...], seconds: float
        ) -> nvrtc.Compilation:
            made = compile_(worker, program, extra, seconds)
            with self._lock:
                self._asked[nvrtc.SYNTAX_ONLY in extra] += made.cpu_seconds
            return made

        Worker.compile = counted  # type: ignore[method-assign]

    def read(self) -> Spent:
        """What was spent so far."""
        return Spent(self._asked[True], self._asked[False], time.process_time())


METER = Meter()


def metered(function: Callable[..., R], *arguments: Any) -> tuple[R, Spent]:
    """A result, and what it took in this process, which does one thing at a time."""
    before = METER.read()
    result = function(*arguments)
    after = METER.read()
    return result, Spent(
        after.front_end - before.front_end,
        after.code_generation - before.code_generation,
        after.own - before.own,
    )


def pieces_of(problem: Problem, styles: Sequence[str]) -> list[Piece]:
    """The kernels of a problem as a run has them, with the sizes that the problem fixes."""
    from kernelassay.execute.bench import ProblemBench
    from kernelassay.execute.serving import call_infos, tried
    from kernelassay.input_trials import settle
    from kernelassay.inputs import QUICK
    from kernelassay.plan import with_known

    bench = ProblemBench(problem, None)
    course = list(tried(bench, settle(problem, QUICK, bench.signature)))
    given = [arguments for _, arguments in course]
    calls = [with_known(call, given, course) for call in call_infos(bench)]
    return [
        Piece(problem.id, call.id, style, call.sources[style], call.fixed)
        for call in calls
        for style in mutated(call.sources, styles)
    ]


def identify(piece: Piece, cache: Path, jobs: int) -> Identified:
    """Generate the mutants of a piece and tell them apart."""
    start = time.process_time()
    found = mutants(piece.source, problem=piece.problem, call=piece.call, style=piece.style).mutants
    generation = time.process_time() - start
    pairs = [(mutant.id, mutant.source) for mutant in found]
    identities = classify(
        piece.source,
        pairs,
        jobs=jobs,
        cache=cache,
        backend="nvrtc",
        fixed=piece.fixed,
        cubins=True,
    )
    texts = {key: text for key, text in pairs if identities[key].status == DISTINCT}
    return Identified(identities.counts(), texts, generation)


def build(texts: dict[str, str], cache: Path, jobs: int, batch: int) -> Built:
    """Build the images of some mutants."""
    images = build_cubins(texts, cache, jobs=jobs, batch=batch)
    good = [image for image in images.values() if isinstance(image, CubinImage)]
    return Built(len(good), len(images) - len(good), len(set(good)))


def kept_codes(cache: Path) -> int:
    """How many device codes a cache has a cubin of, or a failure."""
    return sum(1 for _ in (cache / "cuda-images").glob("*.json"))


def prepare() -> None:
    """Set a process up: one compiler started, torch imported, garbage collection rare."""
    import torch

    torch.set_num_threads(1)
    WorkerPool().one(_warm, None)
    collect_rarely()
    METER.start()


def _warm(worker: Worker, _: None) -> None:
    worker.compile("__global__ void k(float* y) { y[0] = 1; }", (), START_SECONDS)


def in_turn(
    pool: ProcessPoolExecutor, function: Callable[..., R], work: Iterable[tuple[Any, ...]]
) -> tuple[list[R], float, Spent]:
    """The results of all work, in order, the seconds until the last one, and what was spent."""
    start = time.perf_counter()
    futures: list[Future[tuple[R, Spent]]] = [
        pool.submit(metered, function, *arguments) for arguments in work
    ]
    done = [future.result() for future in futures]
    seconds = time.perf_counter() - start
    columns = zip(*(astuple(spent) for _, spent in done), strict=True)
    return [result for result, _ in done], seconds, Spent(*map(sum, columns))


def measure(problems: Sequence[Problem], styles: Sequence[str], jobs: int) -> dict[str, Any]:
    """All stages; see the module's docstring."""
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(jobs, context, prepare) as pool,
    ):
        cache = Path(folder) / "run"
        cache.mkdir()
        share = min(JOBS_OF_A_PIECE, jobs)
        found, preparation, _ = in_turn(pool, pieces_of, [(p, styles) for p in problems])
        pieces = sorted((piece for some in found for piece in some), key=lambda p: -len(p.source))
        identified, identify_seconds, told_apart = in_turn(
            pool, identify, [(piece, cache, share) for piece in pieces]
        )
        counts = {status: sum(i.counts[status] for i in identified) for status in STATUSES}
        kept = kept_codes(cache)
        built, build_seconds, built_with = in_turn(
            pool, build, [(i.texts, cache, share, BATCH) for i in identified]
        )
        compiled = kept_codes(cache) - kept
        texts = [pair for i in identified for pair in i.texts.items()]
        batches = [(part, Path(folder) / "batched", 1, BATCH) for part in parts(texts, jobs)]
        batched, batched_seconds, _ = in_turn(pool, build, batches)
        lone = dict(spread(texts, LONE_MUTANTS))
        (single,), single_seconds, _ = in_turn(pool, build, [(lone, Path(folder) / "lone", 1, 1)])
    generation = sum(i.generation for i in identified)
    cpu = {
        "front_end": told_apart.front_end + built_with.front_end,
        "identify": told_apart.code_generation,
        "build": built_with.code_generation,
        "generation": generation,
        "rest": told_apart.own + built_with.own - generation,
    }
    generated, distinct = sum(counts.values()), counts[DISTINCT]
    return {
        "problems": [problem.id for problem in problems],
        "kernels": len(pieces),
        "jobs": jobs,
        "counts": {"generated": generated, **counts},
        "preparation": {"seconds": preparation},
        "identify": {"seconds": identify_seconds, "mutants_per_s": generated / identify_seconds},
        "build": {
            "seconds": build_seconds,
            "images": sum(b.images for b in built),
            "failures": sum(b.failures for b in built),
            "compiled": compiled,
        },
        "distinct_per_s": distinct / (identify_seconds + build_seconds),
        "cpu_seconds": cpu,
        "cpu_seconds_per_distinct": sum(cpu.values()) / distinct,
        "busy": sum(cpu.values()) / (identify_seconds + build_seconds) / jobs,
        "code_generation": {
            "batched": rate(sum(b.codes for b in batched), batched_seconds),
            "one_at_a_time": rate(single.codes, single_seconds),
        },
    }


def rate(count: int, seconds: float) -> dict[str, float]:
    """A count, the seconds it took, and their ratio."""
    return {"codes": count, "seconds": seconds, "per_s": count / seconds}


def spread(texts: Sequence[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """About ``count`` of the texts, evenly spread, in order."""
    return list(texts[:: max(1, len(texts) // count)])[:count]


def parts(texts: Sequence[tuple[str, str]], jobs: int) -> list[dict[str, str]]:
    """Batches of a sample that gives each of ``jobs`` processes the same number."""
    sample = spread(texts, BATCHED_MUTANTS * jobs)
    return [dict(sample[start : start + BATCH]) for start in range(0, len(sample), BATCH)]


def chosen(names: Sequence[str], size: int) -> list[Problem]:
    """The problems named, or ``size`` of the suite, evenly spread over it."""
    problems = sorted(suite_problems(), key=lambda problem: problem.id)
    if names:
        return [p for p in problems if p.id in names or p.id.removeprefix("suite/") in names]
    count = min(size, len(problems))
    return [problems[index * len(problems) // count] for index in range(count)]


def report(result: dict[str, Any]) -> str:
    """The result as lines to read."""
    facts, counts, built = result["machine"], result["counts"], result["build"]
    cpu = result["cpu_seconds"]
    batched, lone = result["code_generation"].values()
    return "\n".join(
        [
            f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']},"
            f" NVRTC {result['nvrtc']}, {result['date']}, commit {result['commit']}",
            f"{len(result['problems'])} problems, {result['kernels']} kernels,"
            f" {result['jobs']} processes",
            "generated {generated} = stillborn {stillborn} + equivalent {equivalent}"
            " + duplicate {duplicate} + distinct {distinct}".format(**counts),
            f"identify       {result['identify']['seconds']:7.1f} s"
            f" {result['identify']['mutants_per_s']:7.1f} mutants/s",
            f"build          {built['seconds']:7.1f} s; {built['compiled']} codes compiled,"
            f" {built['images']} images, {built['failures']} failures",
            f"distinct mutants, identified and built: {result['distinct_per_s']:.1f} per second",
            f"CPU seconds: front end {cpu['front_end']:.1f}, code generation to identify"
            f" {cpu['identify']:.1f} and to build {cpu['build']:.1f}, generation of mutants"
            f" {cpu['generation']:.1f}, rest {cpu['rest']:.1f}",
            f"CPU seconds per distinct mutant: {result['cpu_seconds_per_distinct']:.3f};"
            f" of wall time and processes: {result['busy']:.0%}",
            f"code generation in batches    {batched['codes']:5} codes {batched['seconds']:6.1f} s"
            f" {batched['per_s']:7.1f}/s",
            f"one at a time, one process    {lone['codes']:5} codes {lone['seconds']:6.1f} s"
            f" {lone['per_s']:7.1f}/s; batches over this: {batched['per_s'] / lone['per_s']:.1f}",
        ]
    )


def main() -> None:
    """Measure and print; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=[], metavar="ID")
    parser.add_argument("--size", type=int, default=24, help="how many suite problems")
    parser.add_argument("--styles", nargs="+", default=list(DEFAULT))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    problems = chosen(options.problems, options.size)
    if not problems:
        parser.error("no such problem; see `kernelassay problems`")
    result = measure(problems, options.styles, options.jobs)
    result |= {
        "machine": machine(),
        "nvrtc": nvrtc.version(),
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        "commit": commit(),
    }
    print(json.dumps(result, indent=2) if options.json else report(result))


if __name__ == "__main__":
    main()
