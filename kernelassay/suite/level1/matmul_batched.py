"""One matrix product per sample of a batch."""

import torch
from torch import nn

batch_size = 4
rows = 32
inner = 64
columns = 16


class Model(nn.Module):
    def forward(self, left, right):
        return torch.bmm(left, right)


def get_inputs():
    return [torch.rand(batch_size, rows, inner), torch.rand(batch_size, inner, columns)]


def get_init_inputs():
    return []
