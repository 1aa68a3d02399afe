"""Causal attention by PyTorch's fused operator."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 2
num_heads = 2
length = 40
head_features = 16


class Model(nn.Module):
    def forward(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def get_inputs():
    shape = (batch_size, num_heads, length, head_features)
    return [torch.rand(shape), torch.rand(shape), torch.rand(shape)]


def get_init_inputs():
    return []
