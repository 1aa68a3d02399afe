from pathlib import Path

import pytest
import tree_sitter
import tree_sitter_cuda
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.compile.lexing import join, tokenize, unbalanced
from kernelassay.compile.source import (
    device_key,
    device_text,
    host_text,
    kernel_signatures,
    macros,
)
from kernelassay.errors import KernelSyntaxError

ALL = sorted((Path(__file__).parent / "kernels").glob("*.cu"))


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_device_text_keeps_bytes_and_lines_and_drops_the_host_function(path):
    source = path.read_text()
    device = device_text(source)
    assert len(device.encode()) == len(source.encode())
    assert [len(line) for line in device.split("\n")] == [len(line) for line in source.split("\n")]
    assert "launch(" not in device
    assert "<<<" not in device
    assert device.split("void launch")[0].rstrip() == source.split("void launch")[0].rstrip()


def test_a_non_ascii_comment_in_the_host_function_keeps_its_byte_length():
    source = "// é\nvoid launch(int n) {\n    // größe\n}\n"
    assert len(device_text(source).encode()) == len(source.encode())
    assert device_text(source).startswith("// é\n")


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_the_signatures_agree_with_the_parser_of_the_mutation_engine(path):
    source = path.read_text()
    language = tree_sitter.Language(tree_sitter_cuda.language())
    tree = tree_sitter.Parser(language).parse(source.encode())
    found = {}
    stack = [tree.root_node]
    while stack:
        node = stack.pop()
        stack.extend(node.children)
        if node.type == "function_definition" and node.children[0].type == "__global__":
            declarator = node.child_by_field_name("declarator")
            name = declarator.child_by_field_name("declarator").text.decode()
            parameters = declarator.child_by_field_name("parameters").named_children
            found[name] = len(parameters)
    assert found == {s.name: len(s.parameters) for s in kernel_signatures(source)}


def test_parameter_types_are_normalised(kernel):
    (signature,) = kernel_signatures(kernel("half_scale"))
    assert signature.name == "half_scale"
    assert signature.parameters == (
        ("const __half*", "x"),
        ("__half*", "y"),
        ("float", "factor"),
        ("size_t", "n"),
    )


def test_launch_is_found_behind_device_code_that_lost_a_brace(kernel):
    source = kernel("softmax").replace("    return total;\n}", "    return total;\n")
    assert "softmax_rows<<<" not in device_text(source)
    assert unbalanced(tokenize(source)) is not None


def test_launch_in_a_comment_does_not_count():
    with pytest.raises(KernelSyntaxError, match="no host function"):
        device_text("// void launch(int n) { }\n/* void launch(int n) { } */")


def test_a_source_without_launch_is_refused():
    with pytest.raises(KernelSyntaxError, match="launch"):
        host_text('extern "C" __global__ void k(float* x) { x[0] = 1.0f; }')


def test_layout_and_comments_do_not_reach_the_identity(kernel):
    source = kernel("matmul")
    other = source.replace("dim3 block(TILE, TILE);", "dim3 block( TILE,TILE );  // square")
    assert other != source
    assert host_text(other) == host_text(source)
    assert device_key(other.replace("// square", "")) == device_key(source)


def test_a_macro_only_the_host_uses_is_part_of_the_host_text():
    source = "#define BLOCK 256\nvoid launch(int n) { k<<<n, BLOCK>>>(n); }"
    assert host_text(source) != host_text(source.replace("256", "128"))


def test_a_constant_reached_through_another_is_part_of_the_host_text():
    source = (
        "constexpr int A = 4;\n#define B (A * 2)\nconst int OTHER = 1;\n"
        "void launch(int n) { k<<<n, B>>>(n); }"
    )
    assert host_text(source) != host_text(source.replace("A = 4", "A = 5"))
    assert host_text(source) == host_text(source.replace("OTHER = 1", "OTHER = 2"))


def test_a_parameter_of_another_class_changes_the_host_text_a_sign_does_not(kernel):
    source = kernel("matmul")
    assert host_text(source) != host_text(
        source.replace("int m, int n, int k) {\n    __s", "int m, int n, float k) {\n    __s")
    )
    assert host_text(source) == host_text(
        source.replace("int m, int n, int k) {\n    __s", "int m, int n, unsigned k) {\n    __s")
    )


def test_macros_are_listed_once_and_in_order():
    assert macros("#define A 1\n# define B(x) \\\n  x\n#undef A\n#define A 2\n") == ("A", "B")


@given(st.text(alphabet=st.sampled_from("ab1.+-*/<>=&|\"'#(){}[];, \n\\/"), max_size=60))
def test_lexing_never_fails_and_joining_is_stable(text):
    tokens = [token for token in tokenize(text) if token.kind in ("name", "number")]
    assert [t.text for t in tokenize(join(tokens))] == [t.text for t in tokens]


def test_a_number_stays_apart_from_what_it_would_absorb():
    for text, joined in [("1. a", "1. a"), ("0xe + 1", "0xe + 1"), ("1.0f + x", "1.0f+x")]:
        tokens = [token for token in tokenize(text) if token.kind != "end"]
        assert join(tokens) == joined
        assert [t.text for t in tokenize(joined)] == [t.text for t in tokenize(text)]


def test_a_macro_that_names_a_parameter_type_is_part_of_the_host_text():
    source = (
        '#define T float\nextern "C" __global__ void k(T v, float* y) { y[0] = 1.0f; }\n'
        "void launch(float* y) { k<<<1, 1>>>(3, y); }\n"
    )
    assert host_text(source) != host_text(source.replace("#define T float", "#define T int"))
