"""Half of the value and its magnitude.

problem: suite/relu
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x + x.abs()) * 0.5
