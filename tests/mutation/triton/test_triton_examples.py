"""Each Triton rule turns each of its examples into exactly the texts it promises, in order."""

import ast

import pytest

from kernelassay.mutation.engine import apply
from kernelassay.mutation.rule import Example, Rule
from kernelassay.mutation.triton.catalogue import BENIGN, RULES
from kernelassay.mutation.triton.tree import TritonTree

CASES = [
    pytest.param(rule, example, id=f"{rule.id}-{number}")
    for rule in (*RULES, *BENIGN)
    for number, example in enumerate(rule.examples)
]


@pytest.mark.parametrize(("rule", "example"), CASES)
def test_an_example_yields_all_its_texts_in_order(rule: Rule, example: Example) -> None:
    found = [apply(example.before, m) for m in rule.find(TritonTree(example.before))]
    assert found == list(example.after)
    for text in (example.before, *found):
        ast.parse(text)


@pytest.mark.parametrize("rule", (*RULES, *BENIGN), ids=lambda rule: rule.id)
def test_a_rule_shows_at_least_one_rewrite_and_says_what_it_stands_for(rule: Rule) -> None:
    assert any(example.after for example in rule.examples)
    assert rule.what and rule.bug
