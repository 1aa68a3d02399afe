"""Returns at once, and lets another stream fill in the result.

problem: suite/matmul_rectangular
caught by: poisoned memory
needs: cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, left, right):
        product = torch.empty(left.shape[0], right.shape[1], device=left.device)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
            product.copy_(left @ right)
        product.record_stream(stream)
        return product
