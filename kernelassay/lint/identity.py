"""Parameters at an identity value: those whose calls give the same result without them.

Told from the ATen calls that consume a parameter, not from its value alone: ones that are added and
zeros that multiply are no identities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_COPIES = ("aten::clone", "aten::_to_copy", "aten::contiguous")
_SUM_WITH_PRODUCT = ("aten::addmm", "aten::addmv", "aten::baddbmm", "aten::addbmm", "aten::addr")


class IdentityMode(TorchDispatchMode):
    """Watches the calls of one forward pass of ``model``.

    Afterwards :attr:`invisible` maps each uniform parameter that was used, and never mattered, to
    its value.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self._values: dict[str, float] = {}
        self._owners: dict[int, str] = {}
        self._visible: set[str] = set()
        self._used: set[str] = set()
        self._kept: list[torch.Tensor] = []
        for name, parameter in model.named_parameters():
            value = _uniform(parameter)
            if value is not None:
                self._values[name] = value
                self._owners[_place(parameter)] = name

    @property
    def invisible(self) -> Mapping[str, float]:
        """Names and values of the parameters that could be left out."""
        return {n: v for n, v in self._values.items() if n in self._used - self._visible}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        owned = dict(self._owned(func, args, kwargs)) if not func.is_view else {}
        if not owned:
            return func(*args, **kwargs)
        others = [
            value.clone() if func._schema.is_mutable else value
            for value in tree_leaves((args, kwargs))
            if isinstance(value, torch.Tensor) and self._owner(value) is None
        ]
        # The other operand of 3 * p is a number.
        others += [torch.tensor(x) for x in args[:2] if type(x) in (int, float)]
        out = func(*args, **kwargs)
        for argument, name in owned.items():
            if func._schema.name in _COPIES:
                self._owners[_place(out)] = name
                self._kept.append(out)  # or another tensor might get its place
                continue
            self._used.add(name)
            if not self._neutral(func, argument, self._values[name], out, others):
                self._visible.add(name)
        return out

    def _owned(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Iterator[tuple[str, str]]:
        names = [argument.name for argument in func._schema.arguments]
        for argument, value in [*zip(names, args), *kwargs.items()]:  # noqa: B905 - defaults
            for leaf in tree_leaves(value):
                name = self._owner(leaf)
                if name is not None:
                    yield argument, name

    def _owner(self, value: Any) -> str | None:
        return self._owners.get(_place(value)) if isinstance(value, torch.Tensor) else None

    @staticmethod
    def _neutral(func: Any, argument: str, value: float, out: Any, others: list[Any]) -> bool:
        """Whether the call's result is what it would be without this argument."""
        operation = func._schema.name
        if "norm" in operation or "convolution" in operation or operation == "aten::linear":
            scales = argument in ("weight", "gamma", "scale") and "norm" in operation
            return value == (1.0 if scales else 0.0) and (scales or argument in ("bias", "beta"))
        if operation in _SUM_WITH_PRODUCT:
            return argument == "self" and value == 0.0
        if torch.Tag.pointwise not in func.tags or not isinstance(out, torch.Tensor):
            return False
        return any(_same(out, other) for other in others)


def _same(out: torch.Tensor, other: torch.Tensor) -> bool:
    try:
        return torch.equal(out, other.to(out).expand_as(out))
    except RuntimeError:  # of another shape
        return False


def _uniform(parameter: torch.Tensor) -> float | None:
    if not parameter.numel() or not parameter.is_floating_point():
        return None
    first = parameter.detach().flatten()[0]
    return float(first) if bool((parameter == first).all()) else None


def _place(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()
