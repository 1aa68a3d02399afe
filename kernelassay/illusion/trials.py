"""Trials: what kernels did on cases, one Parquet file per finished unit of work.

A unit is some kernels of one operator on the cases of one strategy. Its directory is a session
(:mod:`kernelassay.session`) whose manifest says ``"kind": "illusion"``::

    manifest.json                              the plan: kernels, strategies, seed, count, devices
    kernels/<operator>.json                    the operator, and the texts of its kernels
    trials/<operator>/<strategy>-<part>.parquet    one finished unit
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernelassay.cell import FINDING, flattened, verdict_schema
from kernelassay.errors import NothingToTestError, SessionError, UsageError
from kernelassay.execute.execution import Execution
from kernelassay.illusion.cases import Case
from kernelassay.illusion.op import Op, op, text_digest
from kernelassay.illusion.oracle import QUANTILES, Judgement
from kernelassay.illusion.record import MALFORMED, mapping, sequence, text
from kernelassay.illusion.strategies import named
from kernelassay.session import ANEW, TRIALS, Session, slug, write_table, write_whole

CONTROL, FAULTY, MUTANT, BENIGN, OWN = "control", "faulty", "mutant", "benign", "own"
SHOWN = (CONTROL, FAULTY, OWN)
"""Roles of kernels that are no variants of another text."""
VIEWS = ("rounded", "exact")
_SPREAD = ("magnitude", "mean_abs", "mean_rel", "mean_ulp")

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("kernel", "role", "operator", "strategy")),
        ("index", pa.int64()),
        ("case", pa.string()),
        ("seed", pa.uint64()),
        *((name, pa.string()) for name in ("dtype", "layout", "sizes", "values")),
        *((name, pa.string()) for name in ("input_digest", "outcome", "detail", "failure")),
        ("tolerance", pa.float64()),
        ("unwritten", pa.int64()),
        ("changed", pa.list_(pa.int64())),
        ("findings", pa.list_(FINDING)),
        ("output_digest", pa.string()),
        *((name, pa.float64()) for name in _SPREAD),
        *((f"abs_{q:g}", pa.float64()) for q in QUANTILES),
        *(column for view in VIEWS for column in verdict_schema(view)),
    ]
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel under the fuzz: a control, its faulty twin, a mutant or a correct variant of it.

    One of the user's own is none of these, as nobody knows whether it is right; where mutants of it
    are run, it is their control.

    ``rule`` and ``family`` are those of a mutation rule, else "".
    """

    name: str
    role: str
    text: str
    rule: str = ""
    family: str = ""


def row(
    subject: Subject,
    operator: str,
    case: Case,
    input_digest: str,
    tolerance: float,
    execution: Execution,
    judged: Judgement,
) -> dict[str, Any]:
    """The record of one trial."""
    spread = judged.statistics
    return {
        "kernel": subject.name,
        "role": subject.role,
        "operator": operator,
        **{k: v for k, v in asdict(case).items() if k != "sizes"},
        "sizes": json.dumps(dict(case.sizes)),
        "case": case.id,
        "input_digest": input_digest,
        "outcome": execution.outcome,
        "detail": judged.detail,
        "failure": judged.failure,
        "tolerance": tolerance,
        "unwritten": execution.unwritten,
        "changed": list(execution.changed),
        "findings": [asdict(finding) for finding in execution.findings],
        "output_digest": judged.output_digest,
        **{name: spread and getattr(spread, name) for name in _SPREAD},
        **{
            f"abs_{q:g}": None if spread is None else spread.quantiles[at]
            for at, q in enumerate(QUANTILES)
        },
        **flattened("rounded", judged.rounded),
        **flattened("exact", judged.exact),
    }


class Trials:
    """The stored trials of a session directory."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.root = session.root

    @classmethod
    def open(cls, root: Path) -> Trials:
        """Open for reading. Raises :class:`SessionError` if it holds no trials."""
        session = Session.open(root, TRIALS)
        try:
            for kernels in mapping(session.manifest["kernels"]).values():
                mapping(kernels)
            named(list(map(text, sequence(session.manifest["strategies"]))))
            if session.manifest["device"] not in ("cpu", "cuda"):
                raise ValueError(f"device is {session.manifest['device']!r:.40}")
        except (KeyError, TypeError, ValueError, UsageError) as error:
            raise SessionError(
                f"manifest.json lacks a part, or one has another form: {error}",
                where=str(root),
                hint=ANEW,
            ) from error
        return cls(session)

    def path(self, operator: str, strategy: str, part: int) -> Path:
        """The file of one unit."""
        return self.root / "trials" / slug(operator) / f"{slug(strategy)}-{part:03d}.parquet"

    def write(self, operator: str, strategy: str, part: int, rows: Sequence[Any]) -> None:
        """Store a finished unit, whole."""
        write_table(
            self.path(operator, strategy, part),
            pa.Table.from_pylist(list(rows), schema=SCHEMA),
        )

    def has(self, operator: str, strategy: str, part: int) -> bool:
        """Whether a unit is finished."""
        return self.path(operator, strategy, part).exists()

    def tables(self) -> Iterator[pa.Table]:
        """Every finished unit, by name."""
        for path in sorted((self.root / "trials").glob("*/*.parquet")):
            yield self._table(path)

    def of_kernel(self, operator: str, kernel: str) -> list[dict[str, Any]]:
        """The trials of one kernel, as records."""
        paths = sorted((self.root / "trials" / slug(operator)).glob("*.parquet"))
        found = [self._table(path) for path in paths]
        mine = (table.filter(pa.compute.equal(table["kernel"], kernel)) for table in found)
        return [record for table in mine for record in table.to_pylist()]

    def _table(self, path: Path) -> pa.Table:
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise SessionError(
                f"is damaged: {error}", where=str(path), hint="delete it and run again to resume"
            ) from error
        if table.schema != SCHEMA:
            raise SessionError(
                "is of another version", where=str(path), hint="run again in a new directory"
            )
        return table

    def table(self) -> pa.Table:
        """All trials as one table. Raises :class:`NothingToTestError` if there are none yet."""
        found = list(self.tables())
        if not found:
            raise NothingToTestError("no unit of work is finished", where=str(self.root))
        return pa.concat_tables(found)

    def write_operator(
        self, operator: Op, subjects: Sequence[Subject], population: Sequence[Mapping[str, Any]]
    ) -> None:
        """Store an operator, its kernels, and all its mutants with what became of them; once.

        Raises :class:`SessionError` if another operator of this name is stored, whose trials the
        session has, or one with other kernels.
        """
        record = {
            "operator": asdict(operator),
            "kernels": [asdict(one) for one in subjects],
            "population": list(population),
        }
        path = self._operator_path(operator.name)
        data = json.dumps(record, indent=1).encode()  # the order of dimensions counts
        if not path.exists():
            write_whole(path, data)
            return
        with self._reading(operator.name) as stored:
            changed = [
                part
                for part in ("operator", "kernels")
                if json.dumps(stored[part]) != json.dumps(record[part])
            ]
        if changed:
            raise SessionError(
                f"holds trials of another operator {operator.name}: its {changed[0]} changed",
                where=str(path),
                hint="run again in a new directory",
            )
        if path.read_bytes() != data:
            write_whole(path, data)

    def operator(self, name: str) -> tuple[Op, tuple[Subject, ...]]:
        """A stored operator and its kernels.

        Raises :class:`SessionError` if they are damaged, or not those of the plan.
        """
        with self._reading(name) as record:
            found = op(record["operator"])
            subjects = tuple(Subject(**one) for one in record["kernels"])
            digests = {one.name: text_digest(one.text) for one in subjects}
            if digests != self.session.manifest["kernels"][name]:
                raise ValueError("its kernels are not those of manifest.json")
            return found, subjects

    def population(self, name: str) -> list[dict[str, Any]]:
        """All generated mutants of an operator, as :mod:`kernelassay.illusion.population` has."""
        with self._reading(name) as record:
            return [dict(mapping(one)) for one in sequence(record["population"])]

    @contextmanager
    def _reading(self, name: str) -> Iterator[Mapping[str, Any]]:
        path = self._operator_path(name)
        try:
            yield mapping(json.loads(path.read_bytes()))
        except (OSError, UsageError, *MALFORMED) as error:
            raise SessionError(
                f"is damaged: {type(error).__name__}: {error}",
                where=str(path),
                hint="run again in a new directory",
            ) from error

    def _operator_path(self, name: str) -> Path:
        return self.root / "kernels" / f"{slug(name)}.json"
