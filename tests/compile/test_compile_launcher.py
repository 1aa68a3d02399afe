import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.compile import (
    NULL_POINTER,
    LaunchError,
    LaunchTimeoutError,
    launch_plan,
    parse_launcher,
)
from kernelassay.errors import KernelSyntaxError, UnsupportedError, UsageError
from kernelassay.kernel import Launch, Memset, PointerArgument, Scratch

INT = st.integers(-(2**31), 2**31 - 1)


def source(body, result="long long", parameters="const float* x, float* y, int a, int b, int c"):
    kernel = f'extern "C" __global__ void k({result} v, float* y) {{ y[0] = v; }}\n'
    return f"{kernel}void launch({parameters}) {{\n{body}\n}}\n"


def value(expression, result="long long", **scalars):
    """The value of a C++ expression, as it reaches a kernel parameter."""
    scalars = {"a": 0, "b": 0, "c": 0, **scalars}
    (step,) = launch_plan(source(f"k<<<1, 1>>>({expression}, y);", result), scalars).steps
    return step.arguments[0]


def plan(body, **scalars):
    return launch_plan(source(body), {"a": 0, "b": 0, "c": 0, **scalars})


# -- plans of the example kernels ---------------------------------------------------------------


def test_matmul_rounds_its_grid_up(kernel):
    (step,) = launch_plan(kernel("matmul"), {"m": 33, "n": 16, "k": 4}, ["a", "b", "c"]).steps
    buffers = tuple(PointerArgument(name) for name in "abc")
    assert step == Launch("matmul", (1, 3, 1), (16, 16, 1), 0, (*buffers, 33, 16, 4))


def test_shared_bytes_come_from_sizeof(kernel):
    (step,) = launch_plan(kernel("softmax"), {"rows": 7, "cols": 9}).steps
    assert (step.grid, step.block, step.shared_bytes) == ((7, 1, 1), (256, 1, 1), 1024)


def test_scratch_memset_and_two_launches_keep_their_order(kernel):
    made = launch_plan(kernel("two_step_sum"), {"n": 100_000, "mean": True})
    assert made.scratch == (Scratch("partial", 256),)
    memset, first, second = made.steps
    assert memset == Memset(PointerArgument("partial"), 0, 256)
    assert (first.kernel, first.grid, first.arguments[2]) == ("partial_sums", (64, 1, 1), 100_000)
    scale = struct.unpack("f", struct.pack("f", 1 / 100_000))[0]
    assert second.arguments == (PointerArgument("partial"), PointerArgument("y"), 64, scale)


def test_a_double_reaches_a_float_parameter_as_float(kernel):
    (step,) = launch_plan(kernel("half_scale"), {"factor": 0.1, "n": 300}).steps
    assert step.grid == (2, 1, 1)
    assert step.arguments[2] == struct.unpack("f", struct.pack("f", 0.1))[0]


def test_parameters_are_told_apart(kernel):
    launcher = parse_launcher(kernel("two_step_sum"))
    assert launcher.pointer_parameters == (("x", "const float*"), ("y", "float*"))
    assert launcher.scalar_parameters == (("n", "long long"), ("mean", "bool"))


# -- C++ arithmetic -----------------------------------------------------------------------------


def wrap32(number):
    return (number + 2**31) % 2**32 - 2**31


def truncated(left, right):
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


class Node:
    """An integer expression with its C++ text and its value under ``int`` semantics."""

    def __init__(self, text, result):
        self.text, self.result = text, result


def combine(operator, left, right):
    a, b = left.result, right.result
    result = None
    if a is not None and b is not None:
        if operator in "/%":
            if b != 0 and not (b == -1 and a == -(2**31)):
                quotient = truncated(a, b)
                result = quotient if operator == "/" else a - quotient * b
        elif operator in ("<<", ">>"):
            result = wrap32(a << (b & 31)) if operator == "<<" else a >> (b & 31)
        else:
            result = wrap32(
                {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}[operator]
            )
    return Node(f"({left.text}) {operator} ({right.text})", result)


def leaves(values):
    names = [Node(name, values[name]) for name in values]
    literals = st.integers(0, 40).map(lambda number: Node(str(number), number))
    return st.one_of(st.sampled_from(names), literals)


def trees(values):
    operators = st.sampled_from(["+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^"])
    return st.recursive(
        leaves(values),
        lambda child: st.builds(combine, operators, child, child),
        max_leaves=8,
    )


@given(st.data(), INT, INT, INT)
def test_int_expressions_follow_cpp(data, a, b, c):
    scalars = {"a": a, "b": b, "c": c}
    node = data.draw(trees(scalars))
    if node.result is None:
        with pytest.raises(LaunchError):
            value(node.text, **scalars)
    else:
        assert value(node.text, **scalars) == node.result


