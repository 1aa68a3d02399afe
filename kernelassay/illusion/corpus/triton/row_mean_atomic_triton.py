"""Mean over the last axis: each program adds the sum of its tile to its rows' totals.

The totals are float32 and start at zero. Works on a contiguous copy; any strides.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, total_ptr, n_rows, n_cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row_mask = rows < n_rows
    mask = row_mask[:, None] & (cols < n_cols)[None, :]
    x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0)
    part = tl.sum(x.to(tl.float32), axis=1)
    tl.atomic_add(total_ptr + rows, part, mask=row_mask)


@triton.jit
def mean_kernel(total_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = rows < n_rows
    total = tl.load(total_ptr + rows, mask=mask, other=0.0)
    y = total / n_cols
    tl.store(y_ptr + rows, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x):
    x = x.contiguous()
    n_cols = x.shape[-1]
    n_rows = x.numel() // n_cols
    y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    total = torch.zeros(n_rows, dtype=torch.float32, device=x.device)
    ROWS, BLOCK = 32, 256
    grid = (triton.cdiv(n_rows, ROWS), triton.cdiv(n_cols, BLOCK))
    row_sum_kernel[grid](x, total, n_rows, n_cols, ROWS=ROWS, BLOCK=BLOCK, num_warps=8)
    mean_kernel[(triton.cdiv(n_rows, 1024),)](total, y, n_rows, n_cols, BLOCK=1024)
    return y
