"""Judging candidates: inputs and references once, then every candidate in its own process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from kernelassay.check import judge
from kernelassay.check.draws import fresh_seed, hidden_inputs
from kernelassay.check.kernels import KernelSubject
from kernelassay.check.options import Candidate, CheckOptions, Ready
from kernelassay.check.passage import Passage
from kernelassay.check.referee import Referee
from kernelassay.check.rejections import failed, judged
from kernelassay.check.subject import Subject
from kernelassay.check.values import FailedError
from kernelassay.check.verdict import Verdict
from kernelassay.errors import (
    ControlError,
    KernelassayError,
    NothingToTestError,
    UnsupportedError,
)
from kernelassay.inputs import InputSpec
from kernelassay.problem import Problem, apply_overrides

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

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of any verdict on this problem should know."""
        if any(_rejects_zeros(one) for one in self.ready):
            return ()
        return ("an output of zeros passes on every input: this problem tells little",)

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
            found = judged(answer, one, 1)
            if one.spec.overrides:  # no other input has its sizes
                subject.forget(one.prepared.build.key)
        except FailedError as caught:
            found = failed(caught.failure, one)
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
        run = Passage(self, candidate)
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


def _rejects_zeros(one: Ready) -> bool:
    exact = one.prepared.exact
    return judge.wrong([np.zeros_like(e) for e in exact], exact, one.bounds.limit) is not None
