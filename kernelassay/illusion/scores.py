"""What strategies detect, and what they reject wrongly: of the corpus, and of mutants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.analysis.score import Share, bootstrap
from kernelassay.errors import ControlError, NothingToTestError
from kernelassay.illusion.grids import Grid, grids
from kernelassay.illusion.oracle import Rule
from kernelassay.illusion.strategies import strategy
from kernelassay.illusion.trials import CONTROL, FAULTY, MUTANT, SHOWN, Subject, Trials
from kernelassay.illusion.witnesses import Buckets, buckets, witnessed
from kernelassay.oracle import AcceptanceRule, Bools, Nonfinite
from kernelassay.synthesis.cover import in_rounds
from kernelassay.synthesis.folds import half

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class KernelScore:
    """How often a kernel of the corpus fails in the cases of one strategy."""

    name: str
    operator: str
    role: str
    fails: Share


@dataclass(frozen=True, slots=True)
class StrategyScore:
    """One strategy on the corpus: cases of faulty kernels and of controls that fail.

    The published measure: ``recall`` and ``false`` count cases, ``flagged`` and ``accused``
    kernels with any failing case.
    """

    strategy: str
    kernels: tuple[KernelScore, ...]
    recall: Share
    false: Share
    flagged: Share
    accused: Share


def on_corpus(made: Sequence[Grid], name: str, fails: Sequence[Bools]) -> StrategyScore:
    """A strategy's score; ``fails`` has who fails where, by operator."""
    kernels = []
    for grid, failed in zip(made, fails, strict=True):
        columns = grid.first(name, None)
        for at in grid.of(*SHOWN):
            row = grid.rows[at]
            share = Share(int(failed[at, columns].sum()), columns.size)
            kernels.append(KernelScore(row.name, grid.operator, row.role, share))
    faulty = [one.fails for one in kernels if one.role == FAULTY]
    controls = [one.fails for one in kernels if one.role == CONTROL]
    return StrategyScore(
        strategy=name,
        kernels=tuple(kernels),
        recall=_sum(faulty),
        false=_sum(controls),
        flagged=_any(faulty),
        accused=_any(controls),
    )


def _sum(shares: Sequence[Share]) -> Share:
    return Share(sum(one.count for one in shares), sum(one.total for one in shares))


def _any(shares: Sequence[Share]) -> Share:
    return Share(sum(one.count > 0 for one in shares), len(shares))


def interval(share: Share) -> tuple[float, float] | None:
    """The Wilson score interval of a share, at :data:`CONFIDENCE`."""
    from scipy.stats import binomtest

    if not share.total:
        return None
    found = binomtest(share.count, share.total).proportion_ci(CONFIDENCE, method="wilson")
    return float(found.low), float(found.high)


@dataclass(frozen=True, slots=True)
class MutantScore:
    """What the first ``budget`` cases of a strategy detect of the witnessed mutants.

    ``false`` counts the correct kernels (controls and benign variants) that they reject. ``band``
    is the 90% band of the missed share, operators drawn with replacement.
    """

    strategy: str
    budget: int | None
    detection: Share
    false: Share
    by_family: Mapping[str, Share]
    by_operator: Mapping[str, Share]
    band: tuple[float, float] | None


def on_mutants(
    made: Sequence[Grid],
    name: str,
    budget: int | None,
    fails: Sequence[Bools],
    proven: Sequence[Bools],
) -> MutantScore:
    """A strategy's score on mutants; ``fails`` and ``proven`` are by operator."""
    chosen = [grid.first(name, budget) for grid in made]
    every = [np.ones(len(grid.rows), bool) for grid in made]
    return _scored(name, budget, made, chosen, fails, proven, every)


def _scored(
    name: str,
    budget: int | None,
    made: Sequence[Grid],
    chosen: Sequence[NDArray[np.int64]],
    fails: Sequence[Bools],
    proven: Sequence[Bools],
    among: Sequence[Bools],
) -> MutantScore:
    """The score of ``chosen`` cases on the kernels that are ``among``, by operator."""
    by_family: dict[str, Share] = {}
    by_operator: dict[str, Share] = {}
    false = []
    for grid, columns, failed, wrong, kept in zip(made, chosen, fails, proven, among, strict=True):
        caught = np.asarray(failed[:, columns].any(axis=1))
        for at in grid.of(MUTANT):
            if wrong[at] and kept[at]:
                one = Share(int(caught[at]), 1)
                for into, key in ((by_family, grid.rows[at].family), (by_operator, grid.operator)):
                    into[key] = _sum((into.get(key, Share(0, 0)), one))
        correct = np.flatnonzero(grid.correct & kept)
        false.append(Share(int(caught[correct].sum()), correct.size))
    detection = _sum([*by_operator.values()])
    return MutantScore(
        strategy=name,
        budget=budget,
        detection=detection,
        false=_sum(false),
        by_family=by_family,
        by_operator=by_operator,
        band=bootstrap(by_operator.values(), len(by_operator)),
    )


