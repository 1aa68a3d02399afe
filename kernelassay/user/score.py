"""The mutation score of somebody's own test inputs on their own kernel."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelassay import campaign as campaigns
from kernelassay import matrix as matrices
from kernelassay.analysis import score as scores
from kernelassay.errors import ControlError, NothingToTestError, UsageError
from kernelassay.inputs import GIVEN, InputSpec
from kernelassay.mutation import mutant_text
from kernelassay.oracle import AcceptanceRule
from kernelassay.plan import PlanOptions
from kernelassay.problem import Problem, read_problem
from kernelassay.protocols import Protocol
from kernelassay.session import VOLATILE, Session
from kernelassay.user.kernel_file import read_kernel

if TYPE_CHECKING:
    import torch

WITNESS_TOLERANCE = 1e-2
DRAW_SECONDS = 120.0
DRAW_BYTES = 8 << 30

Inputs = Sequence[Sequence["torch.Tensor | float | int | bool"]]


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that some valid input proves wrong and the tests accept.

    ``witness`` names that input and ``error`` is max |out - ref| / (1 + |ref|) on it (infinite for
    a crash, a hang, or non-finite values in the wrong places).
    """

    id: str
    rule: str
    line: int
    diff: str
    witness: str
    error: float


@dataclass(frozen=True, slots=True)
class MutationScore:
    """How many of the proven faults in a kernel some tests detect."""

    detected: int
    witnessed: int
    tolerance: float
    survivors: tuple[Survivor, ...]
    session: Path

    @property
    def score(self) -> float:
        """detected / witnessed."""
        return self.detected / self.witnessed

    def report(self, limit: int = 5) -> str:
        """The score, and the first survivors with the input that would catch each."""
        lines = [
            f"mutation score {self.score:.1%} ({self.detected} of {self.witnessed} proven faults"
            f" rejected at {self.tolerance:g})"
        ]
        for survivor in self.survivors[:limit]:
            lines += [
                f"missed {survivor.rule} in line {survivor.line}: input {survivor.witness} shows"
                f" an error of {survivor.error:.2g}",
                survivor.diff,
            ]
        if len(self.survivors) > limit:
            lines.append(f"and {len(self.survivors) - limit} more in {self.session}")
        return "\n".join(lines)


def mutation_score(
    kernel: Path | str,
    problem: Path | str,
    inputs: Inputs | Path | str | None = None,
    *,
    tolerance: float = WITNESS_TOLERANCE,
    rules: Sequence[str] = (),
    folder: Path | str,
) -> MutationScore:
    """Mutate ``kernel``, and count the proven faults that a test with ``inputs`` rejects.

    ``problem`` is the reference, in KernelBench's format. ``inputs`` are the tests: a list of
    argument lists for ``forward`` (CPU tensors and numbers), or a problem file whose
    ``get_inputs()`` is drawn once; by default ``problem`` itself. A test passes a kernel if
    ``torch.allclose(out, reference, atol=tolerance, rtol=tolerance)`` holds on each of them. Faults
    are proven at 1e-2, by the tests and by the quick battery of inputs. ``rules`` are rule ids,
    globs or families (default: all). ``folder`` keeps the measurements; one that is finished is
    read again.

    Raises:
        UsageError: the header does not fit, or an input is not one to judge with.
        NothingToTestError: the kernel is not admitted, or no fault is proven.
        ControlError: the tests reject the kernel itself.
    """
    from kernelassay.mutation import RULES, select

    judged = replace(read_problem(problem), kernel=read_kernel(kernel))
    given = _given(judged, inputs, Path(folder))
    chosen = select(rules) if rules else RULES
    options = PlanOptions(chosen, True, campaigns.identity_backend(), given=given)
    campaign = campaigns.Campaign((judged,), options, jobs=1)
    manifest = campaign.manifest()
    # Another version of a compiler or of this tool measures anew, in a folder of its own.
    versions = {name: value for name, value in manifest.items() if name not in VOLATILE}
    tests = [spec.transform for spec in given]
    key = json.dumps([judged.digest, tests, versions], sort_keys=True, default=str)
    root = Path(folder) / hashlib.sha256(key.encode()).hexdigest()[:16]
    store = Session.create(root, manifest)
    try:
        campaigns.run(campaign, store, _Silent(), Path(folder) / "images")
        store.write_tables()
        plan = store.plans()[0]
        _require_usable(plan, given)
        return _score(matrices.load(store), given, tolerance, root)
    finally:
        store.close()


