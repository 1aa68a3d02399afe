"""Exported programs decomposed to core ATen, without what torch would find out for each anew.

``ExportedProgram.run_decompositions`` looks through all operators each time to tell composite ones
from others, and then gives each of those many kernels. That is most of the time that it takes to
trace a small module, and small modules are what a run traces at one shape after another. Here both
are done once; kernels are put in place and taken away again by the table. This uses parts of torch
that are its own business; a torch without them decomposes in its own time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch._subclasses import fake_impls, fake_tensor
from torch.export import ExportedProgram, exported_program

# Decomposed, these are only close to the composite operator, not bit-equal to it.
KEPT_WHOLE = (
    "softplus",
    "mish",
    "cross_entropy_loss",
    "kl_div",
    "scaled_dot_product_attention",
)

PARTS = (
    (exported_program, "_decompose_exported_program"),
    (exported_program, "_split_decomp_table_to_cia_and_python_decomp"),
    (exported_program, "_override_composite_implicit_decomp"),
    (fake_impls, "op_implementations_dict"),
    (fake_tensor, "unset_fake_temporarily"),
)
"""What torch 2.11 to 2.13 have, and promise nobody."""

Table = dict[Any, Callable[..., Any]]


def decompose(program: ExportedProgram) -> ExportedProgram:
    """What ``run_decompositions`` yields with :func:`default_table`. One thread at a time."""
    if not all(hasattr(module, name) for module, name in PARTS):
        return program.run_decompositions(default_table())
    with fake_tensor.unset_fake_temporarily(), _overridden():
        return exported_program._decompose_exported_program(
            program,
            cia_to_decomp={},  # they are overridden already
            python_decomp_table=dict(_tables()[1]),
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


@lru_cache(maxsize=1)
def _overrides() -> tuple[dict[Any, dict[Any, Any]], Table]:
    """Composite operators' kernels while torch decomposes, and their rules for fake tensors."""
    composite = _tables()[0]
    override = exported_program._override_composite_implicit_decomp
    with override(composite):
        pass  # the first time leaves rules as they were, and afterwards none
    with override(composite):
        kernels = {op: dict(op.py_kernels) for op in composite}
        rules = {op: fake_impls.op_implementations_dict[op] for op in composite}
    return kernels, rules


@contextmanager
def _overridden() -> Iterator[None]:
    kernels, rules = _overrides()
    before = {op: op.py_kernels for op in kernels}
    try:
        fake_impls.op_implementations_dict.update(rules)
        _put(kernels)
        yield
    finally:
        _put(before)
        for op in rules:
            fake_impls.op_implementations_dict.pop(op, None)


def _put(kernels: dict[Any, dict[Any, Any]]) -> None:
    for op, those in kernels.items():
        op.py_kernels = those
        op._dispatch_cache.clear()
