"""The transposed product, as a view.

problem: suite/matmul_rectangular
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, left, right):
        return (right.t() @ left.t()).t()
