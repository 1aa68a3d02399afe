"""Convolution, group normalisation, a learned scale, maximum pooling, and a clamp."""

import torch
from torch import nn

batch_size = 2
in_channels = 8
out_channels = 16
height = 18
width = 18
kernel_size = 3
num_groups = 4
pool_size = 2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, num_groups, pool_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.norm = nn.GroupNorm(num_groups, out_channels)
        self.scale = nn.Parameter(torch.ones(out_channels, 1, 1))
        self.pool = nn.MaxPool2d(pool_size)

    def forward(self, x):
        return self.pool(self.norm(self.conv(x)) * self.scale).clamp(0.0, 1.0)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, num_groups, pool_size]
