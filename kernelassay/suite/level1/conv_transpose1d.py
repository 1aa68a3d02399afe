"""Strided, dilated transposed convolution of sequences."""

import torch
from torch import nn

batch_size = 2
in_channels = 8
out_channels = 16
length = 64
kernel_size = 3
stride = 2
dilation = 2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, dilation):
        super().__init__()
        self.conv = nn.ConvTranspose1d(
            in_channels, out_channels, kernel_size, stride, dilation=dilation
        )

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, dilation]
