"""LSTM, GRU and plain recurrent networks, kept whole: one call per network.

``launch`` runs the layers in turn, each direction on its own; all share the kernels of a
layer. A layer writes its directions side by side, and the next one reads that. Only those of the
results (outputs, last hidden states, last cell states) that are used are parameters; the rest is
scratch or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN, Scalar
from kernelassay.substrate.lowering import Context, Lowered, lowers, source
from kernelassay.substrate.operands import require_float32, require_shared
from kernelassay.trace import meta

_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
_SHARED_STATES = {"lstm": 3, "gru": 2, "rnn": 2}


@lowers("kernelassay.lstm.default")
def lower_lstm(node: fx.Node, context: Context) -> Lowered:
    """Long short-term memory without projections; also its last hidden and cell states."""
    h0, c0 = node.args[1]
    return _lower(node, "lstm", (("h0", h0), ("c0", c0)), {})


@lowers("kernelassay.gru.default")
def lower_gru(node: fx.Node, context: Context) -> Lowered:
    """Gated recurrent units; also their last hidden states."""
    return _lower(node, "gru", (("h0", node.args[1][0]),), {})


@lowers("kernelassay.rnn_tanh.default", "kernelassay.rnn_relu.default")
def lower_rnn(node: fx.Node, context: Context) -> Lowered:
    """The plain recurrent network with tanh or ReLU; also its last hidden states."""

    def activation(value: str) -> str:
        return f"tanhf({value})" if "tanh" in str(node.target) else f"fmaxf({value}, 0.0f)"

    return _lower(node, "rnn", (("h0", node.args[1][0]),), {"ACTIVATION": activation})


@dataclass(frozen=True)
class _Network:
    """The structure of one call: what its sources depend on."""

    cell: str
    layers: int
    directions: int
    biased: bool
    batch_first: bool
    results: tuple[str, ...]

    @property
    def weights(self) -> tuple[str, ...]:
        """The pointer parameters of a layer and direction, in PyTorch's order."""
        return ("w", "u", "b", "d") if self.biased else ("w", "u")

    @property
    def cells(self) -> tuple[tuple[int, int], ...]:
        """All pairs of layer and direction, in PyTorch's order."""
        return tuple((k, d) for k in range(self.layers) for d in range(self.directions))

    def row(self, t: str, n: str) -> str:
        """The row of step ``t`` of sequence ``n`` in the inputs and outputs of a layer."""
        return f"{n} * steps + {t}" if self.batch_first else f"{t} * batch + {n}"

    def values(self, style: str) -> dict[str, str | Callable[..., str]]:
        """What the templates need."""
        # Optimised, the input's biases are added where the products are used.
        names = ("b_input", "b_hidden")
        parameters = "".join(f" const float* __restrict__ {name}," for name in names)

        def bias(name: str) -> Callable[[str], str]:
            return lambda g: f"{name}[{_gate(g)}j]" if self.biased else "0.0f"

        def both(g: str) -> str:
            return f"({bias('b_input')(g)} + {bias('b_hidden')(g)})" if self.biased else "0.0f"

        return {
            "BIAS_PARAMETER": parameters if self.biased else "",
            "BIAS": both if style == OPTIMISED else lambda g: both(g).strip("()"),
            "BIAS_INPUT": bias("b_input"),
            "BIAS_HIDDEN": bias("b_hidden"),
            "ROW": self.row,
        }


def _gate(number: str) -> str:
    return {"0": "", "1": "hidden + "}.get(number, f"{number} * hidden + ")


def _lower(
    node: fx.Node,
    cell: str,
    states: tuple[tuple[str, fx.Node], ...],
    values: Mapping[str, Callable[..., str]],
) -> Lowered:
    x, _, weights, biased, layers, _, _, bidirectional, batch_first = node.args
    used = {int(user.args[1]): user for user in node.users}
    results = tuple(("y", "h_n", "c_n")[k] for k in sorted(used))
    network = _Network(cell, layers, 1 + bool(bidirectional), bool(biased), batch_first, results)
    if len(weights) != len(network.cells) * len(network.weights):
        raise UnsupportedError(f"{node.target} with projections")
    require_float32(node, x, *(state for _, state in states), *weights)
    names = [f"{name}{k}{'r' * d}" for k, d in network.cells for name in network.weights]

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        first, second, features = meta(nodes[x.name]).shape
        hidden = meta(nodes[states[0][1].name]).shape[2]
        require_shared(cell, 4 * _SHARED_STATES[cell] * hidden)
        batch, steps = (first, second) if batch_first else (second, first)
        return {"batch": batch, "steps": steps, "features": features, "hidden": hidden}

    operands = [("x", x.name), *((name, state.name) for name, state in states)]
    operands += [(name, weight.name) for name, weight in zip(names, weights, strict=True)]
    return Lowered(
        template=cell,
        sources={s: _source(network, s, names, values) for s in (PLAIN, OPTIMISED)},
        operands=tuple(operands),
        outputs=tuple(zip(results, (used[k].name for k in sorted(used)), strict=True)),
        nodes=(node.name, *(used[k].name for k in sorted(used))),
        scalars=scalars,
    )


