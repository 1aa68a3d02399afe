"""One cell of the kill matrix: what one candidate did on one input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from kernelassay.kernel import Finding
from kernelassay.oracle import LADDER, Verdict

OK = "ok"
CRASH = "crash"
TIMEOUT = "timeout"
LAUNCH_FAILURE = "launch-failure"
ILLEGAL_ADDRESS = "illegal-address"
MISALIGNED_ADDRESS = "misaligned-address"
OUT_OF_MEMORY = "out-of-memory"
INFRASTRUCTURE = "infrastructure"
IMPLIED = "implied"
STOPS = (CRASH, TIMEOUT, LAUNCH_FAILURE, ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, OUT_OF_MEMORY)
"""Outcomes that say the kernel itself did not end as it should."""
OUTCOMES = (OK, *STOPS, INFRASTRUCTURE, IMPLIED)

ENDED = "its process ended: "
"""How the detail of a cell begins whose process ended."""

VIEWS = ("seen", "poisoned", "exact")


@dataclass(frozen=True, slots=True)
class Cell:
    """The result of one candidate (mutant, benign variant, original or control) on one input.

    ``infected``: the mutated call's own output differs in bits from the correct kernel's.
    ``propagated``: the problem's final output does. ``unwritten``: elements of the call's output
    that no thread wrote. Three gradings of the final output:

    - ``seen``: against the float32 reference, unwritten elements read as zero, which is what a
      checker that compares outputs sees;
    - ``poisoned``: the same with unwritten elements as NaN, what a checker that poisons sees;
    - ``exact``: against the float64 reference, unwritten elements as NaN; decides kill witnesses.

    They are ``None`` unless ``outcome`` is ``ok``. ``output_digest`` covers the final output's
    bytes (unwritten elements as zero). An ``implied`` cell was not measured, since ``detail`` made
    it needless; ``infected`` and ``propagated`` are then ``None``.
    """

    candidate: str
    input: str
    outcome: str
    detail: str
    infected: bool | None
    propagated: bool | None
    unwritten: int
    findings: tuple[Finding, ...]
    output_digest: str
    seen: Verdict | None
    poisoned: Verdict | None
    exact: Verdict | None

    @classmethod
    def implied(cls, candidate: str, input_id: str, reason: str) -> Cell:
        """The cell of a candidate that was not run, with the reason."""
        return cls(
            candidate=candidate,
            input=input_id,
            outcome=IMPLIED,
            detail=reason,
            infected=None,
            propagated=None,
            unwritten=0,
            findings=(),
            output_digest="",
            seen=None,
            poisoned=None,
            exact=None,
        )

    @property
    def lost(self) -> bool:
        """Whether its process ended for a reason that says nothing of the candidate."""
        return self.outcome == INFRASTRUCTURE and self.detail.startswith(ENDED)

    def row(self) -> dict[str, Any]:
        """The flat record that is stored."""
        record: dict[str, Any] = {
            "candidate": self.candidate,
            "input": self.input,
            "outcome": self.outcome,
            "detail": self.detail,
            "infected": self.infected,
            "propagated": self.propagated,
            "unwritten": self.unwritten,
            "findings": [
                {"kind": f.kind, "count": f.count, "detail": f.detail} for f in self.findings
            ],
            "output_digest": self.output_digest,
        }
        for view in VIEWS:
            record |= flattened(view, getattr(self, view))
        return record

    @classmethod
    def from_row(cls, record: Mapping[str, Any]) -> Cell:
        """The inverse of :meth:`row`."""
        return cls(
            candidate=record["candidate"],
            input=record["input"],
            outcome=record["outcome"],
            detail=record["detail"],
            infected=record["infected"],
            propagated=record["propagated"],
            unwritten=record["unwritten"],
            findings=tuple(Finding(**f) for f in record["findings"]),
            output_digest=record["output_digest"],
            **{view: unflattened(view, record) for view in VIEWS},
        )


def flattened(view: str, verdict: Verdict | None) -> dict[str, Any]:
    """The columns of :func:`verdict_schema` for one verdict; all ``None`` without one."""
    if verdict is None:
        return dict.fromkeys(name for name, _ in verdict_schema(view))
    values = {f.name: getattr(verdict, f.name) for f in fields(Verdict) if f.name != "past"}
    past = {f"past_{t:g}": n for t, n in zip(LADDER, verdict.past, strict=True)}
    return {f"{view}_{name}": value for name, value in (values | past).items()}


def unflattened(view: str, record: Mapping[str, Any]) -> Verdict | None:
    """The inverse of :func:`flattened`."""
    if record[f"{view}_count"] is None:
        return None
    values = {f.name: record[f"{view}_{f.name}"] for f in fields(Verdict) if f.name != "past"}
    return Verdict(**values, past=tuple(record[f"{view}_past_{t:g}"] for t in LADDER))


def verdict_schema(view: str) -> Iterable[tuple[str, pa.DataType]]:
    """The columns that a verdict is stored in, their names beginning with ``view``."""
    for name in ("critical_tolerance", "critical_max_rule", "max_abs", "max_rel", "max_ulp"):
        yield f"{view}_{name}", pa.float64()
    for name in ("count", "out_nan", "out_inf", "ref_nan", "ref_inf"):
        yield f"{view}_{name}", pa.int64()
    for name in ("nan_matches", "inf_matches"):
        yield f"{view}_{name}", pa.bool_()
    for t in LADDER:
        yield f"{view}_past_{t:g}", pa.int64()


FINDING = pa.struct([("kind", pa.string()), ("count", pa.int64()), ("detail", pa.string())])

SCHEMA = pa.schema(
    [
        ("candidate", pa.string()),
        ("input", pa.string()),
        ("outcome", pa.string()),
        ("detail", pa.string()),
        ("infected", pa.bool_()),
        ("propagated", pa.bool_()),
        ("unwritten", pa.int64()),
        ("findings", pa.list_(FINDING)),
        ("output_digest", pa.string()),
        *(column for view in VIEWS for column in verdict_schema(view)),
    ]
)


def table(cells: Iterable[Cell]) -> pa.Table:
    """The cells as one Arrow table, sorted by candidate."""
    rows = sorted((cell.row() for cell in cells), key=lambda row: (row["candidate"], row["input"]))
    return pa.Table.from_pylist(rows, schema=SCHEMA)
