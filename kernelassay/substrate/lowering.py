"""From a traced graph to kernels: the registry of lowerings, and the cover of a graph by calls.

An op module under ``substrate/ops`` registers, per ATen overload, a function that turns a node
into a :class:`Lowered`; adding a file there is all it takes. Elementwise nodes are fused into
groups (``fusion``) and get generated kernels (``pointwise``). Views, layout copies and constant
makers stay in PyTorch.

A source may depend on the structure of a graph (dimension counts, which operand broadcasts,
dtypes, op constants such as eps) but never on its sizes: sizes are arguments of ``launch``.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from torch import fx

from kernelassay.draws import DRAWS
from kernelassay.errors import UnsupportedError
from kernelassay.kernel import Call, Scalar
from kernelassay.substrate.fusion import group_pointwise
from kernelassay.trace import Traced

Scalars = Callable[[Mapping[str, fx.Node]], Mapping[str, Scalar]]

MAX_BLOCKS = 4
"""The value of the launch scalar ``max_blocks``: the most blocks a grid-stride kernel launches.

It stands for the occupancy limit of the device. On a GPU real shapes exceed that limit, so such a
loop iterates; at sizes for a CPU a real limit would never be met, and a fault in the loop's step
could not show. Four blocks of 256 threads are exceeded by a few thousand elements."""

# Views, layout copies (operands are handed over contiguous anyway), and constant makers.
FREE = frozenset(
    {
        "aten.view.default",
        "aten._unsafe_view.default",
        "aten.reshape.default",
        "aten.permute.default",
        "aten.t.default",
        "aten.transpose.int",
        "aten.expand.default",
        "aten.slice.Tensor",
        "aten.select.int",
        "aten.unsqueeze.default",
        "aten.squeeze.default",
        "aten.squeeze.dim",
        "aten.squeeze.dims",
        "aten.alias.default",
        "aten.detach.default",
        "aten.split_with_sizes.default",
        "aten.split.Tensor",
        "aten.as_strided.default",
        "aten.unfold.default",
        "aten.diagonal.default",
        "aten.clone.default",
        "aten.copy.default",
        "aten.repeat.default",
        "aten.lift_fresh_copy.default",
        "aten.arange.start_step",
        "aten.arange.default",
        "aten.arange.start",
        "aten.full.default",
        "aten.full_like.default",
        "aten.scalar_tensor.default",
        "aten.zeros.default",
        "aten.ones.default",
        "aten.zeros_like.default",
        "aten.ones_like.default",
        "aten.bernoulli.p",  # a dropout's mask, see randomness.py
        "aten._assert_tensor_metadata.default",
        *DRAWS,
    }
)


@dataclass(frozen=True)
class Lowered:
    """The kernel that stands in for some nodes, before it has a position and an id.

    ``sources`` maps a style to ``.cu`` text; all styles share one ``launch`` parameter list.
    ``operands`` and ``outputs`` pair a pointer parameter with a node name; ``nodes`` names every
    graph node the kernel computes, ``getitem`` nodes included; ``scalars`` computes the other
    parameters from the nodes (by name) of a graph of the same structure at any shapes, raising
    ``UnsupportedError`` where those shapes break an assumption of the sources. A ``launch`` may
    also take ``int max_blocks``, which :data:`MAX_BLOCKS` supplies. ``fixed`` has the integer
    scalars that come from the node's own constants (a stride), so that no shape changes them, or
    the name of an earlier scalar that is always the same.
    """

    template: str
    sources: Mapping[str, str]
    operands: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    nodes: tuple[str, ...]
    scalars: Scalars
    fixed: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What a lowering may ask about the graph around its node."""

    traced: Traced

    def only_output(self, node: fx.Node, index: int = 0) -> fx.Node:
        """The ``getitem`` of result ``index`` of a node with several results.

        Raises:
            UnsupportedError: another result of the node is live.
        """
        others = sorted({int(user.args[1]) for user in node.users} - {index})
        if others:
            raise UnsupportedError(f"{node.target}: result {others[0]} is used")
        return next(iter(node.users))


_CU = Path(__file__).parent / "cu"
LoweringFunction = Callable[[fx.Node, Context], "Lowered | None"]
_REGISTRY: dict[str, LoweringFunction] = {}


def lowers(*overloads: str) -> Callable[[LoweringFunction], LoweringFunction]:
    """Register the decorated function as the lowering of ATen overloads (``"aten.mm.default"``).

    The function returns the kernel for a node, or None if it has none for this form of it; it
    may instead raise ``UnsupportedError`` with a reason.
    """

    def register(function: LoweringFunction) -> LoweringFunction:
        for overload in overloads:
            if _REGISTRY.setdefault(overload, function) is not function:
                raise ValueError(f"{overload} has two lowerings")
        return function

    return register


