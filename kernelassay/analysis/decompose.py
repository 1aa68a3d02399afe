"""The difference of two protocols, split into the parts in which they differ.

A hybrid is the first protocol with some parts taken from the second. Every hybrid is scored on the
same candidates, so that counts are integers, and the Shapley shares of the parts (the mean over all
orders of what taking the part adds) sum to the difference exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import chain, combinations, permutations
from math import factorial
from typing import Any

from kernelassay.analysis.ground import Aside, Candidates, Gap, gap, ground, rejected
from kernelassay.analysis.score import MutantFacts, Share
from kernelassay.matrix import ProblemMatrix
from kernelassay.protocols import Protocol

INPUTS, TOLERANCE, NONFINITE, VIEW, DROPS = (
    "inputs",
    "tolerance",
    "non-finite",
    "view",
    "drops unfit",
)
PARTS = (INPUTS, TOLERANCE, NONFINITE, VIEW, DROPS)
"""In what protocols may differ. The tolerance has its form, its exceptions by dtype, its ratio."""

Taken = tuple[str, ...]
"""Parts taken from the second protocol, in the order of :data:`PARTS`."""


@dataclass(frozen=True, slots=True)
class Part:
    """What taking one part adds to a count: before all others, after all others, and its share."""

    name: str
    first: int
    last: int
    shapley: Fraction


@dataclass(frozen=True, slots=True)
class Split:
    """One count, of ``total``, by the parts taken; what each part adds, and each order of parts.

    ``orders`` leave out the parts that never change the count. :meth:`check` asserts the sums.
    """

    total: int
    counts: Mapping[Taken, int]
    parts: tuple[Part, ...]
    orders: tuple[tuple[tuple[str, int], ...], ...]

    @property
    def difference(self) -> int:
        """What taking all parts adds."""
        return self.counts[tuple(part.name for part in self.parts)] - self.counts[()]

    def check(self) -> None:
        """Raises ``AssertionError`` if the parts do not sum to the difference."""
        assert sum((part.shapley for part in self.parts), Fraction(0)) == self.difference, self
        for order in self.orders:
            assert sum(gain for _, gain in order) == self.difference, self


@dataclass(frozen=True, slots=True)
class Decomposition:
    """The difference of two protocols by parts, in detection and in false rejection.

    ``problems`` are those that all hybrids are scored on; of those that both protocols are,
    ``aside`` has the others, ``set_aside`` and ``lost`` count mutants as in :class:`Ground`. With
    ``gaps`` the cells leave hybrids open, and nothing is split.
    """

    hybrids: Mapping[Taken, Protocol]
    problems: tuple[str, ...]
    aside: tuple[Aside, ...]
    set_aside: int
    lost: int
    detection: Split | None
    false_rejection: Split | None
    gaps: tuple[Gap, ...]

    @property
    def parts(self) -> Taken:
        """The parts in which the protocols differ."""
        return max(self.hybrids, key=len)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "parts": list(self.parts),
            "problems": list(self.problems),
            "aside": [asdict(aside) for aside in self.aside],
            "set_aside": self.set_aside,
            "lost": self.lost,
            "detection": None if self.detection is None else _split(self.detection),
            "false_rejection": (
                None if self.false_rejection is None else _split(self.false_rejection)
            ),
            "gaps": [asdict(one) for one in self.gaps],
        }


def _split(split: Split) -> dict[str, Any]:
    def gain(count: int | Fraction) -> dict[str, Any]:
        rate = float(Fraction(count) / split.total) if split.total else None
        return {"count": float(count), "exact": str(count), "total": split.total, "rate": rate}

    return {
        "difference": gain(split.difference),
        "hybrids": [
            {
                "taken": list(taken),
                "count": count,
                "total": split.total,
                "rate": Share(count, split.total).rate,
            }
            for taken, count in split.counts.items()
        ],
        "parts": [
            {
                "part": part.name,
                "first": gain(part.first),
                "last": gain(part.last),
                "shapley": gain(part.shapley),
            }
            for part in split.parts
        ],
        "orders": [
            [{"part": part, **gain(count)} for part, count in order] for order in split.orders
        ],
    }


def differing(first: Protocol, second: Protocol) -> Taken:
    """The parts in which two protocols differ. The order of inputs decides no verdict."""
    dtypes = first.rules.keys() | second.rules.keys()
    rules = [(first.default, second.default)]
    rules += [(first.rule(dtype), second.rule(dtype)) for dtype in sorted(dtypes)]
    differs = {
        INPUTS: set(first.inputs) != set(second.inputs),
        TOLERANCE: any(replace(a, nonfinite=b.nonfinite) != b for a, b in rules),
        NONFINITE: any(a.nonfinite != b.nonfinite for a, b in rules),
        VIEW: first.view != second.view,
        DROPS: first.unfit != second.unfit,
    }
    return tuple(part for part in PARTS if differs[part])


def hybrid(first: Protocol, second: Protocol, taken: Taken) -> Protocol:
    """The first protocol with some parts taken from the second."""

    def source(part: str) -> Protocol:
        return second if part in taken else first

    tolerance, nonfinite = source(TOLERANCE), source(NONFINITE)
    dtypes = sorted(first.rules.keys() | second.rules.keys())
    return replace(
        first,
        name=f"{first.name} with {', '.join(taken)} of {second.name}" if taken else first.name,
        what=f"{first.what}; but {', '.join(taken)}: {second.what}" if taken else first.what,
        inputs=source(INPUTS).inputs,
        default=replace(tolerance.default, nonfinite=nonfinite.default.nonfinite),
        rules={
            dtype: replace(tolerance.rule(dtype), nonfinite=nonfinite.rule(dtype).nonfinite)
            for dtype in dtypes
        },
        view=source(VIEW).view,
        unfit=source(DROPS).unfit,
    )


def hybrids(first: Protocol, second: Protocol) -> dict[Taken, Protocol]:
    """The hybrid of every set of differing parts, from ``first`` (none) to ``second`` (all)."""
    parts = differing(first, second)
    found = {taken: hybrid(first, second, taken) for taken in subsets(parts)}
    return {**found, **({parts: second} if parts else {}), (): first}


def subsets(parts: Taken) -> Iterator[Taken]:
    """All subsets, small ones first."""
    return chain.from_iterable(combinations(parts, size) for size in range(len(parts) + 1))


def split(counts: Mapping[Taken, int], total: int) -> Split:
    """Split a count given for every subset of some parts; asserts that the parts sum up."""
    parts = max(counts, key=len)

    def gain(before: Taken, part: str) -> int:
        after = tuple(p for p in parts if p in before or p == part)
        return counts[after] - counts[before]

    def others(part: str) -> Taken:
        return tuple(p for p in parts if p != part)

    def shapley(part: str) -> Fraction:
        size = len(parts)
        weighed = (
            Fraction(factorial(len(s)) * factorial(size - len(s) - 1), factorial(size))
            * gain(s, part)
            for s in subsets(others(part))
        )
        return sum(weighed, Fraction(0))

    def steps(order: Sequence[str]) -> Iterator[tuple[str, int]]:
        for index, part in enumerate(order):
            yield part, gain(tuple(p for p in parts if p in order[:index]), part)

    active = [p for p in parts if any(gain(s, p) for s in subsets(others(p)))]
    found = Split(
        total=total,
        counts=counts,
        parts=tuple(Part(p, gain((), p), gain(others(p), p), shapley(p)) for p in parts),
        orders=tuple(tuple(steps(order)) for order in permutations(active) if order),
    )
    found.check()
    return found


def decompose(
    matrices: Sequence[ProblemMatrix],
    facts: Sequence[MutantFacts],
    first: Protocol,
    second: Protocol,
) -> Decomposition:
    """Split the difference of two protocols on problems that both are scored on.

    ``facts`` tell which mutants are witnessed.
    """
    made = hybrids(first, second)
    gaps = tuple(found for p in made.values() if (found := gap(matrices, p)) is not None)
    if gaps:
        return Decomposition(made, (), (), 0, 0, None, None, gaps)
    shared = ground(matrices, facts, tuple(made.values()))

    def splitting(candidates: Candidates) -> Split:
        counts = {
            taken: int(rejected(shared.matrices, candidates, protocol).sum())
            for taken, protocol in made.items()
        }
        return split(counts, len(candidates))

    return Decomposition(
        hybrids=made,
        problems=shared.problems,
        aside=shared.aside,
        set_aside=shared.set_aside,
        lost=shared.lost,
        detection=splitting(shared.mutants),
        false_rejection=splitting(shared.variants),
        gaps=(),
    )
