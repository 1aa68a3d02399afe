"""Ways to pick cases: the seven published ones (arXiv 2606.27396), and ours.

The published ones change the sizes of a dimension named ``H`` alone, so that operators without one
(matmul, attention) get the same cases from three of them; that is kept. Each strategy draws from a
master seed of its own: the experiment's seed and the character codes of its name, summed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from kernelassay.errors import unknown_name
from kernelassay.illusion.cases import Case, drawn
from kernelassay.illusion.rng import Generator, derive
from kernelassay.illusion.schema import Schema
from kernelassay.illusion.values import STRUCTURED

Draw = Callable[["Strategy", Schema, Sequence[str], int, int], tuple[Case, ...]]
"""Strategy, schema, dtypes of the operator, master seed, count -> cases."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How cases are drawn. A longer draw begins with the shorter one.

    ``dtypes`` replaces those of the operator, ``sizes`` candidates of some dimensions.
    """

    name: str
    what: str
    source: str
    draw: Draw
    values: tuple[str, ...] = ("uniform",)
    dtypes: tuple[str, ...] = ()
    sizes: Mapping[str, tuple[int, ...]] | None = None

    def cases(
        self, schema: Schema, dtypes: Sequence[str], *, seed: int, count: int
    ) -> tuple[Case, ...]:
        """The first ``count`` cases for an operator of these dtypes, under an experiment's seed."""
        master = seed + sum(map(ord, self.name))
        return self.draw(self, schema, self.dtypes or tuple(dtypes), master, count)


def _at_random(
    one: Strategy, schema: Schema, dtypes: Sequence[str], master: int, count: int
) -> tuple[Case, ...]:
    known = {n: sizes for n, sizes in (one.sizes or {}).items() if n in schema.dims}
    changed = replace(schema, dims={**schema.dims, **known})
    return tuple(
        drawn(
            changed,
            strategy=one.name,
            index=index,
            master=master,
            dtypes=dtypes,
            values=Generator(derive(derive(master, f"iter_{index}"), "values")).choice(one.values),
        )
        for index in range(count)
    )


def _one_shape(
    one: Strategy, schema: Schema, dtypes: Sequence[str], master: int, count: int
) -> tuple[Case, ...]:
    """Draws at the middle candidate of every dimension (of an even number, the larger), packed."""
    middle = {name: (sizes[len(sizes) // 2],) for name, sizes in schema.dims.items()}
    fixed = replace(schema, dims=middle)
    return tuple(
        replace(case, layout="contiguous") for case in _at_random(one, fixed, dtypes, master, count)
    )


Feature = tuple[str, Any]


def _features(schema: Schema, one: Case) -> frozenset[Feature]:
    """What of a case a fault may hang on: ends and odd sizes, dtype, layout, kind of values."""
    found: set[Feature] = {("dtype", one.dtype), ("layout", one.layout), ("values", one.values)}
    for name, size in one.sizes:
        known = schema.dims[name]
        found |= {(name, what) for what, is_so in _edges(known, size).items() if is_so}
    return frozenset(found)


def _edges(known: Sequence[int], size: int) -> dict[str, bool]:
    return {
        "smallest": size == min(known),
        "largest": size == max(known),
        "no power of two": size & (size - 1) != 0,
    }


_CANDIDATES = 512  # random cases from which a covering one is picked


def _covering(
    one: Strategy, schema: Schema, dtypes: Sequence[str], master: int, count: int
) -> tuple[Case, ...]:
    """Greedy cover of single features, then of pairs, then the rest at random.

    Of equally good cases the one with most edges is taken, then the first drawn.
    """
    pool = _at_random(one, schema, dtypes, master, _CANDIDATES + count)
    features = [_features(schema, case) for case in pool[:_CANDIDATES]]
    goals: list[list[frozenset[Any]]] = [[frozenset({f}) for f in row] for row in features]
    pairs = [[frozenset(pair) for pair in combinations(sorted(row), 2)] for row in features]
    order: list[int] = []
    for wanted in (goals, pairs):
        order += _greedy([frozenset(row) for row in wanted], features, order, count)
    order += [at for at in range(len(pool)) if at not in set(order)]
    return tuple(replace(pool[at], index=place) for place, at in enumerate(order[:count]))


def _greedy(
    rows: Sequence[frozenset[Any]],
    features: Sequence[frozenset[Feature]],
    taken: Sequence[int],
    count: int,
) -> list[int]:
    covered: set[Any] = set().union(*(rows[at] for at in taken)) if taken else set()
    left = [at for at in range(len(rows)) if at not in set(taken)]
    chosen: list[int] = []
    while left and len(taken) + len(chosen) < count:
        best = max(left, key=lambda at: (len(rows[at] - covered), len(features[at]), -at))
        if not rows[best] - covered:
            break
        covered |= rows[best]
        left.remove(best)
        chosen.append(best)
    return chosen


_PUBLISHED = "arXiv 2606.27396"
_OURS = "ours"

STRATEGIES: dict[str, Strategy] = {
    one.name: one
    for one in (
        Strategy("default", "the schema as it stands, U[-10, 10)", _PUBLISHED, _at_random),
        Strategy("boundary", "H of 1, 3, 7", _PUBLISHED, _at_random, sizes={"H": (1, 3, 7)}),
        Strategy(
            "regular", "H of 128, 256, 512", _PUBLISHED, _at_random, sizes={"H": (128, 256, 512)}
        ),
        Strategy("single_dtype_f32", "float32", _PUBLISHED, _at_random, dtypes=("float32",)),
        Strategy("single_dtype_f16", "float16", _PUBLISHED, _at_random, dtypes=("float16",)),
        Strategy(
            "nan_injected",
            "NaN, infinities and 0 among the elements",
            _PUBLISHED,
            _at_random,
            values=("nan-injected",),
        ),
        Strategy(
            "adversarial",
            "extreme and non-finite elements",
            _PUBLISHED,
            _at_random,
            values=("adversarial",),
        ),
        Strategy(
            "adversarial_as_coded",
            "the same with the values of the published code",
            "the code of arXiv 2606.27396",
            _at_random,
            values=("adversarial-as-coded",),
        ),
        Strategy(
            "one_shape",
            "the middle size of every dimension, float32, U[-1, 1)",
            "what benchmarks do; the measured baseline",
            _one_shape,
            values=("unit",),
            dtypes=("float32",),
        ),
        Strategy(
            "structured",
            "the schema, and finite values of seven kinds",
            _OURS,
            _at_random,
            values=STRUCTURED,
        ),
        Strategy(
            "pairwise",
            "covers edges of sizes, dtypes, layouts and kinds of values, then pairs of them",
            _OURS,
            _covering,
            values=STRUCTURED,
        ),
    )
}
PUBLISHED = tuple(name for name, one in STRATEGIES.items() if one.source == _PUBLISHED)


def strategy(name: str) -> Strategy:
    """The strategy of this name; an unknown one raises ``UsageError``."""
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
    return STRATEGIES[name]


def named(names: Sequence[str]) -> tuple[str, ...]:
    """Strategies by name, ``"all"`` or ``"published"``; ``"default"`` for none."""
    chosen: list[str] = []
    for name in names or ("default",):
        several = {"all": tuple(STRATEGIES), "published": PUBLISHED}.get(name)
        chosen += several or (strategy(name).name,)
    return tuple(dict.fromkeys(chosen))
