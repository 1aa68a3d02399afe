"""Every result in the same memory, which the next call overwrites.

problem: suite/matmul_rectangular
caught by: memory of outputs
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, left, right):
        shape = (left.shape[0], right.shape[1])
        if not hasattr(self, "out") or self.out.shape != shape:
            self.out = torch.empty(shape)
        return torch.matmul(left, right, out=self.out)
