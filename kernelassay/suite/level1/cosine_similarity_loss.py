"""One minus the cosine similarity of paired vectors, averaged."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 32
features = 128


class Model(nn.Module):
    def forward(self, predictions, targets):
        return (1 - F.cosine_similarity(predictions, targets, dim=1)).mean()


def get_inputs():
    return [torch.rand(batch_size, features), torch.rand(batch_size, features)]


def get_init_inputs():
    return []
