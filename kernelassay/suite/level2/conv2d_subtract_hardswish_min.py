"""Convolution, a constant taken away, hard Swish, and the least channel of each pixel."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 2
in_channels = 8
out_channels = 16
height = 16
width = 16
kernel_size = 3
subtract_value = 0.5


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, subtract_value):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.subtract_value = subtract_value

    def forward(self, x):
        activated = F.hardswish(self.conv(x) - self.subtract_value)
        return activated.amin(dim=1, keepdim=True)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, subtract_value]
