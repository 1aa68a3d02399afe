"""One pass over blocks of columns, with a running maximum and sum.

problem: suite/softmax_rows
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        top = torch.full((x.shape[0], 1), -torch.inf)
        total = torch.zeros(x.shape[0], 1)
        for block in x.split(32, dim=1):
            now = torch.maximum(top, block.amax(dim=1, keepdim=True))
            total = total * torch.exp(top - now) + torch.exp(block - now).sum(dim=1, keepdim=True)
            top = now
        return torch.exp(x - top) / total
