"""In every second element of a buffer of its own.

problem: suite/relu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        wide = torch.zeros(*x.shape, 2)
        out = wide[..., 0]
        out.copy_(x).clamp_(min=0)
        return out
