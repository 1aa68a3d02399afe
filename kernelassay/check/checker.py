"""Judging candidates: inputs and references once, then every candidate in its own process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kernelassay.check import judge
from kernelassay.check.draws import HIDDEN, fresh_seed, hidden_inputs
from kernelassay.check.isolation import Limits
from kernelassay.check.kernels import KernelSubject
from kernelassay.check.referee import Referee
from kernelassay.check.smallest import Trial, smallest
from kernelassay.check.subject import FILLS, Seconds, Subject
from kernelassay.check.values import (
    Answer,
    Build,
    FailedError,
    Failure,
    NotForItError,
    Prepared,
    arrays,
)
from kernelassay.check.verdict import (
    DIFFERS,
    FINDING,
    UNWRITTEN,
    WRONG_VALUES,
    Judged,
    Rejection,
    Verdict,
)
from kernelassay.errors import (
    ControlError,
    KernelassayError,
    NothingToTestError,
    UnsupportedError,
)
from kernelassay.inputs import QUICK, InputSpec
from kernelassay.problem import MODEL_SEED, Problem, apply_overrides

if TYPE_CHECKING:
    from kernelassay.user.kernel_file import KernelFile

_NO_PARAMETERS = "the candidate does not take parameters that are loaded into it"


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How candidates are judged.

    ``seed`` decides the hidden inputs; None takes it from the system. ``given`` inputs are judged
    instead of the battery of size ``battery``. Without ``shapes`` the problem's own sizes are all
    that a candidate must take. ``tolerance`` None means what the gate admits. ``trials`` bounds the
    search for a smaller failing input.
    """

    seed: int | None = None
    battery: str = QUICK
    given: tuple[InputSpec, ...] | None = None
    shapes: bool = True
    tolerance: float | None = None
    device: str = "cpu"
    limits: Limits = field(default_factory=Limits)
    seconds: Seconds = field(default_factory=Seconds)
    trials: int = 40


