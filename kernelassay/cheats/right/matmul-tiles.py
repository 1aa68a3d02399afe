"""Tile by tile into a buffer that begins uninitialised.

problem: suite/matmul_rectangular
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, left, right):
        product = torch.empty(left.shape[0], right.shape[1])
        for i in range(0, left.shape[0], 16):
            for j in range(0, right.shape[1], 16):
                product[i : i + 16, j : j + 16] = left[i : i + 16] @ right[:, j : j + 16]
        return product