@dataclass(frozen=True)
class _Binder:
    """The ``scalars`` of a call, which structure they hold for, and ``max_blocks`` if taken."""

    signature: str
    scalars: Scalars
    bounded: bool

    def __call__(self, nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        bound = {"max_blocks": MAX_BLOCKS} if self.bounded else {}
        return {**self.scalars(nodes), **bound}


def lower(traced: Traced) -> tuple[Call, ...]:
    """Cover ``traced`` by calls, in execution order; each compute node is in exactly one.

    Raises:
        UnsupportedError: names every operator, or form of one, that has no kernel.
    """
    return tuple(call for call, _ in _cover(traced))


def lower_fused(traced: Traced) -> tuple[Call, ...]:
    """The fused calls of ``traced``: each overlaps two calls of :func:`lower`, a heavy one and the
    elementwise one after it. Raises as :func:`lower`.
    """
    from kernelassay.substrate import epilogue

    cover = _cover(traced)
    groups = {
        name: tuple(traced.nodes[n] for n in item.nodes)
        for call, item in cover
        if call.template == "pointwise"
        for name in item.nodes
    }
    found = []
    for call, item in cover:
        fused = None if call.template == "pointwise" else epilogue.fuse(item, traced, groups)
        if fused is not None:
            found.append(_call(f"{call.id}_fused", fused, traced.signature()))
    return tuple(found)


def _cover(traced: Traced) -> tuple[tuple[Call, Lowered], ...]:
    from kernelassay.substrate import pointwise

    load_ops()
    context = Context(traced)
    lowered: list[Lowered] = []
    problems: dict[str, None] = {}
    fusable = {name for name, node in traced.nodes.items() if pointwise.is_pointwise(node)}
    for group in group_pointwise(traced, fusable):
        _attempt(pointwise.lower_group, group, context, lowered, problems)
    for name, node in traced.nodes.items():
        if name not in fusable and not is_free(node):
            _attempt(_lower_heavy, node, context, lowered, problems)
    if problems:
        raise UnsupportedError(f"no kernel for: {'; '.join(problems)}")
    position = {name: index for index, name in enumerate(traced.nodes)}
    ordered = sorted(lowered, key=lambda item: max(position[name] for name in item.nodes))
    signature = traced.signature()
    return tuple(
        (_call(f"k{index:02d}_{item.template}", item, signature), item)
        for index, item in enumerate(ordered)
    )


def bind(call: Call, traced: Traced) -> Mapping[str, Scalar]:
    """The scalar arguments of ``call`` at the shapes of ``traced``.

    Raises:
        UnsupportedError: ``traced`` has another structure than the graph ``call`` came from, or
            its shapes break an assumption of the kernel.
    """
    expected = getattr(call.scalars, "signature", None)
    if expected is not None and traced.signature() != expected:
        raise UnsupportedError(
            f"the graph has another structure (signature {traced.signature()}, not {expected})",
            where=call.id,
            hint="these shapes change the traced operations; keep them out of the inputs",
        )
    return call.scalars(traced.nodes)


def is_free(node: fx.Node) -> bool:
    """Whether PyTorch evaluates ``node``: placeholders, views, layout copies, constants."""
    if node.op == "placeholder":
        return True
    if str(node.target) in FREE:
        return True
    # A getitem of a kernel's results belongs to that kernel.
    return is_getitem(node) and is_free(node.args[0])


def is_getitem(node: fx.Node) -> bool:
    """Whether ``node`` picks one result of a node with several."""
    return getattr(node.target, "__name__", "") == "getitem"


@cache
def load_ops() -> None:
    """Import every op module, which registers its lowerings."""
    from kernelassay.substrate import ops

    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")


def source(name: str, **substitutions: str | Callable[..., str]) -> str:
    """The text of template ``cu/<name>.cu`` with its placeholders replaced.

    ``@KEY@`` becomes the string ``substitutions["KEY"]``, or the file ``cu/<key>.inc`` if there
    is one; ``@KEY(a, b)@`` becomes ``substitutions["KEY"]("a", "b")``, innermost first.
    """
    text = _template(name)
    for key in re.findall(r"@(\w+)@", text):
        if key not in substitutions:
            text = text.replace(f"@{key}@", _include(name, key))
    for key, value in substitutions.items():
        if isinstance(value, str):
            text = text.replace(f"@{key}@", value)

    def call(match: re.Match[str]) -> str:
        function = substitutions[match[1]]
        return match[0] if isinstance(function, str) else function(*match[2].split(", ", 1))

    while True:
        replaced = re.sub(r"@(\w+)\(([^@]*)\)@", call, text)
        if replaced == text:
            return text
        text = replaced


@cache
def _template(name: str) -> str:
    return (_CU / f"{name}.cu").read_text(encoding="utf-8")


def _include(template: str, key: str) -> str:
    path = _CU / f"{key.lower()}.inc"
    if not path.exists():
        raise ValueError(f"template {template}: no value for @{key}@")
    return path.read_text(encoding="utf-8")


def _attempt(
    function: Callable[[Any, Context], Lowered | None],
    subject: Any,
    context: Context,
    lowered: list[Lowered],
    problems: dict[str, None],
) -> None:
    try:
        result = function(subject, context)
    except UnsupportedError as error:
        problems[error.what] = None
        return
    if result is not None:
        lowered.append(result)


def _lower_heavy(node: fx.Node, context: Context) -> Lowered | None:
    if is_getitem(node):
        return None
    function = _REGISTRY.get(str(node.target))
    if function is None:
        raise UnsupportedError(str(node.target))
    result = function(node, context)
    if result is None:
        raise UnsupportedError(f"{node.target} in this form")
    return result


def _call(call_id: str, item: Lowered, signature: str) -> Call:
    bounded = any("int max_blocks" in text for text in item.sources.values())
    return Call(
        id=call_id,
        template=item.template,
        sources=item.sources,
        operands=item.operands,
        outputs=item.outputs,
        nodes=item.nodes,
        scalars=_Binder(signature, item.scalars, bounded),
        fixed=item.fixed,
    )
