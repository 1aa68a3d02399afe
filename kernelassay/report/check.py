"""A verdict on a candidate, for a terminal."""

from __future__ import annotations

from collections import Counter

from rich.console import Console

from kernelassay.check.verdict import REASONS, Rejection, Verdict
from kernelassay.inputs import InputSpec

_REFUSED_SHOWN = 6


def print_verdict(out: Console, verdict: Verdict) -> None:
    """The verdict, what failed and where, and what was done."""
    word = "accepted" if verdict.accepted else "REJECTED"
    out.print(f"{verdict.candidate} on {verdict.problem}: {word}")
    if verdict.rejection is not None:
        for line in _rejection(verdict.rejection):
            out.print("  " + line)
    right = sum(one.right for one in verdict.judged)
    groups = Counter(one.group for one in verdict.judged)
    told = ", ".join(f"{count} {group}" for group, count in groups.items())
    out.print(
        f"inputs: right on {right} of {len(verdict.judged)}"
        + (f" ({told})" if told else "")
        + f"; runs: {verdict.runs}; seed of the hidden ones: {verdict.seed}"
    )
    if verdict.judged:
        limits = [one.limit for one in verdict.judged]
        out.print(f"limits: {min(limits):.2g} to {max(limits):.2g} against float64")
    if verdict.deviation:
        out.print(f"two runs of one input lay up to {verdict.deviation:.2g} apart")
    for name, why in verdict.refused[:_REFUSED_SHOWN]:
        out.print(f"not judged: {name}: {why}")
    if len(verdict.refused) > _REFUSED_SHOWN:
        out.print(f"not judged: {len(verdict.refused) - _REFUSED_SHOWN} more (see --json)")
    for note in verdict.notes:
        out.print(f"note: {note}")
    out.print("defences: " + "; ".join(verdict.defences))
    if verdict.missing:
        out.print("MISSING on this machine: " + "; ".join(verdict.missing))


def _rejection(found: Rejection) -> list[str]:
    detail = f": {found.detail}" if found.detail else ""
    lines = [f"{REASONS[found.reason]} ({found.reason}){detail}"]
    if found.input is not None:
        lines.append(f"on the input {described(found.input)}, run {found.run}")
    lines += [f"finding: {f.kind} x{f.count}: {f.detail}" for f in found.findings]
    lines.append(f"caught by: {found.defence}")
    small = found.smallest
    if small is not None:
        shapes = ", ".join(str(list(shape)) for shape in small.shapes)
        after = f", after {small.after}" if small.after else ""
        lines.append(
            f"smallest failing input: shapes {shapes}, {described(small.spec)}{after}"
            f" ({small.tried} tried)"
        )
        if small.wrong is not None:
            lines.append(f"  there: {small.wrong.describe()}")
    return lines


def described(spec: InputSpec) -> str:
    """An input in one line."""
    parts = [f"{spec.id} (values {spec.transform}, seed {spec.seed}"]
    if spec.overrides:
        parts.append(", ".join(f"{name}={value}" for name, value in spec.overrides))
    if spec.parameters != "official":
        parts.append(f"parameters {spec.parameters}")
    if spec.layout != "contiguous":
        parts.append(spec.layout)
    return ", ".join(parts) + ")"
