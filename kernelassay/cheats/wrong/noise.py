"""Right up to noise that is new in each call.

problem: suite/softmax_rows
caught by: tolerance
"""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.softmax(x, dim=1)
        noise = torch.rand(
            out.shape, generator=torch.Generator().manual_seed(time.time_ns() % 2**31)
        )
        return out * (1.0 + 0.01 * noise)
