"""Blocks added in an order that changes from call to call.

problem: suite/sum_middle
"""

import random

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = list(x.split(8, dim=1))
        random.SystemRandom().shuffle(blocks)
        total = torch.zeros(x.shape[0], 1, x.shape[2])
        for block in blocks:
            total += block.sum(dim=1, keepdim=True)
        return total
