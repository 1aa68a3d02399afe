"""Partial products over blocks of the inner extent.

problem: suite/matmul_rectangular
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, left, right):
        parts = zip(left.split(24, dim=1), right.split(24, dim=0), strict=True)
        return sum(a @ b for a, b in parts)
