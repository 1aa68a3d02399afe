"""Every rule has a site in some style of some kernel of the own suite."""

import pytest
from torch import nn

from kernelassay.mutation import RULES, mutants
from kernelassay.problem import load
from kernelassay.styles import STYLES
from kernelassay.substrate.lowering import lower, lower_fused
from kernelassay.suite import suite_problems
from kernelassay.trace import trace

NEVER = {
    "momentum-statistics": "no traced graph updates running statistics, and generated elementwise"
    " code has one operator a statement, so no running average stands in one expression",
}
"""Rules without a site, with the reason."""


@pytest.fixture(scope="module")
def sources():
    """Style and text of every distinct kernel source of the suite."""
    found = {}
    for problem in suite_problems():
        loaded = load(problem)
        model = loaded.build_model()
        assert isinstance(model, nn.Module)
        traced = trace(model, tuple(loaded.draw(1)))
        for call in (*lower(traced), *lower_fused(traced)):
            for style, text in call.sources.items():
                found.setdefault(text, (style, f"{problem.id} {call.id}"))
    return found


def test_every_style_has_a_kernel_in_the_suite(sources):
    assert {style for style, _ in sources.values()} == set(STYLES)


def test_every_rule_fires_on_the_suite(sources):
    silent = {rule.id: rule for rule in RULES}
    for text, (style, where) in sorted(sources.items(), key=lambda item: item[1]):
        for found in mutants(
            text, problem=where, call="k", style=style, rules=tuple(silent.values())
        ).mutants:
            silent.pop(found.rule, None)
    assert sorted(silent) == sorted(NEVER)
