"""Kullback-Leibler divergence of two batches of distributions."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 32
features = 128


class Model(nn.Module):
    def forward(self, predictions, targets):
        return F.kl_div(predictions.log(), targets, reduction="batchmean")


def get_inputs():
    predictions = torch.softmax(torch.rand(batch_size, features) * 2, dim=1)
    targets = torch.softmax(torch.rand(batch_size, features), dim=1)
    return [predictions, targets]


def get_init_inputs():
    return []
