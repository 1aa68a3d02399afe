"""Depthwise convolution: each channel has a kernel of its own."""

import torch
from torch import nn

batch_size = 2
channels = 16
height = 16
width = 32
kernel_size = 3
padding = 1


class Model(nn.Module):
    def __init__(self, channels, kernel_size, padding):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size, padding=padding, groups=channels)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels, kernel_size, padding]
