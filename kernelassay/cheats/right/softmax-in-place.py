"""The textbook steps, in place in a buffer of its own.

problem: suite/softmax_rows
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = x - x.amax(dim=1, keepdim=True)
        return out.exp_().div_(out.sum(dim=1, keepdim=True))
