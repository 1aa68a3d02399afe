from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from kernelassay.errors import UsageError
from kernelassay.illusion.cases import Case, inputs
from kernelassay.illusion.corpus import entries, extras
from kernelassay.illusion.references import REFERENCES, reference
from kernelassay.illusion.values import VALUES

T = torch.Tensor
TORCH: dict[str, Callable[..., T]] = {
    "softmax": lambda x: F.softmax(x, -1),
    "layernorm": lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-5),
    "matmul": torch.matmul,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.01),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "elu": F.elu,
    "rmsnorm": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5),
    "l2norm": lambda x: x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) ** 2 + 1e-12) ** 0.5,
    "attention": F.scaled_dot_product_attention,
    "row_mean": lambda x: x.mean(-1),
    "running_mean": lambda x: x.cumsum(-1) / torch.arange(1, x.shape[-1] + 1),
    "running_max": lambda x: x.cummax(-1).values,
    "layernorm_affine": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
}
BY_REFERENCE = {op.reference: op for op in (*entries(), *extras())}


def arguments(name: str, values: str) -> list[np.ndarray]:
    schema = BY_REFERENCE[name].schema
    sizes = [s for s in schema.every() if schema.elements(dict(s)) <= 20_000][-1]
    case = Case("", 0, 3, "float32", "contiguous", sizes, values)
    return [array.astype(np.float64) for array in inputs(case, schema)]


def test_every_reference_is_some_operators_and_has_its_torch_function_here() -> None:
    assert set(REFERENCES) == set(TORCH) == set(BY_REFERENCE)


@pytest.mark.parametrize("values", [name for name, one in VALUES.items() if one.finite])
@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_is_the_torch_function_in_float64(name: str, values: str) -> None:
    given = arguments(name, values)
    expected = TORCH[name](*map(torch.from_numpy, given)).numpy()
    got = reference(name)(*given)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", REFERENCES)
def test_elements_that_are_not_finite_go_through_the_formula_without_a_warning(name: str) -> None:
    given = arguments(name, "nan-injected")
    expected = TORCH[name](*map(torch.from_numpy, given)).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = reference(name)(*given)
    assert not np.isfinite(got).all()
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-11)


def test_an_unknown_reference_is_an_error() -> None:
    with pytest.raises(UsageError, match="reference"):
        reference("softmin")
