"""Fused epilogues: a heavy kernel that applies the elementwise nodes after it as it stores.

A *fused call* stands for a heavy call and the group of elementwise nodes that alone uses its
result. It overlaps both, and is run only where a run mutates the style :data:`FUSED`. Its sources
are the heavy call's, rewritten: every store ``y[at] = value;`` becomes
``y[at] = epilogue(value, at, ...);``. The rewriting is textual, so it holds for every op whose
kernel stores its result that way once, and no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from kernelassay.compile.lexing import NAME, Token, join, matching, split_commas
from kernelassay.compile.source import split
from kernelassay.kernel import OPTIMISED, PLAIN, Scalar
from kernelassay.styles import FUSED, FUSED_PLAIN
from kernelassay.substrate.ctypes import c_type, value_type
from kernelassay.substrate.lowering import Lowered
from kernelassay.substrate.pointwise import Body, Broadcast
from kernelassay.trace import Traced, meta

# Views that leave every element at its place in memory.
_RESHAPES = ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A device function ``epilogue(value, i, ...)`` and the (type, name) it takes besides."""

    text: str
    parameters: tuple[tuple[str, str], ...]


def fuse(
    heavy: Lowered, traced: Traced, groups: Mapping[str, tuple[fx.Node, ...]]
) -> Lowered | None:
    """``heavy`` with the elementwise group after it, or None where they do not combine.

    ``groups`` maps a node name to the group that the node is in.
    """
    if len(heavy.outputs) != 1:
        return None
    found = _following(traced.nodes[heavy.outputs[0][1]], traced, groups)
    if found is None:
        return None
    views, group = found
    value, output = (views or (traced.nodes[heavy.outputs[0][1]],))[-1], group[-1]
    if meta(value).shape != meta(output).shape or meta(value).dtype != meta(output).dtype:
        return None
    body = Body(group)
    shapes = [meta(node).shape for node in body.operands]
    broadcast = Broadcast.of(meta(output).shape, shapes)
    position = body.operands.index(value)
    if broadcast.index(position) != "i":
        return None
    epilogue = _epilogue(body, broadcast, position)
    parameter = heavy.outputs[0][0]
    texts = {
        FUSED: with_epilogue(heavy.sources[OPTIMISED], parameter, epilogue),
        FUSED_PLAIN: with_epilogue(heavy.sources[PLAIN], parameter, epilogue),
    }
    sources = {style: text for style, text in texts.items() if text is not None}
    if FUSED not in sources:
        return None
    operands = [(k, node.name) for k, node in enumerate(body.operands)]

    def scalars(nodes: Mapping[str, fx.Node]) -> dict[str, Scalar]:
        shape = meta(nodes[output.name]).shape
        sizes = broadcast.sizes(shape, [meta(nodes[name]).shape for _, name in operands])
        named = {f"size{a}": size for a, size in enumerate(sizes)}
        taken = [name for _, name in epilogue.parameters if name in named]
        return {**heavy.scalars(nodes), **{name: named[name] for name in taken}}

    return Lowered(
        template=f"{heavy.template}_fused",
        sources=sources,
        operands=(
            *heavy.operands,
            *((f"in{k}", name) for k, name in operands if k != position),
        ),
        outputs=((parameter, output.name),),
        nodes=(*heavy.nodes, *(view.name for view in views), *(node.name for node in group)),
        scalars=scalars,
        fixed=heavy.fixed,
    )


def _following(
    node: fx.Node, traced: Traced, groups: Mapping[str, tuple[fx.Node, ...]]
) -> tuple[tuple[fx.Node, ...], tuple[fx.Node, ...]] | None:
    """The views after ``node`` and the group that alone uses the last of them."""
    views: list[fx.Node] = []
    while node.name not in traced.outputs:
        users = list(node.users)
        if len(users) == 1 and str(users[0].target) in _RESHAPES:
            node = users[0]
            views.append(node)
            continue
        found = {groups.get(user.name) for user in users}
        group = found.pop() if len(found) == 1 else None
        return None if group is None else (tuple(views), group)
    return None


