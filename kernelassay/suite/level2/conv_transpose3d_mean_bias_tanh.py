"""Transposed convolution of volumes, mean over depth, bias, and tanh."""

import torch
from torch import nn

batch_size = 2
in_channels = 4
out_channels = 8
depth = 4
height = 8
width = 8
kernel_size = 3
stride = 1
padding = 1


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding)
        self.bias = nn.Parameter(torch.randn(1, out_channels, 1, 1, 1))

    def forward(self, x):
        return torch.tanh(self.conv(x).mean(dim=2, keepdim=True) + self.bias)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding]
