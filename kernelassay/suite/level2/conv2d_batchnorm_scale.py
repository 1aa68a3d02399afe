"""Convolution, batch normalisation in train mode, and a constant factor."""

import torch
from torch import nn

batch_size = 4
in_channels = 8
out_channels = 8
height = 16
width = 16
kernel_size = 3
scaling_factor = 2.0


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, scaling_factor):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.norm = nn.BatchNorm2d(out_channels)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        return self.norm(self.conv(x)) * self.scaling_factor


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, scaling_factor]
