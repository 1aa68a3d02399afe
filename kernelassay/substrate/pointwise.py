"""One generated kernel per group of fused elementwise nodes.

The text has one temporary per operator. Operands broadcast by structure: the output's dimensions
are merged into as few *axes* as the operands' broadcasting allows, and an operand is indexed by
the coordinates of the axes it has. Adding a channel bias to an image therefore has three axes
(batch, channel, pixel) and reads ``in1[i / size2 % size1]``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN, Scalar
from kernelassay.substrate.ctypes import c_type, literal, value_type
from kernelassay.substrate.expressions import EXPRESSIONS, Operand, Operation
from kernelassay.substrate.lowering import Context, Lowered
from kernelassay.trace import meta

CONSTANT_MAKERS = {
    "aten.scalar_tensor.default": 0,
    "aten.full.default": 1,
    "aten.full_like.default": 1,
}


def is_pointwise(node: fx.Node) -> bool:
    """Whether ``node`` is computed element by element and can be fused."""
    return str(node.target) in EXPRESSIONS


@dataclass(frozen=True)
class Broadcast:
    """How the operands of a group lie in its output.

    ``axes`` are runs (first, end) of output dimensions; ``present[k][a]`` tells whether operand
    ``k`` varies along axis ``a``. Both are decided at the official shapes; at others,
    :meth:`sizes` checks that they still hold.
    """

    axes: tuple[tuple[int, int], ...]
    present: tuple[tuple[bool, ...], ...]

    @classmethod
    def of(cls, output: tuple[int, ...], operands: Sequence[tuple[int, ...]]) -> Broadcast:
        """Merge adjacent dimensions of ``output`` along which the same operands vary."""
        columns = [
            tuple(_aligned(shape, len(output))[d] == output[d] for shape in operands)
            for d in range(len(output))
        ]
        axes: list[tuple[int, int]] = []
        for d in range(len(output)):
            # A dimension of size one constrains no operand, so it may join either neighbour.
            if axes and (columns[d] == columns[axes[-1][0]] or output[d] == 1):
                axes[-1] = (axes[-1][0], d + 1)
            else:
                axes.append((d, d + 1))
        present = tuple(tuple(columns[first][k] for first, _ in axes) for k in range(len(operands)))
        return cls(tuple(axes), present)

    def sizes(
        self, output: tuple[int, ...], operands: Sequence[tuple[int, ...]]
    ) -> tuple[int, ...]:
        """The extent of each axis at other shapes.

        Raises:
            UnsupportedError: an operand varies along other axes than at the official shapes.
        """
        for shape, present in zip(operands, self.present, strict=True):
            aligned = _aligned(shape, len(output))
            for (first, end), varies in zip(self.axes, present, strict=True):
                expected = output[first:end] if varies else (1,) * (end - first)
                if aligned[first:end] != expected:
                    raise UnsupportedError(f"{shape} broadcasts to {output} in another way")
        return tuple(prod(output[first:end]) for first, end in self.axes)

    def index(self, operand: int) -> str:
        """The C offset of an operand's element, from the flat output index ``i``."""
        present = [a for a, varies in enumerate(self.present[operand]) if varies]
        if len(present) == len(self.axes):
            return "i"
        terms = []
        for a in present:
            factors = [self.coordinate(a), *(f"size{b}" for b in present if b > a)]
            terms.append(" * ".join(factors))
        return " + ".join(terms) or "0"

    def coordinate(self, axis: int) -> str:
        """The C text of the coordinate along ``axis`` of the flat output index ``i``."""
        inner = [f"size{b}" for b in range(axis + 1, len(self.axes))]
        divisor = inner[0] if len(inner) == 1 else f"({' * '.join(inner)})"
        quotient = f"i / {divisor}" if inner else "i"
        return f"{quotient} % size{axis}" if axis > 0 else quotient


