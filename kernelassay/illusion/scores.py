"""What strategies detect, and what they reject wrongly: of the corpus, and of mutants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.analysis.score import Share, bootstrap
from kernelassay.cell import OK
from kernelassay.errors import ControlError, NothingToTestError
from kernelassay.illusion.grids import Grid, grids
from kernelassay.illusion.oracle import Rule
from kernelassay.illusion.strategies import strategy
from kernelassay.illusion.trials import CONTROL, FAULTY, MUTANT, SHOWN, Trials
from kernelassay.oracle import AcceptanceRule, Bools, Nonfinite
from kernelassay.synthesis.cover import greedy
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


PROOF = Rule("matched")
"""What proves a mutant wrong, whatever rule is scored: a laxer one must not have fewer to find."""


def proofs(grid: Grid) -> Bools:
    """Where a fair case proves a kernel wrong, under :data:`PROOF`. Shape [kernels, cases].

    An element that is never written is wrong, whatever a checker makes of it.
    """
    wrong = grid.fails(PROOF) | (grid.columns["unwritten"] > 0)
    return np.asarray(wrong & grid.fair(PROOF))


def witnessed(grid: Grid) -> Bools:
    """Which kernels some fair case proves wrong. Shape [kernels]."""
    return np.asarray(proofs(grid).any(axis=1))


def stops(grid: Grid) -> Counter[str]:
    """Witnessed mutants that no wrong output proves wrong, by the outcome that first does."""
    proving, found = proofs(grid), Counter[str]()
    for at in grid.of(MUTANT):
        outcomes = grid.columns["outcome"][at][proving[at]]
        if outcomes.size and not (outcomes == OK).any():
            found[outcomes[0]] += 1
    return found


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


def chosen_by_matrix(
    made: Sequence[Grid], budget: int, fails: Sequence[Bools], proven: Sequence[Bools]
) -> MutantScore:
    """Cases chosen per operator on half of its kernels, greedily, scored on the other half.

    Halves by the hash of names, each in turn. Chosen from are the cases of all strategies that are
    finite by intent and on which no correct kernel of the half learnt from fails.
    """
    halves = []
    for part in ("half 1", "half 2"):
        columns, held = [], []
        for grid, failed, wrong in zip(made, fails, proven, strict=True):
            mine = np.array([half(row.name) == part for row in grid.rows], bool)
            accused = failed[grid.correct & ~mine].any(axis=0)
            usable = np.flatnonzero(grid.finite & ~accused)
            learnt = failed[grid.mutants & wrong & ~mine]
            columns.append(usable[list(greedy(learnt[:, usable], budget))])
            held.append(mine)
        halves.append(_scored("matrix-chosen", budget, made, columns, fails, proven, held))
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
    rejects it.
    """

    in_words: str
    rule: Rule
    strategies: tuple[StrategyScore, ...]
    others: Mapping[str, tuple[StrategyScore, ...]]
    one_shape: Mapping[str, Mapping[str, bool]]
    mutants: tuple[MutantScore, ...]
    buckets: Buckets

    def to_json(self) -> dict[str, Any]:
        """The summary as plain values."""
        return asdict(self)


ONE_SHAPE = {"one shape, 1e-2": AcceptanceRule(1e-2), "one shape, 1e-4": AcceptanceRule(1e-4)}
"""What a benchmark does: a few draws at one shape, and ``allclose``."""


def _checks_on_mutants(made: Sequence[Grid], proven: Sequence[Bools]) -> list[MutantScore]:
    """What each of :data:`ONE_SHAPE` detects of mutants."""
    found = []
    for check, acceptance in ONE_SHAPE.items():
        refused = [grid.refused(_always(acceptance), "rounded") for grid in made]
        score = on_mutants(made, "one_shape", None, refused, proven)
        found.append(replace(score, strategy=check))
    return found


def _always(rule: AcceptanceRule) -> Callable[[float], AcceptanceRule]:
    return lambda _: rule


def one_shape(made: Sequence[Grid]) -> dict[str, dict[str, bool]]:
    """Whether each of :data:`ONE_SHAPE` rejects each kernel of the corpus, where that was run."""
    found: dict[str, dict[str, bool]] = {}
    for check, acceptance in ONE_SHAPE.items():
        for grid in made:
            columns = grid.first("one_shape", None)
            if not columns.size:
                return {}
            refused = grid.refused(_always(acceptance), "rounded")
            for at in grid.of(*SHOWN):
                rejected = bool(refused[at, columns].any())
                found.setdefault(check, {})[grid.rows[at].name] = rejected
    return found


@dataclass(frozen=True, slots=True)
class Buckets:
    """Every generated mutant is in exactly one bucket.

    ``flagged`` ones have a sanitizer finding and no wrong output. ``stopped`` counts those of the
    witnessed that have no output wherever they are proven wrong, by how their first run ended.
    """

    generated: int
    stillborn: int
    equivalent: int
    duplicate: int
    distinct: int
    witnessed: int
    flagged: int
    unobserved: int
    stopped: Mapping[str, int]

    def check(self) -> None:
        """Raises ``AssertionError`` if the buckets do not close."""
        named = self.stillborn + self.equivalent + self.duplicate + self.distinct
        assert self.generated == named, self
        assert self.distinct == self.witnessed + self.flagged + self.unobserved, self
        assert sum(self.stopped.values()) <= self.witnessed, self


def buckets(trials: Trials, made: Sequence[Grid], proven: Sequence[Bools]) -> Buckets:
    """The buckets of all mutants of a session."""
    counts: Counter[str] = Counter()
    stopped: Counter[str] = Counter()
    for grid, wrong in zip(made, proven, strict=True):
        counts.update(str(one["status"]) for one in trials.population(grid.operator))
        stopped.update(stops(grid))
        flagged = np.asarray(grid.columns["flagged"].any(axis=1))
        for at in grid.of(MUTANT):
            unproven = "flagged" if flagged[at] else "unobserved"
            counts["witnessed" if wrong[at] else unproven] += 1
    made_of = {name: counts[name] for name in STATUSES}
    found = Buckets(
        generated=sum(made_of.values()),
        **made_of,
        witnessed=counts["witnessed"],
        flagged=counts["flagged"],
        unobserved=counts["unobserved"],
        stopped=dict(sorted(stopped.items())),
    )
    found.check()
    return found


STATUSES = ("stillborn", "equivalent", "duplicate", "distinct")

NONFINITE: tuple[Nonfinite, ...] = ("strict", "matched", "ignored")


def _under(made: Sequence[Grid], names: Sequence[str], rule: Rule) -> tuple[StrategyScore, ...]:
    fails = [grid.fails(rule) for grid in made]
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
    for budget in (*budgets, None) if mine else ():
        scores += [on_mutants(mine, name, budget, *theirs) for name in names]
        if budget is not None:
            scores.append(chosen_by_matrix(mine, budget, *theirs))
    if mine and "one_shape" in names:
        scores += _checks_on_mutants(mine, theirs[1])
    manifest = trials.session.manifest
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
        strategies=_under(made, names, rule),
        others={other: _under(made, names, replace(rule, nonfinite=other)) for other in others},
        one_shape=one_shape(made),
        mutants=tuple(scores),
        buckets=buckets(trials, made, proven),
    )
