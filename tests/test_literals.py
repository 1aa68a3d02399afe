"""Which integers inside a problem's code are taken for sizes, and how they are set."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelassay.errors import UsageError
from kernelassay.problem import Problem, apply_overrides, literals, read_problem

SOURCE = '''
import torch
from torch import nn
width = 3
class Model(nn.Module):
    def __init__(self, classes=1000, num_heads=24, block_layers=(6, 12)):
        super().__init__()
        """has 512 channels"""
        self.conv = nn.Conv2d(width, 64, kernel_size=17, padding=3)
        self.wide = nn.Conv2d(64 * width, int(128 * width), 3)
        self.deep = nn.Conv2d(width * 16, 16, 3)
        self.pool = nn.AvgPool2d(7)
        self.fc = nn.Linear(512 * 7 * 7, classes)
        self.out_channels = [24, 48]
    def forward(self, x):
        y = 32 * torch.sigmoid(x[:, 20:]) + 100
        return y if x.shape[0] > 64 else self.fc(y)
def get_inputs():
    return [torch.rand(50, 30, 224, 224)]
def get_init_inputs():
    return []
'''


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    path = tmp_path / "p.py"
    path.write_text(SOURCE)
    return read_problem(path)


def of_kind(problem: Problem, kind: str) -> list[int]:
    return [literal.value for literal in literals(problem) if literal.kind == kind]


def test_extents_are_arguments_defaults_and_listed_values(problem: Problem) -> None:
    assert of_kind(problem, "size") == [1000, 64, 64, 128, 16, 512, 24, 48, 50, 30]


def test_layer_counts_image_extents_and_what_follows_the_image_are_told_apart(
    problem: Problem,
) -> None:
    assert of_kind(problem, "depth") == [6, 12]
    assert of_kind(problem, "spatial") == [224, 224]
    assert of_kind(problem, "factor") == [7, 7, 7]


def test_heads_kernels_bounds_offsets_and_factors_are_left_alone(problem: Problem) -> None:
    taken = {literal.value for literal in literals(problem)}
    assert not taken & {17, 20, 32, 100}


def test_a_literal_is_set_at_its_place_and_nothing_else_changes(problem: Problem) -> None:
    chosen = {x.name: 4 for x in literals(problem) if x.kind == "spatial"}
    assert apply_overrides(problem, chosen) == SOURCE.replace("224, 224", "4, 4")
    assert apply_overrides(problem, {**chosen, "width": 5}) == SOURCE.replace(
        "224, 224", "4, 4"
    ).replace("width = 3", "width = 5")


def test_every_name_is_the_line_and_column_of_its_literal(problem: Problem) -> None:
    lines = SOURCE.splitlines()
    for literal in literals(problem):
        line, column = map(int, literal.name[1:].split(":"))
        assert lines[line - 1][column - 1 :].startswith(str(literal.value))


def test_a_place_without_a_size_is_refused(problem: Problem) -> None:
    with pytest.raises(UsageError, match="@1:1"):
        apply_overrides(problem, {"@1:1": 8})
