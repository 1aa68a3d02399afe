"""Outer-product-like matrix product: many rows and columns, a short inner extent."""

import torch
from torch import nn

long_side = 128
short_side = 16


class Model(nn.Module):
    def forward(self, tall, wide):
        return torch.matmul(tall, wide)


def get_inputs():
    return [torch.rand(long_side, short_side), torch.rand(short_side, long_side)]


def get_init_inputs():
    return []
