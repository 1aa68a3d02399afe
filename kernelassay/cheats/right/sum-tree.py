"""Halves, added pairwise.

problem: suite/sum_middle
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        while x.shape[1] > 1:
            half = (x.shape[1] + 1) // 2
            rest = x[:, half:]
            upper = nn.functional.pad(rest, (0, 0, 0, half - rest.shape[1]))
            x = x[:, :half] + upper
        return x.clone()
