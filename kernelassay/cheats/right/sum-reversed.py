"""From the last to the first.

problem: suite/sum_middle
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.flip(1).cumsum(dim=1)[:, -1:].clone()
