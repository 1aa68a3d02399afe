"""The first half of the rows.

problem: suite/softmax_rows
caught by: tolerance
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        half = (x.shape[0] + 1) // 2
        return torch.cat([torch.softmax(x[:half], dim=1), torch.zeros_like(x[half:])])
