"""Matrix product whose right factor is stored transposed."""

import torch
from torch import nn

rows = 32
inner = 96
columns = 64


class Model(nn.Module):
    def forward(self, left, right):
        return torch.matmul(left, right.t())


def get_inputs():
    return [torch.rand(rows, inner), torch.rand(columns, inner)]


def get_init_inputs():
    return []
