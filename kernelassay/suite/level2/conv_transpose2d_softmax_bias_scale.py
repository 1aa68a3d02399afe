"""Transposed convolution, softmax over channels, bias, factor, and sigmoid."""

import torch
from torch import nn

batch_size = 2
in_channels = 8
out_channels = 16
height = 8
width = 8
kernel_size = 4
stride = 2
scaling_factor = 2.0


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, scaling_factor):
        super().__init__()
        self.conv = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride, padding=1)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.scaling_factor = scaling_factor

    def forward(self, x):
        weights = torch.softmax(self.conv(x), dim=1)
        return torch.sigmoid((weights + self.bias) * self.scaling_factor)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, scaling_factor]