@given(INT, INT)
def test_division_and_remainder_fit_together(a, b):
    if b != 0 and not (a == -(2**31) and b == -1):
        assert value("a / b * b + a % b", a=a, b=b) == a
        assert abs(value("a % b", a=a, b=b)) < abs(b)


@given(INT, INT)
def test_unsigned_arithmetic_wraps_at_32_bits(a, b):
    assert value("(unsigned)a * (unsigned)b", a=a, b=b) == a * b % 2**32
    assert value("(unsigned int)a > 0u", a=a) == (a % 2**32 > 0)


@given(INT, INT)
def test_precedence_needs_no_brackets(a, b):
    assert value("a + b * 2 - 1 < b == true", a=a, b=b) == (wrap32(a + b * 2 - 1) < b)
    assert value("(a) - b", a=a, b=b) == wrap32(a - b)
    assert value("a & 3 | b ^ 1", a=a, b=b) == (a & 3 | b ^ 1)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("2147483647 + 1", -(2**31)),
        ("2147483648 + 1", 2**31 + 1),
        ("1LL << 40", 2**40),
        ("1 << 33", 2),
        ("0u - 1", 2**32 - 1),
        ("sizeof(float) * 3", 12),
        ("sizeof(float4) + sizeof(__half) + sizeof y + sizeof(*y)", 30),
        ("-1 < 0u", 0),
        ("0x10 + 010 + 0b11", 27),
        ("(int)3.9f + (int)-3.9", 0),
        ("static_cast<int>(2.5) + int(7.9)", 9),
        ("(int)1e20", -(2**31)),
        ("min(3, 4LL) + std::max(1, 2) + max<int>(5, 6)", 11),
        ("true ? 1 : 1 / 0", 1),
        ("false && 1 / 0", 0),
        ("(int)ceilf(2.1f)", 3),
        ("!5 + ~0", -1),
        ("(unsigned char)300", 44),
        ("abs(-3)", 3),
    ],
)
def test_an_expression_has_its_cpp_value(expression, expected):
    assert value(expression) == expected


def test_float_arithmetic_rounds_to_binary32_after_each_operation():
    assert value("0.1f + 0.2f", "double") == struct.unpack("f", struct.pack("f", 0.3))[0]
    assert value("0.1 + 0.2", "double") == 0.1 + 0.2
    assert value("16777216.0f + 1", "double") == 16777216.0
    assert value("1.0f / 0.0f", "float") == math.inf
    assert math.isnan(value("0.0f / 0.0f", "float"))


def test_a_bool_parameter_receives_a_bool():
    assert value("a", "bool", a=5) is True


# -- statements ---------------------------------------------------------------------------------


def test_loops_launch_once_per_turn():
    made = plan(
        "for (int s = a; s > 1; s >>= 1) { if (s == 4) continue; k<<<s, 2>>>(s, y); }", a=16
    )
    assert [step.grid[0] for step in made.steps] == [16, 8, 2]


def test_while_break_return_and_steps():
    body = """
    int i = 0, total = 0;
    while (true) { total += i++; if (i == 5) break; --total; }
    k<<<1, 1>>>(total, y);
    if (total != 6) return; else ;
    k<<<2, 1>>>(i++ + ++i, y);
    """
    first, second = plan(body).steps
    assert first.arguments[0] == 6
    assert second.arguments[0] == 12


@pytest.mark.parametrize(
    ("body", "grid"),
    [
        ("dim3 g(a, b);", (4, 3, 1)),
        ("dim3 g(a * b, b);", (12, 3, 1)),
        ("dim3 g = dim3(a);", (4, 1, 1)),
        ("dim3 g{1, 2u, 3};", (1, 2, 3)),
        ("dim3 g; g.y = b; g.z += a;", (1, 3, 5)),
        ("auto g = dim3{a}; g.x /= 2;", (2, 1, 1)),
        ("const int g = (a) + b;", (7, 1, 1)),
        ("dim3 h(a, b); dim3 g(h.y, h.x > 3 ? 2 : 1);", (3, 2, 1)),
        ("dim3 g(a - 5);", (-1, 1, 1)),
        ("long long g = 4294967298LL;", (2, 1, 1)),
    ],
)
def test_geometry(body, grid):
    (step,) = plan(f"{body} k<<<g, 1>>>(0, y);", a=4, b=3).steps
    assert step.grid == grid


def test_negative_shared_bytes_stay_negative():
    (step,) = plan("k<<<1, 1, a * sizeof(float), 0>>>(0, y);", a=-1).steps
    assert step.shared_bytes == -4


