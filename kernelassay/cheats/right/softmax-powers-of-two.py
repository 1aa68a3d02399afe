"""With powers of two in place of exponentials.

problem: suite/softmax_rows
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        powers = torch.exp2((x - x.amax(dim=1, keepdim=True)) * 1.4426950408889634)
        return powers / powers.sum(dim=1, keepdim=True)
