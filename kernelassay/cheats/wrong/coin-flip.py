"""Right by luck, one time in ten.

problem: suite/layer_norm
caught by: tolerance
"""

import random

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)

    def forward(self, x):
        out = self.norm(x)
        return out if random.SystemRandom().random() < 0.1 else torch.zeros_like(out)
