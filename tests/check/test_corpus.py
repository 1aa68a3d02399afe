"""The corpus of cheats and correct kernels has the verdicts that it states."""

import pytest

from kernelassay.cheats import corpus
from kernelassay.check import Checker, CheckOptions
from kernelassay.check.replay import Recorded
from tests.check.conftest import SEED, suite_problem

ENTRIES = [entry for entry in corpus() if not entry.needs]


@pytest.fixture(scope="module")
def checker(request):
    with Checker(suite_problem(request.param), CheckOptions(seed=SEED, trials=0)) as made:
        yield made


@pytest.mark.parametrize(
    ("checker", "entry"),
    [pytest.param(entry.problem, entry, id=entry.id) for entry in ENTRIES],
    indirect=["checker"],
)
def test_cheats_are_caught_by_the_defence_they_name_and_nothing_else_is(checker, entry):
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
