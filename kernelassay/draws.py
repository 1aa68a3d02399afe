"""Random tensors that a forward pass makes: the same ones in every run of one input.

A model that draws its initial state computes another function on each call. Here a draw follows
from a seed, its shape and how many of that shape came before, and is made in float32 whatever the
precision of the run. Both references and the traced graph thus compute one function, and what was
drawn is a value like any other. PyTorch's own generator is not used.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Functions of a shape alone. What draws by a tensor's values has no place in a graph of constants.
DRAWS = {
    "aten.randn.default": torch.randn,
    "aten.rand.default": torch.rand,
    "aten.randn_like.default": torch.randn,
    "aten.rand_like.default": torch.rand,
}


class drawing(TorchDispatchMode):  # noqa: N801 - a context manager
    """Within, the functions of :data:`DRAWS` yield what ``seed`` decides."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._made: Counter[tuple[str, tuple[int, ...]]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        function = DRAWS.get(str(func))
        if function is None:
            return func(*args, **given)
        like = args[0] if isinstance(args[0], Tensor) else None
        shape = tuple(args[0].shape) if like is not None else tuple(args[0])
        kind = function.__name__
        number = self._made[kind, shape]
        self._made[kind, shape] += 1
        name = repr((self._seed, kind, shape, number)).encode()
        seed = int.from_bytes(hashlib.sha256(name).digest()[:8], "little") >> 1
        values = function(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
        dtype = given.get("dtype") or (
            like.dtype if like is not None else torch.get_default_dtype()
        )
        device = given.get("device") or (like.device if like is not None else "cpu")
        return values.to(dtype=dtype, device=device)
