"""Attention of one head by online softmax: q[M, D], k[N, D], v[N, D]. Native strides.

A program takes a tile of queries and walks over tiles of keys. It keeps each query's running
maximum, normaliser and weighted sum of values, and rescales both sums when the maximum rises.
"""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def flash_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    M,
    N,
    D,
    scale,
    stride_qm,
    stride_qd,
    stride_kn,
    stride_kd,
    stride_vn,
    stride_vd,
    stride_om,
    stride_od,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    queries = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    features = tl.arange(0, BLOCK_D)
    feature_mask = features < D
    query_mask = (queries < M)[:, None] & feature_mask[None, :]
    q_ptrs = q_ptr + queries[:, None] * stride_qm + features[None, :] * stride_qd
    q = tl.load(q_ptrs, mask=query_mask, other=0.0).to(tl.float32)

    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        key_mask = keys < N
        tile_mask = key_mask[:, None] & feature_mask[None, :]
        k_ptrs = k_ptr + keys[:, None] * stride_kn + features[None, :] * stride_kd
        k = tl.load(k_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
        scores = tl.sum(q[:, None, :] * k[None, :, :], axis=2) * scale
        scores = tl.where(key_mask[None, :], scores, -float("inf"))

        new_top = tl.maximum(top, tl.max(scores, axis=1))
        alpha = tl.exp(top - new_top)
        weights = tl.exp(scores - new_top[:, None])
        total = total * alpha + tl.sum(weights, axis=1)
        v_ptrs = v_ptr + keys[:, None] * stride_vn + features[None, :] * stride_vd
        v = tl.load(v_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
        acc = acc * alpha[:, None] + tl.sum(weights[:, :, None] * v[None, :, :], axis=1)
        top = new_top

    o = acc / total[:, None]
    o_ptrs = o_ptr + queries[:, None] * stride_om + features[None, :] * stride_od
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=query_mask)


def run(q, k, v):
    M, D = q.shape
    N = k.shape[0]
    o = torch.empty((M, D), dtype=q.dtype, device=q.device)
    BLOCK_M = max(4, triton.next_power_of_2(min(M, 8)))
    BLOCK_N = max(8, triton.next_power_of_2(min(N, 32)))
    flash_attention_kernel[(triton.cdiv(M, BLOCK_M),)](
        q,
        k,
        v,
        o,
        M,
        N,
        D,
        1.0 / math.sqrt(D),
        *q.stride(),
        *k.stride(),
        *v.stride(),
        *o.stride(),
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_D=triton.next_power_of_2(D),
        num_warps=8,
    )
    return o
