"""As a batch of matrix-vector products.

problem: suite/linear_bias_relu
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        weight = self.linear.weight.expand(x.shape[0], -1, -1)
        return torch.baddbmm(self.bias[None, :, None], weight, x[:, :, None])[:, :, 0].relu()
