"""Benign rewrites: a correct kernel stays correct and only its rounding may change.

They are controls, not mutants: a protocol that rejects one has a false rejection. So each rule
fires only where the rewrite is valid whatever the sizes and the data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.benign_launch import GEOMETRY, benign_rule
from kernelassay.mutation.examples import kernel
from kernelassay.mutation.match import (
    Update,
    accumulators,
    added,
    atom,
    binary,
    declared_name,
    number,
    put,
    root_identifier,
    strip,
)
from kernelassay.mutation.nodes import calls, field, names_in, operator
from kernelassay.mutation.precision_reduction import SHUFFLES, adds, halving
from kernelassay.mutation.precision_sites import stored
from kernelassay.mutation.rule import Edit, Example, Mutation, Rule
from kernelassay.mutation.semantic_reduction import reversed_loop
from kernelassay.mutation.tree import KernelTree, mutation, replace

# -- orders of summation ----------


def _reverse_serial_sum(tree: KernelTree) -> Iterator[Mutation]:
    for loop in tree.nodes("for_statement"):
        edits = reversed_loop(tree, loop)
        if edits and _only_sums(tree, loop):
            yield mutation(*edits)


def _only_sums(tree: KernelTree, loop: Node) -> bool:
    """Whether the iterations of a loop commute but for rounding: they only sum into floats."""
    body, function = field(loop, "body"), tree.function(loop)
    if any(tree.nodes("break_statement", "return_statement", "call_expression", within=body)):
        # Calls may hold barriers or exchanges; pure math is allowed.
        allowed = ("expf", "fabsf", "fmaf", "sqrtf", "logf", "__ldg")
        for node in tree.nodes("call_expression", within=body):
            if tree.text(field(node, "function")) not in allowed:
                return False
        if any(tree.nodes("break_statement", "return_statement", within=body)):
            return False
    header = field(loop, "initializer")
    declared = {
        declared_name(tree, d)
        for part in (header, body)
        for d in tree.nodes("init_declarator", "declaration", within=part)
    }
    sums = {
        u.node.id: u.name
        for name, group in accumulators(tree)
        for u in group
        if tree.function(u.node).id == function.id
    }
    changed = False
    for node in tree.nodes("assignment_expression", "update_expression", within=body):
        if node.id in sums:
            changed = changed or sums[node.id] not in declared
            continue
        is_step = node.type == "update_expression"
        target = field(node, "argument" if is_step else "left")
        if root_identifier(tree, target) not in declared:
            return False
    summed = set(sums.values()) - declared
    # A running value that is read elsewhere in the body is a recurrence, no sum.
    reads = [
        n
        for n in tree.nodes("identifier", within=body)
        if tree.text(n) in summed and not _is_own_update(tree, n, sums)
    ]
    return changed and not reads


def _is_own_update(tree: KernelTree, identifier: Node, sums: dict[int, str]) -> bool:
    holder = tree.enclosing(identifier, "assignment_expression")
    if holder is None or holder.id not in sums or sums[holder.id] != tree.text(identifier):
        return False
    if operator(tree, holder) == "+=":
        target = field(holder, "left")
        return target.start_byte <= identifier.start_byte < target.end_byte
    return tree.text(holder).count(tree.text(identifier)) == 2


def _ascending_shuffle(tree: KernelTree) -> Iterator[Mutation]:
    """The other order of a butterfly, right for xor on all lanes and for down on lane 0."""
    for loop in tree.nodes("for_statement"):
        header = halving(tree, loop)
        body = field(loop, "body")
        if header is None or number(tree, header[1]) is None or not adds(tree, loop):
            continue
        if not any(calls(tree, *SHUFFLES, within=body)):
            continue
        if any(tree.nodes("if_statement", "for_statement", within=body)):
            continue
        name, start = header
        initial, condition, update = (
            field(loop, f) for f in ("initializer", "condition", "update")
        )
        yield mutation(
            replace(field(field(initial, "declarator"), "value"), "1"),
            replace(condition, f"{name} <= {tree.text(start)}"),
            replace(update, f"{name} <<= 1"),
        )


def _paired_products(tree: KernelTree) -> Iterator[Mutation]:
    for _, group in accumulators(tree):
        for update in group:
            outer = None if update.fused else binary(tree, update.term, "+")
            inner = binary(tree, outer[0], "+") if outer else None
            if not outer or not inner or not tree.is_float(update.target):
                continue
            text = f"{tree.text(inner[0])} + ({tree.text(inner[1])} + {tree.text(outer[1])})"
            yield mutation(replace(update.term, text))


# -- precision that only grows ----------


def _double_accumulator(tree: KernelTree) -> Iterator[Mutation]:
    for name, group in accumulators(tree):
        function = tree.function(group[0].node)
        declared = _only_declaration(tree, function, name)
        if declared is None or not all(_is_scalar_sum(tree, u) for u in group):
            continue
        if _escapes(tree, function, name, group):
            continue
        updates_ = [_in_double(tree, u) for u in group]
        reads = [
            Edit(n.start_byte, n.end_byte, f"(float){name}")
            for n in tree.nodes("identifier", within=function)
            if tree.text(n) == name and _is_read(tree, n, declared, group)
        ]
        yield mutation(replace(field(declared, "type"), "double"), *updates_, *reads)


def _only_declaration(tree: KernelTree, function: Node, name: str) -> Node | None:
    """The declaration of float ``name``, if it declares nothing else and is the only one."""
    found = [
        node
        for node in tree.nodes("declaration", within=function)
        for d in node.children_by_field_name("declarator")
        if declared_name(tree, d) == name
    ]
    if len(found) != 1 or len(found[0].children_by_field_name("declarator")) != 1:
        return None
    plain = squash_type(tree.text(found[0])) == "float"
    return found[0] if plain else None


def squash_type(declaration: str) -> str:
    """The words of a declaration before its name: ``float`` for ``float acc = 0.0f``."""
    return " ".join(re.split(r"[=;,\[]", declaration)[0].split()[:-1])


def _is_scalar_sum(tree: KernelTree, update: Update) -> bool:
    return update.target.type == "identifier" and tree.kind(update.target) == "float"


def _escapes(tree: KernelTree, function: Node, name: str, group: tuple[Update, ...]) -> bool:
    """Whether the variable is also assigned plainly, exchanged, or has its address taken."""
    own = {u.node.id for u in group}
    for node in tree.nodes("assignment_expression", within=function):
        if root_identifier(tree, field(node, "left")) == name and node.id not in own:
            return True
    for node in tree.nodes("pointer_expression", within=function):
        if root_identifier(tree, field(node, "argument")) == name:
            return True
    return any(name in names_in(tree, u.term) for u in group)


def _in_double(tree: KernelTree, update: Update) -> Edit:
    """The update with its term, or the factors of its product, widened first."""
    target = tree.text(update.target)
    factors = update.fused or binary(tree, update.term, "*")
    if factors:
        text = " * ".join(f"(double){atom(tree, f)}" for f in factors)
    else:
        text = f"(double){atom(tree, update.term)}" if added(tree, update) else ""
    return replace(update.node, f"{target} += {text}")


def _is_read(tree: KernelTree, node: Node, declared: Node, group: tuple[Update, ...]) -> bool:
    if declared.start_byte <= node.start_byte < declared.end_byte:
        return False
    return not any(u.node.start_byte <= node.start_byte < u.node.end_byte for u in group)


def _double_reciprocal(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression"):
        sides = binary(tree, node, "/")
        if not sides or tree.kind(node) != "float" or number(tree, sides[0]) == 1:
            continue
        above, below = (atom(tree, side) for side in sides)
        yield mutation(put(tree, node, f"(float)((double){above} * (1.0 / (double){below}))"))


def _fused_multiply_add(tree: KernelTree) -> Iterator[Mutation]:
    for _, group in accumulators(tree):
        for update in group:
            sides = binary(tree, update.term, "*")
            if update.fused or not sides or tree.kind(update.target) != "float":
                continue
            target = tree.text(update.target)
            factors = ", ".join(tree.text(strip(s)) for s in sides)
            yield mutation(replace(update.node, f"{target} = fmaf({factors}, {target})"))


def _regrouped_product(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression"):
        outer = binary(tree, node, "*")
        inner = binary(tree, outer[0], "*") if outer else None
        parent = tree.parent(node)
        if not outer or not inner or not tree.is_float(node):
            continue
        if parent is not None and parent.type == "binary_expression":
            continue
        literals = [number(tree, side) for side in (*inner, outer[1])]
        sizes = [abs(value) for value in literals if value is not None]
        if sizes and all(1 / 64 <= size <= 64 for size in sizes):
            text = f"{tree.text(inner[0])} * ({tree.text(inner[1])} * {tree.text(outer[1])})"
            yield mutation(replace(node, text))


# -- the rules ----------

_DOT = "const float* a, const float* b, float* y, int n"
_UP, _DOWN = "int k = 0; k < n; ++k", "int k = n - 1; k >= 0; --k"


def _dot(
    update: str = "acc += a[k] * b[k]",
    loop: str = _UP,
    declared: str = "float acc = 0.0f",
    value: str = "acc",
) -> str:
    return kernel(
        f"    {declared};\n    for ({loop}) {update};\n    y[blockIdx.x] = {value};", _DOT
    )


def _shuffled(header: str) -> str:
    return kernel(
        "    float v = x[threadIdx.x];\n"
        f"    for ({header}) v += __shfl_down_sync(~0u, v, o);\n"
        "    if (threadIdx.x == 0) y[0] = v;"
    )


#: The benign rewrites in their fixed order.
BENIGN: tuple[Rule, ...] = (
    benign_rule(
        "reverse-serial-sum",
        "a loop that only sums runs from the other end",
        _reverse_serial_sum,
        Example(_dot(), (_dot(loop=_DOWN),)),
    ),
    benign_rule(
        "ascending-shuffle-sum",
        "a warp's sum by shuffles takes its smallest offset first",
        _ascending_shuffle,
        Example(
            _shuffled("int o = 16; o > 0; o >>= 1"), (_shuffled("int o = 1; o <= 16; o <<= 1"),)
        ),
    ),
    benign_rule(
        "paired-products",
        "`a + b + c` to `a + (b + c)` in what a loop adds up",
        _paired_products,
        Example(
            _dot("acc += a[k] * b[k] + a[k] * a[k] + b[k] * b[k]"),
            (_dot("acc += a[k] * b[k] + (a[k] * a[k] + b[k] * b[k])"),),
        ),
    ),
    benign_rule(
        "double-accumulator",
        "a float accumulator is kept in double",
        _double_accumulator,
        Example(
            _dot(),
            (
                _dot(
                    "acc += (double)a[k] * (double)b[k]",
                    declared="double acc = 0.0f",
                    value="(float)acc",
                ),
            ),
        ),
    ),
    benign_rule(
        "fused-multiply-add",
        "`acc += a * b` to `acc = fmaf(a, b, acc)`",
        _fused_multiply_add,
        Example(_dot(), (_dot("acc = fmaf(a[k], b[k], acc)"),)),
    ),
    benign_rule(
        "double-reciprocal",
        "`a / b` to `a * (1 / b)` in double",
        _double_reciprocal,
        Example(stored("v / 3.0f"), (stored("(float)((double)v * (1.0 / (double)3.0f))"),)),
    ),
    benign_rule(
        "regrouped-product",
        "`a * b * c` to `a * (b * c)` where one factor is a literal of ordinary size",
        _regrouped_product,
        Example(stored("0.5f * v * (v + 1.0f)"), (stored("0.5f * (v * (v + 1.0f))"),)),
    ),
    *GEOMETRY,
)
