"""What a bench asks of outputs and run results, apart from grading them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from kernelassay.cell import ENDED, Cell
from kernelassay.kernel import Finding, RunResult


def without(result: RunResult, kinds: frozenset[str]) -> RunResult:
    """A result without the findings of some kinds."""
    if not kinds:
        return result
    return replace(result, findings=tuple(f for f in result.findings if f.kind not in kinds))


def magnitude(value: torch.Tensor) -> float:
    """The largest finite magnitude of a tensor's elements; 0 for a bool tensor."""
    finite = value[torch.isfinite(value)]
    return float(finite.abs().max()) if finite.numel() and finite.dtype != torch.bool else 0.0


def far_off(reference: torch.Tensor) -> torch.Tensor:
    """An output that no tolerance accepts."""
    if reference.dtype == torch.bool:
        return ~reference
    return reference + (2 + 2 * reference.abs())


def other_order(order: str) -> str:
    """A thread order to hold ``order`` against."""
    return "reverse" if order == "forward" else "forward"


def order_finding(first: Cell, other: Cell, what: str) -> Finding | None:
    """The finding that the order in which threads run changes the output, if it does."""
    if first.outcome == other.outcome and first.output_digest == other.output_digest:
        return None
    return Finding("order-dependent", 1, what)


def ended(candidate: str, input_id: str, outcome: str, reason: str) -> Cell:
    """The cell of a candidate whose process ended."""
    return without_output(candidate, input_id, outcome, f"{ENDED}{reason}")


def without_output(
    candidate: str, input_id: str, outcome: str, detail: str, findings: Sequence[Finding] = ()
) -> Cell:
    """The cell of a candidate that yielded nothing to grade."""
    return Cell(
        candidate=candidate,
        input=input_id,
        outcome=outcome,
        detail=detail,
        infected=True,
        propagated=True,
        unwritten=0,
        findings=tuple(findings),
        output_digest="",
        seen=None,
        poisoned=None,
        exact=None,
    )


def nan_like(reference: torch.Tensor) -> torch.Tensor:
    """NaN everywhere; integers, which have none, as they are."""
    if not reference.dtype.is_floating_point:
        return reference
    return torch.full_like(reference, torch.nan)


def in_layout_of(original: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A contiguous value in the strides of ``original``, which views of it rely on."""
    if original.is_contiguous():
        return value
    shape, strides = original.shape, original.stride()
    blank = torch.empty_strided(shape, strides, dtype=original.dtype, device=original.device)
    return blank.copy_(value)
