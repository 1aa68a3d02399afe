"""Matrix product whose left factor is stored transposed."""

import torch
from torch import nn

rows = 64
inner = 96
columns = 32


class Model(nn.Module):
    def forward(self, left, right):
        return torch.matmul(left.t(), right)


def get_inputs():
    return [torch.rand(inner, rows), torch.rand(inner, columns)]


def get_init_inputs():
    return []
