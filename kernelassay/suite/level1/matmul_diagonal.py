"""Product of a diagonal matrix, given by its diagonal, and a full matrix."""

import torch
from torch import nn

rows = 128
columns = 64


class Model(nn.Module):
    def forward(self, diagonal, matrix):
        return diagonal.unsqueeze(1) * matrix


def get_inputs():
    return [torch.rand(rows), torch.rand(rows, columns)]


def get_init_inputs():
    return []