@dataclass(frozen=True, slots=True)
class Candidate:
    """A ``ModelNew`` file by its text, or a CUDA file."""

    name: str
    source: str
    kernel: KernelFile | None = None

    @property
    def digest(self) -> str:
        """SHA-256 over the text, in hex."""
        return hashlib.sha256(self.source.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Ready:
    """An input that judges, with its bounds."""

    prepared: Prepared
    bounds: judge.Bounds

    @property
    def spec(self) -> InputSpec:
        """The input."""
        return self.prepared.spec


Progress = Callable[[str], None]


class Checker:
    """Inputs and references of one problem, and the control; judges any number of candidates.

    Use it as a context manager. Raises :class:`NothingToTestError` if no input is left,
    :class:`ControlError` if the problem's own reference, as a candidate, is rejected.
    """

    def __init__(
        self,
        problem: Problem,
        options: CheckOptions | None = None,
        progress: Progress = lambda step: None,
    ) -> None:
        self.problem = problem
        options = options or CheckOptions()
        seed = fresh_seed() if options.seed is None else options.seed
        self.options = replace(options, seed=seed)
        self.seed = seed
        self.ready: tuple[Ready, ...] = ()
        self.refused: tuple[tuple[str, str], ...] = ()
        self._progress = progress
        self._referee = Referee(problem)
        self._control: Subject | None = None

    def __enter__(self) -> Self:
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        self._referee.close()
        if self._control is not None:
            self._control.close()

    # ---- inputs --------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._progress("drawing inputs")
        options = self.options
        chosen = options.given
        if chosen is None:
            chosen = self._referee.battery(options.battery)
        specs = (*chosen, *hidden_inputs(self.problem, self.seed, shapes=options.shapes))
        ready: list[Ready] = []
        refused: list[tuple[str, str]] = []
        for spec in specs:
            if spec.overrides and not options.shapes:
                refused.append((spec.id, "other sizes were left out on demand"))
                continue
            found = self.make_ready(spec)
            if isinstance(found, str):
                refused.append((spec.id, found))
            else:
                ready.append(found)
        self._require(ready, refused)
        self._progress("running the reference as a candidate")
        fair = [(one, self.unfair(one)) for one in ready]
        self.ready = tuple(one for one, why in fair if not why)
        self.refused = (*refused, *((one.spec.id, why) for one, why in fair if why))
        self._require(self.ready, self.refused)

    def _require(self, ready: Sequence[Ready], refused: Sequence[tuple[str, str]]) -> None:
        if not ready:
            first = f"{refused[0][0]}: {refused[0][1]}" if refused else "there are none"
            raise NothingToTestError(
                f"no input can judge a candidate; {first}",
                where=self.problem.id,
                hint="see what the problem lacks: kernelassay lint",
            )

    def make_ready(self, spec: InputSpec) -> Ready | str:
        """Draw an input, run its references and gate it; or why it judges nobody."""
        try:
            prepared = self._referee.prepare(spec)
        except KernelassayError as error:
            if spec.group == "official" and not spec.overrides:
                raise
            return error.what
        bounds = judge.bounds(prepared, self.options.tolerance)
        return bounds.refusal or Ready(prepared, bounds)

    def unfair(self, one: Ready) -> str:
        """Why no candidate can be asked for an input, or "".

        The reference runs as one, from the file as it is: where its code reads sizes that the file
        fixes, other sizes would ask for other code. Raises :class:`ControlError` if it fails at
        sizes of its own.
        """
        try:
            subject = self._controlled(one)
            subject.build(one.prepared.build)
            answer = subject.run(one.prepared, 1)
            found = _judged(answer, one, 1)
            if one.spec.overrides:  # no other input has its sizes
                subject.forget(one.prepared.build.key)
        except FailedError as failed:
            found = _failed(failed.failure, one)
        if found is not None and not one.spec.overrides:
            where = f"{self.problem.id} {one.spec.id}"
            raise ControlError(
                f"the problem's own reference is rejected as a candidate: {found.reason}"
                f" ({found.detail})",
                where=where,
                hint="no verdict is given; does its forward keep state between calls?",
            )
        forced = [np.asarray(e + (2 + 2 * np.abs(e))) if e.dtype != bool else ~e
                  for e in one.prepared.exact]  # fmt: skip
        if judge.wrong(forced, one.prepared.exact, one.bounds.limit) is None:
            raise ControlError(
                "an output that is wrong everywhere is accepted",
                where=f"{self.problem.id} {one.spec.id}",
            )
        return "" if found is None else "the problem's code is made for its own sizes"

    def _controlled(self, one: Ready) -> Subject:
        size = one.prepared.region_bytes
        control = self._control
        if control is None or control.gone or control.region_bytes < size:
            if control is not None:
                control.close()
            source = apply_overrides(self.problem, dict(self.problem.shrunk))
            self._control = control = self._subject(source, "Model", 2 * size)
            control.start()
        return control

    def _subject(self, source: str, entry: str, region_bytes: int) -> Subject:
        options = self.options
        return Subject(
            source,
            entry,
            region_bytes,
            hidden=(Path(self.problem.path),),
            limits=options.limits,
            seconds=options.seconds,
            device=options.device,
        )

    # ---- candidates ----------------------------------------------------------------------------

    def check(self, candidate: Candidate) -> Verdict:
        """The verdict on a candidate, whatever it does."""
        run = _Check(self, candidate)
        try:
            return run.verdict()
        finally:
            run.close()

    def fresh(self, candidate: Candidate) -> Subject | KernelSubject:
        """A process for a candidate, not started."""
        if candidate.kernel is not None:
            if self.options.device != "cpu":
                raise UnsupportedError(
                    "a .cu candidate is judged by the CPU executor, which sees more",
                    where=candidate.name,
                    hint="drop --executor cuda, or wrap the kernel in a ModelNew",
                )
            problem = replace(self.problem, kernel=candidate.kernel)
            return KernelSubject(problem, self.options.seconds)
        size = max(one.prepared.region_bytes for one in self.ready)
        return self._subject(candidate.source, "ModelNew", size)


class _Check:
    """One candidate's way through a check."""

    def __init__(self, checker: Checker, candidate: Candidate) -> None:
        self._checker = checker
        self._candidate = candidate
        self._subject = checker.fresh(candidate)
        self._right: dict[str, bool] = {}
        self._refused = list(checker.refused)
        self._first: dict[str, list[Any]] = {}
        self._deviation = 0.0
        self._runs = 0

    def close(self) -> None:
        self._subject.close()

    def verdict(self) -> Verdict:
        checker = self._checker
        rejection = self._outcome()
        subject = self._subject
        defences, missing = subject.defences, subject.missing
        if (
            rejection is not None
            and rejection.input is not None
            and rejection.reason not in _COSTLY
        ):
            rejection = replace(rejection, smallest=self._smallest(rejection))
        judged = tuple(
            Judged(
                one.spec.id,
                one.spec.group,
                one.bounds.spread,
                one.bounds.limit,
                self._right[one.spec.id],
            )
            for one in checker.ready
            if one.spec.id in self._right
        )
        return Verdict(
            problem=checker.problem.id,
            problem_digest=checker.problem.digest,
            candidate=self._candidate.name,
            candidate_digest=self._candidate.digest,
            seed=checker.seed,
            rejection=rejection,
            judged=judged,
            refused=tuple(self._refused),
            runs=self._runs,
            deviation=self._deviation,
            defences=defences,
            missing=missing,
        )

    def _outcome(self) -> Rejection | None:
        try:
            self._subject.start()
        except FailedError as failed:
            return _failed(failed.failure, None)
        inputs = self._takes()
        first: Rejection | None = None
        for number in (1, 2):
            for one in inputs:
                try:
                    found, ended = self._one(one, number)
                except NotForItError as why:
                    self._leave_out(one, str(why))
                    continue
                self._right[one.spec.id] = found is None and self._right.get(one.spec.id, True)
                first = first or found
                if ended:
                    return first
            if first is not None:
                return first
        if not self._right:
            raise NothingToTestError(
                f"the candidate is made for none of the inputs: {self._refused[-1][1]}",
                where=self._candidate.name,
            )
        return None

    def _leave_out(self, one: Ready, why: str) -> None:
        if (one.spec.id, why) not in self._refused:
            self._refused.append((one.spec.id, why))

    def _takes(self) -> tuple[Ready, ...]:
        """The inputs for this candidate: loaded parameters only if it takes such."""
        every = self._checker.ready
        if isinstance(self._subject, KernelSubject):  # it takes whatever its header binds
            return every
        if all(one.prepared.build.state is None for one in every):
            return every
        probe = next((one for one in every if one.spec.parameters.startswith("seeded:")), None)
        if probe is not None and self._honours(probe):
            return every
        left = [one for one in every if one.prepared.build.state is not None]
        self._refused += [(one.spec.id, _NO_PARAMETERS) for one in left]
        return tuple(one for one in every if one.prepared.build.state is None)

    def _honours(self, probe: Ready) -> bool:
        """Whether parameters that are loaded do the same as if it had been built with them."""
        prepared = probe.prepared
        loaded = Build("loaded", MODEL_SEED, prepared.build.init, prepared.state)
        found = []
        try:
            for how in (prepared.build, loaded):
                self._subject.build(how)
                answer = self._subject.run(prepared, 1, how.key)
                found.append(arrays([o.data for o in answer.outputs], prepared.expected))
            self._subject.forget(loaded.key)
        except FailedError as failed:
            if failed.fatal:  # the same happens again where it is judged
                self._restart()
            return False
        return judge.deviation(*found, prepared.exact) <= probe.bounds.limit

    def _restart(self) -> None:
        self._subject.close()
        self._subject = self._checker.fresh(self._candidate)
        with suppress(FailedError):
            self._subject.start()

    def _one(self, one: Ready, number: int) -> tuple[Rejection | None, bool]:
        """Run one input; why it is rejected, and whether the process is gone."""
        try:
            self._runs += 1
            self._subject.build(one.prepared.build)
            answer = self._subject.run(one.prepared, number)
        except FailedError as failed:
            return replace(_failed(failed.failure, one), run=number), failed.fatal
        found = _judged(answer, one, number)
        outputs = arrays([o.data for o in answer.outputs], one.prepared.expected)
        before = self._first.setdefault(one.spec.id, outputs)
        if found is None and before is not outputs:
            off = judge.deviation(before, outputs, one.prepared.exact)
            self._deviation = max(self._deviation, off)
            if off > one.bounds.limit:
                found = Rejection(DIFFERS, f"two runs lie {off:.2g} apart", "repeated runs",
                                  one.spec)  # fmt: skip
        return (None if found is None else replace(found, run=number)), False

    # ---- the smallest failing input ------------------------------------------------------------

    def _smallest(self, rejection: Rejection) -> Any:
        checker = self._checker
        assert rejection.input is not None

        def failing(spec: InputSpec, primer: InputSpec | None) -> Trial | None:
            """Whether a fresh instance fails on ``spec`` in the same way, after a primer."""
            ready = checker.make_ready(spec)
            if isinstance(ready, str) or (spec.overrides and checker.unfair(ready)):
                return None
            steps = [ready]
            if primer is not None:
                before = checker.make_ready(primer)
                if isinstance(before, str):
                    return None
                steps = [before, ready]
            found = self._anew(steps)
            if found is None or found.reason != rejection.reason:
                return None
            return Trial(spec, _shapes(ready), found.wrong)

        return smallest(
            checker.problem,
            rejection.input,
            failing,
            trials=checker.options.trials,
            shapes=checker.options.shapes,
        )

    def _anew(self, steps: Sequence[Ready]) -> Rejection | None:
        """What the last of ``steps`` yields in an instance of their own."""
        if self._subject.gone:
            self._restart()
        size = max(one.prepared.region_bytes for one in steps)
        if size > self._subject.region_bytes:
            return None
        last = steps[-1]
        try:
            how = replace(last.prepared.build, key="anew")
            self._subject.forget(how.key)
            self._subject.build(how)
            for one in steps:
                answer = self._subject.run(one.prepared, 1, how.key)
        except NotForItError:
            return None
        except FailedError as failed:
            return _failed(failed.failure, last)
        return _judged(answer, last, 1)


def _failed(failure: Failure, one: Ready | None) -> Rejection:
    return Rejection(
        failure.reason, failure.detail, _CAUGHT.get(failure.reason, "shape, dtype and device"),
        one.spec if one else None,
    )  # fmt: skip


def _judged(answer: Answer, one: Ready, number: int) -> Rejection | None:
    """Why outputs are rejected on an input, or None."""
    prepared = one.prepared
    data = [output.data for output in answer.outputs]
    outputs = arrays(data, prepared.expected)
    digest = hashlib.sha256(b"".join(data)).hexdigest()[:24]
    found = judge.wrong(outputs, prepared.exact, one.bounds.limit)
    if found is not None:
        reason = WRONG_VALUES
        filled = judge.all_hold(outputs[found.output], found.mask, FILLS[number - 1])
        if filled or answer.unwritten >= found.count:
            reason = UNWRITTEN
        return Rejection(
            reason,
            found.describe(),
            POISONED if reason == UNWRITTEN else _meets(one.spec),
            one.spec,
            wrong=found,
            findings=answer.findings,
            output_digest=digest,
        )
    if answer.findings:
        worst = answer.findings[0]
        return Rejection(
            FINDING,
            f"{worst.kind}: {worst.detail}",
            "sanitizer",
            one.spec,
            findings=answer.findings,
            output_digest=digest,
        )
    for note in answer.notes:
        reason, _, detail = note.partition(":")
        if reason in _CAUGHT and reason not in prepared.does:
            return Rejection(reason, detail, _CAUGHT[reason], one.spec, output_digest=digest)
    return None


def _meets(spec: InputSpec) -> str:
    """What an input has that a wrong output on it shows."""
    if spec.overrides:
        return "other sizes"
    if spec.parameters != "official":
        return "other parameters"
    return _GROUPS.get(spec.group, spec.group)


def _shapes(one: Ready) -> tuple[tuple[int, ...], ...]:
    return tuple(value.shape for value in one.prepared.inputs if hasattr(value, "shape"))


_COSTLY = frozenset({"hangs", "prints", "out-of-memory"})
"""Reasons that take long each time: no smaller input is searched for."""

POISONED = "poisoned memory"
_GROUPS = {
    "official": "tolerance",
    "verified": "tolerance",
    "targeted": "targeted values",
    "layout": "strided inputs",
    HIDDEN: "hidden inputs",
}
_CAUGHT = {
    "changes-input": "input bytes",
    "changes-parameter": "parameters",
    "shares-input": "memory of outputs",
    "shares-parameter": "memory of outputs",
    "shares-earlier-output": "memory of outputs",
    "raises": "own process",
    "does-not-import": "own process",
    "does-not-build": "own process",
    "no-tensor": "shape, dtype and device",
    "no-values": "shape, dtype and device",
    "out-of-memory": "limits",
    "hangs": "limits",
    "prints": "limits",
    "ends": "own process",
    "breaks-protocol": "own process",
    "crash": "own process",
}


def each(checker: Checker, candidates: Sequence[Candidate]) -> Iterator[Verdict]:
    """The verdicts on several candidates, in order."""
    for candidate in candidates:
        yield checker.check(candidate)
