"""Exponentials without the maximum, which overflow where tests do not look.

problem: suite/softmax_rows
caught by: targeted values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        powers = torch.exp(x)
        return powers / powers.sum(dim=1, keepdim=True)
