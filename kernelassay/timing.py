"""How long the parts of a run took, and how much work they are: plain values, outside the digest.

A session keeps them beside its cells (``timings/``); :mod:`kernelassay.cost` predicts the one from
the other. Seconds are wall time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

PLAN = "plan"
"""The name of a problem's planning among its timings; the others are named as its inputs."""


@dataclass(frozen=True, slots=True)
class Stint:
    """One run of a session from its start to its end, or to where it was cut.

    ``started`` is in seconds since the epoch, ``seconds`` long it was at work in so many ``lanes``
    on so many GPUs (``devices``; with an engine that shares out GPUs itself this is not known, 0).
    """

    started: float
    seconds: float
    lanes: int
    devices: int

    @classmethod
    def begin(cls, lanes: int, devices: int) -> Stint:
        """One that starts now."""
        return cls(time.time(), 0.0, lanes, devices)

    def until_now(self) -> Stint:
        """The same, as long as it is by now; a clock that was set back takes nothing off."""
        return replace(self, seconds=max(self.seconds, time.time() - self.started))

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Stint:
        """From what :meth:`to_json` gave."""
        return cls(*(data[name] for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class Work:
    """FLOP, and bytes read and written."""

    flops: int = 0
    bytes: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class CallWork:
    """A call at some sizes: its ``kernel``, and what a change of its output costs ``after`` it.

    ``after`` is that of the nodes downstream, in PyTorch, and of grading the outputs.
    """

    template: str
    kernel: Work
    after: Work


@dataclass(frozen=True, slots=True)
class UnitWork:
    """A unit of work at its sizes: one ``forward`` pass in PyTorch, and each call by its id.

    ``peak_bytes`` estimates the memory that the unit takes.
    """

    forward: Work
    calls: Mapping[str, CallWork]
    peak_bytes: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "forward": _pair(self.forward),
            "peak_bytes": self.peak_bytes,
            "calls": {
                name: {
                    "template": call.template,
                    "kernel": _pair(call.kernel),
                    "after": _pair(call.after),
                }
                for name, call in self.calls.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UnitWork:
        """From what :meth:`to_json` gave."""
        calls = {
            name: CallWork(call["template"], Work(*call["kernel"]), Work(*call["after"]))
            for name, call in data["calls"].items()
        }
        return cls(Work(*data["forward"]), calls, data["peak_bytes"])


def _pair(work: Work) -> list[int]:
    return [work.flops, work.bytes]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A worker that was lost and replaced, or a process of its own in which kernels run.

    ``why`` is ``silence`` or how the worker ended (``signal SIGSEGV``, ``exit code 1``); of a
    process that runs on a GPU the outcome of the fault, ``expired``, ``corrupted`` or ``died``.
    ``seconds`` go from the death to where the work stood before, with what had to be done again;
    ``wasted`` are those from its last answer to its death.
    """

    why: str
    seconds: float
    wasted: float = 0.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one unit of work.

    ``prepare``: drawing the input, references and values of the graph; zero if they were kept from
    before. ``fixed``: originals, as far as they ran anew, and controls. Then by the id of an
    original: the seconds of its own kernel (``kernels``, of those that ran), of all candidates
    compared with it (``candidates``), and how many runs those were (``runs``; two for a candidate
    that runs in another thread order, too).
    """

    prepare: float = 0.0
    fixed: float = 0.0
    kernels: Mapping[str, float] = field(default_factory=dict)
    candidates: Mapping[str, float] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)
    replacements: tuple[Replacement, ...] = ()

    @property
    def seconds(self) -> float:
        """All of it, replacements included."""
        lost = sum(one.seconds + one.wasted for one in self.replacements)
        return self.prepare + self.fixed + sum(self.candidates.values()) + lost

    def merge(self, other: Timing) -> Timing:
        """Both, one after the other; an original's kernel is timed by its first run."""
        return Timing(
            self.prepare + other.prepare,
            self.fixed + other.fixed,
            {**other.kernels, **self.kernels},
            _sum(self.candidates, other.candidates),
            _sum(self.runs, other.runs),
            (*self.replacements, *other.replacements),
        )

    def ran(self, original: str, seconds: float, runs: int = 1) -> Timing:
        """With one more candidate, compared with ``original``."""
        return self.merge(Timing(candidates={original: seconds}, runs={original: runs}))

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "prepare": self.prepare,
            "fixed": self.fixed,
            "kernels": dict(self.kernels),
            "candidates": dict(self.candidates),
            "runs": dict(self.runs),
            "replacements": [asdict(one) for one in self.replacements],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Timing:
        """From what :meth:`to_json` gave."""
        lost = tuple(Replacement(**one) for one in data["replacements"])
        return cls(**{**data, "replacements": lost})


class Losses:
    """Takes the time of processes that are lost and replaced, for whoever talks to them."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._heard = 0.0
        self._lost: Replacement | None = None  # its seconds are the moment of the death
        self._replaced: list[Replacement] = []

    def begin(self) -> None:
        """A request begins: what went by since a process was lost is nobody's cost."""
        self.heard()
        if self._lost is not None:
            self._lost = replace(self._lost, seconds=self._heard)

    def heard(self) -> None:
        """The process has answered."""
        self._heard = self._now()

    def lose(self, why: str) -> None:
        """The process is gone."""
        now = self._now()
        wasted = now - self._heard
        self.resume(without=wasted)  # one lost before it brought the work to where it had stood
        self._lost = Replacement(why, now, wasted)
        self._heard = now

    def resume(self, without: float = 0.0) -> None:
        """The work stands where it stood before the last process was lost, if one was.

        ``without`` are seconds since then that are counted elsewhere.
        """
        lost, self._lost = self._lost, None
        if lost is not None:
            self.heard()
            seconds = self._heard - lost.seconds - without
            self.add(replace(lost, seconds=max(0.0, seconds)))

    def add(self, replacement: Replacement) -> None:
        """One that another process tells of."""
        self._replaced.append(replacement)

    def take(self) -> tuple[Replacement, ...]:
        """The replacements so far, each once."""
        taken, self._replaced = tuple(self._replaced), []
        return taken


def _sum(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    return {key: left.get(key, 0) + right.get(key, 0) for key in {**left, **right}}


@dataclass(frozen=True, slots=True)
class UnitTiming:
    """A unit's seconds with its work, which is None if the input could not be prepared."""

    timing: Timing
    work: UnitWork | None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "timing": self.timing.to_json(),
            "work": self.work.to_json() if self.work is not None else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UnitTiming:
        """From what :meth:`to_json` gave."""
        work = UnitWork.from_json(data["work"]) if data["work"] is not None else None
        return cls(Timing.from_json(data["timing"]), work)


@dataclass(frozen=True, slots=True)
class PlanTiming:
    """Seconds of the stages of one problem's planning, and the units that its gate measured."""

    stages: Mapping[str, float]
    units: Mapping[str, UnitTiming]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        units = {name: unit.to_json() for name, unit in self.units.items()}
        return {"stages": dict(self.stages), "units": units}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlanTiming:
        """From what :meth:`to_json` gave."""
        units = {name: UnitTiming.from_json(unit) for name, unit in data["units"].items()}
        return cls(dict(data["stages"]), units)


class PlanClock:
    """Takes the time of a planning: :meth:`step` and :meth:`unit` are handed to the planner."""

    def __init__(
        self,
        report: Callable[[str], None] = lambda step: None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._report = report
        self._now = now
        self._stages: dict[str, float] = {}
        self._units: dict[str, UnitTiming] = {}
        self._open: tuple[str, float] | None = None

    def step(self, name: str) -> None:
        """A stage begins, and the one before it has ended."""
        self._close()
        self._open = (name, self._now())
        self._report(name)

    def unit(self, name: str, timing: UnitTiming, *, before: bool = False) -> None:
        """The gate has measured an input; ``before`` this planning, if that is told."""
        self._units[name] = timing
        if before and self._open is not None:  # its seconds are part of the stage as others' are
            stage, _ = self._open
            self._stages[stage] = self._stages.get(stage, 0.0) + timing.timing.seconds

    def stop(self) -> PlanTiming:
        """The planning has ended; what it took."""
        self._close()
        return PlanTiming(dict(self._stages), dict(self._units))

    def _close(self) -> None:
        if self._open is not None:
            name, start = self._open
            self._stages[name] = self._stages.get(name, 0.0) + self._now() - start
            self._open = None