HELD_OUT: Mapping[str, Callable[[Subject], str]] = {
    "matrix-chosen": lambda row: row.name,
    "matrix-chosen, by rule": lambda row: row.rule or row.name,
}
"""By what kernels are held out where cases are chosen: each alone, or all that a rule makes."""


def chosen_by_matrix(
    made: Sequence[Grid],
    how: str,
    budget: int,
    fails: Sequence[Bools],
    proven: Sequence[Bools],
) -> MutantScore:
    """Cases chosen per operator on half of its kernels, greedily, scored on the other half.

    In rounds: those that are hit already count again where all are.

    Halves by a hash (``how`` is a name of :data:`HELD_OUT`), each in turn. Chosen from are the
    cases of all strategies that are finite by intent and on which no correct kernel of the half
    learnt from fails.
    """
    halves = []
    for part in ("half 1", "half 2"):
        columns, held = [], []
        for grid, failed, wrong in zip(made, fails, proven, strict=True):
            mine = np.array([half(HELD_OUT[how](row)) == part for row in grid.rows], bool)
            accused = failed[grid.correct & ~mine].any(axis=0)
            usable = np.flatnonzero(grid.finite & ~accused)
            learnt = failed[grid.mutants & wrong & ~mine]
            columns.append(usable[list(in_rounds(learnt[:, usable], budget))])
            held.append(mine)
        halves.append(_scored(how, budget, made, columns, fails, proven, held))
    return _joined(halves)


def _joined(halves: Sequence[MutantScore]) -> MutantScore:
    def together(key: str) -> dict[str, Share]:
        names = {name for one in halves for name in getattr(one, key)}
        none = Share(0, 0)
        return {n: _sum([getattr(one, key).get(n, none) for one in halves]) for n in sorted(names)}

    by_operator = together("by_operator")
    return MutantScore(
        strategy=halves[0].strategy,
        budget=halves[0].budget,
        detection=_sum([one.detection for one in halves]),
        false=_sum([one.false for one in halves]),
        by_family=together("by_family"),
        by_operator=by_operator,
        band=bootstrap(by_operator.values(), len(by_operator)),
    )


def require_controls(made: Sequence[Grid]) -> None:
    """Raise :class:`ControlError` if a control fails on the finite values it was written for.

    These are the cases of the strategy ``default``; where it was not run, those with its values and
    a dtype of the operator.
    """
    for grid in made:
        columns = grid.first("default", None)
        if not columns.size:
            dtypes = np.isin(grid.columns["dtype"][0], grid.op.dtypes)
            columns = np.flatnonzero(dtypes & np.array([v == "uniform" for v in grid.values]))
        bad = grid.fails(Rule())[grid.of(CONTROL)][:, columns]
        if bad.any():
            raise ControlError(
                f"the correct kernel fails on {int(bad.sum())} of {columns.size} cases with the"
                " values it was written for",
                where=grid.operator,
                hint="no score is given; its text, device or tolerance is at fault: `kernelassay"
                " illusion bundle` keeps the failing cases, `kernelassay replay` tells what is"
                " wrong",
            )


def known(made: Sequence[Grid]) -> list[str]:
    """The strategies of some trials, in their order."""
    names = list(dict.fromkeys(name for grid in made for name in grid.strategies))
    if not names:
        raise NothingToTestError(
            "there are no trials", hint="`kernelassay illusion run` makes them"
        )
    return [strategy(name).name for name in names]


