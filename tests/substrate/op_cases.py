"""The operators and shapes each op template is checked on: aligned, odd, and of extent one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tests.substrate.opcheck import Case, Shapes

# (M, K, N): one tile, less than a tile, more than a tile in each direction, K off the float4 grid.
_PRODUCTS = ((32, 16, 32), (1, 1, 2), (7, 17, 33), (65, 36, 7), (33, 65, 40))


def _products(
    a_transposed: bool, b_transposed: bool, batch: tuple[int, ...] = ()
) -> tuple[Shapes, ...]:
    return tuple(
        (
            (*batch, *((k, m) if a_transposed else (m, k))),
            (*batch, *((n, k) if b_transposed else (k, n))),
        )
        for m, k, n in _PRODUCTS
    )


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, weight, bias)


_LINEAR = tuple(((m, k), (n, k), (n,)) for m, k, n in _PRODUCTS)

MATMUL = {
    "nn": Case("matmul", torch.mm, _products(False, False)),
    "nt": Case("matmul", lambda a, b: torch.mm(a, b.t()), _products(False, True)),
    "tn": Case("matmul", lambda a, b: torch.mm(a.t(), b), _products(True, False)),
    "tt": Case("matmul", lambda a, b: torch.mm(a.t(), b.t()), _products(True, True)),
    "linear": Case("matmul", _linear, _LINEAR),
    "linear of a cube": Case("matmul", _linear, (((2, 3, 17), (33, 17), (33,)),)),
    "full bias": Case(
        "matmul",
        torch.addmm,
        (((7, 33), (7, 17), (17, 33)), ((1, 65), (1, 4), (4, 65))),
    ),
    "batched nn": Case("batched_matmul", torch.bmm, _products(False, False, (3,))),
    "batched nt": Case(
        "batched_matmul", lambda a, b: torch.bmm(a, b.mT), _products(False, True, (2,))
    ),
    "batched tn": Case(
        "batched_matmul", lambda a, b: torch.bmm(a.mT, b), _products(True, False, (2,))
    ),
    "batched tt": Case(
        "batched_matmul", lambda a, b: torch.bmm(a.mT, b.mT), _products(True, True, (2,))
    ),
    "heads": Case(
        "batched_matmul",
        lambda q, k: q @ k.transpose(-1, -2),
        (((2, 3, 7, 5), (2, 3, 9, 5)), ((1, 2, 33, 8), (1, 2, 17, 8))),
    ),
    "matrix-vector": Case(
        "matvec",
        torch.mm,
        (((8, 64), (64, 1)), ((1, 1), (1, 1)), ((33, 17), (17, 1)), ((7, 1100), (1100, 1))),
    ),
    "linear to one": Case("matvec", _linear, (((33, 17), (1, 17), (1,)), ((7, 64), (1, 64), (1,)))),
}


def _conv(dims: int, **options: Any) -> Callable[..., Tensor]:
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[dims]
    return lambda x, w, *bias: function(x, w, *bias, **options)


def _transposed(dims: int, **options: Any) -> Callable[..., Tensor]:
    function = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[dims]
    return lambda x, w, *bias: function(x, w, *bias, **options)


CONVOLUTION = {
    "1d": Case(
        "conv1d",
        _conv(1),
        (((2, 8, 32), (16, 8, 3)), ((1, 1, 1), (1, 1, 1)), ((3, 17, 131), (7, 17, 4))),
    ),
    "1d strided, padded, dilated, biased": Case(
        "conv1d",
        _conv(1, stride=3, padding=4, dilation=2),
        (((2, 3, 33), (5, 3, 3), (5,)), ((1, 9, 150), (1, 9, 5), (1,))),
    ),
    "1d grouped": Case("conv1d", _conv(1, groups=3, padding=1), (((2, 6, 17), (15, 2, 3)),)),
    "2d": Case(
        "conv2d",
        _conv(2),
        (
            ((2, 4, 16, 16), (8, 4, 3, 3)),
            ((1, 1, 1, 1), (1, 1, 1, 1)),
            ((1, 3, 19, 37), (7, 3, 3, 5)),
        ),
    ),
    "2d strided, padded, dilated, biased": Case(
        "conv2d",
        _conv(2, stride=(2, 1), padding=(2, 3), dilation=(2, 3)),
        (((2, 3, 17, 33), (5, 3, 3, 2), (5,)), ((1, 2, 7, 9), (1, 2, 2, 3), (1,))),
    ),
    "2d grouped": Case("conv2d", _conv(2, groups=2, padding=1), (((2, 6, 17, 9), (10, 3, 3, 3)),)),
    "2d depthwise": Case("conv2d", _conv(2, groups=5), (((2, 5, 17, 9), (5, 1, 3, 3)),)),
    "2d pointwise": Case("conv2d", _conv(2), (((2, 17, 7, 7), (9, 17, 1, 1)),)),
    "2d patches": Case("conv2d", _conv(2, stride=16), (((1, 3, 48, 32), (5, 3, 16, 16)),)),
    "3d": Case(
        "conv3d",
        _conv(3),
        (((2, 3, 8, 8, 8), (8, 3, 3, 3, 3)), ((1, 1, 1, 1, 1), (1, 1, 1, 1, 1))),
    ),
    "3d strided, padded, dilated, biased": Case(
        "conv3d",
        _conv(3, stride=(2, 1, 3), padding=(1, 2, 0), dilation=(1, 2, 1)),
        (((1, 2, 7, 9, 10), (9, 2, 3, 2, 3), (9,)),),
    ),
    "3d grouped": Case("conv3d", _conv(3, groups=2), (((1, 4, 5, 6, 7), (6, 2, 3, 1, 2)),)),
    "transposed 1d": Case(
        "conv_transpose1d",
        _transposed(1),
        (((2, 3, 16), (3, 4, 3)), ((1, 1, 1), (1, 1, 1)), ((1, 19, 65), (19, 2, 5))),
    ),
    "transposed 1d strided, padded, dilated, biased": Case(
        "conv_transpose1d",
        _transposed(1, stride=3, padding=2, output_padding=1, dilation=2),
        (((2, 3, 33), (3, 5, 3), (5,)), ((1, 2, 60), (2, 1, 4), (1,))),
    ),
    "transposed 1d grouped": Case(
        "conv_transpose1d", _transposed(1, groups=2, stride=2), (((2, 6, 9), (6, 5, 3)),)
    ),
    "transposed 2d": Case(
        "conv_transpose2d",
        _transposed(2),
        (
            ((2, 3, 8, 16), (3, 4, 3, 3)),
            ((1, 1, 1, 1), (1, 1, 1, 1)),
            ((1, 2, 17, 9), (2, 7, 3, 5)),
        ),
    ),
    "transposed 2d strided, padded, dilated, biased": Case(
        "conv_transpose2d",
        _transposed(2, stride=(2, 3), padding=(1, 2), output_padding=(1, 0), dilation=(2, 1)),
        (((2, 3, 7, 9), (3, 5, 3, 4), (5,)),),
    ),
    "transposed 2d grouped": Case(
        "conv_transpose2d", _transposed(2, groups=3, stride=2), (((1, 6, 5, 7), (6, 5, 3, 2)),)
    ),
    "transposed 3d": Case(
        "conv_transpose3d",
        _transposed(3),
        (((2, 3, 4, 5, 6), (3, 6, 3, 2, 3)), ((1, 1, 1, 1, 1), (1, 1, 1, 1, 1))),
    ),
    "transposed 3d strided, padded, dilated, biased": Case(
        "conv_transpose3d",
        _transposed(
            3, stride=(2, 1, 3), padding=(1, 0, 2), output_padding=(1, 0, 2), dilation=(1, 2, 1)
        ),
        (((1, 2, 3, 5, 4), (2, 5, 3, 2, 4), (5,)),),
    ),
    "transposed 3d grouped": Case(
        "conv_transpose3d",
        _transposed(3, groups=2, stride=2),
        (((1, 4, 3, 2, 4), (4, 3, 2, 3, 2)),),
    ),
}

POOLING = {
    "max 1d": Case(
        "max_pool1d",
        lambda x: F.max_pool1d(x, 3, 2, 1, 2),
        (((2, 3, 32),), ((1, 1, 7),), ((2, 1, 333),)),
    ),
    "max 2d": Case(
        "max_pool2d",
        lambda x: F.max_pool2d(x, 2),
        (((2, 4, 16, 16),), ((1, 1, 2, 3),), ((3, 17, 33),)),
    ),
    "max 2d overlapping, padded, dilated, ceil": Case(
        "max_pool2d",
        lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), (2, 3), ceil_mode=True),
        (((2, 3, 17, 9),), ((1, 1, 7, 33),)),
    ),
    "max 3d": Case(
        "max_pool3d",
        lambda x: F.max_pool3d(x, (3, 2, 3), 2, 1, (1, 1, 2), ceil_mode=True),
        (((2, 3, 8, 8, 8),), ((1, 1, 5, 7, 65),)),
    ),
    "average 1d": Case(
        "avg_pool1d",
        lambda x: F.avg_pool1d(x, 5, 2, 2),
        (((2, 3, 32),), ((1, 1, 7),), ((2, 1, 333),)),
    ),
    "average 1d without padding in the count, ceil": Case(
        "avg_pool1d",
        lambda x: F.avg_pool1d(x, 4, 3, 1, True, False),
        (((2, 3, 33),), ((1, 1, 7),)),
    ),
    "average 2d": Case(
        "avg_pool2d",
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        (((2, 4, 16, 16),), ((1, 1, 1, 1),), ((1, 2, 17, 150),)),
    ),
    "average 2d without padding in the count, ceil": Case(
        "avg_pool2d",
        lambda x: F.avg_pool2d(x, (3, 4), (2, 3), (1, 2), True, False),
        (((2, 3, 17, 9),), ((1, 1, 7, 33),)),
    ),
    "average 3d": Case(
        "avg_pool3d",
        lambda x: F.avg_pool3d(x, 3, 2, 1),
        (((2, 3, 8, 8, 8),), ((1, 1, 5, 7, 97),)),
    ),
    "average 3d without padding in the count, ceil": Case(
        "avg_pool3d",
        lambda x: F.avg_pool3d(x, (2, 3, 4), (2, 1, 3), (1, 1, 2), True, False),
        (((1, 2, 7, 5, 33),),),
    ),
}


ADAPTIVE = {
    "uneven": Case(
        "adaptive_avg_pool2d",
        lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
        (((2, 4, 16, 16),), ((1, 1, 1, 1),), ((3, 33, 7),), ((1, 2, 17, 150),), ((1, 1, 2, 3),)),
    ),
    "few windows": Case(
        "adaptive_avg_pool2d",
        lambda x: F.adaptive_avg_pool2d(x, (2, 2)),
        (((2, 4, 17, 33),), ((5, 9, 65),)),
    ),
}


def _positive(shapes: Shapes) -> list[Tensor]:
    return [torch.rand(shape) for shape in shapes]


def _near_one(shapes: Shapes) -> list[Tensor]:
    return [0.9 + 0.2 * torch.rand(shape) for shape in shapes]


def _ties(shapes: Shapes) -> list[Tensor]:
    return [torch.randint(0, 4, shape).float() for shape in shapes]


def _lowest(shapes: Shapes) -> list[Tensor]:
    return [torch.full(shape, -float("inf")) for shape in shapes]


_LINES = (((4, 256),), ((1, 1),), ((7, 33),), ((3, 65),), ((2, 700),))
_MIDDLE = (((2, 17, 5),), ((3, 1, 7),), ((1, 300, 3),))

SCAN = {
    "cumsum": Case("cumsum", lambda x: torch.cumsum(x, 1), _LINES, _positive),
    "cumsum of a middle dimension": Case("cumsum", lambda x: torch.cumsum(x, 1), _MIDDLE),
    "cumsum of one dimension": Case("cumsum", lambda x: torch.cumsum(x, 0), (((257,),),)),
    "reverse cumsum": Case("cumsum", lambda x: torch.cumsum(x.flip(1), 1).flip(1), (((3, 65),),)),
    "cumprod": Case("cumprod", lambda x: torch.cumprod(x, 1), _LINES, _near_one),
    "cumprod of a middle dimension": Case(
        "cumprod", lambda x: torch.cumprod(x, 1), _MIDDLE, _near_one
    ),
}

ARGREDUCE = {
    "argmax": Case("argmax", lambda x: torch.argmax(x, 1), _LINES),
    "argmax with ties": Case("argmax", lambda x: torch.argmax(x, 1), _LINES, _ties),
    "argmax of nothing but -inf": Case("argmax", lambda x: torch.argmax(x, 1), _LINES, _lowest),
    "argmax of a middle dimension": Case("argmax", lambda x: torch.argmax(x, 1), _MIDDLE, _ties),
    "argmax of everything": Case("argmax", torch.argmax, (((7, 33),), ((1, 1),))),
    "argmin": Case("argmin", lambda x: torch.argmin(x, -1, keepdim=True), _LINES, _ties),
    "max with indices": Case("max_with_index", lambda x: torch.max(x, 1), _MIDDLE, _ties),
    "min with indices": Case("min_with_index", lambda x: torch.min(x, 1), _LINES, _ties),
    "indices of max": Case("argmax", lambda x: torch.max(x, 1)[1], _LINES, _ties),
}


def _logits_and_labels(shapes: Shapes) -> list[Tensor]:
    rows, classes = shapes[0]
    labels = torch.randint(0, classes, (rows,))
    if rows > 2:
        labels[1] = -100
    return [4 * torch.randn(rows, classes), labels]


def _distributions(shapes: Shapes) -> list[Tensor]:
    x, t = (torch.softmax(torch.randn(shape), -1) for shape in shapes)
    return [x.log(), t]


def _log_distributions(shapes: Shapes) -> list[Tensor]:
    return [torch.log_softmax(torch.randn(shape), -1) for shape in shapes]


def _token_masks(shapes: Shapes) -> list[Tensor]:
    *qkv, mask = shapes
    return [*(torch.randn(shape) for shape in qkv), torch.rand(mask) < 0.7]


_PAIRS = (((8, 32), (8, 32)), ((1, 1), (1, 1)), ((7, 65), (7, 65)), ((33, 17), (33, 17)))

LOSS = {
    "cross entropy": Case(
        "cross_entropy",
        F.cross_entropy,
        (((8, 32), (8,)), ((1, 1), (1,)), ((7, 33), (7,)), ((300, 5), (300,))),
        _logits_and_labels,
    ),
    "kl div, summed": Case(
        "kl_div", lambda x, t: F.kl_div(x, t, reduction="sum"), _PAIRS, _distributions
    ),
    "kl div, averaged, log target": Case(
        "kl_div", lambda x, t: F.kl_div(x, t, log_target=True), _PAIRS, _log_distributions
    ),
}


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _heads(leading: tuple[int, ...], queries: int, keys: int, width: int, value: int) -> Shapes:
    return ((*leading, queries, width), (*leading, keys, width), (*leading, keys, value))


_HEADS = (
    _heads((2, 2), 8, 8, 16, 16),
    _heads((1, 1), 1, 1, 1, 1),
    _heads((1, 3), 7, 33, 17, 5),
    _heads((2, 1), 3, 150, 8, 8),
)

ATTENTION = {
    "attention": Case("attention", _attention, _HEADS),
    "causal attention": Case("attention", _causal, _HEADS[:3]),
    "attention with an additive mask": Case(
        "attention", _attention, (((*_HEADS[2], (7, 33))), ((*_HEADS[3], (3, 150))))
    ),
    "attention with a mask of each head": Case(
        "attention", _attention, (((*_HEADS[2], (1, 3, 7, 33))),), _token_masks
    ),
}
