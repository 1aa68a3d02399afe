"""Imported by the fork server: pays once for what every worker needs (torch, its exporter)."""

from __future__ import annotations

import warnings

import torch

warnings.filterwarnings("ignore", category=FutureWarning)
torch.set_num_threads(1)


def warm_up() -> None:
    """Export a small module so that the exporter's lazy imports are done before any fork."""
    with torch.no_grad():
        program = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))
        program.run_decompositions()


warm_up()