def _given(problem: Problem, inputs: Inputs | Path | str | None, folder: Path) -> tuple[Any, ...]:
    """The tests as input specs; their values lie in files named by content."""
    import torch

    from kernelassay.execute.sandbox import run_limited

    if inputs is None or isinstance(inputs, Path | str):
        source = problem if inputs is None else read_problem(inputs)
        inputs = run_limited(
            _drawn, (source,), seconds=DRAW_SECONDS, memory_bytes=DRAW_BYTES, where=source.id
        )
    if not inputs or not all(isinstance(values, list | tuple) for values in inputs):
        raise UsageError(
            "inputs is no list of argument lists",
            hint="one test is a list of what forward takes: inputs=[[x], [y]]",
        )
    folder.mkdir(parents=True, exist_ok=True)
    specs = []
    for number, values in enumerate(inputs):
        held = [v.detach().cpu() if isinstance(v, torch.Tensor) else v for v in values]
        held = [torch.as_tensor(v) if hasattr(v, "__array__") else v for v in held]
        from kernelassay.inputs import digest

        path = folder.resolve() / f"input-{digest(held)[:24]}.pt"
        if not path.exists():
            torch.save(held, path)
        specs.append(InputSpec(f"given-{number}", "given", 0, f"{GIVEN}{path}"))
    return tuple(specs)


def _drawn(problem: Problem) -> list[list[Any]]:
    """EXECUTES the problem file: in a worker only. Its inputs, tensors as arrays."""
    import torch

    from kernelassay.problem import MODEL_SEED, load

    values = load(problem).draw(MODEL_SEED)
    return [[v.numpy() if isinstance(v, torch.Tensor) else v for v in values]]


def _require_usable(plan: dict[str, Any], given: Sequence[InputSpec]) -> None:
    if plan["refused"]:
        raise NothingToTestError(
            f"the kernel cannot be scored: {plan['refused']}", where=plan["problem"]["id"]
        )
    names = {spec.id for spec in given}
    for record in plan["inputs"]:
        if record["id"] in names and not record["valid"]:
            raise UsageError(
                f"the input {record['id']} cannot judge anybody: {record['reason']}",
                where=plan["problem"]["id"],
            )


def _score(
    measured: Sequence[matrices.ProblemMatrix],
    given: Sequence[InputSpec],
    tolerance: float,
    root: Path,
) -> MutationScore:
    tests = Protocol(
        name="own tests",
        what=f"own inputs, allclose at {tolerance:g}",
        source="",
        inputs=tuple(spec.id for spec in given),
        default=AcceptanceRule(tolerance),
        rules={},
    )
    facts = scores.mutant_facts(measured, [tests], WITNESS_TOLERANCE)
    found = scores.score(measured, facts, tests, WITNESS_TOLERANCE)
    _require_discerning(found)
    share = found.detection
    if not share.total:
        raise NothingToTestError(
            "no input proves any mutant wrong", where=str(root), hint="select more rules"
        )
    missed = [f.id for f in facts if f.witnessed and not f.detected[tests.name]]
    survivors = [_survivor(measured[0], name) for name in missed]
    ranked = tuple(sorted(survivors, key=lambda s: (-s.error, s.line, s.id)))
    return MutationScore(share.count, share.total, tolerance, ranked, root)


def _require_discerning(found: scores.ProtocolScore) -> None:
    """Raises :class:`ControlError` if the tests reject the kernel itself, or no output at all."""
    what = ""
    if found.originals.count:
        what = "the tests reject the correct kernel itself"
    elif "control/forced-failure" in found.wrong_accepted:
        what = "the tests accept control/forced-failure: an output that is wrong everywhere"
    if what:
        raise ControlError(what, hint="choose another tolerance; no score is given")


def _survivor(matrix: matrices.ProblemMatrix, name: str) -> Survivor:
    row = matrix.index[name]
    record = next(m for m in matrix.plan["mutants"] if m["id"] == name)
    proofs = matrix.killing(WITNESS_TOLERANCE)[row]
    errors = matrix.columns["exact_critical_tolerance"][row]
    column = max(
        (i for i, proof in enumerate(proofs) if proof),
        key=lambda i: float("inf") if errors[i] != errors[i] else float(errors[i]),
    )
    error = float("inf")
    with suppress(TypeError):
        if errors[column] > WITNESS_TOLERANCE:
            error = float(errors[column])
    call = next(c for c in matrix.plan["calls"] if c["id"] == record["call"])
    before = call["sources"][record["style"]]
    after = mutant_text(record, before)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "kernel", name, "", "", 1)
    return Survivor(
        name, record["rule"], record["line"], "\n".join(lines), matrix.inputs[column], error
    )


class _Silent:
    """A reporter that says nothing."""

    def problem_step(self, problem: str, step: str) -> None:
        """Ignored."""

    def problem_planned(self, problem: str, plan: dict[str, Any]) -> None:
        """Ignored."""

    def cells_done(self, problem: str, count: int) -> None:
        """Ignored."""

    def problem_done(self, problem: str, plan: dict[str, Any]) -> None:
        """Ignored."""
