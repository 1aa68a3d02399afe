"""The smallest input on which a candidate still fails: every step is executed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kernelassay.check.judge import Wrong
from kernelassay.check.verdict import Smallest
from kernelassay.inputs import InputSpec
from kernelassay.problem import Problem

_PRIMER_SEED = 1_000_003
SIMPLE = ("ones", "whole-numbers", "ramp", "sign-mixed", "official")
"""Values from simple to less so."""


@dataclass(frozen=True, slots=True)
class Trial:
    """An input on which the candidate fails as before."""

    spec: InputSpec
    shapes: tuple[tuple[int, ...], ...]
    wrong: Wrong | None


Failing = Callable[[InputSpec, InputSpec | None], Trial | None]


def smallest(
    problem: Problem, spec: InputSpec, failing: Failing, *, trials: int, shapes: bool
) -> Smallest | None:
    """Simplify parameters, layout, sizes and values in turn, while the candidate fails.

    ``failing`` runs an input in a fresh instance, after another one if that is given. None if the
    candidate fails on ``spec`` neither by itself nor after another input of its sizes.
    """
    search = _Search(failing, trials)
    if not search.begins(spec):
        return None
    for changed in _conditions(search):
        search.tries(changed)
    if shapes:
        search.shrinks(problem)
    for name in SIMPLE:
        if name == search.best.spec.transform:
            break
        if search.tries(replace(search.best.spec, transform=name)):
            break
    best = search.best
    return Smallest(
        replace(best.spec, id=_named(best.spec)),
        best.shapes,
        "another input of the same sizes" if search.primed else "",
        search.tried,
        best.wrong,
    )


class _Search:
    def __init__(self, failing: Failing, trials: int) -> None:
        self._failing = failing
        self._left = trials
        self.tried = 0
        self.primed = False
        self.best: Trial

    def begins(self, spec: InputSpec) -> bool:
        for self.primed in (False, True):
            found = self._run(spec)
            if found is not None:
                self.best = found
                return True
        return False

    def tries(self, spec: InputSpec) -> bool:
        if spec == self.best.spec or self._left <= 0:
            return False
        found = self._run(spec)
        if found is not None:
            self.best = found
        return found is not None

    def shrinks(self, problem: Problem) -> None:
        """Make each size as small as it gets, over and over until none moves."""
        own = {lever.name: lever.value for lever in problem.sizes}
        moved = True
        while moved and self._left > 0:
            moved = False
            for name, value in own.items():
                now = dict(self.best.spec.overrides).get(name, value)
                for smaller in _below(now):
                    overrides = {**dict(self.best.spec.overrides), name: smaller}
                    spec = replace(self.best.spec, overrides=tuple(sorted(overrides.items())))
                    if self.tries(spec):
                        moved = True
                        break

    def _run(self, spec: InputSpec) -> Trial | None:
        self._left -= 1
        self.tried += 1
        primer = replace(spec, seed=spec.seed + _PRIMER_SEED) if self.primed else None
        return self._failing(spec, primer)


def _conditions(search: _Search) -> Iterator[InputSpec]:
    yield replace(search.best.spec, parameters="official")
    yield replace(search.best.spec, layout="contiguous")


def _below(size: int) -> Iterator[int]:
    """Smaller sizes, the smallest first."""
    tried = dict.fromkeys((1, 2, size // 4, size // 2, size - 1))
    yield from (one for one in tried if 1 <= one < size)


def _named(spec: InputSpec) -> str:
    sizes = ",".join(f"{name}={value}" for name, value in spec.overrides)
    parts = (sizes, spec.transform, *(p for p in (spec.parameters,) if p != "official"))
    return "smallest/" + "/".join(part for part in parts if part)
