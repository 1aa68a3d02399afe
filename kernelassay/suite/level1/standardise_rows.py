"""Every row shifted and scaled to mean 0 and sample variance 1."""

import torch
from torch import nn

batch_size = 16
features = 200
eps = 1e-3


class Model(nn.Module):
    def forward(self, x):
        variance = torch.var(x, dim=1, keepdim=True)
        return (x - x.mean(dim=1, keepdim=True)) * torch.rsqrt(variance + eps)


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return []
