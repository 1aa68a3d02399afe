"""As a product with ones.

problem: suite/sum_middle
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        ones = torch.ones(x.shape[0], 1, x.shape[1])
        return torch.bmm(ones, x)
