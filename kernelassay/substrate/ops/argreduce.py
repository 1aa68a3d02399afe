"""Where the largest or smallest element of a dimension lies; the first of equal ones."""

from __future__ import annotations

from collections.abc import Mapping

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import Scalar
from kernelassay.substrate.layout import COLUMNS, Span
from kernelassay.substrate.lowering import Context, Lowered, lowers
from kernelassay.substrate.operands import (
    argument,
    both_styles,
    int_argument,
    optional_pointer,
    require_float32,
)
from kernelassay.substrate.ops.reductions import lower_extremum_of_dim
from kernelassay.trace import meta


@lowers("aten.argmax.default", "aten.argmin.default")
def lower_argreduce(node: fx.Node, context: Context) -> Lowered:
    """The index along one dimension, or into the flattened tensor."""
    name = "argmax" if "argmax" in str(node.target) else "argmin"
    return _argreduce(node, name, argument(node, 1, "dim"), {"indices": node})


@lowers("aten.max.dim", "aten.min.dim")
def lower_dim(node: fx.Node, context: Context) -> Lowered:
    """``max(dim)`` and ``min(dim)``: a plain reduction unless the indices are used."""
    outputs = {("values", "indices")[user.args[1]]: user for user in node.users}
    if "indices" not in outputs:
        return lower_extremum_of_dim(node, context)
    largest = "max" in str(node.target)
    if "values" in outputs:
        name = "max_with_index" if largest else "min_with_index"
    else:
        name = "argmax" if largest else "argmin"
    return _argreduce(node, name, node.args[1], outputs)


def _argreduce(node: fx.Node, name: str, dim: object, outputs: Mapping[str, fx.Node]) -> Lowered:
    operand = node.args[0]
    require_float32(node, operand)
    if not meta(operand).shape:
        raise UnsupportedError(f"{node.target} of a 0-d tensor")
    span = Span.of(operand, dim if isinstance(dim, int) else None)
    largest = "max" in name
    keys = optional_pointer("VALUES", "values", "values" in outputs)
    keys["NAME"] = name
    keys["BETTER"] = ">" if largest else "<"
    keys["WORST"] = "-INFINITY" if largest else "INFINITY"
    keys["STORE_VALUES"] = "\n    values[line] = best;" if "values" in outputs else ""
    sources = both_styles("argreduce", keys)

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        sizes = span.scalars(nodes, operand.name, COLUMNS)
        int_argument(int(sizes["length"]), f"the length {node.name} reduces")
        return sizes

    users = tuple(user.name for user in outputs.values() if user is not node)
    return Lowered(
        template=name,
        sources=sources,
        operands=(("x", operand.name),),
        outputs=tuple((key, outputs[key].name) for key in ("values", "indices") if key in outputs),
        nodes=(node.name, *users),
        scalars=scalars,
    )
