"""Gain and bias in one multiply-add.

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
        variance, mean = torch.var_mean(flat, dim=1, keepdim=True, correction=0)
        plain = (flat - mean) * torch.rsqrt(variance + norm.eps)
        return torch.addcmul(norm.bias, plain.reshape(x.shape), norm.weight)
