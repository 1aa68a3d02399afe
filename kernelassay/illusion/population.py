"""The mutants of correct Triton kernels: made, told apart by their compiled code, kept in a file.

What becomes of a mutant is decided without a GPU, on every size and dtype that the operator's
schema allows, so a file of mutants made on one machine can be run on another.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelassay.compile.classify import DISTINCT
from kernelassay.errors import UsageError
from kernelassay.illusion.op import Op, text_digest
from kernelassay.mutation.engine import Mutant, mutant_text, mutants
from kernelassay.session import user_cache, write_whole

KIND = "triton-mutants"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Mutated:
    """One edited text of a kernel, and what became of it.

    ``status`` is one of :mod:`kernelassay.compile.classify`; ``benign`` tells a correct variant
    from a mutant.
    """

    id: str
    rule: str
    family: str
    line: int
    edits: tuple[tuple[int, int, str], ...]
    benign: bool
    status: str
    reason: str
    twin: str | None


@dataclass(frozen=True, slots=True)
class Population:
    """All mutants and correct variants of one kernel, whose text has a ``digest``."""

    kernel: str
    digest: str
    mutants: tuple[Mutated, ...]

    def require_of(self, op: Op) -> None:
        """Raise :class:`UsageError` unless these are mutants of the operator's text."""
        if text_digest(op.text) != self.digest:
            raise UsageError(
                "the mutants are those of another text",
                where=self.kernel,
                hint="make them again with `kernelassay illusion mutants`",
            )

    def to_run(self, text: str) -> Iterator[tuple[Mutated, str]]:
        """The distinct ones, with their texts."""
        for one in self.mutants:
            if one.status == DISTINCT:
                yield one, mutant_text(asdict(one), text)

    def records(self) -> tuple[dict[str, Any], ...]:
        """The mutants, without the correct variants, as plain values."""
        return tuple(asdict(one) for one in self.mutants if not one.benign)

    def in_words(self) -> str:
        """The counts as one line of text."""
        counts = Counter(one.status for one in self.mutants if not one.benign)
        benign = sum(one.benign and one.status == DISTINCT for one in self.mutants)
        of = " + ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        return f"{sum(counts.values())} mutants = {of}; {benign} correct variants"


def populate(op: Op, patterns: Sequence[str], sample: int | None, jobs: int) -> Population:
    """Mutate a Triton kernel by the rules that match ``patterns`` (all for none).

    With ``sample`` at most so many mutants are kept, by the hashes of their ids. Raises as
    :func:`kernelassay.mutation.engine.mutants` and
    :func:`kernelassay.compile.triton.classify.classify`.
    """
    from kernelassay.compile.triton.calls import representative_calls
    from kernelassay.compile.triton.classify import classify
    from kernelassay.mutation.catalogue import select
    from kernelassay.mutation.triton.catalogue import BENIGN, RULES
    from kernelassay.population import sampled

    rules = select(patterns, RULES) if patterns else RULES
    made = _made(op, rules)
    kept = sampled((one.id for one in made), sample)
    made = [one for one in made if one.id in kept]
    benign = _made(op, BENIGN)
    texts = [(one.id, one.source) for one in (*made, *benign)]
    calls = representative_calls(op.schema, op.dtypes)
    found = classify(op.text, texts, calls, jobs=jobs, cache=user_cache())
    return Population(
        kernel=op.name,
        digest=text_digest(op.text),
        mutants=tuple(
            _mutated(one, is_benign, found)
            for group, is_benign in ((made, False), (benign, True))
            for one in group
        ),
    )


def _made(op: Op, rules: Sequence[Any]) -> list[Mutant]:
    found = mutants(
        op.text, problem=op.name, call="", style="triton", rules=rules, language="triton"
    )
    return [*found.mutants]


def _mutated(one: Mutant, benign: bool, found: Mapping[str, Any]) -> Mutated:
    identity = found[one.id]
    edits = tuple((edit.start, edit.end, edit.text) for edit in one.edits)
    return Mutated(
        id=one.id,
        rule=one.rule,
        family=one.family,
        line=one.line,
        edits=edits,
        benign=benign,
        status=identity.status,
        reason=identity.reason,
        twin=identity.twin,
    )


def write(path: Path, populations: Mapping[str, Population]) -> None:
    """Write populations to a file, whole."""
    record = {
        "kernelassay": KIND,
        "version": VERSION,
        "populations": [asdict(one) for one in populations.values()],
    }
    write_whole(path, (json.dumps(record, indent=1) + "\n").encode())


def read(path: Path) -> dict[str, Population]:
    """The populations of a file, by kernel. Raises :class:`UsageError` if it holds none."""
    try:
        record = json.loads(path.read_text())
        if record["kernelassay"] != KIND or record["version"] != VERSION:
            raise ValueError(f"it is {record['kernelassay']} {record['version']}")
        return {one["kernel"]: _population(one) for one in record["populations"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"is no file of mutants: {type(error).__name__}: {error}",
            where=str(path),
            hint="make one with `kernelassay illusion mutants --out FILE`",
        ) from error


def _population(record: Mapping[str, Any]) -> Population:
    return Population(
        kernel=record["kernel"],
        digest=record["digest"],
        mutants=tuple(
            Mutated(**{**one, "edits": tuple((s, e, str(t)) for s, e, t in one["edits"])})
            for one in record["mutants"]
        ),
    )
