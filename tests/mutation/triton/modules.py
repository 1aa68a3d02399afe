"""Modules with Triton kernels of several kinds, as people write them."""

from __future__ import annotations

FLAT = '''"""Squared silu."""

import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    y = scale * x * tl.sigmoid(x)
    tl.store(y_ptr + offsets, y * y, mask=mask)


def run(x, y, scale):
    n = x.numel()
    BLOCK = 1024
    silu_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, scale, BLOCK=BLOCK, num_warps=4)
    return y
'''

ROWS = """import torch
import triton
from triton import language as tl


@triton.jit
def normalise(x_ptr, w_ptr, y_ptr, n_rows, n_cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0)
    w = tl.load(w_ptr + cols, mask=cols < n_cols, other=1.0)
    square = tl.sum(x * x, axis=1) / n_cols
    y = x * tl.rsqrt(square + eps)[:, None] * w[None, :]
    tl.store(y_ptr + rows[:, None] * n_cols + cols[None, :], y, mask=mask)


def run(x, w, eps=1e-6):
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    grid = (triton.cdiv(n_rows, 8),)
    normalise[grid](
        x, w, y, n_rows, n_cols, eps, ROWS=8, BLOCK=triton.next_power_of_2(n_cols)
    )
    return y
"""

PRODUCT = """import triton
import triton.language as tl
from triton import jit


@triton.autotune(configs=[triton.Config({"BM": 32, "BN": 32, "BK": 32})], key=["M"])
@jit
def product(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    pid = tl.program_id(0)
    tiles = tl.cdiv(N, BN)
    i, j = pid // tiles, pid % tiles
    rows = i * BM + tl.arange(0, BM)
    cols = j * BN + tl.arange(0, BN)
    a_ptrs = a + rows[:, None] * sam + tl.arange(0, BK)[None, :] * sak
    b_ptrs = b + tl.arange(0, BK)[:, None] * sbk + cols[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = K - k * BK
        x = tl.load(a_ptrs, mask=tl.arange(0, BK)[None, :] < left, other=0.0)
        y = tl.load(b_ptrs, mask=tl.arange(0, BK)[:, None] < left, other=0.0)
        acc += tl.dot(x, y, allow_tf32=False)
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    tl.store(
        c + rows[:, None] * scm + cols[None, :] * scn,  # naïve, in φ order
        acc,
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


def run(a, b, c):
    grid = lambda meta: (triton.cdiv(a.shape[0], meta["BM"]) * triton.cdiv(b.shape[1], meta["BN"]),)
    product[grid](a, b, c, *a.shape, b.shape[1], *a.stride(), *b.stride(), *c.stride())
"""

ONLINE = '''import triton
import triton.language as tl

LOG2E: tl.constexpr = 1.4426950408889634


@triton.jit
def rescaled(total, old, new):
    return total * tl.exp2((old - new) * LOG2E)


@triton.jit
def logsumexp(x_ptr, y_ptr, lock_ptr, n, stride, BLOCK: tl.constexpr, CAUSAL: tl.constexpr):
    row = tl.program_id(0)
    top = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=-float("inf"))
        if CAUSAL:
            x = tl.where(cols <= row, x, -float("inf"))
        new = tl.maximum(top, tl.max(x, axis=0))
        total = rescaled(total, top, new) + tl.sum(tl.exp(x - new), axis=0)
        top = new
    tl.debug_barrier()
    tl.atomic_max(lock_ptr, top, sem="acq_rel", scope="gpu")
    tl.atomic_cas(lock_ptr + 1, 0, 1)
    tl.store(y_ptr + row, top + tl.log(total))


def scaled(x, factor):
    """No kernel: host arithmetic of a helper."""
    return x * factor + 1.0


def run(x, y, lock):
    for _ in range(2):
        logsumexp[(x.shape[0],)](
            x, y, lock, x.shape[1], x.stride(0), BLOCK=128, CAUSAL=False, num_warps=8
        )
    return scaled(y, 2.0)
'''

MODULES = {"flat": FLAT, "rows": ROWS, "product": PRODUCT, "online": ONLINE}
