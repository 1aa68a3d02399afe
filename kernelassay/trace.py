"""A reference module as a flat, functional graph of core ATen calls with static shapes.

The graph is what every later phase works on: the lowering reads its structure, and splicing runs
it node by node. It holds only what a user output depends on; the bookkeeping of batch norm's
running statistics, which no output reads, is dropped.
"""

from __future__ import annotations

import hashlib
import operator
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from kernelassay import recurrent
from kernelassay.decompose import decompose
from kernelassay.draws import DRAWS, drawing
from kernelassay.errors import ProblemError, UnsupportedError
from kernelassay.kernel import TensorMeta
from kernelassay.problem import device_hint
from kernelassay.randomness import MASK, is_active_dropout, split_dropouts


@dataclass(frozen=True)
class Traced:
    """A decomposed graph and how its placeholders are fed.

    ``nodes`` maps a name to its live node, placeholders included, in execution order.
    ``parameters`` maps a placeholder to the state-dict name it is fed from, ``inputs`` lists the
    placeholders of the user inputs in order, ``outputs`` the nodes that are user outputs.
    ``constants`` holds the tensors the export lifted out of the code (0-dim or integer), and the
    non-persistent buffers by placeholder; a state that has the buffer overrides the latter.
    """

    graph_module: fx.GraphModule
    nodes: Mapping[str, fx.Node]
    parameters: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Tensor]

    def signature(self) -> str:
        """Digest of node names, operators, data flow and numeric constants.

        Equal for one structure at any shapes; a constant that follows from a size, as in
        ``scores / sqrt(features)``, makes another structure, since kernels hold it as a literal.
        """
        return self._signature

    @cached_property
    def _signature(self) -> str:
        lines = [
            f"{node.name}={node.op}:{_target_name(node)}"
            f"({','.join(source.name for source in node.all_input_nodes)}){_constants(node)}"
            for node in self.nodes.values()
        ]
        lines.append("->" + ",".join(self.outputs))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def feed(self, state: Mapping[str, Tensor], inputs: Sequence[Any]) -> dict[str, Any]:
        """The values of all placeholders, by name.

        ``state`` maps state-dict names to tensors (see :func:`state_of`); ``inputs`` are the
        user inputs, of which plain numbers are ignored: their traced values are baked in.

        Raises:
            ProblemError: a parameter is missing from ``state``, or the input count differs.
        """
        leaves = pytree.tree_leaves(tuple(inputs))
        if len(leaves) != len(self.inputs):
            raise ProblemError(f"{len(leaves)} inputs given, the traced module takes {self.inputs}")
        values: dict[str, Any] = dict(zip(self.inputs, leaves, strict=True))
        values.update(self.constants)
        for placeholder, name in self.parameters.items():
            if name in state:
                values[placeholder] = state[name]
            elif placeholder not in values:
                raise ProblemError(f"the state has no tensor {name!r} for {placeholder}")
        return values

    def run(
        self, state: Mapping[str, Tensor], inputs: Sequence[Any], seed: int = 0
    ) -> dict[str, Tensor]:
        """Interpret the graph node by node and return every tensor it computes, by node name.

        ``seed`` is that of the numbers the graph draws, masks of dropouts among them. Placeholders
        are included. Nodes that make new tensors do so on the device of the fed tensors, whatever
        device the module was traced on. Other arguments as for :meth:`feed`.
        """
        values = self.feed(state, inputs)
        device = next((v.device for v in values.values() if isinstance(v, Tensor)), None)
        for name, value in self.constants.items():
            if values[name] is value and value.dim():  # a 0-dim one goes with any device
                values[name] = value.to(device)
        if any(str(node.target) == MASK for node in self.nodes.values()):
            torch.manual_seed(seed)
        with torch.no_grad(), drawing(seed):
            for name, node in self.nodes.items():
                if node.op != "placeholder":
                    values[name] = evaluate(node, values, device)
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def evaluate(node: fx.Node, values: Mapping[str, Any], device: torch.device | None = None) -> Any:
    """Run one ``call_function`` node in PyTorch on ``values``, keyed by node name."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda source: values[source.name])
    if device is not None and kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": device}
    return node.target(*args, **kwargs)


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers of ``module``, non-persistent ones too, detached, by name."""
    named = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    return {name: tensor.detach() for name, tensor in named}


