"""Layer normalisation over the last two dimensions, with learned gain and bias."""

import torch
from torch import nn

batch_size = 8
length = 16
features = 64


class Model(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(batch_size, length, features)]


def get_init_inputs():
    return [(length, features)]
