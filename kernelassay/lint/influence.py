"""Whether an output depends on a parameter or an input, told from rounding.

A module that is constant in exact arithmetic (a mean over what a normalisation has centred) still
varies by rounding. Such a variation shrinks with the precision, a real one does not: so it is
measured in float32 and in float64. EXECUTES problem code: in a worker only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelassay.lint.bench import Bench
from kernelassay.lint.distance import distance, value_range

NOISE_RATIO = 1e-5
"""Rounding is 5e8 times finer in float64; a variation that shrinks by this much is rounding."""

SUSPICIOUS = 1e-7
"""A parameter is perturbed if its gradient promises less than this share of the largest effect."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The largest absolute change of the output, in both precisions (``exact`` may be unknown)."""

    single: float
    exact: float | None

    @property
    def is_noise(self) -> bool:
        """Whether it is none, or nothing but rounding."""
        if not math.isfinite(self.single):
            return False
        return self.single == 0.0 or (
            self.exact is not None and self.exact <= NOISE_RATIO * self.single
        )


def spread(single: torch.Tensor, exact: torch.Tensor | None) -> Variation:
    """The variation among the elements of one output."""
    ranges = [value_range(values) for values in (single, exact) if values is not None]
    widths = [most - least for least, most in ranges]
    return Variation(widths[0], widths[1] if exact is not None else None)


@dataclass(frozen=True, slots=True)
class Influence:
    """Variations of a problem's output around its first official input."""

    bench: Bench
    single: torch.Tensor
    exact: torch.Tensor | None

    def of_inputs(self, inputs: Sequence[Any]) -> Variation:
        """The variation when the model gets ``inputs`` instead."""
        return self._variation(lambda dtype: self.bench.output(inputs, dtype))

    def of_parameter(self, name: str) -> Variation:
        """The variation when one parameter gets noise of its own magnitude added."""
        value = self.bench.parameters[name]
        scale = max(map(abs, value_range(value))) or 1.0
        noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
        changed = {name: value + (scale * noise).to(value.dtype)}
        first = self.bench.first
        return self._variation(lambda dtype: self.bench.output(first, dtype, changed))

    def suspects(self) -> Iterator[str]:
        """The floating parameters whose gradient is (nearly) zero; all where there is no gradient.

        One backward pass spares a network the perturbation of each of its parameters.
        """
        floating = [n for n, p in self.bench.parameters.items() if p.is_floating_point()]
        effects = self._effects()
        largest = max(effects.values(), default=0.0)
        for name in floating:
            if not effects or not effects[name] > SUSPICIOUS * largest:
                yield name

    def _variation(self, output: Callable[[torch.dtype | None], torch.Tensor]) -> Variation:
        single = _largest(output(None), self.single)
        if single == 0.0 or self.exact is None:
            return Variation(single, None)
        return Variation(single, _largest(output(torch.float64), self.exact))

    def _effects(self) -> dict[str, float]:
        """Gradient times magnitude by parameter, for a random weighting of the output's elements.

        Empty where the model has no gradient, or none that fits into memory.
        """
        bench = self.bench
        if self.exact is None:
            return {}
        model = bench.module(torch.float64)
        named = {n: p for n, p in model.named_parameters() if p.is_floating_point()}
        inputs = [
            x.to(torch.float64, copy=True)
            if isinstance(x, torch.Tensor) and x.is_floating_point()
            else x
            for x in bench.first
        ]
        before = torch.get_default_dtype()
        torch.manual_seed(0)
        try:
            torch.set_default_dtype(torch.float64)
            with torch.enable_grad():
                for parameter in named.values():
                    parameter.requires_grad_(True)
                output = model(*inputs)
                weights = torch.randn(output.shape).to(output.device)
                total = (torch.where(torch.isfinite(output), output, 0.0) * weights).sum()
                grads = torch.autograd.grad(total, list(named.values()), allow_unused=True)
        except Exception:
            return {}  # no gradient: every parameter is perturbed instead
        finally:
            torch.set_default_dtype(before)
        return {
            name: 0.0
            if grad is None
            else max(map(abs, value_range(grad))) * (max(map(abs, value_range(parameter))) or 1.0)
            for (name, parameter), grad in zip(named.items(), grads, strict=True)
        }


def _largest(out: torch.Tensor, ref: torch.Tensor) -> float:
    if out.shape != ref.shape:
        return math.inf
    return distance(out, ref, equal_nan=True).largest
