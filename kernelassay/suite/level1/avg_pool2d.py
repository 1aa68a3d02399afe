"""Average pooling of images with windows that touch but do not overlap."""

import torch
from torch import nn

batch_size = 2
channels = 8
height = 32
width = 32
kernel_size = 4


class Model(nn.Module):
    def __init__(self, kernel_size):
        super().__init__()
        self.pool = nn.AvgPool2d(kernel_size)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]


def get_init_inputs():
    return [kernel_size]
