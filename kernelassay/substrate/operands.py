"""What the lowerings of heavy operators share: dtype checks, optional operands in a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.substrate.lowering import source
from kernelassay.trace import meta

INT_MAX = 2**31 - 1
# The dynamic shared memory every device grants without asking for more.
SHARED_LIMIT = 48 * 1024


def require_float32(node: fx.Node, *operands: fx.Node | None) -> None:
    """Raise ``UnsupportedError`` unless all ``operands`` of ``node`` are float32 tensors."""
    for operand in operands:
        if operand is not None and meta(operand).dtype != "float32":
            raise UnsupportedError(f"{node.target} of {meta(operand).dtype}")


def require_shared(template: str, nbytes: int) -> None:
    """Raise ``UnsupportedError`` if a block would need more than 48 KiB of shared memory."""
    if nbytes > SHARED_LIMIT:
        raise UnsupportedError(
            f"{template} would stage {nbytes} bytes in shared memory, the limit is {SHARED_LIMIT}",
            hint="use a smaller kernel, stride or dilation",
        )


def int_argument(value: int, what: str) -> int:
    """``value``, which a kernel takes as ``int``; raises ``UnsupportedError`` if it overflows."""
    if value > INT_MAX:
        raise UnsupportedError(f"{what} is {value}, past the range of an int")
    return value


def argument(node: fx.Node, index: int, name: str, default: object = None) -> object:
    """Argument ``index`` of a call, by position or by ``name``, else ``default``."""
    if len(node.args) > index:
        return node.args[index]
    return node.kwargs.get(name, default)


def optional_pointer(
    key: str, name: str, present: bool, element_type: str = "float"
) -> dict[str, str]:
    """Substitutions that put a pointer parameter into a source, or leave it out.

    ``@<key>_PARAMETER@`` stands after a comma in the kernel's list, ``@<key>_LAUNCH_PARAMETER@``
    in the one of ``launch``, ``@<key>_ARGUMENT@`` in the launch statement.
    """
    if not present:
        return dict.fromkeys((f"{key}_PARAMETER", f"{key}_LAUNCH_PARAMETER", f"{key}_ARGUMENT"), "")
    return {
        f"{key}_PARAMETER": f" {element_type}* __restrict__ {name},",
        f"{key}_LAUNCH_PARAMETER": f" {element_type}* {name},",
        f"{key}_ARGUMENT": f" {name},",
    }


def bias_keys(element: str | None) -> dict[str, str]:
    """Substitutions for an added bias whose value is the C expression ``element``, or for none."""
    keys = optional_pointer("BIAS", "bias", element is not None, "const float")
    keys["PLUS_BIAS"] = f" + {element}" if element else ""
    keys["BIAS"] = element or "0.0f"
    return keys


def both_styles(
    template: str, substitutions: Mapping[str, str | Callable[..., str]]
) -> dict[str, str]:
    """The sources ``<template>_plain`` and ``<template>_optimised``."""
    return styled(template, substitutions)


def styled(
    template: str, substitutions: Mapping[str, str | Callable[..., str]], *more: str
) -> dict[str, str]:
    """The sources ``<template>_<style>`` of the plain, the optimised and ``more`` styles."""
    styles = (PLAIN, OPTIMISED, *more)
    return {style: source(f"{template}_{style}", **substitutions) for style in styles}
