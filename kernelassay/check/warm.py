"""Imported by the fork server of a check; unlike a run's it needs no exporter."""

from __future__ import annotations

# First: a candidate that uses a GPU is forked from here.
import kernelassay.execute.bare

# isort: split
import torch

import kernelassay.check.candidate
import kernelassay.check.referee  # noqa: F401

torch.nn.functional.linear(torch.zeros(1, 4), torch.zeros(4, 4))
