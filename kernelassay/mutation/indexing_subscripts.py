"""Indexing rules about single subscripts, vector lanes and call arguments."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.cuda_types import member_type
from kernelassay.mutation.examples import example, kernel
from kernelassay.mutation.extents import extents
from kernelassay.mutation.geometry import repeated_starts
from kernelassay.mutation.layout import index_roots, sizes
from kernelassay.mutation.nodes import callee, field, operator
from kernelassay.mutation.rule import Edit, Example, Find, Mutation, Rule
from kernelassay.mutation.sites import arguments, binaries, is_store_target, storage, swap
from kernelassay.mutation.tree import KernelTree, mutation, replace

_WEAK = frozenset({"conditional_expression", "assignment_expression", "comma_expression"})
_WEAK_OPERATORS = frozenset({"<<", ">>", "&", "|", "^", "<", ">", "==", "&&", "||"})


def _index(subscript: Node) -> Node:
    """The one index expression of a subscript."""
    return field(subscript, "indices").named_children[0]


def _shift(tree: KernelTree, index: Node, step: int) -> Edit:
    text = tree.text(index)
    if text.isdigit():
        return replace(index, str(int(text) + step))
    if index.type in _WEAK or operator(tree, index) in _WEAK_OPERATORS:
        text = f"({text})"
    return replace(index, f"{text} + 1" if step > 0 else f"{text} - 1")


def _role(tree: KernelTree, subscript: Node) -> str:
    """``shared``, ``store`` (to global memory) or ``other``: which rule adds one to it."""
    where = storage(tree, subscript)
    if where == "shared":
        return "shared"
    return "store" if where == "global" and is_store_target(tree, subscript) else "other"


def _shifted(step: int, *roles: str) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for node in tree.nodes("subscript_expression"):
            if _role(tree, node) in roles:
                yield mutation(_shift(tree, _index(node), step))

    return find


def _shared_transpose(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("subscript_expression"):
        inner = field(node, "argument")
        parent = tree.parent(node)
        if inner.type != "subscript_expression" or storage(tree, node) != "shared":
            continue
        if parent is not None and parent.type == "subscript_expression":
            continue  # not the last two dimensions
        one, two = _index(inner), _index(node)
        if tree.text(one) != tree.text(two):
            yield mutation(*swap(tree, one, two))


_NEXT_LANE = {"x": "y", "y": "x", "z": "w", "w": "z"}


def _vector_lane_swap(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("field_expression"):
        base = tree.base_type(field(node, "argument"))
        lane = tree.text(field(node, "field"))
        if member_type(base) is None or base[-1] not in "234" or lane not in _NEXT_LANE:
            continue
        if base[-1] == "3" and lane == "z":
            continue
        yield mutation(replace(field(node, "field"), _NEXT_LANE[lane]))


def _truncation(tree: KernelTree) -> Iterator[Mutation]:
    """The first flattened 64-bit offset that varies from block to block, strided by a size."""
    repeated = repeated_starts(tree)
    roots = [root for root in index_roots(tree) if _is_offset(tree, root)]
    found = [root for root in roots if root.id not in repeated] or roots
    strided = [root for root in found if _has_stride(tree, root)]
    for root in (strided or found)[:1]:
        yield mutation(replace(root, f"(signed char)({tree.text(root)})"))


def _is_offset(tree: KernelTree, root: Node) -> bool:
    known = extents(tree)
    if tree.kind(root) != "long" or known.fixed(root):
        return False
    return any(binaries(tree, "*", within=root)) and "blockIdx" in known.expand(root)


def _has_stride(tree: KernelTree, root: Node) -> bool:
    known = set(sizes(tree, tree.function(root)))
    return any(
        tree.text(field(product, side)) in known
        for product in binaries(tree, "*", within=root)
        for side in ("left", "right")
    )


def _argument_swap(tree: KernelTree) -> Iterator[Mutation]:
    functions = {tree.name(f): f for f in (*tree.device_functions, *tree.kernels)}
    calls = [(callee(tree, call), arguments(call)) for call in tree.nodes("call_expression")] + [
        (site.kernel, list(site.arguments)) for site in tree.launches()
    ]
    for name, given in calls:
        function = functions.get(name)
        if function is None:
            continue
        declared = tree.parameters(function)
        last: dict[str, int] = {}
        for position, (parameter, _) in enumerate(zip(declared, given, strict=False)):
            if not parameter.is_pointer:
                continue
            spelled = parameter.type_text.replace("__restrict__", "").strip()
            if spelled in last:
                one, two = given[last[spelled]], given[position]
                if tree.text(one) != tree.text(two):
                    yield mutation(*swap(tree, one, two))
            last[spelled] = position


_SHARED = "__shared__ float s[8][9];\n{} = x[n];\ny[0] = {};"

RULES: tuple[Rule, ...] = (
    Rule(
        id="index-plus-one",
        family="indexing",
        what="a subscript e that is read, or that is local, to e + 1",
        bug="an off-by-one in an address",
        find=_shifted(1, "other"),
        examples=(
            example(
                "y[n] = x[n] + x[n > 1 ? n : 0] + x[2];",
                "y[n] = x[n + 1] + x[n > 1 ? n : 0] + x[2];",
                "y[n] = x[n] + x[(n > 1 ? n : 0) + 1] + x[2];",
                "y[n] = x[n] + x[n > 1 ? n : 0] + x[3];",
            ),
            example(
                "float r[2];\nr[n] = 1.0f;\n y[n] = 0.0f;",
                "float r[2];\nr[n + 1] = 1.0f;\n y[n] = 0.0f;",
            ),
        ),
    ),
    Rule(
        id="index-minus-one",
        family="indexing",
        what="any subscript e to e - 1",
        bug="an off-by-one in an address, on the other side",
        find=_shifted(-1, "other", "shared", "store"),
        examples=(example("y[n] = x[n * 2];", "y[n - 1] = x[n * 2];", "y[n] = x[n * 2 - 1];"),),
    ),
    Rule(
        id="index-32bit-truncation",
        family="indexing",
        what="the first flattened 64-bit offset to `(signed char)`: the cast to 32 bits of "
        "tensors past 2^31 elements, scaled down to 8 bits, since a test's tensors are small",
        bug="an offset computed in too narrow a type, which wraps on large tensors",
        find=_truncation,
        examples=(
            example(
                "long long i = (long long)blockIdx.x * blockDim.x;\nif (i < n) y[i] = x[i];",
                "long long i = (signed char)((long long)blockIdx.x * blockDim.x);\n"
                "if (i < n) y[i] = x[i];",
            ),
            example(
                "const float* row = x + (long long)blockIdx.x * n;\ny[blockIdx.x] = row[0];",
                "const float* row = x + (signed char)((long long)blockIdx.x * n);\n"
                "y[blockIdx.x] = row[0];",
            ),
            example("long long size = (long long)n * n;\ny[blockIdx.x] = x[size - 1];"),
        ),
    ),
    Rule(
        id="shared-index-transpose",
        family="indexing",
        what="the last two subscripts of a shared array exchanged: `tile[a][b]` to `tile[b][a]`",
        bug="a shared tile read or written transposed",
        find=_shared_transpose,
        examples=(
            example(_SHARED.format("s[n][1]", "s[0][0]"), _SHARED.format("s[1][n]", "s[0][0]")),
        ),
    ),
    Rule(
        id="shared-index-plus-one",
        family="indexing",
        what="a subscript e of a shared array to e + 1",
        bug="an off-by-one in shared memory: a neighbour's element, or past the array",
        find=_shifted(1, "shared"),
        examples=(
            example(
                _SHARED.format("s[n][1]", "1.0f"),
                _SHARED.format("s[n][2]", "1.0f"),
                _SHARED.format("s[n + 1][1]", "1.0f"),
            ),
            example(
                "extern __shared__ float s[];\nfloat* t = s + n;\nt[0] = x[0];\ny[0] = x[0];",
                "extern __shared__ float s[];\nfloat* t = s + n;\nt[1] = x[0];\ny[0] = x[0];",
            ),
        ),
    ),
    Rule(
        id="vector-lane-swap",
        family="indexing",
        what="`.x` and `.y` (`.z` and `.w`) of a vector value exchanged",
        bug="a lane of a vector load used twice",
        find=_vector_lane_swap,
        examples=(
            example(
                "float4 v = reinterpret_cast<const float4*>(x)[n];\ny[threadIdx.x] = v.x + v.w;",
                "float4 v = reinterpret_cast<const float4*>(x)[n];\ny[threadIdx.x] = v.y + v.w;",
                "float4 v = reinterpret_cast<const float4*>(x)[n];\ny[threadIdx.x] = v.x + v.z;",
            ),
        ),
    ),
    Rule(
        id="argument-swap",
        family="indexing",
        what="neighbouring pointer arguments of equal type exchanged at a call or launch",
        bug="operands passed in the wrong order, such as mean and variance",
        find=_argument_swap,
        examples=(
            Example(
                kernel("y[0] = a[0] - b[n];", "const float* a, const float* b, float* y, int n"),
                (
                    kernel(
                        "y[0] = a[0] - b[n];", "const float* a, const float* b, float* y, int n"
                    ).replace("(a, b, y, n)", "(b, a, y, n)"),
                ),
            ),
        ),
    ),
    Rule(
        id="output-index-off",
        family="indexing",
        what="the subscript e of a store to global memory to e + 1",
        bug="results stored one element too far",
        find=_shifted(1, "store"),
        examples=(
            example("y[n] = x[n];", "y[n + 1] = x[n];"),
            example("atomicAdd(&y[n], x[n]);", "atomicAdd(&y[n + 1], x[n]);"),
            example(
                "reinterpret_cast<float2*>(y)[n] = make_float2(x[0], x[1]);",
                "reinterpret_cast<float2*>(y)[n + 1] = make_float2(x[0], x[1]);",
            ),
        ),
    ),
)
