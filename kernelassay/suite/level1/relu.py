"""Rectified linear unit: the larger of the value and zero."""

import torch
from torch import nn

batch_size = 16
features = 256


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return []
