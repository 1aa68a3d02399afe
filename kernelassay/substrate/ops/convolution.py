"""Convolutions in one to three dimensions, forward and transposed, grouped and dilated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import Scalar
from kernelassay.substrate.lowering import Context, Lowered, lowers, source
from kernelassay.substrate.operands import (
    bias_keys,
    both_styles,
    int_argument,
    require_float32,
    require_shared,
)
from kernelassay.trace import meta

# Per number of spatial dimensions: what a parameter name ends with, and the names themselves.
AXES = {1: ("",), 2: ("_h", "_w"), 3: ("_d", "_h", "_w")}
_NAMES_1D = {"in": "in_length", "out": "out_length", "kernel": "kernel_size", "pad": "padding"}


def axis_names(what: str, dims: int) -> tuple[str, ...]:
    """The ``launch`` parameters for ``what`` ("in", "stride", ...) along each spatial axis."""
    if dims == 1:
        return (_NAMES_1D.get(what, what),)
    return tuple(what + suffix for suffix in AXES[dims])


def per_axis(what: str, values: Sequence[int], dims: int) -> dict[str, int]:
    """``values`` by parameter name; a single value holds for all axes."""
    expanded = list(values) * dims if len(values) == 1 else list(values)
    return dict(zip(axis_names(what, dims), expanded, strict=True))


@lowers("aten.convolution.default")
def lower_convolution(node: fx.Node, context: Context) -> Lowered:
    """Zero-padded convolution or transposed convolution, with or without bias."""
    operand, weight, bias = node.args[:3]
    require_float32(node, operand, weight, bias)
    dims = len(meta(weight).shape) - 2
    if dims not in AXES:
        raise UnsupportedError(f"convolution over {dims} dimensions")
    template = f"conv_transpose{dims}d" if node.args[6] else f"conv{dims}d"
    operands = [("input", operand.name), ("weight", weight.name)]
    if bias is not None:
        operands.append(("bias", bias.name))
    keys = bias_keys("bias[oc]" if bias is not None else None)
    sources = both_styles(template, keys)
    if not node.args[6]:
        sources["implicit_gemm"] = source("conv_implicit_gemm", **keys, **_gemm_keys(dims))
    return Lowered(
        template=template,
        sources=sources,
        operands=tuple(operands),
        outputs=(("output", node.name),),
        nodes=(node.name,),
        scalars=lambda nodes: _scalars(nodes[node.name], template, dims),
        fixed=_known(node, dims),
    )


def _gemm_keys(dims: int) -> dict[str, str]:
    """What the implicit matrix product substitutes for a number of spatial dimensions."""
    names = {
        what: axis_names(what, dims)
        for what in ("in", "out", "kernel", "stride", "pad", "dilation")
    }
    parameters = ["batch", "in_channels", *names["in"], "out_channels", *names["out"]]
    for what in ("kernel", "stride", "pad", "dilation"):
        parameters += names[what]
    parameters.append("groups")
    letters = "dhw"[3 - dims :]
    origin, position, inside = [], [], []
    for axis, letter in enumerate(letters):
        within = _coordinate("within", axis, names["out"])
        tap = _coordinate("tap", axis, names["kernel"])
        stride, pad = names["stride"][axis], names["pad"][axis]
        origin.append(f"    int {letter}0 = {within} * {stride} - {pad};")
        step = names["dilation"][axis]
        position.append(f"            int i{letter} = {letter}0 + {tap} * {step};")
        inside.append(f"i{letter} >= 0 && i{letter} < {names['in'][axis]}")
    element = "(long long)c"
    for letter, extent in zip(letters, names["in"], strict=True):
        element = f"({element})" if "+" in element else element
        element = f"{element} * {extent} + i{letter}"
    return {
        "DIMS": str(dims),
        "PARAMETERS": ", ".join(f"int {name}" for name in parameters),
        "ARGUMENTS": ", ".join(parameters),
        "TAPS": " * ".join(names["kernel"]),
        "OUT_PLANE": " * ".join(names["out"]),
        "IN_PLANE": " * ".join(names["in"]),
        "ORIGIN": "\n".join(origin),
        "POSITION": "\n".join(position),
        "INSIDE": " && ".join(inside),
        "ELEMENT": element,
    }


def _coordinate(flat: str, axis: int, extents: Sequence[str]) -> str:
    """The C text of one coordinate of a flat index over ``extents``."""
    inner = "".join(f" / {extent}" for extent in extents[axis + 1 :])
    return f"{flat}{inner} % {extents[axis]}" if axis else f"{flat}{inner}"


def _known(node: fx.Node, dims: int) -> dict[str, int | str]:
    """What no shape changes: :func:`_fixed`, and which extents of the filter are one.

    Those extents are constants, too, but are not told: loops over them would be unrolled, and equal
    code would then no longer compile to equal code.
    """
    extents = per_axis("kernel", meta(node.args[1]).shape[2:], dims)
    first: dict[int, str] = {}
    same = {name: first.setdefault(extent, name) for name, extent in extents.items()}
    return {**_fixed(node, dims), **{name: own for name, own in same.items() if name != own}}


def _fixed(node: fx.Node, dims: int) -> dict[str, int]:
    """The scalars that are constants of the node, the filter's extents aside."""
    stride, padding, dilation = node.args[3:6]
    return {
        "groups": int(node.args[8]),
        **per_axis("stride", stride, dims),
        **per_axis("pad", padding, dims),
        **per_axis("dilation", dilation, dims),
    }


def _scalars(node: fx.Node, template: str, dims: int) -> Mapping[str, Scalar]:
    in_shape, out_shape = meta(node.args[0]).shape, meta(node).shape
    scalars: dict[str, Scalar] = {
        "batch": in_shape[0],
        "in_channels": in_shape[1],
        "out_channels": out_shape[1],
        **per_axis("in", in_shape[2:], dims),
        **per_axis("out", out_shape[2:], dims),
        **per_axis("kernel", meta(node.args[1]).shape[2:], dims),
        **_fixed(node, dims),
    }
    require_shared(template, staged_bytes(template, scalars))
    if in_shape[0] > 65535:
        raise UnsupportedError(f"{template} of {in_shape[0]} samples; a grid holds 65535 in z")
    for shape in (in_shape, out_shape):
        plane = 1
        for extent in shape[2:]:
            plane *= extent
        int_argument(plane, f"the size of one channel of {node.name}")
    return scalars


def staged_bytes(template: str, scalars: Mapping[str, Scalar]) -> int:
    """The dynamic shared memory a block of the optimised source asks for, in bytes."""
    dims = int(template[-2])
    taps = 1
    for name in axis_names("kernel", dims):
        taps *= int(scalars[name])
    channels = {"conv1d": 32, "conv2d": 4, "conv3d": 8, "conv_transpose1d": 16}.get(template, 4)
    floats = channels * taps
    if template == "conv2d":
        tile = 1
        for axis in AXES[2]:
            stride, kernel, dilation = (
                int(scalars[what + axis]) for what in ("stride", "kernel", "dilation")
            )
            side = 16 if stride <= 4 else max(64 // stride, 1)
            tile *= (side - 1) * stride + (kernel - 1) * dilation + 1
        floats += tile
    return 4 * floats
