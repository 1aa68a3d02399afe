"""Product of two square matrices."""

import torch
from torch import nn

size = 64


class Model(nn.Module):
    def forward(self, left, right):
        return left @ right


def get_inputs():
    return [torch.rand(size, size), torch.rand(size, size)]


def get_init_inputs():
    return []
