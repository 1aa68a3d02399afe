"""The tree of a Triton module: what is a kernel, what its names hold, and what is refused."""

import ast
import subprocess
import sys

import libcst as cst
import pytest

from kernelassay.errors import KernelSyntaxError, ToolchainError, UnsupportedError
from kernelassay.mutation import language
from kernelassay.mutation.triton.examples import SOFTMAX, SUMMED, module
from kernelassay.mutation.triton.match import terms, value
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import Values, all_values
from tests.mutation.triton.modules import FLAT, MODULES, ONLINE, PRODUCT, ROWS


def values(source: str, kernel: str = "") -> Values:
    found = list(all_values(TritonTree(source)))
    return next(v for v in found if v.function.name == kernel) if kernel else found[0]


def kinds(source: str, *names: str, kernel: str = "") -> list[str]:
    return [values(source, kernel).kind(cst.Name(name)) for name in names]


def test_a_text_that_does_not_parse_is_refused_with_its_line():
    with pytest.raises(KernelSyntaxError, match="line 3"):
        TritonTree("import triton\n\ndef k(:\n    pass\n")


def test_a_module_without_a_kernel_is_refused():
    with pytest.raises(UnsupportedError, match=r"no @triton\.jit function"):
        TritonTree("import triton\n\ndef k(x):\n    return x + 1\n")


def test_a_byte_order_mark_is_refused():
    with pytest.raises(UnsupportedError, match="byte order mark"):
        TritonTree("\ufeff" + FLAT)


@pytest.mark.parametrize(
    "head",
    [
        "import triton\n@triton.jit\n",
        "import triton\n@triton.jit(noinline=True)\n",
        "from triton import jit\n@jit\n",
        "from triton import jit as kernel\n@kernel\n",
        "import triton as t\n@t.jit\n",
        "import triton\n@triton.heuristics({})\n@triton.jit\n",
    ],
)
def test_a_kernel_is_known_by_what_its_decorator_is(head):
    (function,) = TritonTree(f"{head}def k(x, n):\n    pass\n").functions
    assert (function.name, function.parameters) == ("k", ("x", "n"))


@pytest.mark.parametrize("head", ["def jit(f):\n    return f\n\n@jit\n", "@other.jit\n", ""])
def test_a_function_of_another_decorator_is_no_kernel(head):
    with pytest.raises(UnsupportedError):
        TritonTree(f"import other\n{head}def k(x):\n    pass\n")


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import triton.language as tl", "tl.exp(x)"),
        ("from triton import language as lang", "lang.math.exp(x)"),
        ("import triton.language", "triton.language.exp(x)"),
        ("from triton.language import exp as e", "e(x)"),
        ("from triton.language.extra import libdevice", "libdevice.exp(x)"),
    ],
)
def test_a_function_of_the_language_is_known_by_any_name(imports, call):
    source = f"import triton\n{imports}\n@triton.jit\ndef k(x):\n    y = {call}\n"
    assert len(list(TritonTree(source).calls("exp"))) == 1


def test_a_function_of_another_module_is_none_of_the_language():
    source = "import triton, math\n@triton.jit\ndef k(x):\n    y = math.exp(x) + exp(x)\n"
    assert not list(TritonTree(source).calls("exp"))


def test_compile_time_parameters_are_known():
    (function,) = TritonTree(ROWS).functions
    assert function.constexprs == {"ROWS", "BLOCK"}


def test_launches_are_known_with_their_grids():
    (site,) = TritonTree(PRODUCT).launches
    assert (site.kernel.name, site.arguments[3].star) == ("product", "*")
    assert not TritonTree(FLAT.replace("silu_kernel[", "other[")).launches


@pytest.mark.parametrize("source", MODULES.values(), ids=MODULES)
def test_the_text_of_a_node_is_its_bytes_and_its_parentheses_are_around_it(source):
    tree = TritonTree(source)
    for node in (*tree.nodes(cst.BinaryOperation, cst.Call, cst.Name), *tree.host(cst.Call)):
        bare = cst.Module([]).code_for_node(node.with_changes(lpar=(), rpar=()))
        assert ast.dump(ast.parse(f"({tree.text(node)})")) == ast.dump(ast.parse(f"({bare})"))
        assert tree.full(node).count("(") - tree.text(node).count("(") == len(node.lpar)


def test_names_have_the_kind_of_what_they_are_assigned():
    assert kinds(ROWS, "x_ptr", "n_cols", "eps", "BLOCK") == ["pointer", "int", "scalar", "int"]
    assert kinds(ROWS, "rows", "mask", "x", "square") == ["int", "mask", "value", "value"]
    assert kinds(PRODUCT, "a_ptrs", "pid", "i", "left", "acc") == [
        *("pointer", "int", "int", "int", "value"),
    ]


def test_a_name_that_starts_as_a_number_and_sums_tiles_is_a_tile():
    assert kinds(ONLINE, "top", "total", "start", kernel="logsumexp") == ["value", "value", "int"]


def test_a_size_that_only_a_choice_compares_with_an_index_is_an_index():
    source = module(
        "offs = tl.arange(0, BLOCK)\nx = tl.load(x_ptr + offs)\n"
        "tl.store(y_ptr, tl.sum(tl.where(offs < n, x, 0.0), axis=0))"
    )
    assert kinds(source, "n") == ["int"]


def test_a_threshold_of_values_is_no_index():
    source = module("x = tl.load(x_ptr)\ntl.store(y_ptr, tl.where(x > n, x, 0.0))")
    assert kinds(source, "n") == ["scalar"]


def test_a_loop_carries_what_is_set_before_it_and_updated_in_it():
    assert [c.name for c in values(module(SUMMED)).carried] == ["acc"]
    assert [c.name for c in values(module(SOFTMAX)).carried] == ["s", "m"]


def test_the_base_of_an_address_is_found_through_names_and_differences():
    found = values(PRODUCT)
    bases = [found.base(value(call, 0, "pointer")) for call in found.accesses()]
    assert bases == ["a", "b", "c"]
    source = module("p = x_ptr + n\ntl.store(y_ptr, tl.load(p - 1))")
    assert values(source).pointers == {"x_ptr", "y_ptr"}


def test_a_sum_is_taken_apart_through_parentheses():
    assert len(terms(cst.parse_expression("a + (b + c * d) + e"))) == 4


def test_the_package_and_its_commands_do_not_import_libcst():
    code = (
        "import sys, kernelassay, kernelassay.cli, kernelassay.mutation.engine\n"
        "from kernelassay.mutation import RULES, mutants\n"
        "text = RULES[0].examples[0].before\n"
        "assert mutants(text, problem='p', call='c', style='s').mutants\n"
        "assert 'libcst' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_machine_without_libcst_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(language, "find_spec", lambda name: None)
    for ask in (lambda: language.rules_of("triton"), lambda: language.parse(FLAT, "triton")):
        with pytest.raises(ToolchainError, match=r"kernelassay\[triton\]"):
            ask()
