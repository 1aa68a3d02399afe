"""Matrix products: ``mm``, ``addmm``, ``bmm``. An operand that is only a transposed view is read
in place, through the layout its buffer has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN, Scalar
from kernelassay.substrate.lowering import Context, Lowered, lowers, source
from kernelassay.substrate.operands import bias_keys, int_argument, require_float32
from kernelassay.trace import meta

_RESHAPES = ("aten.view.default", "aten._unsafe_view.default", "aten.expand.default")
_A_ELEMENT = {"n": "row * K + k", "t": "(long long)k * M + row"}
_B_ELEMENT = {"n": "(long long)k * N + col", "t": "col * K + k"}
# Per style of 16-bit operands: the types of one and of two elements, conversions, their header.
_NARROW = {
    "half": {
        "T": "__half",
        "T2": "__half2",
        "NARROW": "__float2half",
        "WIDEN": "__half2float",
        "HEADER": "cuda_fp16.h",
    },
    "bfloat16": {
        "T": "__nv_bfloat16",
        "T2": "__nv_bfloat162",
        "NARROW": "__float2bfloat16",
        "WIDEN": "__bfloat162float",
        "HEADER": "cuda_bf16.h",
    },
}


@dataclass(frozen=True)
class Operand:
    """A matrix (or a batch of them) as its buffer holds it.

    ``layout`` is "n" if the buffer of ``node`` is the matrix row by row, "t" if it is column by
    column. ``view`` names the node whose shape is the matrix'.
    """

    node: str
    layout: str
    view: str

    @classmethod
    def of(cls, view: fx.Node) -> Operand:
        """Look through reshapes of the leading dimensions for a swap of the last two."""
        node = view
        while str(node.target) in _RESHAPES and _same_matrices(node, node.args[0]):
            node = node.args[0]
        if str(node.target) == "aten.permute.default":
            rank = len(meta(node).shape)
            swapped = [*range(rank - 2), rank - 1, rank - 2]
            if [d % rank for d in node.args[1]] == swapped:
                return cls(node.args[0].name, "t", view.name)
        return cls(view.name, "n", view.name)

    def shape(self, nodes: Mapping[str, fx.Node]) -> tuple[int, ...]:
        """The shape of the matrix; raises ``UnsupportedError`` if a reshape now broadcasts."""
        shape = meta(nodes[self.view]).shape
        if prod(shape) != prod(meta(nodes[self.node]).shape):
            raise UnsupportedError(f"{self.view} broadcasts {self.node} at these shapes")
        return shape


@lowers("aten.mm.default")
def lower_mm(node: fx.Node, context: Context) -> Lowered:
    """A matrix product; one with a single column becomes a matrix-vector product."""
    a, b = node.args[:2]
    return _product(node, a, b, None, None)


@lowers("aten.addmm.default")
def lower_addmm(node: fx.Node, context: Context) -> Lowered:
    """A matrix product plus a bias: one value per column, or one per element."""
    bias, a, b = node.args[:3]
    if any(value != 1 for value in node.kwargs.values()):
        raise UnsupportedError("aten.addmm.default with alpha or beta")
    if len(meta(bias).shape) == 1 and meta(bias).shape[0] == meta(b).shape[1]:
        return _product(node, a, b, bias, "bias[col]")
    if meta(bias).shape == meta(node).shape:
        return _product(node, a, b, bias, "bias[(long long)row * N + col]")
    raise UnsupportedError(f"aten.addmm.default with a bias of shape {meta(bias).shape}")


@lowers("aten.bmm.default")
def lower_bmm(node: fx.Node, context: Context) -> Lowered:
    """A batch of matrix products."""
    require_float32(node, *node.args[:2])
    a, b = (Operand.of(view) for view in node.args[:2])
    sources = _sources("batched_matmul", a, b, {})

    def scalars(nodes: Mapping[str, fx.Node]) -> dict[str, Scalar]:
        (batch, rows, inner), (_, _, columns) = a.shape(nodes), b.shape(nodes)
        return {"batch": batch, "M": rows, "N": columns, "K": inner}

    return Lowered(
        template="batched_matmul",
        sources=sources,
        operands=(("a", a.node), ("b", b.node)),
        outputs=(("c", node.name),),
        nodes=(node.name,),
        scalars=scalars,
    )


def _product(
    node: fx.Node, a_view: fx.Node, b_view: fx.Node, bias: fx.Node | None, element: str | None
) -> Lowered:
    require_float32(node, a_view, b_view, bias)
    a, b = Operand.of(a_view), Operand.of(b_view)
    if meta(node).shape[1] == 1 and a.layout == "n":
        return _matrix_vector(node, a, b, bias)
    operands = [("a", a.node), ("b", b.node)]
    if bias is not None:
        operands.append(("bias", bias.name))

    def scalars(nodes: Mapping[str, fx.Node]) -> dict[str, Scalar]:
        (rows, inner), (_, columns) = a.shape(nodes), b.shape(nodes)
        return {"M": rows, "N": columns, "K": inner}

    return Lowered(
        template="matmul",
        sources=_sources("matmul", a, b, bias_keys(element)),
        operands=tuple(operands),
        outputs=(("c", node.name),),
        nodes=(node.name,),
        scalars=scalars,
    )


def _matrix_vector(node: fx.Node, a: Operand, b: Operand, bias: fx.Node | None) -> Lowered:
    per_row = bias is not None and len(meta(bias).shape) == 2
    element = None if bias is None else ("bias[row]" if per_row else "bias[0]")
    operands = [("a", a.node), ("x", b.node)]
    if bias is not None:
        operands.append(("bias", bias.name))

    def scalars(nodes: Mapping[str, fx.Node]) -> dict[str, Scalar]:
        (rows, cols), (_, columns) = a.shape(nodes), b.shape(nodes)
        if columns != 1:
            raise UnsupportedError(f"{b.view} has {columns} columns, the kernel is for one")
        return {"rows": int_argument(rows, "the row count"), "cols": cols}

    return Lowered(
        template="matvec",
        sources={
            style: source(f"matvec_{style}", **bias_keys(element)) for style in (PLAIN, OPTIMISED)
        },
        operands=tuple(operands),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=scalars,
    )


def _sources(template: str, a: Operand, b: Operand, keys: Mapping[str, str]) -> dict[str, str]:
    elements = {"A_ELEMENT": _A_ELEMENT[a.layout], "B_ELEMENT": _B_ELEMENT[b.layout]}
    loads = {
        "LOAD_A": source(f"fragments/{template}_load_a_{a.layout}").rstrip("\n"),
        "LOAD_B": source(f"fragments/{template}_load_b_{b.layout}").rstrip("\n"),
    }
    found = {
        PLAIN: source(f"{template}_plain", **keys, **elements),
        OPTIMISED: source(f"{template}_optimised", **keys, **loads),
    }
    if template == "matmul":  # the batched one is double-buffered as it is
        found["double_buffered"] = source("matmul_double_buffered", **keys, **elements)
    return {**found, **_common_sources(template, a, b, keys)}


def _common_sources(
    template: str, a: Operand, b: Operand, keys: Mapping[str, str]
) -> dict[str, str]:
    """The styles whose tile function is the same for one product and for a batch of them."""
    keys = keys or bias_keys(None)
    words = {"EACH": " for every matrix of a batch" if template == "batched_matmul" else ""}
    if keys["PLUS_BIAS"]:
        words["ADD_BIAS"] = (
            "    for (int j = 0; j < 4 && col0 + first + j < N; ++j) {\n"
            "        int col = col0 + first + j;\n"
            f"        acc[j] = acc[j]{keys['PLUS_BIAS']};\n    }}\n"
        )
    else:
        words["ADD_BIAS"] = ""

    def entry(kind: str, **more: str) -> dict[str, str]:
        return {"ENTRY": source(f"fragments/{template}{kind}entry", **keys, **more).rstrip("\n")}

    def text(name: str, **more: str) -> str:
        return source(name, **keys, **words, **more)

    elements = {"A_ELEMENT": _A_ELEMENT[a.layout], "B_ELEMENT": _B_ELEMENT[b.layout]}
    tile = entry("_", TILE_M="TILE", TILE_N="TILE")
    found = {
        "vectorised": text("matmul_vectorised", **_vector_loads(a, b, 4, "    " * 3), **tile),
        "tensor_core": text(
            "matmul_tensor_core", **elements, **entry("_", TILE_M="TILE_M", TILE_N="TILE_N")
        ),
    }
    for style, types in _NARROW.items():
        loads = _vector_loads(a, b, 2, "    " * 3)
        found[style] = text("matmul_narrow", **loads, **types, **entry("_narrow_", T=types["T"]))
    return found


def _vector_loads(a: Operand, b: Operand, width: int, indent: str) -> dict[str, str]:
    """The statements that load ``width`` neighbours as number ``i`` into each shared tile.

    The tiles hold [k][row] and [k][column]; a stored line runs along k, or along the other one.
    """
    loads = {}
    for key, name, other, extent, along_k in (
        ("LOAD_A", "a", "row0", "M", a.layout == "n"),
        ("LOAD_B", "b", "col0", "N", b.layout == "t"),
    ):
        length = "TILE_K" if along_k else "TILE"
        lines, at = ("line", "at + {}") if along_k else ("at + {}", "line")
        origin = (other, "k0") if along_k else ("k0", other)
        sizes = (extent, "K") if along_k else ("K", extent)
        kind = "float4" if width == 4 else "@T2@"
        statements = [
            f"int line = i / ({length} / {width});",
            f"int at = i % ({length} / {width}) * {width};",
            f"{kind} v = load{width}({name}, {origin[0]} + line, {origin[1]} + at,"
            f" {', '.join(sizes)});",
        ]
        for offset, lane in enumerate("xyzw"[:width]):
            where = [text.format(offset).removesuffix(" + 0") for text in (at, lines)]
            statements.append(f"tile_{name}[{where[0]}][{where[1]}] = v.{lane};")
        loads[key] = "\n".join(indent + statement for statement in statements)
    return loads


def _same_matrices(view: fx.Node, operand: fx.Node) -> bool:
    after, before = meta(view).shape, meta(operand).shape
    return len(before) >= 2 and after[-2:] == before[-2:] and prod(after) == prod(before)
