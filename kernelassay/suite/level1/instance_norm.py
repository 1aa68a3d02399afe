"""Instance normalisation: each feature map by its own mean and variance."""

import torch
from torch import nn

batch_size = 4
channels = 8
height = 16
width = 16


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels]
