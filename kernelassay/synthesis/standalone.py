"""What an exported module does: it is written into the module, below the transforms it uses.

Nothing here may need more than torch, the standard library and ``input_values``; names of the
latter are written into the module, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelassay.input_values import parsed_transform, transformed


def made(get_inputs: Callable[[], Any], one: dict[str, Any]) -> list[Any]:
    """The tensors of an input: what ``get_inputs`` draws at its seed and sizes, transformed.

    Sizes are names of the module of ``get_inputs``. They and torch's generator are put back.
    Raises ``RuntimeError`` for an unknown transform, and for other shapes than were measured.
    """
    names = get_inputs.__globals__
    own = {name: names[name] for name in one["sizes"]}
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        names.update(one["sizes"])
        try:
            torch.default_generator.manual_seed(one["seed"])
            drawn = list(get_inputs())
        finally:
            names.update(own)
        transform = parsed_transform(one["transform"])
        if transform is None:
            raise RuntimeError(f"{one['id']}: no transform {one['transform']!r}")
        values = transformed(drawn, transform, one["seed"])
    shapes = [list(value.shape) for value in values if isinstance(value, torch.Tensor)]
    if shapes != one["shapes"]:
        raise RuntimeError(
            f"{one['id']}: the problem draws the shapes {shapes}, measured were {one['shapes']}"
        )
    return values