def lower_group(group: tuple[fx.Node, ...], context: Context) -> Lowered:
    """The generated kernel of one fusion group; its last node is the output."""
    body = Body(group)
    output = group[-1]
    shapes = [meta(node).shape for node in body.operands]
    broadcast = Broadcast.of(meta(output).shape, shapes)
    names = tuple(node.name for node in body.operands)

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        shape = meta(nodes[output.name]).shape
        sizes = broadcast.sizes(shape, [meta(nodes[name]).shape for name in names])
        everything = {"n": prod(shape), **{f"size{a}": size for a, size in enumerate(sizes)}}
        return {name: everything[name] for name in parameters}

    texts = _Texts(body, broadcast)
    parameters = texts.size_parameters
    return Lowered(
        template="pointwise",
        sources={PLAIN: texts.plain(), OPTIMISED: texts.optimised()},
        operands=tuple((f"in{k}", name) for k, name in enumerate(names)),
        outputs=(("out", output.name),),
        nodes=tuple(node.name for node in group),
        scalars=scalars,
        fixed={} if meta(output).shape else {"n": 1},
    )


class Body:
    """The statements of a group, one temporary per operator, and the operands they read."""

    def __init__(self, group: tuple[fx.Node, ...]) -> None:
        self.operands: list[fx.Node] = []
        self.statements: list[str] = []
        self.result_dtype = meta(group[-1]).dtype
        self._values: dict[str, Operand] = {}
        for k, node in enumerate(group):
            dtype = meta(node).dtype
            operation = Operation(
                tuple(self._operand(argument) for argument in node.args), dict(node.kwargs), dtype
            )
            try:
                expression = EXPRESSIONS[str(node.target)](operation)
            except UnsupportedError as error:
                raise UnsupportedError(f"{node.target}: {error.what}") from None
            self.statements.append(f"const {value_type(dtype)} t{k} = {expression};")
            self._values[node.name] = Operand(dtype, f"t{k}")
        self.result = f"t{len(group) - 1}"

    def _operand(self, argument: object) -> object:
        if isinstance(argument, bool | int | float):
            kind = {bool: "bool", int: "int64", float: "float32"}[type(argument)]
            return Operand(kind, number=argument)
        if not isinstance(argument, fx.Node):
            return argument
        if argument.name not in self._values:
            self._values[argument.name] = self._external(argument)
        return self._values[argument.name]

    def _external(self, node: fx.Node) -> Operand:
        dtype = meta(node).dtype
        position = CONSTANT_MAKERS.get(str(node.target))
        if position is not None and isinstance(node.args[position], bool | int | float):
            number = node.args[position]
            return Operand(dtype, literal(number, dtype))
        self.operands.append(node)
        return Operand(dtype, f"a{len(self.operands) - 1}")


