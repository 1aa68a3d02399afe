"""What one forward pass of a problem costs, and which extents it reduces over.

Everything here EXECUTES problem code: call it inside a worker process only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch._dynamo  # loaded lazily by dispatch modes: workers forked after this have it
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from kernelassay import recurrent
from kernelassay.errors import KernelassayError, ProblemError
from kernelassay.kernelbench import official_seeds
from kernelassay.problem import LoadedProblem

# An extent that shrinks below these, and below the original, no longer tests the operation.
FLOORS = {"reduced": 8, "window": 2, "interior": 1, "group": 2}

_REDUCTION_NAMES = """
    sum mean amax amin max min prod argmax argmin logsumexp var std var_mean std_mean norm
    linalg_vector_norm _softmax _log_softmax cumsum cumprod logcumsumexp
"""
_REDUCTIONS = frozenset(_REDUCTION_NAMES.split())


class TooLargeError(KernelassayError):
    """A tensor passes the element limit of a measurement."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A length that a kernel loops over: ``kind`` is a key of :data:`FLOORS`."""

    operation: str
    kind: str
    length: int


@dataclass(frozen=True, slots=True)
class Measure:
    """One forward pass on the first official input.

    ``output_shape`` is that of the first output. ``work`` counts, per operation, the larger of its
    FLOP (``torch.utils.flop_counter``) and the elements it reads and writes. ``elements`` is the
    size of the largest tensor. ``finite``, ``constant`` and ``spread`` describe the outputs; they
    are unknown (True, False, 0) without real data. ``spread`` is the largest, over the outputs, of
    the standard deviation in units of one plus the mean magnitude, which is how much of an output
    a tolerance can tell from a constant.
    """

    work: int
    elements: int
    operations: int
    extents: tuple[Extent, ...]
    output_shape: tuple[int, ...]
    finite: bool = True
    constant: bool = False
    spread: float = 0.0


def measure(loaded: LoadedProblem, *, element_limit: int = 1 << 62, fake: bool = False) -> Measure:
    """Build the model, draw an official input and run it once, counting.

    With ``fake`` no data is computed, so any size can be measured. Raises ``TooLargeError`` before
    a tensor of more than ``element_limit`` elements is created where that can be foreseen, else
    after; ``ProblemError`` when the problem does not run.
    """
    seed = official_seeds(1)[0]
    meter = _Meter(element_limit)
    with FakeTensorMode() if fake else nullcontext():
        with recurrent.whole(), meter:
            model = loaded.build_model()
            inputs = loaded.draw(seed)
            meter.start()
            outputs = loaded.forward(model, inputs)
        described = (True, False, 0.0) if fake else _describe(outputs)
    written = sum(output.numel() for output in outputs)
    return Measure(
        meter.work + written,
        max(meter.elements, *(output.numel() for output in outputs)),
        meter.operations,
        tuple(meter.extents),
        tuple(outputs[0].shape),
        *described,
    )


def _describe(outputs: Sequence[torch.Tensor]) -> tuple[bool, bool, float]:
    """Whether all outputs are finite, whether each is constant (of several elements), spread."""
    constant, spread = True, 0.0
    for output in outputs:
        # NumPy's sums, since those of torch change with the number of threads.
        values = output.detach().double().numpy()
        if not values.size:
            raise ProblemError("the output is empty")
        if not np.isfinite(values).all():
            return False, False, 0.0
        least, most = float(values.min()), float(values.max())
        constant &= values.size > 1 and most - least <= 1e-6 * max(1.0, abs(most))
        deviation = float(values.std()) / (1.0 + float(np.abs(values).mean()))
        spread = max(spread, deviation)
    return True, constant, spread


