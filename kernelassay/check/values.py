"""What passes between the judge, the problem's process and a candidate's: plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.execute import wire
from kernelassay.inputs import InputSpec
from kernelassay.kernel import Finding


@dataclass(frozen=True, slots=True)
class Expected:
    """The dtype and shape of an output."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Build:
    """How an instance is made: a seed, arguments, and a state to load, or None."""

    key: str
    seed: int
    init: Sequence[Any]
    state: dict[str, wire.Held] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """One input with its references.

    ``inputs`` are what ``forward`` takes, tensors as :class:`wire.Held`. ``build`` makes the module
    with the parameters of the input. ``singles`` are outputs of correct float32 runs that round
    differently, ``exact`` those of the float64 run. ``draws`` tells that the reference draws
    numbers, ``does`` what of a candidate's misdeeds the reference does itself.
    """

    spec: InputSpec
    digest: str
    inputs: tuple[Any, ...]
    build: Build
    state: dict[str, wire.Held]
    expected: tuple[Expected, ...]
    singles: tuple[tuple[NDArray[Any], ...], ...]
    exact: tuple[NDArray[Any], ...]
    draws: bool
    does: tuple[str, ...]

    @property
    def region_bytes(self) -> int:
        """What its tensors take in a region."""
        tensors: list[wire.Held] = []
        wire.encode(list(self.inputs), tensors)
        return wire.placed(tensors)[1]


@dataclass(frozen=True, slots=True)
class Failure:
    """What a candidate did instead of giving an output: a reason, and what is known of it."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """One output as bytes, and the shape and dtype that were said with it."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The outputs of a run, and what speaks against them.

    ``notes`` are reasons of a verdict, ``findings`` a sanitizer's; ``unwritten`` counts elements
    that no thread wrote, which are NaN.
    """

    outputs: tuple[Output, ...]
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unwritten: int = 0


class FailedError(Exception):
    """A candidate failed; its process may be gone."""

    def __init__(self, failure: Failure, *, fatal: bool) -> None:
        super().__init__(failure.reason)
        self.failure = failure
        self.fatal = fatal


class NotForItError(Exception):
    """An input that the candidate says it is not made for, with the reason."""


def arrays(data: Sequence[bytes], expected: Sequence[Expected]) -> list[NDArray[Any]]:
    """Outputs as arrays."""
    return [
        np.frombuffer(found, np.dtype(one.dtype)).reshape(one.shape)
        for found, one in zip(data, expected, strict=True)
    ]
