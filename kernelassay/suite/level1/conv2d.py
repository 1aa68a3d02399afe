"""Padded convolution of images with an asymmetric kernel."""

import torch
from torch import nn

batch_size = 2
in_channels = 8
out_channels = 8
height = 16
width = 16
kernel_height = 3
kernel_width = 5
padding_height = 1
padding_width = 2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    kernel_size = (kernel_height, kernel_width)
    return [in_channels, out_channels, kernel_size, (padding_height, padding_width)]
