"""The inputs that a candidate cannot know, and the seeds it is told."""

from dataclasses import replace

import torch

from kernelassay.check.draws import hidden_inputs
from kernelassay.check.subject import own_seed
from kernelassay.inputs import materialise
from kernelassay.problem import load
from tests.check.conftest import suite_problem
from tests.check.test_judge import prepared

SOFTMAX = suite_problem("suite/softmax_rows")


def test_one_hidden_input_is_like_another_in_all_that_a_digest_may_look_at():
    specs = {spec.id: spec for spec in hidden_inputs(SOFTMAX, 5, shapes=False)}
    alike = specs["hidden/alike"]
    first = next(spec for spec in specs.values() if spec.seed == alike.seed)
    assert list(specs).index(first.id) < list(specs).index(alike.id)
    (one,), (other,) = (materialise(load(SOFTMAX), spec)[0] for spec in (first, alike))
    half = one.numel() // 2
    assert torch.equal(one.flatten()[:half], other.flatten()[:half])
    assert one.flatten()[-1] == other.flatten()[-1]
    assert torch.equal(one.flatten().sort().values, other.flatten().sort().values)
    assert not torch.equal(one, other)


def test_the_same_seed_chooses_the_same_inputs_and_another_one_others():
    assert hidden_inputs(SOFTMAX, 5, shapes=True) == hidden_inputs(SOFTMAX, 5, shapes=True)
    seeds = [{s.seed for s in hidden_inputs(SOFTMAX, n, shapes=True)} for n in (5, 6)]
    assert not seeds[0] & seeds[1]


def test_a_candidate_is_told_an_inputs_seed_only_where_the_reference_draws():
    one = prepared([1.0])
    told = {own_seed(one, number) for number in (1, 2)}
    assert one.spec.seed not in told
    assert len(told) == 2
    assert own_seed(replace(one, draws=True), 1) == one.spec.seed