class _Texts:
    """The sources of a group in both styles."""

    def __init__(self, body: Body, broadcast: Broadcast) -> None:
        self.body = body
        self.indices = [broadcast.index(k) for k in range(len(body.operands))]
        self.dtypes = [meta(node).dtype for node in body.operands]
        used = sorted(set(re.findall(r"size\d+", " ".join(self.indices))))
        self.size_parameters = ("n", *used)
        pointers = [f"const {c_type(dtype)}*" for dtype in self.dtypes]
        sizes = [f"long long {name}" for name in self.size_parameters]
        out = f"{c_type(body.result_dtype)}*"
        self.kernel_parameters = ", ".join(
            [f"{type_} __restrict__ in{k}" for k, type_ in enumerate(pointers)]
            + [f"{out} __restrict__ out", *sizes]
        )
        self.launch_parameters = ", ".join(
            [f"{type_} in{k}" for k, type_ in enumerate(pointers)] + [f"{out} out", *sizes]
        )
        self.arguments = ", ".join(
            [f"in{k}" for k in range(len(pointers))] + ["out", *self.size_parameters]
        )

    def _element(self, indent: str) -> str:
        lines = [
            f"const {value_type(dtype)} a{k} = {self._load(k, index)};"
            for k, (dtype, index) in enumerate(zip(self.dtypes, self.indices, strict=True))
        ]
        lines += [*self.body.statements, f"out[i] = {self.body.result};"]
        return "\n".join(indent + line for line in lines)

    def _load(self, k: int, index: str) -> str:
        return f"in{k}[{index}]" + (" != 0" if self.dtypes[k] == "bool" else "")

    def plain(self) -> str:
        """One thread per element."""
        return (
            f'extern "C" __global__ void pointwise({self.kernel_parameters}) {{\n'
            "    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
            "    if (i >= n) return;\n"
            f"{self._element('    ')}\n"
            "}\n\n"
            f"void launch({self.launch_parameters}, int max_blocks) {{\n"
            "    const int threads = 256;\n"
            "    pointwise<<<dim3((n + threads - 1) / threads), dim3(threads)>>>"
            f"({self.arguments});\n"
            "}\n"
        )

    def optimised(self) -> str:
        """Four elements per thread where all arrays are dense float32; else a grid-stride loop."""
        dense = [index == "i" for index in self.indices]
        single = [index == "0" for index in self.indices]
        vector = (
            any(dense)
            and all(d or s for d, s in zip(dense, single, strict=True))
            and all(t == "float32" for d, t in zip(dense, self.dtypes, strict=True) if d)
            and self.body.result_dtype == "float32"
        )
        return self._vectorised(dense) if vector else self._grid_stride()

    def _grid_stride(self) -> str:
        return (
            f'extern "C" __global__ void pointwise({self.kernel_parameters}) {{\n'
            "    const long long stride = (long long)gridDim.x * blockDim.x;\n"
            "    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; "
            "i += stride) {\n"
            f"{self._element('        ')}\n"
            "    }\n"
            "}\n\n" + self._bounded_launch("n")
        )

    def _vectorised(self, dense: list[bool]) -> str:
        operands = range(len(dense))
        parameters = ", ".join(f"{value_type(self.dtypes[k])} a{k}" for k in operands)
        statements = "\n".join(f"    {line}" for line in self.body.statements)
        preload = "".join(
            f"    const {value_type(self.dtypes[k])} a{k} = {self._load(k, '0')};\n"
            for k in operands
            if not dense[k]
        )
        loads = "\n".join(
            f"        const float4 v{k} = reinterpret_cast<const float4*>(in{k})[v];"
            for k in operands
            if dense[k]
        )
        lanes = "\n".join(
            f"        result.{lane} = apply("
            + ", ".join(f"v{k}.{lane}" if dense[k] else f"a{k}" for k in operands)
            + ");"
            for lane in "xyzw"
        )
        tail = ", ".join(f"in{k}[i]" if dense[k] else f"a{k}" for k in operands)
        return (
            f"__device__ __forceinline__ float apply({parameters}) {{\n"
            f"{statements}\n    return {self.body.result};\n}}\n\n"
            f'extern "C" __global__ void pointwise({self.kernel_parameters}) {{\n'
            "    const long long stride = (long long)gridDim.x * blockDim.x;\n"
            "    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
            "    const long long vectors = n / 4;\n"
            f"{preload}"
            "    for (long long v = first; v < vectors; v += stride) {\n"
            f"{loads}\n"
            "        float4 result;\n"
            f"{lanes}\n"
            "        reinterpret_cast<float4*>(out)[v] = result;\n"
            "    }\n"
            "    for (long long i = vectors * 4 + first; i < n; i += stride) {\n"
            f"        out[i] = apply({tail});\n"
            "    }\n"
            "}\n\n" + self._bounded_launch("(n / 4 + 1)")
        )

    def _bounded_launch(self, work: str) -> str:
        return (
            f"void launch({self.launch_parameters}, int max_blocks) {{\n"
            "    const int threads = 256;\n"
            f"    long long blocks = ({work} + threads - 1) / threads;\n"
            "    if (blocks > max_blocks) blocks = max_blocks;\n"
            f"    pointwise<<<dim3(blocks), dim3(threads)>>>({self.arguments});\n"
            "}\n"
        )


def _aligned(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape
