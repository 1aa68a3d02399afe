"""Exported hidden tests, run by KernelBench-Verified's own evaluation on right and faulty kernels.

Usage: python benchmarks/exported_evaluated.py CHECKOUT FOLDER SESSION [--kernelbench DIR]
           [--problems N] [--faults N] [--jobs N]

FOLDER is what `kernelassay suite SESSION --export FOLDER --format hidden` wrote. The function
`eval_kernel_against_ref` of the checkout's src/eval.py judges each candidate: its official part
(five draws, as the checkout's script asks for), and if that accepts, its hidden part on the
exported module. For each problem the candidates are

- the reference under the name ModelNew, and the correct kernel that SESSION mutated;
- faults: mutants of that kernel which, by SESSION's cells, the official inputs accept by a factor
  of two, an exported input rejects by a factor of two, and which on all these inputs leave
  nothing unwritten, end, and show nothing to the sanitizer.

A kernel is the session's whole source, host function included, compiled by nvcc into a library
of its own. Its ModelNew is the problem's module, in whose forward the library stands in for the one
operation that the kernel computes; if it is not called, the forward raises. Scalar arguments come
from the graph at each shape, in a table in the text. "As measured" counts verdicts on one exported
input each that agree with SESSION.

The checkout's src/utils.py imports clients of language models at its top. Those of `STAND_INS` that
are not installed are replaced by modules whose every name is a function that does nothing: the
evaluation calls none of them. The checkout is not written to. This needs a GPU and nvcc, and
EXECUTES code of the checkout; each problem has a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import math
import multiprocessing
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from columns import NONE, table
from exported_hidden import ids, placed
from torch import fx

from kernelassay import matrix as matrices
from kernelassay.cell import OK
from kernelassay.compile.ctype import CType
from kernelassay.compile.nvrtc import OPTIONS
from kernelassay.compile.statements import Compiler
from kernelassay.errors import UnsupportedError
from kernelassay.execute.bench import ProblemBench
from kernelassay.inputs import InputSpec, official_inputs
from kernelassay.kernel import Call
from kernelassay.mutation.engine import mutant_text
from kernelassay.plan import spec_of
from kernelassay.replay import find_problem
from kernelassay.session import Session
from kernelassay.trace import Traced, meta

STAND_INS = (
    "dotenv", "tqdm", "together", "openai", "google.genai", "anthropic", "transformers",
)  # fmt: skip
TRIALS = 5
CLEAR = 2.0
PERMUTE = torch.ops.aten.permute.default
OFFICIAL = "official"
COLUMNS = (
    "problem", "inputs", "reference", "kernel", "faults", "official accepts", "hidden rejects",
    "as measured",
)  # fmt: skip

MODEL = """
import ctypes
from torch.utils._python_dispatch import TorchDispatchMode

_LAUNCH = ctypes.CDLL({library!r}).launch
_LAUNCH.restype = None
_LAUNCH.argtypes = [getattr(ctypes, name) for name in {types!r}]
_OPERANDS = {operands!r}
_TABLE = {table!r}


class _Kernel(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.launches = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if str(operation) != {operation!r}:
            return operation(*args, **(kwargs or {{}}))
        values = {{
            name: args[at].permute(order).contiguous() for name, (at, order) in _OPERANDS.items()
        }}
        shape, scalars = _TABLE[tuple(tuple(value.shape) for value in values.values())]
        out = torch.empty(shape, device=args[0].device)
        values[{output!r}] = out
        addresses = {{name: value.data_ptr() for name, value in values.items()}}
        _LAUNCH(*({{**addresses, **scalars}}[name] for name in {names!r}))
        self.launches += 1
        return out


class ModelNew(Model):
    def forward(self, *inputs):
        with _Kernel() as kernel:
            out = super().forward(*inputs)
        if kernel.launches != 1:
            raise RuntimeError("the kernel was launched %d times" % kernel.launches)
        return out
"""
REFERENCE = "\n\nclass ModelNew(Model):\n    pass\n"


# ---- the checkout ------------------------------------------------------------------------------


class _Absent(ModuleType):
    """A module that is not installed and not needed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def stand_in() -> list[str]:
    """Put stand-ins where a client is not installed; their names."""
    made = []
    for name in STAND_INS:
        package, _, last = name.rpartition(".")
        try:
            found = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            found = False
        if found:
            continue
        sys.modules[name] = _Absent(name)
        if package:
            try:
                parent = importlib.import_module(package)
            except ModuleNotFoundError:
                parent = sys.modules[package] = _Absent(package)
            setattr(parent, last, sys.modules[name])
        made.append(name)
    return made


def evaluation(checkout: Path) -> ModuleType:
    """The checkout's src/eval.py, imported as part of its package."""
    stand_in()
    sys.dont_write_bytecode = True
    source = checkout.resolve() / "src"
    name = "kernel_bench_verified"
    spec = importlib.util.spec_from_file_location(
        name, source / "__init__.py", submodule_search_locations=[str(source)]
    )
    assert spec is not None and spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return importlib.import_module(f"{name}.eval")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the evaluation says of one candidate; ``failed`` are positions of hidden inputs."""

    official: bool
    hidden: bool
    failed: tuple[int, ...]
    error: str

    @property
    def word(self) -> str:
        """One word for a table."""
        return "accepted" if self.hidden else "rejected"


def evaluated(
    module: ModuleType, reference: str, candidate: str, hidden: Path, device: str = "cuda:0"
) -> Outcome:
    """The evaluation's verdict on one candidate, official inputs first."""
    said = io.StringIO()
    error = ""
    result = None
    with contextlib.redirect_stdout(said):
        try:
            result = module.eval_kernel_against_ref(
                reference,
                candidate,
                num_correct_trials=TRIALS,
                verbose=True,
                device=torch.device(device),
                hidden_test_path=str(hidden),
            )
        except Exception as caught:
            error = f"{type(caught).__name__}: {caught}; it said {said.getvalue()[-300:]}"
    data = result.metadata if result is not None else {}
    for key in ("compilation_error", "runtime_error", "hidden_check_error", "hidden_runtime_error"):
        error = error or str(data.get(key, ""))
    if "Reference model failed" in said.getvalue():  # the evaluation passes such an input
        error = error or "the reference fails on a hidden input"
    failed = tuple(int(one.rpartition("_")[2]) - 1 for one in data.get("hidden_failed_configs", ()))
    official = data.get("correctness_trials") == f"({TRIALS} / {TRIALS})"
    accepted = result is not None and result.correctness and not error
    return Outcome(official, accepted, failed, " ".join(error.split())[:500])


# ---- faults ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """A mutant of the plan, and which exported inputs reject it by the session's cells."""

    record: Mapping[str, Any]
    rejecting: tuple[int, ...]


def faults(found: matrices.ProblemMatrix, exported: Sequence[str], tolerance: float) -> list[Fault]:
    """The mutants that the official inputs clearly accept and an exported one clearly rejects."""
    groups = {record["id"]: record["group"] for record in found.plan["inputs"]}
    official = [at for at, name in enumerate(found.inputs) if groups[name] == OFFICIAL]
    hidden = [found.inputs.index(name) for name in exported]
    both = [*official, *hidden]
    chosen: list[tuple[float, Fault]] = []
    for record in filter(matrices.measured, found.plan["mutants"]):
        cells = {name: column[found.index[record["id"]]] for name, column in found.columns.items()}
        strays = cells["seen_critical_tolerance"]
        clean = (
            (cells["outcome"][both] == OK).all()
            and not cells["unwritten"][both].any()
            and not any(len(finding) for finding in cells["findings"][both])
        )
        worst = float(strays[hidden].max())
        if clean and (strays[official] <= tolerance / CLEAR).all() and worst >= tolerance * CLEAR:
            rejecting = tuple(k for k, at in enumerate(hidden) if strays[at] > tolerance)
            chosen.append((worst, Fault(record, rejecting)))
    chosen.sort(key=lambda pair: (-pair[0], pair[1].record["id"]))
    return [fault for _, fault in chosen]


# ---- kernels -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands in its problem: what a ModelNew needs besides the library.

    ``operands`` maps a parameter to the position of an argument of the operation and the order
    of its axes in memory. ``table`` maps the shapes of the operands to that of the output, and to
    the scalar arguments.
    """

    operation: str
    operands: Mapping[str, tuple[int, tuple[int, ...]]]
    output: str
    table: Mapping[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], Mapping[str, Any]]]

    def text(self, problem: str, source: str, library: Path) -> str:
        """The text of a ModelNew that runs a compiled source."""
        parameters = [(one.name, one.type) for one, _ in Compiler(source).parameters()]
        filled = MODEL.format(
            library=str(library),
            types=[_ctypes_name(kind) for _, kind in parameters],
            names=[name for name, _ in parameters],
            operation=self.operation,
            operands=dict(self.operands),
            output=self.output,
            table=dict(self.table),
        )
        return problem + filled


def place(bench: ProblemBench, call: Call, specs: Sequence[InputSpec]) -> Place:
    """Where a call stands. Raises ``UnsupportedError`` if it is not one operation on its own."""
    if len(call.nodes) != 1 or len(call.outputs) != 1 or call.starts:
        raise UnsupportedError("the kernel stands for several operations", where=call.id)
    rows = {}
    for spec in specs:
        graph = bench.traced_for(spec)
        node = graph.nodes[call.nodes[0]]
        if sum(other.target == node.target for other in graph.nodes.values()) != 1:
            raise UnsupportedError(f"{node.target} is there several times", where=call.id)
        if call.outputs[0][1] != node.name:
            raise UnsupportedError("its output is not the operation's", where=call.id)
        operands = {parameter: _operand(graph, node, name) for parameter, name in call.operands}
        shapes = tuple(_shape(graph, name) for _, name in call.operands)
        scalars = bench.bind(call, spec.overrides, graph)
        rows[shapes] = _shape(graph, node.name), scalars
    return Place(str(node.target), operands, call.outputs[0][0], rows)


def _operand(graph: Traced, node: fx.Node, name: str) -> tuple[int, tuple[int, ...]]:
    """Which argument of an operation a value is, as it is or with its axes in another order."""
    for at, argument in enumerate(node.args):
        if not isinstance(argument, fx.Node):
            continue
        if argument.name == name:
            return at, tuple(range(len(_shape(graph, name))))
        source, *order = argument.args or (None,)
        if argument.target == PERMUTE and isinstance(source, fx.Node) and source.name == name:
            (axes,) = order
            return at, tuple(axes.index(axis) for axis in range(len(axes)))
    raise UnsupportedError(f"{name} is no argument of {node.target}")


def _shape(graph: Traced, name: str) -> tuple[int, ...]:
    return tuple(meta(graph.nodes[name]).shape)


def _ctypes_name(kind: CType) -> str:
    if kind.kind == "pointer":
        return "c_void_p"
    if kind.kind == "float":
        return {4: "c_float", 8: "c_double"}[kind.size]
    return "c_bool" if kind.kind == "bool" else f"c_{kind.kind}{8 * kind.size}"


def exported_launch(source: str) -> str:
    """The source with its host function ``launch`` under its plain name."""
    text, count = re.subn(r"^(?=void\s+launch\s*\()", 'extern "C" ', source, flags=re.MULTILINE)
    if count != 1:
        raise UnsupportedError(f"the source has {count} functions 'void launch'")
    return text


def compiled(source: str, stem: Path) -> Path:
    """A library of a kernel source, made by nvcc with the options that the session compiled with.

    Raises ``RuntimeError`` with what nvcc says.
    """
    code, library = stem.with_suffix(".cu"), stem.with_suffix(".so")
    code.write_text(exported_launch(source))
    command = ["nvcc", *OPTIONS, "-shared", "-Xcompiler", "-fPIC", "-o", str(library), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"nvcc: {done.stderr.strip()[:500]}")
    return library


# ---- one problem -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """One problem to judge, in a process of its own."""

    checkout: Path
    session: Path
    kernelbench: Path | None
    problem: str
    hidden: Path
    faults: int


@dataclass(frozen=True, slots=True)
class Found:
    """What came out for one problem: a row, a line for each candidate, and whether all is right."""

    row: tuple[str, ...]
    lines: tuple[str, ...]
    judged: int
    accepted: int
    rejected: int
    right: bool


def judge(job: Job) -> Found:
    """Have the checkout's evaluation judge the candidates of a problem."""
    module = evaluation(job.checkout)
    tolerance = module.get_tolerance_for_precision(torch.float32)
    session = Session.open(job.session)
    plan = session.read_plan(job.problem)
    assert plan is not None
    exported = ids(job.hidden)
    chosen = faults(matrices.of_plan(session, plan), exported, tolerance)[: job.faults]
    name = Path(plan["problem"]["path"]).name
    reference = (job.checkout / "KernelBench" / job.hidden.parent.name / name).read_text()
    try:  # before CUDA is in use here: problem files are read in processes forked from this one
        texts = kernel_texts(job, plan, reference, chosen, exported)
        refusal = ""
    except UnsupportedError as error:
        texts, refusal = {}, str(error)
    texts = {"reference": reference + REFERENCE, **texts}
    outcomes = {key: evaluated(module, reference, text, job.hidden) for key, text in texts.items()}
    if refusal:
        row = (Path(name).stem, str(len(exported)), outcomes["reference"].word, *[NONE] * 5)
        line = f"{Path(name).stem}: no kernel: {refusal}"
        return Found(row, (line,), 0, 0, 0, outcomes["reference"].hidden)
    return summary(Path(name).stem, exported, chosen, outcomes)


def kernel_texts(
    job: Job,
    plan: Mapping[str, Any],
    reference: str,
    chosen: Sequence[Fault],
    exported: Sequence[str],
) -> dict[str, str]:
    """The correct kernel and the faulty ones as candidates, by "kernel" or the mutant's id."""
    bench = ProblemBench(find_problem(plan, job.kernelbench))
    specs = {record["id"]: spec_of(record) for record in plan["inputs"]}
    wanted = [*official_inputs()[:1], *(specs[name] for name in exported)]
    (first, *rest) = {(f.record["call"], f.record["style"]) for f in chosen} or {
        (plan["calls"][0]["id"], plan["calls"][0]["styles"][0])
    }
    if rest:
        raise UnsupportedError("the faults are of several kernels", where=job.problem)
    (call,) = (one for one in bench.calls if one.id == first[0])
    (record,) = (one for one in plan["calls"] if one["id"] == first[0])
    original = record["sources"][first[1]]
    where = place(bench, call, wanted)
    sources = {"kernel": original}
    sources |= {f.record["id"]: mutant_text(f.record, original) for f in chosen}
    scratch = Path(tempfile.mkdtemp(dir=job.hidden.parents[2]))
    with ThreadPoolExecutor(len(sources)) as pool:
        libraries = pool.map(compiled, sources.values(), (scratch / key for key in sources))
        return {
            key: where.text(reference, source, library)
            for (key, source), library in zip(sources.items(), libraries, strict=True)
        }


def summary(
    name: str, exported: Sequence[str], chosen: Sequence[Fault], outcomes: Mapping[str, Outcome]
) -> Found:
    """The row and the lines of a problem from what the evaluation said of its candidates."""
    judged = [(fault, outcomes[fault.record["id"]]) for fault in chosen]
    accepted = sum(outcome.official for _, outcome in judged)
    rejected = sum(outcome.official and bool(outcome.failed) for _, outcome in judged)
    same = sum(
        (k in outcome.failed) == (k in fault.rejecting)
        for fault, outcome in judged
        if outcome.official
        for k in range(len(exported))
    )
    row = (
        name,
        str(len(exported)),
        outcomes["reference"].word,
        outcomes["kernel"].word,
        str(len(judged)),
        str(accepted),
        str(rejected),
        f"{same}/{accepted * len(exported)}",
    )
    rules = {fault.record["id"]: fault.record["rule"] for fault in chosen}
    lines = []
    for key, outcome in outcomes.items():
        official = "accepts" if outcome.official else "rejects"
        failing = ", ".join(exported[k] for k in outcome.failed) or "none"
        what = f"{name}: {key} {rules.get(key, '')}".rstrip()
        told = f"; {outcome.error}" if outcome.error else ""
        lines.append(f"{what}: official {official}; hidden inputs that reject: {failing}{told}")
    right = outcomes["reference"].hidden and outcomes["kernel"].hidden
    return Found(row, tuple(lines), len(judged), accepted, rejected, right)


# ---- all ---------------------------------------------------------------------------------------


def ranked(session: Session, hidden: Sequence[Path]) -> list[tuple[str, Path]]:
    """The problems of exported modules with their modules, the fewest input elements first."""
    modules = {path.name.partition("_")[0]: path for path in hidden}
    found = []
    for plan in session.finished_plans():
        number = Path(plan["problem"]["path"]).name.partition("_")[0]
        shapes = [r["shapes"] for r in plan.get("inputs", ()) if r["group"] == OFFICIAL]
        level = f"level{plan['problem']['level']}"
        if shapes and number in modules and modules[number].parent.name == level:
            elements = sum(math.prod(shape) for shape in shapes[0])
            found.append((elements, plan["problem"]["id"], modules[number]))
    return [(name, path) for _, name, path in sorted(found)]


def with_faults(session: Session, problem: str, hidden: Path, tolerance: float) -> bool:
    """Whether a problem has a fault to judge."""
    plan = session.read_plan(problem)
    assert plan is not None
    return bool(faults(matrices.of_plan(session, plan), ids(hidden), tolerance))


def asked() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("session", type=Path)
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--problems", type=int, default=8)
    parser.add_argument("--faults", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=4)
    return parser.parse_args()


def main() -> None:
    """Print the table; end with 1 if a correct kernel is rejected or nothing was judged."""
    options = asked()
    if not torch.cuda.is_available():
        sys.exit("exported_evaluated: the checkout's evaluation needs a CUDA device")
    session = Session.open(options.session)
    tolerance = evaluation(options.checkout).get_tolerance_for_precision(torch.float32)
    with placed(options.checkout, options.folder) as root:
        modules = ranked(session, sorted((root / "hidden_tests").glob("level*/*_hidden.py")))
        modules = [pair for pair in modules if with_faults(session, *pair, tolerance)]
        chosen = modules[: options.problems]
        common = (options.checkout, options.session, options.kernelbench)
        jobs = [Job(*common, name, path, options.faults) for name, path in chosen]
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, spawn, max_tasks_per_child=1) as pool:
            found = list(pool.map(judge, jobs))
    print(f"{torch.cuda.get_device_name(0)}; tolerance {tolerance:g}; {TRIALS} official trials")
    print("\n".join(table(COLUMNS, [one.row for one in found])))
    print(f"{len(chosen)} of {len(modules)} problems with a fault that only an exported input sees")
    print("\n".join(line for one in found for line in one.lines))
    judged, accepted, rejected = (
        sum(getattr(one, name) for one in found) for name in ("judged", "accepted", "rejected")
    )
    print(
        f"{sum(one.right for one in found)} of {len(found)} problems: reference and correct kernel"
        f" accepted; of {judged} faulty kernels {accepted} pass the official part, {rejected} of"
        " these fail the hidden part"
    )
    if not judged or not all(one.right for one in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