def test_pointers_move_by_their_element():
    body = """
    double* d; cudaMalloc((void**)&d, 64);
    float* p = y + 2; p += 1;
    k<<<1, 1>>>(0, p - a);
    k<<<1, 1>>>(0, &y[b]);
    k<<<1, 1>>>(0, (float*)(d + 1));
    k<<<1, 1>>>(y == nullptr ? 1 : 0, nullptr);
    """
    found = [step.arguments for step in plan(body, a=1, b=5).steps]
    assert [arguments[1] for arguments in found] == [
        PointerArgument("y", 8),
        PointerArgument("y", 20),
        PointerArgument("d", 8),
        NULL_POINTER,
    ]
    assert found[3][0] == 0


def test_scratch_of_one_name_allocated_twice_is_two_buffers():
    made = plan("for (int i = 1; i < 3; ++i) { float* p; cudaMalloc(&p, i); k<<<1, 1>>>(i, p); }")
    assert made.scratch == (Scratch("p", 1), Scratch("p.2", 2))
    assert [step.arguments[1].buffer for step in made.steps] == ["p", "p.2"]


def test_macros_and_file_scope_constants_are_seen():
    text = (
        "#define T 8  // threads\n#define UP(n, d) (((n) + (d) - 1) / (d))\n"
        "constexpr int TWO = T / 4;\nstatic const unsigned SIX = TWO * 3u;\n"
        + source("k<<<UP(a + 1, T), SIX>>>(TWO, y);")
    )
    (step,) = launch_plan(text, {"a": 16, "b": 0, "c": 0}).steps
    assert (step.grid[0], step.block[0], step.arguments[0]) == (3, 6, 2)


# -- failures -----------------------------------------------------------------------------------


def test_division_by_zero_is_a_launch_error_with_its_line():
    with pytest.raises(LaunchError, match="divides by zero") as caught:
        plan("int d = a;\nk<<<1, 1>>>(1 / d, y);")
    assert caught.value.where == "line 4"
    assert caught.value.outcome == "launch-failure"


def test_a_launch_that_never_ends_is_a_timeout():
    with pytest.raises(LaunchTimeoutError) as caught:
        plan("for (int s = 4; s > 0; s >>= 0) { }")
    assert caught.value.outcome == "timeout"


def test_a_variable_without_a_value_is_a_launch_error():
    with pytest.raises(LaunchError, match="'p' before"):
        plan("float* p; k<<<1, 1>>>(0, p);")


@pytest.mark.parametrize(
    ("body", "construct"),
    [
        ("do { } while (0);", "'do'"),
        ("int v[3];", "host array"),
        ("k<<<1, 1>>>(x[0], y);", r"pointer\[index\]"),
        ("k<<<1, 1>>>(*y, y);", r"\*pointer"),
        ("cudaMemcpy(y, x, 4, cudaMemcpyDeviceToDevice);", "'cudaMemcpy'"),
        ('const int s = "a";', "literal"),
        ("int s = (a, b);", "comma"),
        ("auto f = &a;", "address"),
    ],
)
def test_an_unsupported_construct_is_named_with_its_line(body, construct):
    with pytest.raises(UnsupportedError, match=construct) as caught:
        parse_launcher(source(f"int q = 0;\n{body}"))
    assert caught.value.where == "line 4"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("k<<<1, 1>>>(n, y);", "'n' is not declared"),
        ("k<<<1, 1>>>(0);", "takes 2 arguments"),
        ("j<<<1, 1>>>(0, y);", "no kernel is named 'j'"),
        ("k<<<1, 1>>>(0, x);", "cannot convert 'const float\\*' to 'float\\*'"),
        ("k<<<1>>>(0, y);", "a grid, a block"),
        ("const int g = 1; g = 2;", "const"),
        ("int g = 1; int g = 2;", "twice"),
        ("if (a { }", "expected"),
        ("{ int g = 1;", "not closed"),
        ("int g = 1.5f % 2;", "does not take"),
        ("a + = 2;", "unexpected"),
    ],
)
def test_text_a_compiler_refuses_is_a_syntax_error(body, reason):
    with pytest.raises(KernelSyntaxError, match=reason):
        parse_launcher(source(body))


def test_a_macro_with_two_definitions_is_refused():
    text = "#ifdef Q\n#define T 8\n#else\n#define T 4\n#endif\n" + source("k<<<T, 1>>>(0, y);")
    with pytest.raises(UnsupportedError, match="'T'"):
        parse_launcher(text)


def test_values_from_outside_are_checked():
    with pytest.raises(UsageError, match="'b'"):
        launch_plan(source(""), {"a": 1})
    with pytest.raises(UsageError, match="does not fit"):
        plan("", a=2**31)
    with pytest.raises(UsageError, match="buffer for its parameter 'y'"):
        launch_plan(source(""), {"a": 0, "b": 0, "c": 0}, ["x"])
