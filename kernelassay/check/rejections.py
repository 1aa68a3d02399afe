"""From what a candidate did to why it is rejected, and what caught it."""

from __future__ import annotations

import hashlib

from kernelassay.check import judge
from kernelassay.check.draws import HIDDEN
from kernelassay.check.options import Ready
from kernelassay.check.subject import FILLS
from kernelassay.check.values import Answer, Failure, arrays
from kernelassay.check.verdict import FINDING, UNWRITTEN, WRONG_VALUES, Rejection
from kernelassay.inputs import InputSpec


def failed(failure: Failure, one: Ready | None) -> Rejection:
    """The rejection of a candidate that gave no output; ``one`` is None before any input."""
    return Rejection(
        failure.reason, failure.detail, _CAUGHT.get(failure.reason, "shape, dtype and device"),
        one.spec if one else None,
    )  # fmt: skip


def judged(answer: Answer, one: Ready, number: int) -> Rejection | None:
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


def shapes(one: Ready) -> tuple[tuple[int, ...], ...]:
    """The shapes of an input's tensors."""
    return tuple(value.shape for value in one.prepared.inputs if hasattr(value, "shape"))


COSTLY = frozenset({"hangs", "prints", "out-of-memory"})
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
