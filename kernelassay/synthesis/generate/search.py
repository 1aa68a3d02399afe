"""Search for witnesses of given survivors, without a model: the white box is their diff.

Why a survivor survives (RIPR) tells where to look. What is not infected wants other sizes and
orders of threads, what is masked other parameters, what is tolerated other magnitudes. Numbers in
the changed lines are sizes and thresholds to try. What a survivor's margin then tells is climbed,
one coordinate at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from kernelassay.analysis.mechanism import MASKED, NOT_INFECTED
from kernelassay.inputs import InputSpec
from kernelassay.synthesis import cover
from kernelassay.synthesis.generate.geometry import edges, numbers, one_large, spread
from kernelassay.synthesis.generate.point import Point
from kernelassay.synthesis.generate.settling import settled, settled_each
from kernelassay.synthesis.generate.target import (
    SAME_SIGN,
    SIGN_MIXED,
    Proposal,
    Survivor,
    Target,
    Tried,
    WhiteBox,
)
from kernelassay.synthesis.generate.taxonomy import APART, Playbook, scales
from kernelassay.tasks import run_task

CELLS = 120
"""Kernels that may run for each mutant that is looked for, unless told otherwise."""
ROUND = 8
"""Points tried together from the best of one survivor."""
FIRST = 6
"""Sizes that the numbers of the changed lines are given at first."""
PLAYBOOK = 12
"""Inputs of the blind playbook that the search begins with."""
LARGEST = 2048

Score = tuple[bool, float]


class Search:
    """Looks for an input that kills each survivor, then takes those that kill most.

    What room is left goes to inputs that prove mutants wrong which none of the session does.
    """

    name = "search"
    blind = False

    def __init__(self, cells: int = CELLS) -> None:
        self.cells = cells

    def propose(self, target: Target, count: int, seed: int, seen: WhiteBox | None) -> Proposal:
        """As :class:`Generator`; at most ``cells`` kernels run for each mutant."""
        assert seen is not None
        chosen: tuple[InputSpec, ...] = ()
        for hunted, goal in ((seen.survivors, killed), (seen.unobserved, witnessed)):
            if hunted and len(chosen) < count:
                hunt = _Hunt(target, APART + seed, seen, hunted, goal, self.cells, self.name)
                hunt.run()
                chosen += covering(hunt.tested, count - len(chosen), goal)
        return Proposal(tuple(dict.fromkeys(chosen)))


Goal = Callable[[Tried], frozenset[str]]


def killed(tested: Tried) -> frozenset[str]:
    """Of survivors: those that the checker rejects on an input that may judge."""
    return tested.killed


def witnessed(tested: Tried) -> frozenset[str]:
    """Of mutants that no input proved wrong: those that this one proves wrong, if it may judge."""
    return frozenset() if tested.objection else tested.witnessed


def covering(tested: Sequence[Tried], count: int, goal: Goal = killed) -> tuple[InputSpec, ...]:
    """At most ``count`` inputs, each the one that gets most of what is left; the first of equals.

    Inputs that get nobody are left out.
    """
    got = [goal(one) for one in tested]
    names = sorted(frozenset[str]().union(*got))
    hits = np.array([[name in some for some in got] for name in names], dtype=bool)
    return tuple(tested[at].spec for at in cover.greedy(hits.reshape(len(names), len(got)), count))


class _Hunt:
    """The search on one problem for inputs that get some mutants.

    At most ``cells`` kernels run for each. ``tested`` has all inputs that kernels ran on.
    """

    def __init__(
        self,
        target: Target,
        seed: int,
        seen: WhiteBox,
        hunted: Sequence[Survivor],
        goal: Goal,
        cells: int,
        rung: str,
    ) -> None:
        self.target = target
        self.seed = seed
        self.seen = seen
        self.goal = goal
        self.last = seen.cells() + cells * len(hunted)
        self.rung = rung
        self.draw = random.Random(seed)
        self.levers = target.problem.sizes
        self.edges = edges(kernel.source for kernel in target.kernels)
        self.ladder = self.edges.ladder
        self.tested: list[Tried] = []
        self.alive = {one.id: one for one in hunted}
        self.best: dict[str, tuple[Score, Point]] = {}
        self._settled: set[InputSpec] = set()

    @property
    def over(self) -> bool:
        """Whether nothing is left to kill, or to run."""
        return not self.alive or self.seen.cells() >= self.last

    def run(self) -> None:
        """The playbook, then what the reasons say, then up each survivor's margin, in turn."""
        everyone = tuple(self.alive)
        wishes = tuple(Playbook(self.target, self.seed, self.rung).wishes())
        for made, _ in run_task(settled, self.target.problem, wishes, PLAYBOOK):
            if not self.over:
                self._settled.add(made)
                self._note(self.seen.test(made, everyone), Point.of(made))
        left = tuple(self.alive.values())
        self._try(dict.fromkeys(p for s in left for p in self._first(s)), everyone)
        idle = 0
        while not self.over and idle < len(self.alive):
            idle = 0
            for name in tuple(self.alive):
                if self.over:
                    break
                if name in self.alive:
                    idle += not self._climb(name)

    def _climb(self, name: str) -> bool:
        """Try points beside a survivor's best; whether any was new."""
        (infected, _), start = self.best.get(name, ((False, 0.0), Point()))
        parameters = self.target.parameters
        near = list(start.beside(self.levers, self.ladder, parameters=parameters))
        self.draw.shuffle(near)
        if not infected:  # a margin is then the correct kernel's, and leads nowhere
            near = [
                Point.drawn(self.draw, self.levers, self.ladder, parameters=parameters)
                for _ in range(ROUND - ROUND // 4)
            ] + near
        return self._try(near, None, most=ROUND)

    def _try(
        self, points: Iterable[Point], everyone: Sequence[str] | None, most: int | None = None
    ) -> bool:
        """Run those of some points that are new and fit; whether there was any.

        ``everyone`` names who runs on them, by default those that are alive.
        """
        specs: dict[InputSpec, Point] = {}
        for point in points:
            made = point.spec(self.rung, self.seed)
            if made not in self._settled and made not in specs:
                specs[made] = point
        chosen = list(specs)[:most]
        self._settled.update(chosen)
        fit = run_task(settled_each, self.target.problem, chosen) if chosen else ()
        for wished, found in zip(chosen, fit, strict=True):
            if self.over:
                break
            if found is None or (found != wished and found in self._settled):
                continue
            self._settled.add(found)
            names = everyone if everyone is not None else tuple(self.alive)
            self._note(self.seen.test(found, names), replace(specs[wished], sizes=found.overrides))
        return bool(chosen)

    def _note(self, tested: Tried, point: Point) -> None:
        self.tested.append(tested)
        for name in self.goal(tested):
            self.alive.pop(name, None)
        if tested.objection:
            return
        for name in self.alive.keys() & tested.margins.keys():
            score = (name in tested.infected, tested.margins[name])
            if name not in self.best or score > self.best[name][0]:
                self.best[name] = (score, point)

    # ---- where to look first ---------------------------------------------------------------------

    def _first(self, survivor: Survivor) -> Iterator[Point]:
        """Where a survivor's reason, and its changed lines, say to look."""
        yield from self._told(survivor)
        if survivor.mechanism == NOT_INFECTED:
            yield from self._edges()
        elif survivor.mechanism == MASKED:
            yield from self._parameters()
        else:
            yield from self._magnitudes()

    def _times(self) -> str | None:
        return "" if self.target.parameters else None

    def _told(self, survivor: Survivor) -> Iterator[Point]:
        """Sizes at the numbers of the changed lines, and values around them."""
        changed = "\n".join(
            line[1:]
            for line in survivor.diff.splitlines()
            if line[:1] in "+-" and line[:3] not in ("+++", "---")
        )
        found = numbers(changed)
        sizes = [int(n) for n in found if n.is_integer() and 2 <= n <= LARGEST]
        near = [n + 1 for n in sizes] + [n - 1 for n in sizes]
        for turn, size in enumerate(near[:FIRST]):
            moved = one_large(self.levers, size, turn) if self.levers else {}
            yield self._point(moved, self._scale(), turn)
        knees = [n for n in found if 0.0 < abs(n) <= 200.0 and not n.is_integer()]
        for knee in knees[:2]:
            yield Point("sign-mixed", factor=2.0 * knee, times=self._times())

    def _edges(self) -> Iterator[Point]:
        at = self.edges
        for turn, ladder in enumerate((at.past, at.whole, at.below, at.twice, at.whole, at.past)):
            yield self._point(spread(self.levers, ladder, turn // 4), self._scale(), turn)
        for place in range(len(self.levers)):
            yield self._point(one_large(self.levers, at.long[0], place), self._scale(), place)
        for base in ("thresholds", "saturating", "ties", "zero-rows"):
            yield Point(base, times=self._times())

    def _parameters(self) -> Iterator[Point]:
        for times in ("", ":x3000", ":x300", ":x30"):
            yield Point(factor=2.0, times=times if self.target.parameters else None)
        for base in ("thresholds", "small-spread", "opposed"):
            yield Point(base, times=self._times())

    def _magnitudes(self) -> Iterator[Point]:
        for scale in scales(self.target, SIGN_MIXED)[:3]:
            yield Point(factor=scale, times=self._times())
        for scale in scales(self.target, SAME_SIGN)[:2]:
            yield Point("same-sign", factor=scale, times=self._times())
        for shift in (1000.0, 20.0):
            yield Point("official", shift=shift)
        yield Point("opposed", factor=8.0, times=self._times())
        yield Point("small-spread", times=self._times())

    def _scale(self) -> float:
        return scales(self.target, SIGN_MIXED)[0]

    def _point(self, sizes: dict[str, int], factor: float, turn: int) -> Point:
        """Conditions go round: what lies beyond a buffer, and who comes first, may matter."""
        return Point(
            factor=factor if turn % 2 else min(factor, 8.0),
            sizes=tuple(sorted(sizes.items())),
            times=self._times(),
            order=("reverse", "forward", "seeded:1")[turn % 3],
            surroundings=("packed", "nan")[turn % 2],
        )
