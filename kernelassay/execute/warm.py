"""Imported by the fork server: pays once for what every worker needs (torch, its exporter)."""

from __future__ import annotations

import os
import warnings

# The CPU executor's workers are forked from this process after the warm-up below; on a machine
# with a GPU the exporter would start CUDA in it, and CUDA does not survive a fork.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch

warnings.filterwarnings("ignore", category=FutureWarning)
torch.set_num_threads(1)


def warm_up() -> None:
    """Export a small module so that the exporter's lazy imports are done before any fork."""
    with torch.no_grad():
        program = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))
        program.run_decompositions()


warm_up()
