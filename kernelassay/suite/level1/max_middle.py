"""Largest value along the middle dimension."""

import torch
from torch import nn

batch_size = 4
rows = 64
columns = 32


class Model(nn.Module):
    def forward(self, x):
        return x.max(dim=1).values


def get_inputs():
    return [torch.rand(batch_size, rows, columns)]


def get_init_inputs():
    return []
