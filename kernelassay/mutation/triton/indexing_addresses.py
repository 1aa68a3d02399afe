"""The indexing family, in addresses and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import libcst as cst

from kernelassay.mutation.rule import Find, Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import ROWS, body, rule
from kernelassay.mutation.triton.indexing_blocks import COPY, OFFSETS, TILE
from kernelassay.mutation.triton.match import (
    binaries,
    binary,
    lift,
    operator,
    put,
    replace,
    sign,
    terms,
    value,
)
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import all_values, values_of

# -- addresses ----------------------------------------------------------------------------------


def _address(change: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for values in all_values(tree):
            for call in values.accesses():
                address = value(call, 0, "pointer")
                if address is not None and values.kind(address) == "pointer":
                    yield mutation(put(tree, address, f"{tree.full(address)} {change}"))

    return find


def _offset_sign(tree: TritonTree) -> Iterator[Mutation]:
    for node in binaries(tree, "-"):
        if values_of(tree, node).kind(node) in ("int", "pointer"):
            yield mutation(sign(tree, node, "+"))


def _sums(tree: TritonTree) -> Iterator[cst.BinaryOperation]:
    """The whole sums of addresses and of indices, without those that make up a block."""
    for node in binaries(tree, "+"):
        outer = tree.parent(node)
        kind = values_of(tree, node).kind(node)
        is_block = kind == "int" and any(tree.calls("arange", within=node))
        if kind in ("int", "pointer") and not binary(outer, "+") and not is_block:
            yield node


def _strided(tree: TritonTree, node: cst.BaseExpression) -> tuple[cst.Name, str] | None:
    """The stride of a product ``index * stride``, and the text of the index.

    A stride is an integer parameter that is no compile-time constant.
    """
    if not binary(node, "*"):
        return None
    values, function = values_of(tree, node), tree.function(node)
    for factor, other in ((node.right, node.left), (node.left, node.right)):
        runtime = set(function.parameters) - function.constexprs
        if isinstance(factor, cst.Name) and factor.value in runtime:
            if values.kind(factor) != "int":
                continue
            return factor, tree.full(other)
    return None


def _strides(tree: TritonTree) -> Iterator[tuple[cst.BinaryOperation, cst.Name]]:
    for node in binaries(tree, "*"):
        found = _strided(tree, node)
        if found is not None and values_of(tree, node).kind(node) == "int":
            yield node, found[0]


def _drop_stride(tree: TritonTree) -> Iterator[Mutation]:
    for node, factor in _strides(tree):
        yield mutation(lift(tree, node, node.left if node.right is factor else node.right))


def _stride_confusion(tree: TritonTree) -> Iterator[Mutation]:
    for node, factor in _strides(tree):
        function, values = tree.function(node), values_of(tree, node)
        sizes = [
            name
            for name in function.parameters
            if name in values.indices and name not in function.constexprs
        ]
        if len(sizes) > 1:
            following = sizes[(sizes.index(factor.value) + 1) % len(sizes)]
            yield mutation(replace(tree, factor, following))


def _stride_exchange(tree: TritonTree) -> Iterator[Mutation]:
    for node in _sums(tree):
        found = [s[0] for term in terms(node) if (s := _strided(tree, term)) is not None]
        for one, other in pairwise(found):
            if one.value != other.value:
                yield mutation(replace(tree, one, other.value), replace(tree, other, one.value))


def _transposed_access(tree: TritonTree) -> Iterator[Mutation]:
    for node in _sums(tree):
        values = values_of(tree, node)
        for term in terms(node):
            stride = _strided(tree, term)
            if stride is None:
                continue
            index = term.left if term.right is stride[0] else term.right
            for other in terms(node):
                plain = not isinstance(other, cst.BinaryOperation | cst.BaseNumber)
                if plain and values.kind(other) == "int":
                    yield mutation(
                        put(tree, index, tree.full(other)), put(tree, other, tree.full(index))
                    )


def _drop_address_term(tree: TritonTree) -> Iterator[Mutation]:
    for node in _sums(tree):
        values = values_of(tree, node)
        parts = terms(node)
        moving = [t for t in parts if values.kind(t) == "int" and not isinstance(t, cst.Integer)]
        if len(moving) < 2:
            continue  # a single offset is a block's: other rules change it
        for term in moving:
            outer = tree.parent(term)
            assert isinstance(outer, cst.BinaryOperation)
            yield mutation(lift(tree, outer, outer.right if outer.left is term else outer.left))


def _pointer_confusion(tree: TritonTree) -> Iterator[Mutation]:
    for values in all_values(tree):
        roles: dict[str, list[str]] = {"load": [], "store": []}
        for call in values.accesses():
            address = value(call, 0, "pointer")
            base = values.base(address) if address is not None else ""
            group = roles["load" if tree.callee(call) == "load" else "store"]
            if base and base not in group:
                group.append(base)
        for node in tree.nodes(cst.Name, within=values.function.node.body):
            for group in roles.values():
                if node.value in group and len(group) > 1 and binary(tree.parent(node), "+"):
                    following = group[(group.index(node.value) + 1) % len(group)]
                    yield mutation(replace(tree, node, following))


# -- shapes -------------------------------------------------------------------------------------


def _expand_dims_swap(tree: TritonTree) -> Iterator[Mutation]:
    for node in tree.nodes(cst.Subscript):
        if len(node.slice) != 2:
            continue
        shown = ["".join(tree.text(e.slice).split()) for e in node.slice]
        if shown in ([":", "None"], ["None", ":"]):
            yield mutation(
                replace(tree, node.slice[0].slice, shown[1]),
                replace(tree, node.slice[1].slice, shown[0]),
            )


def _div_mod_swap(tree: TritonTree) -> Iterator[Mutation]:
    for node in binaries(tree, "//", "%"):
        yield mutation(sign(tree, node, "%" if operator(node) == "//" else "//"))


def _dot_operand_swap(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("dot"):
        one, other = value(call, 0, "input"), value(call, 1, "other")
        if one is not None and other is not None:
            yield mutation(
                replace(tree, one, tree.text(other)), replace(tree, other, tree.text(one))
            )


def _drop_transpose(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("trans"):
        if len(call.args) == 1:
            yield mutation(lift(tree, call, call.args[0].value))


_STRIDED = (
    "i = tl.program_id(0)\nj = tl.arange(0, BLOCK)\n"
    "tl.store(y_ptr + i, tl.load(x_ptr + i * stride_m + j * stride_n))"
)


_STRIDES = "x_ptr, y_ptr, stride_m, stride_n, BLOCK: tl.constexpr"


_TWO = "a_ptr, b_ptr, y_ptr, BLOCK: tl.constexpr"


_DOT = (
    "i = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]\n"
    "c = tl.dot(tl.load(x_ptr + i), tl.trans(tl.load(y_ptr + i)))\n"
    "tl.store(z_ptr + i, c)"
)


_DOTS = "x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr"


ADDRESSES: tuple[Rule, ...] = (
    rule(
        "address-plus-one",
        "indexing",
        "the address of a load, a store or an atomic one element further",
        "an access off by one",
        _address("+ 1"),
        body(COPY, ("y_ptr + offs", "y_ptr + offs + 1"), ("x_ptr + offs", "x_ptr + offs + 1")),
    ),
    rule(
        "address-minus-one",
        "indexing",
        "the address of a load, a store or an atomic one element back",
        "an access off by one",
        _address("- 1"),
        body("tl.store(y_ptr + tl.program_id(0), 1.0)", ("(0), 1.0", "(0) - 1, 1.0")),
    ),
    rule(
        "offset-sign",
        "indexing",
        "`a - b` to `a + b` in an address or an index",
        "a neighbour on the wrong side",
        _offset_sign,
        body(
            "i = tl.program_id(0)\ntl.store(y_ptr + i, tl.load(x_ptr + i - n))", ("i - n", "i + n")
        ),
    ),
    rule(
        "drop-stride",
        "indexing",
        "`index * stride` to `index`",
        "a tensor taken for contiguous",
        _drop_stride,
        body(_STRIDED, ("i * stride_m", "i"), ("j * stride_n", "j"), params=_STRIDES),
    ),
    rule(
        "stride-confusion",
        "indexing",
        "a stride to the kernel's next integer parameter",
        "one size or stride taken for another",
        _stride_confusion,
        body(
            _STRIDED,
            ("i * stride_m", "i * stride_n"),
            ("j * stride_n", "j * stride_m"),
            params=_STRIDES,
        ),
    ),
    rule(
        "stride-exchange",
        "indexing",
        "`i * s + j * t` to `i * t + j * s`",
        "a row-major tensor read as column-major",
        _stride_exchange,
        body(
            _STRIDED,
            ("i * stride_m + j * stride_n", "i * stride_n + j * stride_m"),
            params=_STRIDES,
        ),
    ),
    rule(
        "transposed-access",
        "indexing",
        "`r * n + c` to `c * n + r`",
        "row and column exchanged",
        _transposed_access,
        body(
            TILE,
            (
                "rows[:, None] * n_cols + cols[None, :]",
                "cols[None, :] * n_cols + rows[:, None]",
            ),
            params=ROWS,
        ),
    ),
    rule(
        "drop-address-term",
        "indexing",
        "one of several offsets of an address removed",
        "every row reads the first one, or every column",
        _drop_address_term,
        body(
            TILE,
            ("x_ptr + rows[:, None] * n_cols + cols", "x_ptr + cols"),
            (" + cols[None, :])", ")"),
            params=ROWS,
        ),
    ),
    rule(
        "pointer-confusion",
        "indexing",
        "a tensor that is read to the next one that is read, or a written one to the next",
        "one operand used twice, and the other never",
        _pointer_confusion,
        body(
            f"{OFFSETS}tl.store(y_ptr + offs, tl.load(a_ptr + offs) + tl.load(b_ptr + offs))",
            ("a_ptr + offs", "b_ptr + offs"),
            ("b_ptr + offs", "a_ptr + offs"),
            params=_TWO,
        ),
    ),
    rule(
        "expand-dims-swap",
        "indexing",
        "`[:, None]` to `[None, :]` and back",
        "a vector spread along the wrong dimension of a tile, which a square tile hides",
        _expand_dims_swap,
        body(
            TILE,
            ("rows[:, None]", "rows[None, :]"),
            ("cols[None, :]", "cols[:, None]"),
            ("(rows < n_rows)[:, None]", "(rows < n_rows)[None, :]"),
            ("(cols < n_cols)[None, :]", "(cols < n_cols)[:, None]"),
            params=ROWS,
        ),
    ),
    rule(
        "div-mod-swap",
        "indexing",
        "`i // n` to `i % n` and back",
        "row and column of a flat index exchanged",
        _div_mod_swap,
        body("i = tl.program_id(0) // n\ntl.store(y_ptr + i, 1.0)", ("// n", "% n")),
    ),
    rule(
        "dot-operand-swap",
        "indexing",
        "`tl.dot(a, b)` to `tl.dot(b, a)`",
        "the factors of a matrix product in the wrong order, which square tiles hide",
        _dot_operand_swap,
        body(
            _DOT,
            (
                "tl.load(x_ptr + i), tl.trans(tl.load(y_ptr + i))",
                "tl.trans(tl.load(y_ptr + i)), tl.load(x_ptr + i)",
            ),
            params=_DOTS,
        ),
    ),
    rule(
        "drop-transpose",
        "indexing",
        "`tl.trans(e)` to `e`",
        "a forgotten transpose, which square tiles hide",
        _drop_transpose,
        body(_DOT, ("tl.trans(tl.load(y_ptr + i))", "tl.load(y_ptr + i)"), params=_DOTS),
    ),
)
