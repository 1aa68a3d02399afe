import copy
import math

import pytest
import torch

from kernelassay.problem import Problem, load
from kernelassay.suite import QUICK, suite_problems

PROBLEMS = suite_problems()
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)


def run(problem: Problem, overrides=None, seed: int = 1):
    loaded = load(problem, overrides)
    inputs = loaded.draw(seed)
    (output,) = loaded.forward(loaded.build_model(), inputs)
    return inputs, output


def test_the_suite_has_at_least_46_problems_with_unique_ids():
    assert len(PROBLEMS) >= 46
    assert len({problem.id for problem in PROBLEMS}) == len(PROBLEMS)
    assert sum(problem.level == 2 for problem in PROBLEMS) >= 12


def test_the_quick_selection_names_problems_of_the_suite():
    assert set(QUICK) <= {problem.id for problem in PROBLEMS}


@each_problem
def test_outputs_are_finite_and_vary(problem):
    _, output = run(problem)
    assert torch.isfinite(output.double()).all()
    if output.numel() > 1:
        assert output.double().std() > 1e-6
    _, other = run(problem, seed=2)
    assert not torch.equal(output, other)


@each_problem
def test_float32_and_float64_agree(problem):
    loaded = load(problem)
    inputs = loaded.draw(1)
    model = loaded.build_model()
    exact = copy.deepcopy(model).double()
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    (output,), (reference,) = loaded.forward(model, inputs), loaded.forward(exact, wide)
    assert torch.allclose(output.double(), reference.double(), atol=1e-4, rtol=1e-4)


@each_problem
def test_every_size_changes_a_shape(problem):
    def shapes(overrides):
        loaded = load(problem, overrides)
        state = [tuple(t.shape) for t in loaded.build_model().state_dict().values()]
        return [tuple(x.shape) for x in loaded.draw(1)], state

    assert problem.sizes
    for lever in problem.sizes:
        assert shapes({lever.name: lever.value * 2}) != shapes({})


@each_problem
def test_tensors_are_small(problem):
    inputs, output = run(problem)
    assert max(t.numel() for t in [*inputs, output]) <= 32 * 1024
    assert math.prod(inputs[0].shape) >= 64


@each_problem
def test_every_problem_says_what_it_computes(problem):
    assert problem.source.startswith('"""')


def test_models_are_left_in_train_mode():
    problem = next(problem for problem in PROBLEMS if problem.id == "suite/batch_norm")
    assert load(problem).build_model().training
