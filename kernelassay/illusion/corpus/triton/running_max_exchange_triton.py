"""Running maximum along the last axis, in steps of doubling reach.

In each step a program's threads hand what they have to one another through global memory, with a
barrier after the writes and one after the reads. Works on a contiguous copy; any strides.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def running_max_kernel(
    x_ptr,
    scratch_ptr,
    y_ptr,
    n_rows,
    n_cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    offsets = rows[:, None] * n_cols + cols[None, :]
    best = tl.load(x_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    for step in range(0, STEPS):
        reach = 1 << step
        tl.store(scratch_ptr + offsets, best, mask=mask)
        tl.debug_barrier()
        before_mask = mask & (cols >= reach)[None, :]
        before = tl.load(scratch_ptr + offsets - reach, mask=before_mask, other=-float("inf"))
        tl.debug_barrier()
        best = tl.maximum(best, before, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + offsets, best.to(y_ptr.dtype.element_ty), mask=mask)


def run(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scratch = torch.empty_like(x, dtype=torch.float32)
    n_cols = x.shape[-1]
    n_rows = x.numel() // n_cols
    BLOCK = triton.next_power_of_2(n_cols)
    ROWS = max(1, min(triton.next_power_of_2(n_rows), 8192 // BLOCK))
    STEPS = BLOCK.bit_length() - 1
    running_max_kernel[(triton.cdiv(n_rows, ROWS),)](
        x, scratch, y, n_rows, n_cols, ROWS=ROWS, BLOCK=BLOCK, STEPS=STEPS, num_warps=8
    )
    return y
