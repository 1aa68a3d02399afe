"""Grouped convolution with stride, padding and dilation that differ by axis."""

import torch
from torch import nn

batch_size = 2
in_channels = 8
out_channels = 16
height = 32
width = 32
groups = 2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, groups):
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size=3,
            stride=(2, 1),
            padding=(2, 3),
            dilation=(2, 3),
            groups=groups,
        )

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, groups]