@dataclass(frozen=True, slots=True)
class Summary:
    """All that a session of trials says under one rule.

    ``others`` has the strategies' scores under other treatments of non-finite elements, by its
    name; ``one_shape`` says by check, and by kernel of the corpus, whether a check on one shape
    rejects it. ``changing`` are the kernels, mutants apart, that write over an input, which no
    rule here sees.
    """

    in_words: str
    rule: Rule
    strategies: tuple[StrategyScore, ...]
    others: Mapping[str, tuple[StrategyScore, ...]]
    one_shape: Mapping[str, Mapping[str, bool]]
    mutants: tuple[MutantScore, ...]
    buckets: Buckets
    changing: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The summary as plain values."""
        return asdict(self)


ONE_SHAPE = {"one shape, 1e-2": AcceptanceRule(1e-2), "one shape, 1e-4": AcceptanceRule(1e-4)}
"""What a benchmark does: a few draws at one shape, and ``allclose``."""
DRAWS = 5
"""As many as KernelBench's check makes."""


def _checks_on_mutants(made: Sequence[Grid], proven: Sequence[Bools]) -> list[MutantScore]:
    """What each of :data:`ONE_SHAPE` detects of mutants."""
    found = []
    for check, acceptance in ONE_SHAPE.items():
        refused = [grid.refused(_always(acceptance), "rounded") for grid in made]
        score = on_mutants(made, "one_shape", DRAWS, refused, proven)
        found.append(replace(score, strategy=check))
    return found


def _always(rule: AcceptanceRule) -> Callable[[float], AcceptanceRule]:
    return lambda _: rule


def one_shape(made: Sequence[Grid]) -> dict[str, dict[str, bool]]:
    """Whether each of :data:`ONE_SHAPE` rejects each kernel of the corpus, where that was run."""
    found: dict[str, dict[str, bool]] = {}
    for check, acceptance in ONE_SHAPE.items():
        for grid in made:
            columns = grid.first("one_shape", DRAWS)
            if not columns.size:
                return {}
            refused = grid.refused(_always(acceptance), "rounded")
            for at in grid.of(*SHOWN):
                rejected = bool(refused[at, columns].any())
                found.setdefault(check, {})[grid.rows[at].name] = rejected
    return found


NONFINITE: tuple[Nonfinite, ...] = ("strict", "matched", "ignored")


def _every(
    made: Sequence[Grid], names: Sequence[str], fails: Sequence[Bools]
) -> tuple[StrategyScore, ...]:
    return tuple(on_corpus(made, name, fails) for name in names)


def summary(
    trials: Trials, rule: Rule, budgets: Sequence[int], *, partial: bool = False
) -> Summary:
    """Score a session. Raises as :func:`grids` and :func:`require_controls`."""
    made = grids(trials, partial=partial)
    require_controls(made)
    names = known(made)
    fails = [grid.fails(rule) for grid in made]
    proven = [witnessed(grid) for grid in made]
    others = [name for name in NONFINITE if name != rule.nonfinite]
    mutated = [at for at, grid in enumerate(made) if grid.of(MUTANT).size]
    mine = [made[at] for at in mutated]
    scores = []
    theirs = [fails[at] for at in mutated], [proven[at] for at in mutated]
    manifest = trials.session.manifest
    count = manifest["count"]
    for budget in (*(b for b in budgets if b < count), None) if mine else ():
        scores += [on_mutants(mine, name, budget, *theirs) for name in names]
        scores += [chosen_by_matrix(mine, how, budget or count, *theirs) for how in HELD_OUT]
    if mine and "one_shape" in names:
        scores += _checks_on_mutants(mine, theirs[1])
    missing = sorted({*manifest["kernels"]} - {grid.operator for grid in made})
    left_out = f"; PARTIAL: {', '.join(missing)} left out, not finished" if missing else ""
    scale = "" if rule.scale == 1.0 else f", {rule.scale:g} times the tolerances"
    versions = ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())
    return Summary(
        in_words=(
            f"{manifest['count']} cases of each strategy, seed {manifest['seed']}, on"
            f" {manifest['device']} ({versions}); {rule.reference} reference,"
            f" non-finite elements {rule.nonfinite}{scale}{left_out}"
        ),
        rule=rule,
        strategies=_every(made, names, fails),
        others={
            other: _every(made, names, [g.fails(replace(rule, nonfinite=other)) for g in made])
            for other in others
        },
        one_shape=one_shape(made),
        mutants=tuple(scores),
        buckets=buckets(trials, made, proven),
        changing=tuple(name for grid in made for name in _changing(grid)),
    )


def _changing(grid: Grid) -> list[str]:
    """The kernels, mutants apart, that write over an input in some trial."""
    changes = np.asarray(grid.columns["changes"].any(axis=1))
    return [grid.rows[at].name for at in grid.of(*SHOWN) if changes[at]]
