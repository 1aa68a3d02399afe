"""Logistic function. Flat over a contiguous copy; any strides."""

import torch
import triton
import triton.language as tl


@triton.jit
def sigmoid_kernel(x_ptr, y_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    y = 1.0 / (1.0 + tl.exp(-x))
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n_elements = x.numel()
    BLOCK = 8192
    sigmoid_kernel[(triton.cdiv(n_elements, BLOCK),)](x, y, n_elements, BLOCK=BLOCK, num_warps=8)
    return y
