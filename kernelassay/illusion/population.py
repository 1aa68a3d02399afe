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

from kernelassay.compile.classify import DISTINCT, STATUSES
from kernelassay.errors import UsageError
from kernelassay.illusion.op import Op, text_digest
from kernelassay.illusion.record import MALFORMED, mapping, sequence, text, truth, whole
from kernelassay.mutation.engine import Mutant, mutant_id, mutant_text, mutants
from kernelassay.mutation.rule import Edit
from kernelassay.session import user_cache, write_whole

KIND = "triton-mutants"
VERSION = 1
_AGAIN = "make them again with `kernelassay illusion mutants`"


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
        """Raise :class:`UsageError` unless these are, all whole, mutants of the operator's text."""
        if text_digest(op.text) != self.digest:
            raise UsageError(
                "the mutants are those of another text",
                where=self.kernel,
                hint=_AGAIN,
            )
        for one in self.mutants:
            self._require_whole(one, op.text)

    def _require_whole(self, one: Mutated, text: str) -> None:
        edits = [Edit(*edit) for edit in one.edits]
        try:
            named = mutant_id(self.kernel, "", "triton", one.rule, edits)
            mutant_text(asdict(one), text)
        except ValueError as error:
            named, why = "", str(error)
        else:
            why = "its rule and edits have another id"
        if named != one.id:
            raise UsageError(
                f"mutant {one.id!r:.20} is damaged: {why:.200}", where=self.kernel, hint=_AGAIN
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
        data = mapping(json.loads(path.read_bytes()))
        if (data["kernelassay"], data["version"]) != (KIND, VERSION):
            raise ValueError(f"it is {data['kernelassay']!r:.40} {data['version']!r:.40}")
        found = [_population(mapping(one)) for one in sequence(data["populations"])]
        if len({one.kernel for one in found}) < len(found):
            raise ValueError("it has two populations of one kernel")
        return {one.kernel: one for one in found}
    except (OSError, *MALFORMED) as error:
        raise UsageError(
            f"is no file of mutants: {type(error).__name__}: {error}",
            where=str(path),
            hint="make one with `kernelassay illusion mutants --out FILE`",
        ) from error


def _population(record: Mapping[str, Any]) -> Population:
    made = tuple(_stored(mapping(one)) for one in sequence(record["mutants"]))
    if len({one.id for one in made}) < len(made):
        raise ValueError("it has a mutant twice")
    return Population(text(record["kernel"]), text(record["digest"]), made)


def _stored(record: Mapping[str, Any]) -> Mutated:
    status = text(record["status"])
    if status not in STATUSES:
        raise ValueError(f"{status!r:.40} is no status of a mutant")
    twin = record["twin"]
    return Mutated(
        id=text(record["id"]),
        rule=text(record["rule"]),
        family=text(record["family"]),
        line=whole(record["line"]),
        edits=tuple(
            (whole(start), whole(end), text(new)) for start, end, new in sequence(record["edits"])
        ),
        benign=truth(record["benign"]),
        status=status,
        reason=text(record["reason"]),
        twin=None if twin is None else text(twin),
    )
