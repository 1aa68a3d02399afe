"""One after another.

problem: suite/sum_middle
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = torch.zeros_like(x[:, 0])
        for index in range(x.shape[1]):
            total = total + x[:, index]
        return total[:, None]
