"""Leaky ReLU: negative values are scaled by 0.01."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 16
features = 256


class Model(nn.Module):
    def forward(self, x):
        return F.leaky_relu(x, negative_slope=0.01)


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return []
