"""Each rule turns each of its examples into exactly the texts it promises, in order."""

import pytest

from kernelassay.mutation.catalogue import RULES
from kernelassay.mutation.engine import apply
from kernelassay.mutation.rule import Example, Rule
from kernelassay.mutation.tree import KernelTree

CASES = [
    pytest.param(rule, example, id=f"{rule.id}-{number}")
    for rule in RULES
    for number, example in enumerate(rule.examples)
]


@pytest.mark.parametrize(("rule", "example"), CASES)
def test_an_example_yields_all_its_texts_in_order(rule: Rule, example: Example) -> None:
    found = [apply(example.before, m) for m in rule.find(KernelTree(example.before))]
    assert found == list(example.after)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_shows_at_least_one_rewrite_and_says_what_it_stands_for(rule: Rule) -> None:
    assert any(example.after for example in rule.examples)
    assert rule.what and rule.bug
