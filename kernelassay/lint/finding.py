"""The values of a lint: kinds of findings, a finding with its numbers, a problem's report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kernelassay.problem import Problem

Severity = Literal["fatal", "weak"]
SEVERITIES: tuple[Severity, ...] = ("fatal", "weak")
Number = float | int | str


KINDS: Mapping[str, str] = {
    "not-loadable": "the file does not import, build, or draw its inputs, or ends its worker",
    "reference-raises": "the model raises on its own inputs, or returns no tensor",
    "unfit-output": "the output is empty, complex, boolean or integer",
    "nonfinite-reference": "the float32 output holds NaN or infinity",
    "random-output": "the output varies though inputs and parameters do not",
    "stateful-output": "a second call of one module on one input gives another output",
    "constant-output": "the output does not depend on an input or a parameter, or is uniform",
    "fixed-input": "an input is the same whatever the seed",
    "zeros-pass": "an output of zeros is accepted",
    "copy-passes": "a copy of an input is accepted",
    "constant-passes": "an output that is one constant throughout is accepted",
    "replay-passes": "the output for another input is accepted",
    "imprecise-reference": "float32 breaks the tolerance against the same module in float64",
    "underflow": "at least half of the output is zero or subnormal in float32 only",
    "identity-parameter": "leaving a parameter out changes nothing, for it is 1 or 0",
}
"""The kinds of findings, and what each means; the severity is the finding's own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact that keeps a problem from judging.

    ``fatal``: under no protocol does the problem tell a right kernel from a wrong one. ``weak``: a
    protocol, or a fault of a certain kind, is affected. ``numbers`` prove it.
    """

    kind: str
    severity: Severity
    what: str
    numbers: Mapping[str, Number] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data; a number that is not finite becomes null."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "what": self.what,
            "numbers": {name: _plain(value) for name, value in self.numbers.items()},
        }


@dataclass(frozen=True, slots=True)
class Skipped:
    """A check that was not made, and why."""

    check: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What the lint of one problem found.

    ``shrunk`` holds the sizes that differ from the file's own; empty at the official shape.
    ``unjudged`` says why nothing could be found out within the limits; it is empty otherwise.
    """

    problem: str
    digest: str
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    shrunk: tuple[tuple[str, int], ...] = ()
    note: str = ""
    unjudged: str = ""
    inputs: int = 0
    seconds: float = 0.0

    @property
    def shapes(self) -> str:
        """``official`` or ``shrunk``."""
        return "shrunk" if self.shrunk else "official"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "problem": self.problem,
            "digest": self.digest,
            "shapes": self.shapes,
            "shrunk": dict(self.shrunk),
            "note": self.note,
            "inputs": self.inputs,
            "findings": [finding.to_json() for finding in self.findings],
            "skipped": [{"check": s.check, "reason": s.reason} for s in self.skipped],
            "unjudged": self.unjudged,
            "seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True, slots=True)
class Options:
    """How to lint: shapes, device, and the limits of each problem's worker."""

    shrink: bool = False
    device: str = "cpu"
    seconds: float = 120.0
    memory_bytes: int = 8 << 30


def failed(problem: Problem, kind: str, what: str) -> Report:
    """The report of a problem of which nothing but one fatal fact is known."""
    finding = Finding(kind, "fatal", what)
    return Report(problem.id, problem.digest, (finding,), shrunk=problem.shrunk)


def _plain(value: Number) -> Number | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
