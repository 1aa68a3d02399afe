"""Benign rewrites: a correct kernel stays correct and only its rounding may change.

They are controls, not mutants: a protocol that rejects one has a false rejection. So each rule
fires only where the rewrite is valid whatever the sizes and the data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tree_sitter import Node

from kernelassay.mutation.examples import kernel
from kernelassay.mutation.match import (
    Update,
    accumulators,
    added,
    atom,
    binary,
    call,
    calls,
    declared_name,
    field,
    is_assigned,
    names_in,
    number,
    operator,
    put,
    root_identifier,
    strip,
)
from kernelassay.mutation.precision_reduction import SHUFFLES, adds, halving
from kernelassay.mutation.rule import Edit, Example, Mutation, Rule
from kernelassay.mutation.semantic_reduction import reversed_loop
from kernelassay.mutation.tree import KernelTree, insert, mutation, replace

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


# -- launch geometry ----------


def _block_size(size: int) -> Callable[[KernelTree], Iterator[Mutation]]:
    """Another block size where the kernel works for any: index, guard, no shared memory."""

    def find(tree: KernelTree) -> Iterator[Mutation]:
        literals = [_literal_size(tree, site.block) for site in tree.launches()]
        for site, literal in zip(tree.launches(), literals, strict=True):
            kernels = [k for k in tree.kernels if tree.name(k) == site.kernel]
            if len(kernels) != 1 or site.shared is not None or literal is None:
                continue
            shared = sum(other is not None and other.id == literal.id for other in literals)
            if shared == 1 and _any_block_size(tree, kernels[0]):
                edits = _resized(tree, site.grid, literal, str(size))
                if edits:
                    yield mutation(*edits)

    return find


def _any_block_size(tree: KernelTree, function: Node) -> bool:
    """Whether threads are told apart by the global index only, and none works with another."""
    text = tree.text(function)
    whole = re.sub(r"\s+", "", text)
    index = "blockIdx.x*blockDim.x+threadIdx.x"
    if index not in whole:
        return False
    rest = whole.replace(index, "")
    steps = rest.replace("gridDim.x*blockDim.x", "").replace("blockDim.x*gridDim.x", "")
    if re.search(
        r"threadIdx|blockIdx|blockDim|gridDim|__shared__|__sync|__shfl|atomic|launch_bounds", steps
    ):
        return False
    helpers = [f for f in tree.device_functions if f"{tree.name(f)}(" in whole]
    return not any(
        re.search(r"threadIdx|blockIdx|__shared__|__sync|__shfl", tree.text(f)) for f in helpers
    )


def _resized(tree: KernelTree, grid: Node, old: Node, size: str) -> tuple[Edit, ...]:
    """The edits of a one-dimensional launch ``(n + B - 1) / B`` blocks of literal size B."""
    if tree.text(old) == size:
        return ()
    current = tree.text(old)
    places = [n for n in _reachable(tree, grid) if n.type == "number_literal"]
    whole, less = current, str(int(current) - 1)
    used = [n for n in places if tree.text(n) in (whole, less)]
    if {tree.text(n) for n in used} == {whole, less}:
        edits = {n.id: _sized(tree, n, whole, size) for n in used}
    elif old.id in {n.id for n in places}:
        edits = {}  # the grid is computed from the same variable
    else:
        return ()
    edits[old.id] = replace(old, size)
    return tuple(edits.values())


def _sized(tree: KernelTree, node: Node, whole: str, size: str) -> Edit:
    return replace(node, size if tree.text(node) == whole else str(int(size) - 1))


def _literal_size(tree: KernelTree, block: Node) -> Node | None:
    """The literal behind a block size: ``256``, ``dim3(256)``, or a variable set to one."""
    node: Node = strip(block)
    for _ in range(4):
        given = call(tree, node, "dim3")
        if given is not None:
            if len(given) != 1:
                return None
            node = strip(given[0])
        if node.type == "number_literal":
            return node
        if node.type != "identifier":
            return None
        value = _launcher_value(tree, node)
        if value is None:
            return None
        node = value.named_children[0] if value.type == "argument_list" else strip(value)
    return None


def _launcher_value(tree: KernelTree, identifier: Node) -> Node | None:
    name = tree.text(identifier)
    found = [
        field(d, "value")
        for d in tree.launch_nodes("init_declarator")
        if declared_name(tree, d) == name
    ]
    changed = any(
        tree.text(field(n, "left")) == name for n in tree.launch_nodes("assignment_expression")
    )
    if len(found) != 1 or changed:
        return None
    if found[0].type == "argument_list" and len(found[0].named_children) != 1:
        return None
    return found[0]


def _reachable(tree: KernelTree, node: Node, depth: int = 4) -> Iterator[Node]:
    """The nodes of an expression and of what its launcher variables are set to."""
    for inner in tree.nodes(within=node):
        yield inner
        if inner.type == "identifier" and depth:
            for declarator in tree.launch_nodes("init_declarator"):
                if declared_name(tree, declarator) == tree.text(inner):
                    yield from _reachable(tree, field(declarator, "value"), depth - 1)


def _grid_stride(tree: KernelTree) -> Iterator[Mutation]:
    """One thread per element to a loop over half the blocks."""
    for site in tree.launches():
        kernels = [k for k in tree.kernels if tree.name(k) == site.kernel]
        grid = _one_dimensional(tree, site.grid)
        if len(kernels) != 1 or grid is None or len(tree.launches()) != 1:
            continue
        body = field(kernels[0], "body")
        parts = [n for n in body.named_children if n.type != "comment"]
        header = _guarded_index(tree, parts)
        if header is None or re.search(r"\breturn\b|__sync|__shfl|__shared__", header[1]):
            continue
        loop = Edit(parts[0].start_byte, parts[1].end_byte, header[0])
        end = insert(body.end_byte - 1, "}\n")
        half = replace(grid, f"({tree.text(grid)} + 1) / 2")
        yield mutation(loop, end, half)


def _guarded_index(tree: KernelTree, parts: list[Node]) -> tuple[str, str] | None:
    """The loop header for ``T i = ...; if (i >= n) return;`` and the text of what follows."""
    if len(parts) < 3 or parts[0].type != "declaration" or parts[1].type != "if_statement":
        return None
    declarator = parts[0].child_by_field_name("declarator")
    sides = binary(tree, field(parts[1], "condition"), ">=")
    if declarator is None or declarator.type != "init_declarator" or not sides:
        return None
    name, start = declared_name(tree, declarator), tree.text(field(declarator, "value"))
    if tree.text(sides[0]) != name or "return" not in tree.text(field(parts[1], "consequence")):
        return None
    index = "blockIdx.x*blockDim.x+threadIdx.x"
    rest = tree.span(parts[2].start_byte, parts[-1].end_byte)
    plain = index in re.sub(r"\s+|\(longlong\)", "", start)
    if not plain or is_assigned(tree, tree.function(parts[0]), name):
        return None
    kind = tree.text(field(parts[0], "type"))
    step = f"({kind})gridDim.x * blockDim.x"
    condition = f"{name} < {tree.text(sides[1])}"
    return f"for ({kind} {name} = {start}; {condition}; {name} += {step}) {{", rest


def _one_dimensional(tree: KernelTree, grid: Node) -> Node | None:
    """The only extent of a grid: an integer expression, ``dim3(e)``, or a variable set to one."""
    node = strip(grid)
    given = call(tree, node, "dim3")
    if given is not None:
        return given[0] if len(given) == 1 else None
    if node.type == "identifier":
        value = _launcher_value(tree, node)
        if value is None or value.type != "argument_list":
            return None
        return value.named_children[0]
    return node if node.type != "call_expression" else None


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


def _stored(value: str) -> str:
    return kernel(f"    float v = x[threadIdx.x];\n    y[threadIdx.x] = {value};")


def _elementwise(grid: str, block: str) -> str:
    body = (
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i >= n) return;\n    y[i] = x[i];"
    )
    return kernel(body, grid=grid, block=block)


def _strided(grid: str) -> str:
    body = (
        "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; "
        "i += (int)gridDim.x * blockDim.x) {\n    y[i] = x[i];\n}"
    )
    return kernel(body, grid=grid, block="256")


def _rule(
    id_: str, what: str, find: Callable[[KernelTree], Iterator[Mutation]], *examples: Example
) -> Rule:
    return Rule(id_, "benign", what, "no bug: another correct kernel", find, examples)


def _block_rule(size: int) -> Rule:
    return _rule(
        f"block-size-{size}",
        f"blocks of {size} threads where a kernel works for any block size",
        _block_size(size),
        Example(
            _elementwise("(n + 255) / 256", "256"),
            (_elementwise(f"(n + {size - 1}) / {size}", f"{size}"),),
        ),
    )


#: The benign rewrites in their fixed order.
BENIGN: tuple[Rule, ...] = (
    _rule(
        "reverse-serial-sum",
        "a loop that only sums runs from the other end",
        _reverse_serial_sum,
        Example(_dot(), (_dot(loop=_DOWN),)),
    ),
    _rule(
        "ascending-shuffle-sum",
        "a warp's sum by shuffles takes its smallest offset first",
        _ascending_shuffle,
        Example(
            _shuffled("int o = 16; o > 0; o >>= 1"), (_shuffled("int o = 1; o <= 16; o <<= 1"),)
        ),
    ),
    _rule(
        "paired-products",
        "`a + b + c` to `a + (b + c)` in what a loop adds up",
        _paired_products,
        Example(
            _dot("acc += a[k] * b[k] + a[k] * a[k] + b[k] * b[k]"),
            (_dot("acc += a[k] * b[k] + (a[k] * a[k] + b[k] * b[k])"),),
        ),
    ),
    _rule(
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
    _rule(
        "fused-multiply-add",
        "`acc += a * b` to `acc = fmaf(a, b, acc)`",
        _fused_multiply_add,
        Example(_dot(), (_dot("acc = fmaf(a[k], b[k], acc)"),)),
    ),
    _rule(
        "double-reciprocal",
        "`a / b` to `a * (1 / b)` in double",
        _double_reciprocal,
        Example(_stored("v / 3.0f"), (_stored("(float)((double)v * (1.0 / (double)3.0f))"),)),
    ),
    _rule(
        "regrouped-product",
        "`a * b * c` to `a * (b * c)` where one factor is a literal of ordinary size",
        _regrouped_product,
        Example(_stored("0.5f * v * (v + 1.0f)"), (_stored("0.5f * (v * (v + 1.0f))"),)),
    ),
    _block_rule(64),
    _block_rule(128),
    _block_rule(512),
    _rule(
        "grid-stride",
        "one thread per element to a grid-stride loop over half the blocks",
        _grid_stride,
        Example(_elementwise("(n + 255) / 256", "256"), (_strided("((n + 255) / 256 + 1) / 2"),)),
    ),
)
