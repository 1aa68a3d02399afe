"""Writes to the inside of a padded buffer, and returns a view of that.

problem: suite/softmax_rows
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        inside = torch.empty(rows + 2, columns + 7)[1:-1, 3:-4]
        return inside.copy_(torch.softmax(x, dim=1))