def meta(node: fx.Node) -> TensorMeta:
    """Shape and dtype of the tensor that ``node`` computes, at the traced shapes.

    Raises:
        UnsupportedError: the node computes a tuple or a number.
    """
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        raise UnsupportedError(f"{node.name} ({_target_name(node)}) is not a single tensor")
    return TensorMeta(tuple(int(n) for n in value.shape), str(value.dtype).removeprefix("torch."))


def trace(module: nn.Module, inputs: tuple[Any, ...]) -> Traced:
    """Export ``module`` at the shapes of ``inputs`` and decompose it to core ATen.

    The module is exported as it is, which is train mode unless its constructor changed it; it is
    never copied, because a copy detaches closures over ``self`` and freezes their weights. Tensors
    that are plain attributes become buffers that are not part of its state dict: export refuses to
    let a forward change any other.

    Raises:
        ProblemError: ``torch.export`` refuses the module.
        UnsupportedError: the graph draws random numbers by a tensor's values other than a
            dropout's mask, has data-dependent shapes, writes to an input, returns a constant, or
            froze a floating-point tensor into its code.
    """
    hold_as_buffers(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        # A module that sets its attributes anew, as recurrent layers do with their weights.
        warnings.filterwarnings("ignore", "The tensor attributes? ", UserWarning)
        try:
            with recurrent.whole():
                exported = torch.export.export(module, inputs)
            exported = decompose(exported)
        except Exception as error:
            first_line = str(error).strip().splitlines()[0] if str(error).strip() else ""
            raise ProblemError(
                f"torch.export refuses the module: {type(error).__name__}: {first_line}",
                where=type(module).__name__,
                hint=device_hint(first_line)
                or "write the forward without data-dependent control flow or state changes",
            ) from error
    outputs = _user_outputs(exported)
    graph_module = _with_outputs(exported.graph_module, outputs)
    _refuse_unsupported(graph_module.graph.nodes)
    if split_dropouts(graph_module.graph):
        outputs = tuple(node.name for node in graph_module.graph.output_node().args[0])
    nodes = {node.name: node for node in graph_module.graph.nodes if node.op != "output"}
    parameters, user_inputs, constants = _placeholders(exported, nodes)
    return Traced(graph_module, nodes, parameters, user_inputs, outputs, constants)


def hold_as_buffers(module: nn.Module) -> None:
    """Make plain tensor attributes buffers, so that they are traced and follow ``Module.to``."""
    for part in module.modules():
        # A class attribute of the same name would hide the buffer, so such a tensor stays.
        plain = [
            name
            for name, value in vars(part).items()
            if isinstance(value, Tensor) and not hasattr(type(part), name)
        ]
        for name in plain:
            value = vars(part).pop(name)
            part.register_buffer(name, value, persistent=False)


def _user_outputs(exported: Any) -> tuple[str, ...]:
    names = []
    for spec in exported.graph_signature.output_specs:
        if spec.kind == OutputKind.USER_OUTPUT:
            if not isinstance(spec.arg, TensorArgument):
                value = getattr(spec.arg, "value", spec.arg)
                raise UnsupportedError(
                    f"the module returns {value!r}, which is no tensor",
                    hint="a Model returns one tensor, or a flat tuple of tensors",
                )
            names.append(spec.arg.name)
        elif spec.kind == OutputKind.USER_INPUT_MUTATION:
            raise UnsupportedError(
                f"the module writes to its input {spec.target!r}",
                hint="let forward work on a copy: x = x.clone()",
            )
    if not names:
        raise UnsupportedError("the module returns no tensor")
    return tuple(names)


def _with_outputs(graph_module: fx.GraphModule, outputs: tuple[str, ...]) -> fx.GraphModule:
    """The graph cut back to what ``outputs`` need; placeholders of user inputs stay."""
    graph = graph_module.graph
    by_name = {node.name: node for node in graph.nodes}
    graph.output_node().args = (tuple(by_name[name] for name in outputs),)
    for node in reversed(list(graph.nodes)):
        if node.op not in ("output", "placeholder") and not node.users:
            graph.erase_node(node)
    return graph_module


def _placeholders(
    exported: Any, nodes: dict[str, fx.Node]
) -> tuple[dict[str, str], tuple[str, ...], dict[str, Tensor]]:
    parameters: dict[str, str] = {}
    user_inputs: list[str] = []
    constants: dict[str, Tensor] = {}
    for spec in exported.graph_signature.input_specs:
        name = spec.arg.name
        if spec.kind == InputKind.USER_INPUT:
            user_inputs.append(name)
        elif not nodes[name].users:
            del nodes[name]
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            parameters[name] = spec.target
            if spec.target in exported.constants:
                constants[name] = exported.constants[spec.target].detach()
        elif spec.kind == InputKind.CONSTANT_TENSOR:
            constants[name] = _lifted(spec.target, exported.constants[spec.target])
        else:
            raise UnsupportedError(f"the graph takes {name} of kind {spec.kind.name}")
    return parameters, tuple(user_inputs), constants


def _lifted(name: str, value: Tensor) -> Tensor:
    if value.is_floating_point() and value.dim() > 0:
        raise UnsupportedError(
            f"the export froze a floating-point tensor of shape {tuple(value.shape)} as {name!r}",
            hint="hold it as a parameter or a buffer of the module, so that it can be redrawn",
        )
    return value.detach()


def _refuse_unsupported(nodes: Iterable[fx.Node]) -> None:
    random, dynamic = [], []
    for node in nodes:
        tags = getattr(node.target, "tags", ())
        seeded = torch.Tag.nondeterministic_seeded in tags and not _draws_nothing(node)
        if seeded or _is_dropped_between_layers(node):
            random.append(_target_name(node))
        if torch.Tag.data_dependent_output in tags or not _is_static(node.meta.get("val")):
            dynamic.append(_target_name(node))
    if random:
        raise UnsupportedError(f"the module draws random numbers: {', '.join(sorted(set(random)))}")
    if dynamic:
        raise UnsupportedError(f"shapes depend on values: {', '.join(sorted(set(dynamic)))}")


def _is_static(value: Any) -> bool:
    shapes = [leaf.shape for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]
    return all(isinstance(extent, int) for shape in shapes for extent in shape)


def _draws_nothing(node: fx.Node) -> bool:
    """Whether a dropout is off or can be split, or an attention's is off."""
    if is_active_dropout(node):
        return True  # it will be split into a mask and a product
    name = _target_name(node)
    if name in DRAWS:
        return True  # a value like an input's: see kernelassay.draws
    if "scaled_dot_product_attention" in name:
        given = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
        return bool(given == 0.0)
    return "dropout" in name and (node.args[1] == 0.0 or node.args[2] is False)


def _is_dropped_between_layers(node: fx.Node) -> bool:
    """Whether a recurrent network has a dropout between its layers that is on."""
    if not _target_name(node).startswith("kernelassay."):
        return False
    layers, dropout, train = node.args[4:7]
    return bool(layers > 1 and dropout and train)


def _constants(node: fx.Node) -> tuple[Any, ...]:
    """The arguments of ``node`` that are values to compute with, not sizes or positions."""
    schema = getattr(node.target, "_schema", None)
    # The numbers of an arange are positions; PyTorch computes it, no kernel holds them.
    if node.op != "call_function" or schema is None or "arange" in str(node.target):
        return ()
    kinds = {argument.name: str(argument.type) for argument in schema.arguments}
    given = dict(zip(kinds, node.args, strict=False)) | dict(node.kwargs)
    return tuple(
        value
        for name, value in given.items()
        if isinstance(value, int | float)
        and kinds[name].removeprefix("Optional[").rstrip("]")
        in ("number", "float", "Tensor", "Scalar")
    )


def _target_name(node: fx.Node) -> str:
    if node.op != "call_function":
        return str(node.op)
    if node.target is operator.getitem:
        return f"getitem{node.args[1]}"
    return str(node.target)
