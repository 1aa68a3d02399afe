"""Matrix product that accumulates over a long inner extent."""

import torch
from torch import nn

rows = 16
inner = 1024
columns = 16


class Model(nn.Module):
    def forward(self, left, right):
        return torch.matmul(left, right)


def get_inputs():
    return [torch.rand(rows, inner), torch.rand(inner, columns)]


def get_init_inputs():
    return []
