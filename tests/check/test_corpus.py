"""The corpus of cheats and correct kernels has the verdicts that it states."""

from contextlib import ExitStack

import pytest

from kernelassay.cheats import corpus
from kernelassay.check import Checker, CheckOptions
from kernelassay.check.replay import Recorded
from tests.check.conftest import SEED, suite_problem

ENTRIES = sorted(
    (entry for entry in corpus() if not entry.needs), key=lambda entry: (entry.problem, entry.id)
)


@pytest.fixture(scope="module")
def checkers():
    """A checker for each problem; the one before is closed, as entries come by problem."""
    with ExitStack() as stack:
        made = {}

        def checker(name):
            if name not in made:
                stack.close()
                made.clear()
                options = CheckOptions(seed=SEED, trials=0)
                made[name] = stack.enter_context(Checker(suite_problem(name), options))
            return made[name]

        yield checker


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.id, marks=pytest.mark.xdist_group(f"check {entry.problem}"))
        for entry in ENTRIES
    ],
)
def test_cheats_are_caught_by_the_defence_they_name_and_nothing_else_is(checkers, entry):
    checker = checkers(entry.problem)
    candidate = Recorded.of(entry.path, checker.problem, checker.options).candidate
    verdict = checker.check(candidate)
    if entry.is_cheat:
        assert not verdict.accepted
        if not verdict.missing:
            assert verdict.rejection.defence == entry.defence, verdict.rejection
    else:
        assert verdict.accepted, verdict.rejection


def test_the_corpus_has_cheats_and_correct_kernels_enough():
    assert sum(entry.is_cheat for entry in ENTRIES) >= 40
    assert sum(not entry.is_cheat for entry in ENTRIES) >= 25
    assert len({entry.id for entry in corpus()}) == len(corpus())
