"""Convolution with a 1 x 1 kernel: a matrix product at every pixel."""

import torch
from torch import nn

batch_size = 2
in_channels = 16
out_channels = 32
height = 16
width = 16


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 1, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
