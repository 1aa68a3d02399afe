"""Group normalisation of feature maps."""

import torch
from torch import nn

batch_size = 2
channels = 32
num_groups = 8
height = 8
width = 16


class Model(nn.Module):
    def __init__(self, num_groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(num_groups, channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]


def get_init_inputs():
    return [num_groups, channels]
