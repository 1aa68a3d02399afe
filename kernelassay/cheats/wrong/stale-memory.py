"""Memory that the reference has just freed, which holds all but its last step.

problem: suite/linear_bias_relu
caught by: poisoned memory
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        return torch.empty(x.shape[0], self.bias.shape[0]).clamp_(min=0)