def _source(
    network: _Network, style: str, weights: list[str], values: Mapping[str, Callable[..., str]]
) -> str:
    text = source(f"{network.cell}_{style}", **network.values(style), **values)
    if "h_n" in network.results:
        text += source("last_states", ROW=network.row)
    states = ["h0", "c0"] if network.cell == "lstm" else ["h0"]
    parameters = [f"const float* {name}" for name in ("x", *states, *weights)]
    parameters += [f"float* {name}" for name in network.results]
    parameters += [f"int {name}" for name in ("batch", "steps", "features", "hidden")]
    body = "".join(f"    {line}\n" for line in _statements(network, style))
    return f"{text}\nvoid launch({', '.join(parameters)}) {{\n{body}}}\n"


def _statements(network: _Network, style: str) -> list[str]:
    """The body of ``launch``: allocations, then the launches of every layer and direction."""
    gates = _GATES[network.cell]
    width = "hidden" if network.directions == 1 else "2 * hidden"
    lines = [f"const int width = {width};", "const int threads = hidden < 128 ? hidden : 128;"]
    last = network.layers - 1
    own = {k: f"y{k}" for k in range(network.layers)}
    if "y" in network.results:
        own[last] = "y"
    for k in range(network.layers):
        if own[k] != "y":
            lines += [
                f"float* {own[k]};",
                f"cudaMalloc(&{own[k]}, (long long)steps * batch * width * sizeof(float));",
            ]
    if network.cell == "lstm" and "c_n" not in network.results:
        states = len(network.cells)
        lines += ["float* c_n;", f"cudaMalloc(&c_n, {states} * batch * hidden * sizeof(float));"]
    if style == OPTIMISED:
        lines += [
            "const int rows = steps * batch;",
            f"const int gates = {gates} * hidden;" if gates > 1 else "const int gates = hidden;",
            "float* products;",
            "cudaMalloc(&products, (long long)rows * gates * sizeof(float));",
            "const dim3 tiles((gates + TILE - 1) / TILE, (rows + TILE - 1) / TILE);",
        ]
    for position, (k, d) in enumerate(network.cells):
        lines += _layer(network, style, position, own[k - 1] if k else "x", own[k], k, d)
    return lines


def _layer(
    network: _Network, style: str, position: int, x: str, y: str, layer: int, direction: int
) -> list[str]:
    """The launches of one layer in one direction."""
    weights = {name: f"{name}{layer}{'r' * direction}" for name in network.weights}
    features = "features" if layer == 0 else "width"
    state = "" if position == 0 else " + batch * hidden" if position == 1 else ""
    state = state or (f" + {position} * batch * hidden" if position else "")
    states = ["h0" + state]
    states += ["c0" + state] if network.cell == "lstm" else []
    outputs = [y, "c_n" + state] if network.cell == "lstm" else [y]
    biases = [weights[name] for name in ("b", "d") if network.biased]
    offset = "hidden" if direction else "0"
    tail = ["hidden", "width", offset, str(direction)]
    lines = []
    if style == OPTIMISED:
        shared = f"{_SHARED_STATES[network.cell]} * hidden * sizeof(float)"
        arguments = ["products", weights["u"], *biases, *states, *outputs, "batch", "steps", *tail]
        lines += [
            f"project<<<tiles, dim3(TILE, TILE)>>>({x}, {weights['w']}, products, rows, gates, "
            f"{features});",
            f"{network.cell}_steps<<<dim3(batch), dim3(threads), {shared}>>>"
            f"({', '.join(arguments)});",
        ]
    else:
        sizes = ["batch", "steps", features, *tail]
        arguments = [x, weights["w"], weights["u"], *biases, *states, *outputs, *sizes]
        lines.append(
            f"{network.cell}_layer<<<dim3(batch), dim3(threads)>>>({', '.join(arguments)});"
        )
    if "h_n" in network.results:
        sizes = ["batch", "steps", *tail]
        lines.append(
            "last_states<<<dim3((batch * hidden + 255) / 256), dim3(256)>>>"
            f"({', '.join([y, 'h_n' + state, *sizes])});"
        )
    return lines
