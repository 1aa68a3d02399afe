"""A reference of an odd kind is measured, or refused with the reason; never an internal error."""

import pytest

from tests.user.problems import problem_text

WORKS = {
    "several outputs": problem_text("return x + 1, x * 2"),
    "an integer output": problem_text("return x.argmax(dim=1)"),
    "a bool output": problem_text("return x > 0"),
    "an integer input": problem_text("return x * 2", inputs="torch.randint(0, 9, (rows, cols))"),
    "a 0-d output": problem_text("return x.sum()"),
    "a 0-d input": problem_text(
        "return x + s", inputs="torch.randn(rows, cols), torch.randn(())", parameters="x, s"
    ),
    "a non-contiguous output": problem_text("return (x + 1).t()"),
    "a plain number": problem_text(
        "return x * s", inputs="torch.randn(rows, cols), 2.5", parameters="x, s"
    ),
}
REFUSED = {
    "data-dependent control flow": (
        problem_text("if x.sum() > 0:\n    return x + 1\nreturn -x"),
        "without data-dependent control flow",
    ),
    "a data-dependent shape": (problem_text("return x[x > 0]"), "shapes depend on values"),
    "an input updated in place": (problem_text("return x.add_(1) * 2"), "writes to its input 'x'"),
    "nested outputs": (problem_text("return x + 1, (x * 2, x)"), "output 1 is a tuple (nested)"),
    "a dict": (problem_text("return {'y': x + 1}"), "the module returns a dict"),
    "no output": (problem_text("x + 1"), "the module returns None"),
    "a complex output": (problem_text("return torch.complex(x, x)"), "complex"),
    "a complex input": (
        problem_text("return x.abs()", inputs="torch.randn(rows, cols, dtype=torch.complex64)"),
        "complex64",
    ),
    "an empty output": (problem_text("return x[:0] + 1"), "output 0 is empty (shape (0, 96))"),
    "an empty input": (
        problem_text("return x.sum()", inputs="torch.randn(0, cols)"),
        "input 0 is empty (shape (0, 96))",
    ),
    "a half input": (
        problem_text("return x + 1", inputs="torch.randn(rows, cols).half()"),
        "dtype float16",
    ),
    "a forward on a GPU": (problem_text("return x.cuda() + 1"), "drop .cuda()"),
    "a module on a GPU": (
        problem_text("return x * self.w", init="self.w = torch.ones(cols, device='cuda')"),
        "drop .cuda()",
    ),
    "random numbers": (problem_text("return x + torch.multinomial(x.abs(), 1)"), "random"),
    "an input that is a list": (
        problem_text("return x[0] + 1", inputs="[torch.randn(rows, cols)]"),
        "return a flat list",
    ),
    "nothing computed": (problem_text("return x"), "the module computes nothing"),
    "a reference that is not finite": (
        problem_text("return torch.log(x - 100)"),
        "the reference is not finite",
    ),
}


@pytest.mark.parametrize("kind", WORKS)
def test_this_kind_works(kind, desk, tmp_path):
    plan = desk.plan(tmp_path, WORKS[kind])
    assert plan["refused"] == ""
    assert all(record["valid"] for record in plan["inputs"])


@pytest.mark.parametrize("kind", REFUSED)
def test_this_kind_is_refused_with_the_reason(kind, desk, tmp_path):
    problem, told = REFUSED[kind]
    plan = desk.plan(tmp_path, problem)
    assert told in plan["refused"]
    assert plan["mutants"] == []


COPY = """\
// kernelassay: x = arg0
// kernelassay: y = out
// kernelassay: n = out.numel
// kernelassay: k<<<(n + 63) / 64, 64>>>(x, y, n)
__global__ void k(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = %s;
}
"""


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("an input updated in place", "writes to its input 0"),
        ("nested outputs", "output 1 is a tuple (nested)"),
        ("a dict", "the module returns a dict"),
        ("no output", "the module returns a NoneType"),
        ("a complex output", "output 0 is torch.complex64"),
        ("an empty output", "output 0 is empty"),
        ("random numbers", "draws random numbers"),
        ("a forward on a GPU", "drop .cuda()"),
        ("a complex input", "arg0 is complex64"),
    ],
)
def test_a_users_kernel_does_not_help_such_a_reference(kind, told, desk, tmp_path):
    plan = desk.plan(tmp_path, REFUSED[kind][0], COPY % "x[i]")
    assert told in plan["refused"]


@pytest.mark.parametrize("output", ["x.to_sparse()", "x.to('meta')"])
def test_an_output_without_plain_values_is_refused_by_name(output, desk, tmp_path):
    plan = desk.plan(tmp_path, problem_text(f"return {output}"), COPY % "x[i]")
    assert "output 0 has no plain values" in plan["refused"]


def test_a_kernel_whose_header_skips_the_official_inputs_is_refused(desk, tmp_path):
    for skipped in ("official-*", "*"):
        kernel = f"// kernelassay: skip {skipped}\n" + COPY % "x[i]"
        plan = desk.plan(tmp_path, problem_text("return x.clone()"), kernel)
        assert "no official input is left" in plan["refused"]
        assert "kernelassay: skip" in plan["refused"]


def test_with_a_users_kernel_control_flow_is_no_obstacle(desk, tmp_path):
    """The forward is run, not exported."""
    problem = problem_text("return x * 2 if x.numel() > x.abs().sum() * 1e9 else x + 1")
    plan = desk.plan(tmp_path, problem, COPY % "x[i] + 1.0f")
    assert plan["refused"] == ""
