"""One candidate's way through a check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernelassay.check import judge
from kernelassay.check.kernels import KernelSubject
from kernelassay.check.options import Candidate, Ready
from kernelassay.check.rejections import COSTLY, failed, judged, shapes
from kernelassay.check.smallest import Trial, smallest
from kernelassay.check.values import Build, FailedError, NotForItError, arrays
from kernelassay.check.verdict import DIFFERS, Judged, Rejection, Smallest, Verdict
from kernelassay.errors import NothingToTestError, UnsupportedError
from kernelassay.inputs import InputSpec
from kernelassay.problem import MODEL_SEED

if TYPE_CHECKING:
    from kernelassay.check.checker import Checker

# What torch, Triton and torch.utils.cpp_extension say on a machine or a device without CUDA.
_NEEDS_DEVICE = re.compile(
    r"NVIDIA driver|CUDA_HOME|No CUDA GPUs|active drivers|not compiled with CUDA|CUDA not available"
    r"|No module named 'triton"
)
_NO_PARAMETERS = "the candidate does not take parameters that are loaded into it"


class Passage:
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
        """End the candidate's process."""
        self._subject.close()

    def verdict(self) -> Verdict:
        """Run all inputs, and judge; whatever the candidate does, there is a verdict.

        Raises :class:`UnsupportedError` if it asks for a GPU or a package that is not here.
        """
        checker = self._checker
        rejection = self._outcome()
        self._require_device(rejection)
        subject = self._subject
        defences, missing = subject.defences, subject.missing
        if rejection is not None and rejection.input is not None and rejection.reason not in COSTLY:
            rejection = replace(rejection, smallest=self._smallest(rejection))
        each = tuple(
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
            judged=each,
            refused=tuple(self._refused),
            runs=self._runs,
            deviation=self._deviation,
            defences=defences,
            missing=missing,
            notes=checker.notes,
        )

    def _require_device(self, rejection: Rejection | None) -> None:
        """Raises :class:`UnsupportedError` for a candidate that asks for what is not here."""
        if rejection is None or _NEEDS_DEVICE.search(rejection.detail) is None:
            return
        raise UnsupportedError(
            f"needs what is not here: {rejection.detail}",
            where=self._candidate.name,
            hint="judge it on a machine with a GPU and what it imports: --executor cuda",
        )

    def _outcome(self) -> Rejection | None:
        try:
            self._subject.start()
        except FailedError as caught:
            return failed(caught.failure, None)
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
        except FailedError as caught:
            if caught.fatal:  # the same happens again where it is judged
                self._restart()
            return False
        first, second = found
        return judge.deviation(first, second, prepared.exact) <= probe.bounds.limit

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
        except FailedError as caught:
            return replace(failed(caught.failure, one), run=number), caught.fatal
        found = judged(answer, one, number)
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

    def _smallest(self, rejection: Rejection) -> Smallest | None:
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
            return Trial(spec, shapes(ready), found.wrong)

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
        except FailedError as caught:
            return failed(caught.failure, last)
        return judged(answer, last, 1)
