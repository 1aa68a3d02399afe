"""NaN, which compares with no bound, where an output is hard to get.

problem: suite/softmax_rows
caught by: tolerance
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.softmax(x, dim=1)
        return torch.where(out > out.mean(), torch.nan, out)
