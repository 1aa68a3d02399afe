"""A model's code becomes inputs, or outcomes that are counted; whatever it does, nothing else."""

from pathlib import Path

import pytest
import torch

from kernelassay.inputs import GIVEN, materialise
from kernelassay.problem import load
from kernelassay.synthesis.generate import answers
from kernelassay.synthesis.generate.answers import (
    LIMIT,
    NO_CODE,
    NO_FUNCTION,
    NO_INPUTS,
    RAISES,
    SHAPES,
    SIZES,
    TWICE,
    code_of,
    inputs_of,
)
from tests.generate.sessions import problem

SOFTMAX = problem("suite/softmax_rows")  # 16 rows of 256


def fenced(code):
    return f"Here you are.\n\n```python\n{code}\n```\nGood luck."


def made(body, folder, count=1):
    return inputs_of(fenced(f"import torch\n{body}"), SOFTMAX, count, "r1", 1, folder)


def one(text):
    return f"def input_1():\n    {text}\n"


GOOD = "return {'features': 33, 'batch_size': 2}, [torch.full((2, 33), 5.0)]"


def test_code_becomes_an_input_whose_values_are_a_file(tmp_path):
    (spec,), failures = made(one(GOOD), tmp_path)
    assert not failures
    assert spec.transform.startswith(GIVEN) and spec.group == "generated"
    assert dict(spec.overrides) == {"batch_size": 2, "features": 33}
    values, _ = materialise(load(SOFTMAX, dict(spec.overrides)), spec)
    assert torch.equal(values[0], torch.full((2, 33), 5.0))


def test_equal_answers_are_equal_inputs(tmp_path):
    assert made(one(GOOD), tmp_path) == made(one(GOOD), tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


FAULTS = {
    RAISES: [
        "raise ValueError('no')",
        "return 1 / 0",
        "open('evil', 'w')",
        "import os; os.fork()",
        "import socket; socket.socket()",
        "import sys; sys.exit(0)",
        "import os; os._exit(3)",
    ],
    LIMIT: ["while True: pass", "return {}, [torch.zeros(1 << 34)]"],
    NO_INPUTS: ["return None", "return {}, 5", "return [torch.zeros(2)]", "return {}, ['text']"],
    SIZES: [
        "return {'no_such_size': 3}, [torch.zeros(16, 256)]",
        "return {'features': 0}, [torch.zeros(16, 0)]",
        "return {'features': 1 << 20}, [torch.zeros(16, 4)]",
    ],
    SHAPES: [
        "return {}, [torch.zeros(16, 255)]",
        "return {'features': 33}, [torch.zeros(16, 256)]",
        "return {}, [torch.zeros(16, 256, dtype=torch.float64)]",
        "return {}, []",
        "return {}, [torch.zeros(16, 256), 1.0]",
    ],
}


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, texts in FAULTS.items() for text in texts]
)
def test_each_fault_is_one_outcome_and_no_file(kind, text, tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "SECONDS", 2.0)  # of this process; a task has its own
    assert made(one(text), tmp_path) == ((), {kind: 1})
    assert not list(tmp_path.iterdir())
    assert not Path("evil").exists()


def test_a_fault_of_one_input_costs_no_other(tmp_path):
    body = one(GOOD) + "def input_2():\n    raise ValueError\n" + one(GOOD).replace("1()", "3()")
    specs, failures = made(body, tmp_path, count=4)
    assert len(specs) == 1
    assert failures == {RAISES: 1, TWICE: 1, NO_FUNCTION: 1}


def test_code_that_does_not_parse_raises_for_every_input(tmp_path):
    assert made("def input_1(:", tmp_path, count=2) == ((), {RAISES: 2})


@pytest.mark.parametrize("text", ["I cannot help with that.", "", "```python\n```", "```\n\n```"])
def test_an_answer_without_code_is_counted_for_every_input(text, tmp_path):
    assert inputs_of(text, SOFTMAX, 3, "r1", 1, tmp_path) == ((), {NO_CODE: 3})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na = 1\n```", "a = 1\n"),
        ("```py\na = 1\n```", "a = 1\n"),
        ("```\na = 1\n```", "a = 1\n"),
        ("```Python\r\na = 1\n```", "a = 1\n"),
        ("```sh\nls\n```\n```python\na = 1\n```", "a = 1\n"),
        ("```python\na\n```\nand\n```python\nlonger\n```", "longer\n"),
        ("def input_1():\n    pass", "def input_1():\n    pass"),
        ("no code", ""),
    ],
)
def test_the_code_of_an_answer_is_its_longest_block(text, code):
    assert code_of(text) == code
