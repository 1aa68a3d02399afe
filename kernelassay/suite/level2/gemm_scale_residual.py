"""Linear layer whose scaled output is added to itself."""

import torch
from torch import nn

batch_size = 32
in_features = 64
out_features = 64
scaling_factor = 0.5


class Model(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        hidden = self.linear(x)
        return hidden * self.scaling_factor + hidden


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, scaling_factor]
