"""Parameters under other names, drawn in the same order.

problem: suite/linear_bias_relu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.product = nn.Linear(in_features, out_features, bias=False)
        self.shift = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        return nn.functional.linear(x, self.product.weight, self.shift).relu()
