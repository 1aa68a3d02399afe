"""Returns at once, and lets a thread fill in the result.

problem: suite/matmul_rectangular
caught by: poisoned memory
"""

import threading
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, left, right):
        product = torch.empty(left.shape[0], right.shape[1])

        def fill():
            time.sleep(0.05)
            product.copy_(left.clone() @ right.clone())

        threading.Thread(target=fill, daemon=True).start()
        return product
