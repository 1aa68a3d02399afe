"""What a check says of a candidate: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernelassay.analysis.plain import plain
from kernelassay.check.judge import Wrong
from kernelassay.inputs import InputSpec
from kernelassay.kernel import Finding

WRONG_VALUES, UNWRITTEN, DIFFERS, FINDING = (
    "wrong-values",
    "unwritten",
    "differs-between-runs",
    "finding",
)

REASONS = {
    WRONG_VALUES: "an output is wrong",
    UNWRITTEN: "elements of an output are never written",
    DIFFERS: "the same input gives different outputs",
    FINDING: "the sanitizer has a finding",
    "changes-input": "an input was written to",
    "changes-parameter": "a parameter was changed",
    "shares-input": "an output lies in the memory of an input",
    "shares-parameter": "an output lies in the memory of a parameter",
    "shares-earlier-output": "an output lies in the memory of an earlier one",
    "wrong-count": "another number of outputs",
    "wrong-shape": "an output of another shape",
    "wrong-dtype": "an output of another dtype",
    "wrong-device": "an output on another device",
    "no-tensor": "it returns no tensor",
    "no-values": "an output has no plain values",
    "raises": "it raises an exception",
    "does-not-import": "it does not import",
    "does-not-build": "it cannot be built",
    "out-of-memory": "it asks for too much memory",
    "hangs": "it does not end",
    "ends": "it ends its process",
    "prints": "it prints too much",
    "crash": "the kernel crashes",
    "breaks-protocol": "it writes where only its runner may",
}
"""Why a candidate is rejected: the stable names of a verdict, in words."""


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest input found on which the candidate fails in the same way.

    ``after`` is "" if it fails there by itself, or says what must have run before.
    """

    spec: InputSpec
    shapes: tuple[tuple[int, ...], ...]
    after: str
    tried: int
    wrong: Wrong | None


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a candidate is rejected. ``input`` is None where it failed before any.

    ``run`` is 1 or 2: each input is run twice. ``defence`` names what caught it.
    """

    reason: str
    detail: str
    defence: str
    input: InputSpec | None = None
    run: int = 1
    wrong: Wrong | None = None
    findings: tuple[Finding, ...] = ()
    output_digest: str = ""
    smallest: Smallest | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """One input that judged: how far correct runs stray, what was allowed, whether it was right."""

    id: str
    group: str
    spread: float
    limit: float
    right: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """A check's result.

    ``refused`` has the inputs that judge nobody, with the reason. ``deviation`` is how far two
    runs of one input lay apart at most. ``defences`` were active, ``missing`` were not, as this
    machine lacks them.
    """

    problem: str
    problem_digest: str
    candidate: str
    candidate_digest: str
    seed: int
    rejection: Rejection | None
    judged: tuple[Judged, ...]
    refused: tuple[tuple[str, str], ...]
    runs: int
    deviation: float
    defences: tuple[str, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def accepted(self) -> bool:
        """Whether the candidate passed everything."""
        return self.rejection is None

    def to_json(self) -> dict[str, Any]:
        """Plain data; what is not finite is null."""
        found: dict[str, Any] = plain(self)
        found["accepted"] = self.accepted
        one = self.rejection
        if one is not None:
            _in_form(found["rejection"], "input", one.input, one.wrong)
            if one.smallest is not None:
                small = one.smallest
                _in_form(found["rejection"]["smallest"], "spec", small.spec, small.wrong)
        found["refused"] = [{"input": name, "reason": why} for name, why in self.refused]
        return found

    def essence(self) -> dict[str, Any]:
        """What must be the same when the check is run again."""
        one = self.rejection
        if one is None:
            return {"accepted": True, "judged": [j.id for j in self.judged]}
        found: dict[str, Any] = {
            "accepted": False,
            "judged": [j.id for j in self.judged],
            "reason": one.reason,
            "input": one.input.id if one.input else None,
            "run": one.run,
            "output_digest": one.output_digest,
        }
        if one.wrong is not None:
            found["position"] = [one.wrong.output, *one.wrong.position]
            found["pattern"] = one.wrong.pattern.kind
        return found


def _in_form(data: dict[str, Any], name: str, spec: InputSpec | None, wrong: Wrong | None) -> None:
    """Put an input as files have it, and leave out the places of all wrong elements."""
    data[name] = None if spec is None else spec.to_json()
    if wrong is not None:
        del data["wrong"]["mask"]
