"""Imported by the fork server: pays once for what every worker needs (torch, its exporter)."""

from __future__ import annotations

import os
import warnings

# Workers are forked from this process after the warm-up below, and processes that own a GPU from
# workers. CUDA does not survive a fork, so nothing may start it here: not a look for devices, and
# not fake tensors, which see to it that a guard is set that machines without a GPU need.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

import torch

from kernelassay.decompose import decompose

torch._C._ensureCUDADeviceGuardSet = lambda: None
warnings.filterwarnings("ignore", category=FutureWarning)
torch.set_num_threads(1)


def warm_up() -> None:
    """Export a small module, so that what the exporter imports and keeps is there when forked."""
    with torch.no_grad():
        decompose(torch.export.export(torch.nn.ReLU(), (torch.zeros(2),)))


warm_up()
