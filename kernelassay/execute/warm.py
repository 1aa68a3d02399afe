"""Imported by the fork server: pays once for what every worker needs (torch, its exporter)."""

from __future__ import annotations

# First: workers, and from them processes that own a GPU, are forked from here.
import kernelassay.execute.bare  # noqa: F401

# isort: split
import torch

from kernelassay.decompose import decompose


def warm_up() -> None:
    """Export a small module, so that what the exporter imports and keeps is there when forked."""
    with torch.no_grad():
        decompose(torch.export.export(torch.nn.ReLU(), (torch.zeros(2),)))


warm_up()
