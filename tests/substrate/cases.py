"""Small modules that reach every template, as functions of a size that may be odd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from kernelassay.kernel import Call
from kernelassay.substrate import lower
from kernelassay.trace import Traced, trace

SIZES = (1, 7, 33, 64, 257)


@dataclass(frozen=True)
class Case:
    """A function of tensors, and its inputs at size ``n``; ``templates`` are those it reaches."""

    name: str
    function: Callable[..., Tensor]
    shapes: Callable[[int], tuple[tuple[int, ...], ...]]
    templates: frozenset[str]
    prepare: Callable[..., tuple[Any, ...]] = lambda *tensors: tensors

    def traced(self, n: int) -> Traced:
        """The graph at size ``n``."""
        return _traced(self, n)

    def calls(self, n: int) -> tuple[Call, ...]:
        """The kernels of that graph."""
        return _calls(self, n)

    def inputs(self, n: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(n)
        drawn = [torch.randn(shape, generator=generator) for shape in self.shapes(n)]
        return self.prepare(*drawn)


# Tracing is most of the cost of a test; those of one case share it.
@cache
def _traced(case: Case, n: int) -> Traced:
    return trace(_Function(case.function), case.inputs(n))


@cache
def _calls(case: Case, n: int) -> tuple[Call, ...]:
    return lower(case.traced(n))


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.function(*tensors)


def case(name: str, templates: str, function: Any, shapes: Any, **extra: Any) -> Case:
    return Case(name, function, shapes, frozenset(templates.split()), **extra)


def indices(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    return x, (index.abs() * 1000).long() % x.shape[1]


def rows(n: int) -> tuple[tuple[int, ...], ...]:
    return ((3, n),)


def columns(n: int) -> tuple[tuple[int, ...], ...]:
    return ((2, n, 5),)


def image(n: int) -> tuple[tuple[int, ...], ...]:
    return ((2, 6, n), (6,), (6,))


REDUCTIONS = [
    case(f"{name} of {shape}", name, function, shapes)
    for name, operation in {
        "sum": lambda x, d: x.sum(d),
        "mean": lambda x, d: x.mean(d, keepdim=True),
        "amax": lambda x, d: x.amax(d),
        "amin": lambda x, d: x.amin(d),
        "norm": lambda x, d: torch.linalg.vector_norm(x, 2, d),
    }.items()
    for shape, function, shapes in (
        ("rows", lambda x, f=operation: f(x, 1), rows),
        ("columns", lambda x, f=operation: f(x, 1), columns),
        ("a whole tensor", lambda x, f=operation: f(x, (0, 1)), rows),
    )
]
OTHER_REDUCTIONS = [
    case("prod of rows", "prod", lambda x: (1 + 0.01 * x).prod(1), rows),
    case("norm of order 1", "norm", lambda x: torch.linalg.vector_norm(x, 1, 1), rows),
    case("norm of order 3", "norm", lambda x: torch.linalg.vector_norm(x, 3, 1), rows),
    case("norm of order inf", "norm", lambda x: torch.linalg.vector_norm(x, torch.inf, 1), rows),
    case("largest of a dim", "amax", lambda x: x.max(1)[0], columns),
    case("smallest of a dim", "amin", lambda x: x.min(1)[0], rows),
    case("any of rows", "any", lambda x: (x > 1).any(1), rows),
    case("all of columns", "any", lambda x: (x < 1).all(1), columns),
    case("var of rows", "var", lambda x: torch.var(x, 1, correction=0), rows),
    case("var of columns", "var", lambda x: torch.var(x, 1, correction=0), columns),
    case("sum of integers", "sum", lambda x: (x * 10).long().sum(1), rows),
]
SOFTMAX = [
    case("softmax of rows", "softmax", lambda x: F.softmax(x, 1), rows),
    case("softmax of columns", "softmax", lambda x: F.softmax(x, 1), columns),
    case("log_softmax of rows", "log_softmax", lambda x: F.log_softmax(x, 1), rows),
    case("log_softmax of columns", "log_softmax", lambda x: F.log_softmax(x, 1), columns),
]
NORMS = [
    case(
        "layer norm",
        "layer_norm",
        lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b),
        lambda n: ((3, n), (n,), (n,)),
    ),
    case("layer norm over two dims", "layer_norm", lambda x: F.layer_norm(x, x.shape[1:]), columns),
    case("group norm", "group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), image),
    case(
        "batch norm",
        "batch_norm",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        image,
    ),
    case(
        "batch norm in eval mode",
        "batch_norm_inference",
        lambda x, m, v: F.batch_norm(x, m, v.abs() + 1, training=False),
        image,
    ),
    case(
        "instance norm",
        "batch_norm",
        F.instance_norm,
        lambda n: ((2, 3, n + 1),),
    ),
    case(
        "rms norm",
        "pointwise mean",
        lambda x, w: F.rms_norm(x, x.shape[1:], w),
        lambda n: ((3, n), (n,)),
    ),
]
COPIES = [
    case(
        "cat",
        "cat",
        lambda x, y, z: torch.cat([x, y, z], 1),
        lambda n: ((2, n, 3), (2, 4, 3), (2, 1, 3)),
    ),
    case("pad", "constant_pad", lambda x: F.pad(x, (2, 1, 0, 0, 1, 0), value=0.5), columns),
    case("crop", "constant_pad", lambda x: F.pad(x, (-2, 1)), columns),
    case("flip", "flip", lambda x: x.flip(0, 2), columns),
    case(
        "index_select",
        "index_select",
        lambda x, i: x.index_select(1, i),
        lambda n: ((2, n, 5), (4,)),
        prepare=indices,
    ),
    case(
        "index by a tensor",
        "index_select",
        lambda x, i: x[:, i - 1],
        lambda n: ((2, n, 5), (2, 3)),
        prepare=indices,
    ),
    case(
        "gather",
        "gather",
        lambda x, i: x.gather(1, i),
        lambda n: ((2, n, 5), (2, 4, 5)),
        prepare=indices,
    ),
]
ACTIVATIONS = [
    case(name, "pointwise", function, lambda n: ((n, 3),))
    for name, function in {
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
        "sigmoid": torch.sigmoid,
        "silu": F.silu,
        "elu": lambda x: F.elu(x, 0.7),
        "selu": F.selu,
        "celu": lambda x: F.celu(x, 0.7),
        "softplus": F.softplus,
        "softplus with beta": lambda x: F.softplus(x, 2.0, 1.0),
        "mish": F.mish,
        "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.5),
        "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish,
        "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
        "softsign": F.softsign,
        "logsigmoid": F.logsigmoid,
        "clamp": lambda x: x.clamp(-0.3, 0.4),
        "clamp to a minimum": lambda x: x.clamp(min=0.1),
        "powers": lambda x: x**2 + x**3 + x.abs() ** 0.5 + (x.abs() + 1) ** 1.7 + 2.0 / (x + 9),
        "logarithms": lambda x: (x.abs() + 1).log() + x.abs().log1p() + (x.abs() + 1).rsqrt(),
        "rounding": lambda x: (3 * x).floor() + x.ceil() + (x * 5).round() + x.trunc() + x.sign(),
        "remainders": lambda x: torch.fmod(x, 0.75) + torch.remainder(x, 0.6),
        "comparisons": lambda x: torch.where((x > 0) & ~(x >= 1) | (x == 0.5), x, -x),
        "a cast": lambda x: (x > 0).float() + (x * 3).long().float(),
        "nan test": lambda x: torch.isnan(x / x.floor().clamp(0, 1)),
        "alpha": lambda x: torch.add(x, x * x, alpha=2) - torch.sub(1.0, x, alpha=3),
        "integers": lambda x: (x * 9).long() * 2 - 1,
    }.items()
]
BROADCASTS = [
    case(
        "bias per channel",
        "pointwise",
        lambda x, b: (x + b[:, None, None]) * b[0],
        lambda n: ((2, 4, n, 3), (4,)),
    ),
    case("row of a matrix", "pointwise", lambda x, r: x * r - 1, lambda n: ((5, n), (n,))),
    case(
        "column of a matrix", "pointwise", lambda x, c: x / (2 + c * c), lambda n: ((5, n), (5, 1))
    ),
    case("both sides", "pointwise", lambda a, b: a - b, lambda n: ((n, 1), (1, 5))),
    case(
        "outer axes",
        "pointwise",
        lambda x, y: torch.tanh(x) * y,
        lambda n: ((3, 4, n), (3, 1, n)),
    ),
    case("a scalar tensor", "pointwise", lambda x, s: x * s + 1, lambda n: ((3, n), ())),
    case("triangle", "pointwise", torch.tril, rows),
]
CASES = [
    *REDUCTIONS,
    *OTHER_REDUCTIONS,
    *SOFTMAX,
    *NORMS,
    *COPIES,
    *ACTIVATIONS,
    *BROADCASTS,
]