class _Meter(TorchDispatchMode):
    def __init__(self, element_limit: int) -> None:
        super().__init__()
        self.element_limit = element_limit
        self.start()

    def start(self) -> None:
        """Forget what building and drawing did; the forward pass counts."""
        self.work = 0
        self.elements = getattr(self, "elements", 0)
        self.operations = 0
        self.extents: list[Extent] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # Factories (rand, empty, full) take the shape first: refuse before they allocate.
        if args and isinstance(args[0], (list, tuple)) and _all_integers(args[0]):
            self._check(math.prod(args[0]))
        # So do products: scores of long sequences are far larger than what goes in.
        factors = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
        first = factors.get(func._schema.name.removeprefix("aten::"))
        if first is not None:
            left, right = args[first], args[first + 1]
            self._check(math.prod(left.shape[:-1]) * right.shape[-1])
        attends = func._schema.name.startswith("aten::_scaled_dot_product")
        if attends:
            self._check(math.prod(args[0].shape[:-1]) * args[1].shape[-2])
        out = func(*args, **kwargs)
        tensors = [value for value in tree_leaves(out) if isinstance(value, torch.Tensor)]
        if not tensors or func.is_view:
            return out
        largest = max(tensor.numel() for tensor in tensors)
        self._check(largest)
        self.elements = max(self.elements, largest)
        read = [value.numel() for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
        self.work += max(flop_count(func, args, kwargs, out), sum(read) + largest)
        self.operations += 1
        self.extents += _extents(func, args, kwargs, tensors[0])
        return out

    def _check(self, elements: int) -> None:
        if elements > self.element_limit:
            raise TooLargeError(f"a tensor has {elements} elements, more than {self.element_limit}")


def flop_count(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    """FLOP of one call of an operator, from shapes alone; 0 for one without a formula."""
    if func.namespace == "kernelassay":
        return recurrent.work(*args)
    if "scaled_dot_product" in func._schema.name:
        # The registry lacks the operator that PyTorch takes on a CPU, and the composite one.
        query, key, value = (tensor.shape for tensor in args[:3])
        return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    formula = flop_registry.get(func._overloadpacket)
    return int(formula(*args, **kwargs, out_val=out)) if formula else 0


def _all_integers(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, int) for value in values)


def _extents(func: Any, args: tuple[Any, ...], kwargs: Any, out: torch.Tensor) -> list[Extent]:
    """The lengths that one ATen call reduces over, normalises over or slides a window over."""
    name = func._schema.name.removeprefix("aten::")
    named = {argument.name: value for argument, value in zip(func._schema.arguments, args)}  # noqa: B905
    named.update(kwargs)

    def reduced(length: int) -> list[Extent]:
        return [Extent(name, "reduced", int(length))]

    if func.namespace == "kernelassay":
        x, states = args[0], args[1]
        return [*reduced(x.shape[2]), *reduced(states[0].shape[2])]
    if name in _REDUCTIONS:
        # max and min are also elementwise operations of two tensors.
        return [] if "other" in named else reduced(_reduced_length(named))
    if name == "native_layer_norm":
        return reduced(math.prod(named["normalized_shape"]))
    if name == "native_group_norm":
        channels = named["C"] // named["group"]
        return [*reduced(channels * named["HxW"]), Extent(name, "group", channels)]
    if name.startswith(("native_batch_norm", "_native_batch_norm")):
        return reduced(named["input"].numel() // max(1, named["input"].shape[1]))
    if name in ("mm", "bmm"):
        return reduced(args[0].shape[-1])
    if name in ("addmm", "baddbmm", "addmv"):
        return reduced(args[1].shape[-1])
    if name == "convolution":
        weight = named["weight"]
        taps = math.prod(weight.shape[2:])
        groups = named["groups"]
        channels = weight.shape[0] // groups if named["transposed"] else weight.shape[1]
        outputs = weight.shape[1] if named["transposed"] else weight.shape[0] // groups
        length = reduced(channels * taps)
        length += [Extent(name, "group", n) for n in (channels, outputs)]
        if named["transposed"]:
            return length + [Extent(name, "window", n) for n in named["input"].shape[2:]]
        return length + _windows(name, named, list(weight.shape[2:]), out)
    if name.startswith(("max_pool", "avg_pool")) and "kernel_size" in named:
        return _windows(name, named, list(named["kernel_size"]), out)
    return []


def _reduced_length(named: dict[str, Any]) -> int:
    tensor = named.get("self", named.get("input"))
    assert isinstance(tensor, torch.Tensor)
    dims = named.get("dim")
    dims = [dims] if isinstance(dims, int) else dims
    return math.prod(tensor.shape[d] for d in dims) if dims else tensor.numel()


def _windows(name: str, named: dict[str, Any], taps: list[int], out: torch.Tensor) -> list[Extent]:
    """Output lengths, and the number of window positions that touch no padding."""
    tensor = named.get("input", named.get("self"))
    assert isinstance(tensor, torch.Tensor)
    rank = tensor.dim() - (out.dim() - len(taps)) if len(taps) > 1 else len(taps)
    taps = taps * rank if len(taps) < rank else taps
    dilation = list(named.get("dilation") or [1])
    dilation = dilation * rank if len(dilation) < rank else dilation
    found = [Extent(name, "window", n) for n in out.shape[-rank:]]
    for extent, tap, step in zip(tensor.shape[-rank:], taps, dilation):  # noqa: B905
        found.append(Extent(name, "interior", max(0, extent - (tap - 1) * step)))
    return found
