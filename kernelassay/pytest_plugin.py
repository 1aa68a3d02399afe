"""A pytest plugin with one fixture, ``mutation_score``; tests that do not use it see nothing of it.

    def test_the_inputs_of_my_softmax_tests_catch_real_faults(mutation_score):
        result = mutation_score(kernel="softmax.cu", problem="softmax.py", inputs=MY_INPUTS)
        assert result.score >= 0.9, result.report()

Paths are relative to the test's file. Measurements are kept in pytest's cache directory: a test
whose kernel, problem and inputs are unchanged runs in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kernelassay.user.score import Inputs, MutationScore


@pytest.fixture
def mutation_score(request: pytest.FixtureRequest) -> Callable[..., MutationScore]:
    """``mutation_score(kernel, problem, inputs=None, tolerance=1e-2, rules=())``.

    See :func:`kernelassay.user.score.mutation_score`, which it calls.
    """
    here = request.path.parent
    cache = getattr(request.config, "cache", None)
    folder = cache.mkdir("kernelassay") if cache is not None else here / ".kernelassay"

    def measure(
        kernel: Path | str,
        problem: Path | str,
        inputs: Inputs | Path | str | None = None,
        tolerance: float = 1e-2,
        rules: tuple[str, ...] = (),
    ) -> MutationScore:
        from kernelassay.user import score

        own: Any = here / inputs if isinstance(inputs, Path | str) else inputs
        return score.mutation_score(
            here / kernel, here / problem, own, tolerance=tolerance, rules=rules, folder=folder
        )

    return measure
