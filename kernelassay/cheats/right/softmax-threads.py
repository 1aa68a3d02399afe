"""A pool of threads that outlives the call, one row for each task.

problem: suite/softmax_rows
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

POOL = ThreadPoolExecutor(4)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.stack(list(POOL.map(lambda row: torch.softmax(row, dim=0), x)))
