"""Convolution of volumes, Mish, and tanh."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 2
in_channels = 4
out_channels = 8
depth = 8
height = 8
width = 16
kernel_size = 3


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        return torch.tanh(F.mish(self.conv(x)))


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
