"""Problem files for tests: one module with given statements."""

PROBLEM = """\
import torch
import torch.nn as nn

{sizes}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {parameters}):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def problem_text(
    forward: str,
    *,
    sizes: str = "rows = 5\ncols = 96",
    inputs: str = "torch.randn(rows, cols)",
    parameters: str = "x",
    init: str = "pass",
) -> str:
    """A problem file whose forward has these statements."""
    body = forward.replace("\n", "\n        ")
    return PROBLEM.format(
        sizes=sizes, init=init, parameters=parameters, forward=body, inputs=inputs
    )
