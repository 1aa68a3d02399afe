"""Linear layer, Swish, and layer normalisation with a residual connection."""

import torch
from torch import nn

batch_size = 32
features = 64


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        hidden = self.linear(x)
        return self.norm(hidden * torch.sigmoid(hidden) + x)


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [features]
