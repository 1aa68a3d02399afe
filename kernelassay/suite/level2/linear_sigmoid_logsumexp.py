"""Two linear layers with a sigmoid between, and a log-sum-exp per sample."""

import torch
from torch import nn

batch_size = 32
in_features = 64
hidden_features = 64
out_features = 32


class Model(nn.Module):
    def __init__(self, in_features, hidden_features, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden_features)
        self.second = nn.Linear(hidden_features, out_features)

    def forward(self, x):
        return torch.logsumexp(self.second(torch.sigmoid(self.first(x))), dim=1)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, hidden_features, out_features]
