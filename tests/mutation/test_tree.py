"""What a parsed kernel source tells the rules: structure, types, roles."""

import pytest
from tree_sitter import Node

from kernelassay.errors import KernelSyntaxError
from kernelassay.mutation.examples import kernel
from kernelassay.mutation.tree import KernelTree

SOURCE = """#include <cuda_fp16.h>
#define TILE 16
#define EPS 1e-5f
struct Pair { float value; int place; };
__device__ int offset(int r, int c, int ld) { return r * ld + c; }
extern "C" __global__ void __launch_bounds__(256) k(const float* __restrict__ x, half* h,
                                                    float* y, int rows, long long cols) {
    __shared__ float tile[TILE][TILE + 1];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x % 32;
    int count = rows * 2;
    float4 v = reinterpret_cast<const float4*>(x)[i];
    const float* row = x + i * cols;
    Pair best = {v.x, count};
    double wide = 2.0;
    for (int s = 0; s < rows; ++s) best.value += row[s];
    if (i < cols && best.value > EPS) y[offset(i, lane, rows)] = tile[0][1] + (float)count;
    h[0] = __float2half(y[0]);
}
void launch(const float* x, half* h, float* y, int rows, long long cols) {
    k<<<dim3(rows), 256, 64>>>(x, h, y, rows, cols);
}
"""


@pytest.fixture(scope="module")
def tree() -> KernelTree:
    return KernelTree(SOURCE)


def expression(tree: KernelTree, text: str) -> Node:
    """The last device node with this text: a use, not the declaration."""
    return [node for node in tree.nodes() if node.is_named and tree.text(node) == text][-1]


def test_kernels_device_functions_and_the_launcher_are_told_apart(tree: KernelTree) -> None:
    assert [tree.name(f) for f in tree.kernels] == ["k"]
    assert [tree.name(f) for f in tree.device_functions] == ["offset"]
    assert tree.name(tree.launcher) == "launch"


def test_a_launch_has_its_geometry_and_arguments(tree: KernelTree) -> None:
    (site,) = tree.launches()
    assert site.kernel == "k"
    assert [tree.text(n) for n in site.config] == ["dim3(rows)", "256", "64"]
    assert [tree.text(n) for n in site.arguments] == ["x", "h", "y", "rows", "cols"]


def test_device_nodes_leave_out_the_launcher_and_the_launch_bounds(tree: KernelTree) -> None:
    assert not [n for n in tree.nodes("number_literal") if tree.text(n) == "256"]
    assert [tree.text(n) for n in tree.launch_nodes("number_literal")] == ["256", "64"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("v.x", "float"),
        ("threadIdx.x % 32", "int"),
        ("x + i * cols", "pointer"),
        ("i * cols", "long"),
        ("tile[0][1]", "float"),
        ("tile[0]", "pointer"),
        ("best.value", "float"),
        ("2.0", "double"),
        ("EPS", "float"),
        ("TILE + 1", "int"),
        ("(float)count", "float"),
        ("__float2half(y[0])", "half"),
        ("h[0]", "half"),
        ("best.value > EPS", "bool"),
        ("offset(i, lane, rows)", "int"),
        ("reinterpret_cast<const float4*>(x)", "pointer"),
        ("v", "unknown"),
    ],
)
def test_the_kind_of_an_expression_follows_declarations_and_conversions(
    tree: KernelTree, text: str, kind: str
) -> None:
    assert tree.kind(expression(tree, text)) == kind


def test_what_reaches_an_address_is_an_index_also_through_variables_and_calls(
    tree: KernelTree,
) -> None:
    assert tree.is_index(expression(tree, "blockIdx.x * blockDim.x + threadIdx.x"))
    assert tree.is_index(expression(tree, "i * cols"))
    assert tree.is_index(expression(tree, "threadIdx.x % 32"))  # through offset()'s parameter
    assert tree.is_index(expression(tree, "r * ld + c"))  # offset()'s result
    assert not tree.is_index(expression(tree, "rows * 2"))  # a value only


def test_a_bound_test_compares_integers_and_a_value_test_is_none(tree: KernelTree) -> None:
    assert tree.is_bound(expression(tree, "s < rows"))
    assert tree.is_bound(expression(tree, "i < cols"))
    assert not tree.is_bound(expression(tree, "best.value > EPS"))


def test_parameters_and_sizes_come_in_order(tree: KernelTree) -> None:
    (k,) = tree.kernels
    assert [(p.name, p.type_text) for p in tree.parameters(k)][:2] == [
        ("x", "const float* __restrict__"),
        ("h", "half*"),
    ]
    assert tree.size_parameters(k) == ("rows", "cols")
    assert tree.declared_type(k, "tile") == "__shared__ float"
    assert tree.declared_type(k, "absent") is None


def test_an_inner_declaration_hides_an_outer_one() -> None:
    tree = KernelTree(kernel("int v = 1;\nif (n) { float v = 2.0f; y[0] = v; }\ny[1] = v;"))
    uses = [n for n in tree.nodes("identifier") if tree.text(n) == "v"]
    assert [tree.kind(n) for n in uses] == ["int", "float", "float", "int"]


def test_offsets_are_bytes_also_behind_other_scripts() -> None:
    tree = KernelTree(kernel("// µ-kernel\ny[0] = x[0];"))
    assert [tree.text(n) for n in tree.nodes("assignment_expression")] == ["y[0] = x[0]"]


def test_an_alignment_is_blanked_for_the_parser_and_kept_in_the_text() -> None:
    tree = KernelTree(kernel("extern __shared__ __align__(16) float s[];\ny[0] = s[0];"))
    assert "__align__(16)" in tree.source


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("void launch(int n) {}", "no __global__ kernel"),
        ('extern "C" __global__ void k() {}', "exactly one host function"),
        (kernel("y[0] = x[0];") + "void launch(int n) {}\n", "it has 2"),
        (kernel("y[0] = = x[0];"), "does not parse"),
    ],
)
def test_a_source_without_kernel_launcher_or_syntax_is_refused(source: str, message: str) -> None:
    with pytest.raises(KernelSyntaxError, match=message):
        KernelTree(source)


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(KernelSyntaxError, match="line 2"):
        KernelTree(kernel("y[0] = = x[0];"))
