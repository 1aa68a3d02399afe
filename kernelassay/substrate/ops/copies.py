"""Copies with rearrangement: concatenation, constant padding, reversal. Texts are generated.

Concatenation reads one array per operand; padding and reversal unravel the output's index over
*axes*, runs of dimensions that are treated alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN, Scalar
from kernelassay.substrate.ctypes import c_type, literal
from kernelassay.substrate.lowering import Context, Lowered, Scalars, lowers
from kernelassay.trace import meta

_ONE_EACH = """extern "C" __global__ void {name}({kernel_parameters}) {{
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
{body}
}}

void launch({parameters}, int max_blocks) {{
    const int threads = 256;
    {name}<<<dim3((n + threads - 1) / threads), dim3(threads)>>>({arguments});
}}
"""
_GRID_STRIDE = """extern "C" __global__ void {name}({kernel_parameters}) {{
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {{
{body}
    }}
}}

void launch({parameters}, int max_blocks) {{
    const int threads = 256;
    long long blocks = (n + threads - 1) / threads;
    if (blocks > max_blocks) blocks = max_blocks;
    {name}<<<dim3(blocks), dim3(threads)>>>({arguments});
}}
"""


@lowers("aten.cat.default")
def lower_cat(node: fx.Node, context: Context) -> Lowered:
    """Tensors of one rank side by side along a dimension."""
    parts = tuple(node.args[0])
    names = tuple(part.name for part in parts)
    dim = int(node.args[1] if len(node.args) > 1 else 0) % len(meta(node).shape)
    if len({meta(part).dtype for part in parts}) > 1:
        raise UnsupportedError("aten.cat.default of several dtypes")
    if any(len(meta(part).shape) != len(meta(node).shape) for part in parts):
        raise UnsupportedError("aten.cat.default with an empty operand of another rank")

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        shapes = [meta(nodes[name]).shape for name in names]
        widths = {f"width{k}": prod(shape[dim:]) for k, shape in enumerate(shapes)}
        return {"rows": prod(shapes[0][:dim]), **widths}

    element = c_type(meta(node).dtype)
    return Lowered(
        template="cat",
        sources={
            PLAIN: _cat_by_element(element, len(parts)),
            OPTIMISED: _cat_by_part(element, len(parts)),
        },
        operands=tuple((f"x{k}", name) for k, name in enumerate(names)),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=scalars,
    )


def _cat_by_element(element: str, count: int) -> str:
    """Each thread finds the operand that its output column falls into."""
    lines = [
        "const long long row = i / width;",
        "long long column = i % width;",
    ]
    for k in range(count):
        lines += [
            f"if (column < width{k}) {{",
            f"    y[i] = x{k}[row * width{k} + column];",
            "    return;",
            "}",
            f"column -= width{k};",
        ]
    pointers = [f"const {element}*" for _ in range(count)]
    widths = [f"width{k}" for k in range(count)]
    kernel = [f"{p} __restrict__ x{k}" for k, p in enumerate(pointers)]
    kernel += [f"{element}* __restrict__ y", "long long n", "long long width"]
    kernel += [f"long long {w}" for w in widths]
    host = [f"{p} x{k}" for k, p in enumerate(pointers)]
    host += [f"{element}* y", "long long rows", *(f"long long {w}" for w in widths)]
    arguments = [f"x{k}" for k in range(count)] + ["y", "rows * width", "width", *widths]
    return (
        f'extern "C" __global__ void cat({", ".join(kernel)}) {{\n'
        "    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i >= n) return;\n" + "".join(f"    {line}\n" for line in lines[:-1]) + "}\n\n"
        f"void launch({', '.join(host)}, int max_blocks) {{\n"
        f"    const long long width = {' + '.join(widths)};\n"
        f"    cat<<<dim3((rows * width + 255) / 256), dim3(256)>>>({', '.join(arguments)});\n"
        "}\n"
    )


def _cat_by_part(element: str, count: int) -> str:
    """One launch per operand, which copies its rows into a column range of the output."""
    host = [f"const {element}* x{k}" for k in range(count)]
    host += [f"{element}* y", "long long rows", *(f"long long width{k}" for k in range(count))]
    launches = []
    for k in range(count):
        launches += [
            f"blocks = (rows * width{k} + 255) / 256;",
            "if (blocks > max_blocks) blocks = max_blocks;",
            "if (blocks < 1) blocks = 1;",  # an empty part: a grid of none does not launch
            f"cat_part<<<dim3(blocks), dim3(256)>>>(x{k}, y, rows, width{k}, offset, width);",
            f"offset += width{k};",
        ]
    return (
        f'extern "C" __global__ void cat_part(const {element}* __restrict__ x, '
        f"{element}* __restrict__ y, long long rows, long long part_width, long long offset, "
        "long long width) {\n"
        "    const long long n = rows * part_width;\n"
        "    const long long stride = (long long)gridDim.x * blockDim.x;\n"
        "    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; "
        "i += stride) {\n"
        "        const long long row = i / part_width;\n"
        "        const long long column = i % part_width;\n"
        "        y[row * width + offset + column] = x[i];\n"
        "    }\n"
        "}\n\n"
        f"void launch({', '.join(host)}, int max_blocks) {{\n"
        f"    const long long width = {' + '.join(f'width{k}' for k in range(count))};\n"
        "    long long blocks = 0;\n"
        "    long long offset = 0;\n" + "".join(f"    {line}\n" for line in launches[:-1]) + "}\n"
    )


@lowers("aten.constant_pad_nd.default")
def lower_constant_pad(node: fx.Node, context: Context) -> Lowered:
    """A constant border around a tensor; negative padding crops."""
    x, padding = node.args[0], node.args[1]
    element = meta(node).dtype
    value = literal(node.args[2] if len(node.args) > 2 else 0, element)
    rank = len(meta(x).shape)
    padded = {
        rank - 1 - k for k in range(len(padding) // 2) if padding[2 * k : 2 * k + 2] != [0, 0]
    }
    axes = _axes(rank, padded)

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        inputs, outputs = meta(nodes[x.name]).shape, meta(nodes[node.name]).shape
        pads = nodes[node.name].args[1]
        values: dict[str, Scalar] = {"n": prod(outputs)}
        for a, (first, end) in enumerate(axes):
            values[f"size{a}"] = prod(inputs[first:end])
            if first in padded:
                values[f"padded{a}"] = outputs[first]
                values[f"before{a}"] = pads[2 * (rank - 1 - first)]
        return values

    sizes = [f"size{a}" for a in range(len(axes))]
    extents = [f"padded{a}" if first in padded else sizes[a] for a, (first, _) in enumerate(axes)]
    shifts = {a: f" - before{a}" for a, (first, _) in enumerate(axes) if first in padded}
    lines = _unravel(extents, shifts)
    inside = " && ".join(f"c{a} >= 0 && c{a} < size{a}" for a in shifts) or "true"
    lines.append(f"y[i] = {inside} ? x[{_ravel(sizes)}] : {value};")
    return _rearranged(node, "constant_pad", lines, scalars, context)


@lowers("aten.flip.default")
def lower_flip(node: fx.Node, context: Context) -> Lowered:
    """A tensor reversed along some dimensions."""
    x, dims = node.args
    rank = len(meta(x).shape)
    flipped = {d % rank for d in dims}
    axes = _axes(rank, flipped)

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        shape = meta(nodes[x.name]).shape
        sizes = {f"size{a}": prod(shape[first:end]) for a, (first, end) in enumerate(axes)}
        return {"n": prod(shape), **sizes}

    sizes = [f"size{a}" for a in range(len(axes))]
    lines = _unravel(sizes, {})
    reversed_ = {
        a: f"(size{a} - 1 - c{a})" for a, (first, _) in enumerate(axes) if first in flipped
    }
    lines.append(f"y[i] = x[{_ravel(sizes, reversed_)}];")
    return _rearranged(node, "flip", lines, scalars, context)


def _axes(rank: int, special: set[int]) -> list[tuple[int, int]]:
    """Runs (first, end) of dimensions; each dimension in ``special`` is a run of its own."""
    axes: list[tuple[int, int]] = []
    for d in range(rank):
        if axes and d not in special and d - 1 not in special:
            axes[-1] = (axes[-1][0], d + 1)
        else:
            axes.append((d, d + 1))
    return axes


def _unravel(extents: list[str], shifts: Mapping[int, str]) -> list[str]:
    """Statements that split ``i`` into coordinates ``c0``, ``c1``... of the given extents."""
    lines = []
    for a in range(len(extents)):
        inner = extents[a + 1 :]
        divisor = inner[0] if len(inner) == 1 else f"({' * '.join(inner)})"
        text = f"i / {divisor}" if inner else "i"
        if a > 0:
            text += f" % {extents[a]}"
        lines.append(f"const long long c{a} = {text}{shifts.get(a, '')};")
    return lines


def _ravel(sizes: list[str], replaced: Mapping[int, str] | None = None) -> str:
    """The flat offset of coordinates ``c0``, ``c1``... in an array of the given extents."""
    text = ""
    for a, size in enumerate(sizes):
        coordinate = (replaced or {}).get(a, f"c{a}")
        prefix = f"({text})" if a > 1 else text
        text = f"{prefix} * {size} + {coordinate}" if a else coordinate
    return text


def _rearranged(
    node: fx.Node, name: str, lines: list[str], scalars: Scalars, context: Context
) -> Lowered:
    x, element = node.args[0], c_type(meta(node).dtype)
    names = list(scalars(context.traced.nodes))
    sizes = "".join(f", long long {scalar}" for scalar in names)
    values = {
        "name": name,
        "kernel_parameters": f"const {element}* __restrict__ x, {element}* __restrict__ y{sizes}",
        "parameters": f"const {element}* x, {element}* y{sizes}",
        "arguments": ", ".join(["x", "y", *names]),
    }
    return Lowered(
        template=name,
        sources={
            PLAIN: _ONE_EACH.format(body="\n".join(" " * 4 + line for line in lines), **values),
            OPTIMISED: _GRID_STRIDE.format(
                body="\n".join(" " * 8 + line for line in lines), **values
            ),
        },
        operands=(("x", x.name),),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=scalars,
    )
