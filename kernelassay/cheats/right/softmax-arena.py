"""Hands out one piece of a large buffer after the other.

problem: suite/softmax_rows
"""

import torch
from torch import nn

PIECES = 1 << 20


class ModelNew(nn.Module):
    def forward(self, x):
        start = self.__dict__.get("start", PIECES)
        if start + x.numel() > PIECES:
            self.arena, start = torch.empty(max(PIECES, x.numel())), 0
        self.start = start + x.numel()
        return self.arena[start : self.start].view(x.shape).copy_(torch.softmax(x, dim=1))
