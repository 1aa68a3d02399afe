"""Convolution of volumes, softplus, maximum pooling, and a spatial mean."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 2
in_channels = 4
out_channels = 8
depth = 8
height = 10
width = 10
kernel_size = 3
pool_size = 2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, pool_size):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.pool = nn.MaxPool3d(pool_size)

    def forward(self, x):
        return self.pool(F.softplus(self.conv(x))).mean(dim=(2, 3, 4))


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, pool_size]
