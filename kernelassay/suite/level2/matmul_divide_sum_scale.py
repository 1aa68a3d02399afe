"""Linear layer without bias, division, a sum per sample, and a factor."""

import torch
from torch import nn

batch_size = 32
in_features = 64
hidden_features = 64
scaling_factor = 1.5


class Model(nn.Module):
    def __init__(self, in_features, hidden_features, scaling_factor):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_features, in_features))
        self.scaling_factor = scaling_factor

    def forward(self, x):
        halves = torch.matmul(x, self.weight.t()) / 2
        return halves.sum(dim=1, keepdim=True) * self.scaling_factor


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, hidden_features, scaling_factor]
