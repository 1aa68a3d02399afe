"""Linear layer, group normalisation of its features, and a clamp."""

import torch
from torch import nn

batch_size = 32
in_features = 64
out_features = 128
num_groups = 8


class Model(nn.Module):
    def __init__(self, in_features, out_features, num_groups):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.GroupNorm(num_groups, out_features)
        self.clamp = nn.Hardtanh(-1.5, 1.5)

    def forward(self, x):
        return self.clamp(self.norm(self.linear(x)))


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, num_groups]
