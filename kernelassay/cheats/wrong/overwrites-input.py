"""Right, and works in the caller's memory.

problem: suite/relu
caught by: input bytes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp_(min=0).clone()
