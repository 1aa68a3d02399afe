"""Memory of the right values, in a tensor whose flag negates them.

problem: suite/softmax_rows
caught by: tolerance
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch._neg_view(torch.softmax(x, dim=1))
