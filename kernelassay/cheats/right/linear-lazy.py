"""Lays the weights out anew in a parameter that the first call makes.

problem: suite/linear_bias_relu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(out_features))
        self.packed = nn.UninitializedParameter(requires_grad=False)

    def forward(self, x):
        if nn.parameter.is_lazy(self.packed):
            self.packed.materialize(tuple(self.linear.weight.t().shape))
            self.packed.copy_(self.linear.weight.t())
        return torch.relu(torch.addmm(self.bias, x, self.packed))
