"""Mean, then variance, then scale.

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
        dims = tuple(range(x.dim() - len(norm.normalized_shape), x.dim()))
        centred = x - x.mean(dim=dims, keepdim=True)
        variance = centred.square().mean(dim=dims, keepdim=True)
        return centred / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias
