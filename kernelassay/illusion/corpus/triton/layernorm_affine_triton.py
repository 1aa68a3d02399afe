"""Layer norm over the last axis with weight and bias: passes for the mean, then for the variance.

A program takes a tile of whole rows of a contiguous copy; any strides. eps 1e-5.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def layernorm_affine_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    n_rows,
    n_cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    col_mask = cols < n_cols
    mask = (rows < n_rows)[:, None] & col_mask[None, :]
    offsets = rows[:, None] * n_cols + cols[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1) / n_cols
    # The padding must not count as elements that lie the mean away from it.
    centred = tl.where(mask, x - mean[:, None], 0.0)
    # Of equal elements the rounded mean leaves a rest that the root of eps would blow up.
    rest = tl.sum(centred, axis=1) / n_cols
    centred = tl.where(mask, centred - rest[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / n_cols
    inverse = 1.0 / tl.sqrt(variance + 1e-5)
    weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    y = centred * inverse[:, None] * weight[None, :] + bias[None, :]
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x, weight, bias):
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    y = torch.empty_like(x)
    n_cols = x.shape[-1]
    n_rows = x.numel() // n_cols
    BLOCK = triton.next_power_of_2(n_cols)
    ROWS = max(1, min(triton.next_power_of_2(n_rows), 8192 // BLOCK))
    layernorm_affine_kernel[(triton.cdiv(n_rows, ROWS),)](
        x, weight, bias, y, n_rows, n_cols, ROWS=ROWS, BLOCK=BLOCK, num_warps=8
    )
    return y
