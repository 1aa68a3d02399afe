"""Padded average pooling of sequences; the padding counts."""

import torch
from torch import nn

batch_size = 4
channels = 16
length = 128
kernel_size = 4
stride = 1
padding = 2


class Model(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.pool = nn.AvgPool1d(kernel_size, stride, padding)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(batch_size, channels, length)]


def get_init_inputs():
    return [kernel_size, stride, padding]
