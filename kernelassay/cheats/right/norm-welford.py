"""Welford's update over blocks of rows.

problem: suite/layer_norm
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)

    def forward(self, x):
        norm = self.norm
        flat = x.reshape(x.shape[0], -1)
        count, mean, squares = 0, torch.zeros(x.shape[0], 1), torch.zeros(x.shape[0], 1)
        for block in flat.split(48, dim=1):
            size = block.shape[1]
            own = block.mean(dim=1, keepdim=True)
            delta = own - mean
            squares += (block - own).square().sum(dim=1, keepdim=True)
            squares += delta.square() * count * size / (count + size)
            mean += delta * size / (count + size)
            count += size
        out = (flat - mean) * torch.rsqrt(squares / count + norm.eps)
        return out.reshape(x.shape) * norm.weight + norm.bias
