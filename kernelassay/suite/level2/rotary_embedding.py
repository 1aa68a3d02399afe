"""Rotary position embedding: pairs of components turned by angles that grow with the position."""

import torch
from torch import nn

batch_size = 2
num_heads = 4
length = 32
pairs = 8
base = 10000.0


class Model(nn.Module):
    def forward(self, x):
        exponents = torch.arange(pairs, dtype=x.dtype) / pairs
        positions = torch.arange(length, dtype=x.dtype)
        angles = positions[:, None] * torch.pow(base, -exponents)
        left, right = x[..., :pairs], x[..., pairs:]
        cosine, sine = torch.cos(angles), torch.sin(angles)
        return torch.cat([left * cosine - right * sine, left * sine + right * cosine], dim=-1)


def get_inputs():
    return [torch.rand(batch_size, num_heads, length, 2 * pairs)]


def get_init_inputs():
    return []
