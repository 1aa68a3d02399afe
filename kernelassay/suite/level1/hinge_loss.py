"""Mean hinge loss of scores against one label of -1 or +1 per sample."""

import torch
from torch import nn

batch_size = 64
features = 64


class Model(nn.Module):
    def forward(self, scores, labels):
        return torch.relu(1 - scores * labels.unsqueeze(1)).mean()


def get_inputs():
    labels = torch.randint(0, 2, (batch_size,)).float() * 2 - 1
    return [torch.rand(batch_size, features), labels]


def get_init_inputs():
    return []