def _epilogue(body: Body, broadcast: Broadcast, position: int) -> Epilogue:
    others = [(k, node) for k, node in enumerate(body.operands) if k != position]
    loads, parameters = [], []
    for k, node in others:
        dtype = meta(node).dtype
        test = " != 0" if dtype == "bool" else ""
        loads.append(f"const {value_type(dtype)} a{k} = in{k}[{broadcast.index(k)}]{test};")
        parameters.append((f"const {c_type(dtype)}*", f"in{k}"))
    sizes = sorted(set(re.findall(r"size\d+", " ".join(loads))))
    parameters += [("long long", name) for name in sizes]
    value = value_type(meta(body.operands[position]).dtype)
    lines = [f"    {line}" for line in (*loads, *body.statements, f"return {body.result};")]
    taken = "".join(f", {_declared(*parameter)}" for parameter in parameters)
    text = (
        f"__device__ __forceinline__ {c_type(body.result_dtype)} epilogue("
        f"{value} a{position}, long long i{taken}) {{\n" + "\n".join(lines) + "\n}\n\n"
    )
    return Epilogue(text, tuple(parameters))


def _declared(type_: str, name: str) -> str:
    return f"{type_} __restrict__ {name}" if type_.endswith("*") else f"{type_} {name}"


def with_epilogue(source: str, output: str, epilogue: Epilogue) -> str | None:
    """``source`` with ``epilogue`` applied to what it stores to ``launch``'s pointer ``output``.

    None if that is not one kernel with plain stores ``y[at] = value;`` and nothing else, or if a
    name of the epilogue is taken.
    """
    parts = split(source)
    tokens = parts.tokens
    taken = {token.text for token in tokens if token.kind == NAME}
    if taken & {"epilogue", *(name for _, name in epilogue.parameters)}:
        return None
    launch = _launch_of(tokens, parts.launch_start, parts.launch_end, output)
    if launch is None:
        return None
    kernel, argument, arguments_end = launch
    name_at = next(
        i for i, token in enumerate(tokens) if token.text == kernel and tokens[i - 1].text == "void"
    )
    close = matching(tokens, name_at + 1)
    body_end = None if close is None else matching(tokens, close + 1)
    if close is None or body_end is None:
        return None
    pointer = split_commas(tokens[name_at + 2 : close])[argument][-1].text
    stores = _stores(tokens, close + 1, body_end, pointer)
    if not stores:
        return None
    names = "".join(f", {name}" for _, name in epilogue.parameters)
    launch_close = matching(tokens, parts.tokens.index(parts.parameters[0]) - 1)
    assert launch_close is not None
    start = name_at
    while tokens[start].text not in ("extern", "__global__") or tokens[start - 1].text == "extern":
        start -= 1
    if tokens[start - 1].text == '"C"':
        start -= 2
    declared = "".join(f", {_declared(*p)}" for p in epilogue.parameters)
    plain = "".join(f", {type_} {name}" for type_, name in epilogue.parameters)
    edits = [(tokens[start].start, tokens[start].start, epilogue.text)]
    edits.append((tokens[close].start, tokens[close].start, declared))
    for at, value in stores:
        begin, end = value[0].start, value[-1].end
        where = source[at[0].start : at[-1].end]
        edits.append((begin, end, f"epilogue({source[begin:end]}, {where}{names})"))
    edits.append((tokens[arguments_end].start, tokens[arguments_end].start, names))
    edits.append((tokens[launch_close].start, tokens[launch_close].start, plain))
    for begin, end, text in sorted(edits, reverse=True):
        source = source[:begin] + text + source[end:]
    return source


def _launch_of(
    tokens: Sequence[Token], start: int, end: int, output: str
) -> tuple[str, int, int] | None:
    """The one launch that gets ``output``: kernel, argument number, index of the closing ``)``."""
    found = []
    for at in range(start, end):
        if tokens[at].text != "<<<":
            continue
        opening = next(i for i in range(at, end) if tokens[i].text == ">>>") + 1
        close = matching(tokens, opening)
        if close is None:
            return None
        given = [join(part) for part in split_commas(tokens[opening + 1 : close])]
        if output in given:
            found.append((tokens[at - 1].text, given.index(output), close))
    return found[0] if len(found) == 1 else None


def _stores(
    tokens: Sequence[Token], start: int, end: int, pointer: str
) -> list[tuple[Sequence[Token], Sequence[Token]]]:
    """The subscripts and values of all stores to ``pointer``; none if it is used otherwise."""
    found = []
    for at in range(start, end):
        if tokens[at].text != pointer or tokens[at - 1].text in (".", "->"):
            continue
        close = matching(tokens, at + 1) if tokens[at + 1].text == "[" else None
        if close is None or tokens[close + 1].text != "=":
            return []
        if tokens[at - 1].text not in ("{", "}", ";", ")"):
            return []
        semicolon = next(i for i in range(close, end) if tokens[i].text == ";")
        found.append((tokens[at + 2 : close], tokens[close + 2 : semicolon]))
    return found
