"""Product of two rectangular matrices whose three extents all differ."""

import torch
from torch import nn

rows = 32
inner = 128
columns = 64


class Model(nn.Module):
    def forward(self, left, right):
        return torch.matmul(left, right)


def get_inputs():
    return [torch.rand(rows, inner), torch.rand(inner, columns)]


def get_init_inputs():
    return []
