"""The problems that ship with the tool: single operations (level 1) and short chains (level 2).

Every file is in KernelBench's format, draws its inputs with ``torch.rand`` as KernelBench does,
and names every extent as a module-level integer. A naive kernel needs about 2 MFLOP at most.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kernelassay.problem import Problem, read_problem

QUICK: tuple[str, ...] = (
    "suite/softmax_rows",
    "suite/matmul_rectangular",
    "suite/layer_norm",
    "suite/relu",
    "suite/conv2d",
    "suite/max_pool2d",
    "suite/sum_middle",
    "suite/matmul_gelu_softmax",
)
"""Ids of a small cross-section: one cheap problem for each kind of kernel."""


@cache
def suite_problems() -> tuple[Problem, ...]:
    """All problems of the suite, by level and then by name. The files are not executed."""
    root = Path(__file__).parent
    return tuple(
        read_problem(path, id=f"suite/{path.stem}", level=level, origin="suite")
        for level in (1, 2)
        for path in sorted((root / f"level{level}").glob("*.py"))
    )
