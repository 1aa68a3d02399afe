"""Product of a matrix and a column vector."""

import torch
from torch import nn

rows = 64
inner = 256


class Model(nn.Module):
    def forward(self, matrix, vector):
        return torch.matmul(matrix, vector)


def get_inputs():
    return [torch.rand(rows, inner), torch.rand(inner, 1)]


def get_init_inputs():
    return []
