"""Where inputs are drawn, and that they are the same wherever they lie."""

import pytest
import torch

from kernelassay.inputs import InputSpec, digest, draw, official_inputs, verified_inputs
from kernelassay.problem import load, read_problem
from kernelassay.suite import suite_problems

PROBLEMS = {problem.id: problem for problem in suite_problems()}

WHERE = """
import torch
from torch import nn
drawn_on = []
rows = 4
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, x, factor):
        return self.layer(x) * factor
def get_inputs():
    x = torch.rand(rows, 8)
    drawn_on.append(str(x.device))
    return [x, 2.5]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        (official_inputs()[0], "meta"),
        (verified_inputs()[1], "meta"),
        (InputSpec("small/a", "targeted", 1, "sign-mixed"), "cpu"),
        (InputSpec("small/official-0", "official", 1, overrides=(("rows", 2),)), "cpu"),
    ],
    ids=lambda value: getattr(value, "id", value),
)
def test_only_what_checkers_draw_is_drawn_on_the_device(tmp_path, spec, place):
    path = tmp_path / "where.py"
    path.write_text(WHERE)
    loaded = load(read_problem(path), dict(spec.overrides))
    x, factor = draw(loaded, spec, torch.device("meta"))
    assert loaded.get_inputs.__globals__["drawn_on"] == [place]
    assert factor == 2.5
    assert str(x.device) == "meta"


def test_an_input_keeps_its_strides_when_it_is_moved():
    for name in ("suite/softmax_rows", "suite/matrix_vector"):
        spec = InputSpec("a", "layout", 1, "sign-mixed", layout="strided")
        here = draw(load(PROBLEMS[name]), spec)
        there = draw(load(PROBLEMS[name]), spec, torch.device("meta"))
        assert [x.stride() for x in there] == [x.stride() for x in here]


def test_a_device_that_is_the_cpu_changes_no_byte():
    loaded = load(PROBLEMS["suite/layer_norm"])
    for spec in (*official_inputs()[:1], *verified_inputs()):
        here, there = (draw(loaded, spec, device) for device in (None, torch.device("cpu")))
        assert digest(here) == digest(there)
