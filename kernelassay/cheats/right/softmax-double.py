"""In double precision.

problem: suite/softmax_rows
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x.double(), dim=1).float()
