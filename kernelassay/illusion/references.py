"""What each operator should compute: its formula, plainly, in float64.

Softmax and attention subtract the row's maximum; nothing else departs from the formula. Elements
that are not finite go through it as IEEE arithmetic has them. Formulas and constants are those of
"The Correctness Illusion" (arXiv 2606.20128); the last four are our own extras.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernelassay.errors import unknown_name

Array = NDArray[np.float64]
Reference = Callable[..., Array]
"""Takes the schema's inputs by position, in float64."""


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _layernorm(x: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + 1e-5)


def _matmul(a: Array, b: Array) -> Array:
    return a @ b


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def _leaky_relu(x: Array) -> Array:
    return np.where(x > 0.0, x, 0.01 * x)


def _elu(x: Array) -> Array:
    return np.where(x >= 0.0, x, np.expm1(x))


def _rmsnorm(x: Array) -> Array:
    return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-5)


def _l2norm(x: Array) -> Array:
    return x / np.sqrt(np.square(x).sum(axis=-1, keepdims=True) + 1e-12)


def _attention(q: Array, k: Array, v: Array) -> Array:
    return _softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v


def _row_mean(x: Array) -> Array:
    return np.asarray(x.mean(axis=-1))


def _running_mean(x: Array) -> Array:
    return np.cumsum(x, axis=-1) / np.arange(1, x.shape[-1] + 1)


def _running_max(x: Array) -> Array:
    return np.maximum.accumulate(x, axis=-1)


def _layernorm_affine(x: Array, weight: Array, bias: Array) -> Array:
    return _layernorm(x) * weight + bias


REFERENCES: dict[str, Reference] = {
    "softmax": _softmax,
    "layernorm": _layernorm,
    "matmul": _matmul,
    "gelu": _gelu,
    "silu": _silu,
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "elu": _elu,
    "rmsnorm": _rmsnorm,
    "l2norm": _l2norm,
    "attention": _attention,
    "row_mean": _row_mean,
    "running_mean": _running_mean,
    "running_max": _running_max,
    "layernorm_affine": _layernorm_affine,
}


def reference(name: str) -> Reference:
    """The reference of this name; an unknown one raises ``UsageError``.

    It says nothing of overflow and invalid operations: with such inputs they are the formula.
    """
    if name not in REFERENCES:
        raise unknown_name("reference", name, REFERENCES)
    formula = REFERENCES[name]

    def quiet(*inputs: Array) -> Array:
        with np.errstate(all="ignore"):
            return formula(*inputs)

    return quiet
