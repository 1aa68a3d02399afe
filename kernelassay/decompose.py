"""Exported programs decomposed to core ATen, without what torch would find out for each anew.

``ExportedProgram.run_decompositions`` looks through all operators each time to tell composite ones
from others. That, and what it then does slowly, is two thirds of the time that it takes to trace
a small module, and small modules are what a run traces at one shape after another.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export import ExportedProgram, exported_program

# Decomposed, these are only close to the composite operator, not bit-equal to it.
KEPT_WHOLE = (
    "softplus",
    "mish",
    "cross_entropy_loss",
    "kl_div",
    "scaled_dot_product_attention",
)

Table = dict[Any, Callable[..., Any]]

# A decomposition registers ten thousand kernels, and registering one evaluates annotations that
# are subscripts of ``Callable``. They mean the same to ``typing``, which remembers them.
torch._ops.Callable = typing.Callable


def decompose(program: ExportedProgram) -> ExportedProgram:
    """What ``run_decompositions`` yields with :func:`default_table`."""
    composite, others = _tables()
    with unset_fake_temporarily():
        return exported_program._decompose_exported_program(
            program,
            cia_to_decomp=composite,
            python_decomp_table=dict(others),
            joint_loss_index=None,
            decompose_custom_triton_ops=False,
        )


def default_table() -> Table:
    """Decompositions by operator: torch's own, but for the operators that are kept whole."""
    table = torch.export.default_decompositions()
    for name in KEPT_WHOLE:
        table.pop(getattr(torch.ops.aten, name).default, None)
    return dict(table.items())


@lru_cache(maxsize=1)
def _tables() -> tuple[Table, Table]:
    """Those of composite operators, and all others."""
    composite, others = exported_program._split_decomp_table_to_cia_and_python_decomp(
        default_table()
    )
    return composite, others
