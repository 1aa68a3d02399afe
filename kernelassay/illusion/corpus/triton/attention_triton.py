"""Attention of one head: q[M, D], k[N, D], v[N, D]. Native strides.

A program takes one query and holds all keys and values.
"""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
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
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    query = tl.program_id(0)
    keys = tl.arange(0, BLOCK_N)
    features = tl.arange(0, BLOCK_D)
    key_mask = keys < N
    feature_mask = features < D
    tile_mask = key_mask[:, None] & feature_mask[None, :]

    q_ptrs = q_ptr + query * stride_qm + features * stride_qd
    q = tl.load(q_ptrs, mask=feature_mask, other=0.0).to(tl.float32)
    k_ptrs = k_ptr + keys[:, None] * stride_kn + features[None, :] * stride_kd
    k = tl.load(k_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
    scores = tl.sum(q[None, :] * k, axis=1) * scale
    scores = tl.where(key_mask, scores, -float("inf"))

    weights = tl.exp(scores - tl.max(scores, axis=0))
    weights = weights / tl.sum(weights, axis=0)
    v_ptrs = v_ptr + keys[:, None] * stride_vn + features[None, :] * stride_vd
    v = tl.load(v_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
    o = tl.sum(weights[:, None] * v, axis=0)
    o_ptrs = o_ptr + query * stride_om + features * stride_od
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=feature_mask)


def run(q, k, v):
    M, D = q.shape
    N = k.shape[0]
    o = torch.empty((M, D), dtype=q.dtype, device=q.device)
    attention_kernel[(M,)](
        q,
        k,
        v,
        o,
        N,
        D,
        1.0 / math.sqrt(D),
        *q.stride(),
        *k.stride(),
        *v.stride(),
        *o.stride(),
        BLOCK_N=triton.next_power_of_2(N),
        BLOCK_D=triton.next_power_of_2(D),
        num_warps=8,
    )
    return o
