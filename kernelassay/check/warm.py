"""Imported by the fork server of a check; unlike a run's it needs no exporter."""

from __future__ import annotations

import os

# Candidates that use a GPU are forked from here: nothing may start CUDA, not even a look for it.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch

import kernelassay.check.candidate
import kernelassay.check.referee  # noqa: F401

torch.set_num_threads(1)
torch.nn.functional.linear(torch.zeros(1, 4), torch.zeros(4, 4))
