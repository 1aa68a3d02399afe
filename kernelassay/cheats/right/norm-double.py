"""Moments in double precision.

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
        wide = x.double().reshape(x.shape[0], -1)
        centred = wide - wide.mean(dim=1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(dim=1, keepdim=True) + norm.eps)
        return (centred * scale).float().reshape(x.shape) * norm.weight + norm.bias
