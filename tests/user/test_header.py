"""The header of a user's kernel: what it binds, and what each mistake is told."""

import pytest

from kernelassay.errors import KernelassayError, KernelSyntaxError, UnsupportedError, UsageError
from kernelassay.user.header import (
    Extent,
    LaunchLine,
    Number,
    Scratch,
    Tensor,
    Zero,
    read_header,
    stated_shape,
)
from kernelassay.user.kernel_file import read_kernel

KERNEL = """\
__global__ void scale(const float* __restrict__ x, float* y,
                      int n,
                      float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * factor;
}
"""
GOOD = ("x = arg0", "y = out", "n = arg0.numel", "scale<<<(n + 63) / 64, 64>>>(x, y, n, 2.0f)")


def written(tmp_path, lines, body=KERNEL):
    path = tmp_path / "scale.cu"
    path.write_text("".join(f"// kernelassay: {line}\n" for line in lines) + body)
    return path


def refusal(tmp_path, lines, body=KERNEL, kind=UsageError):
    with pytest.raises(kind) as caught:
        read_kernel(written(tmp_path, lines, body))
    return str(caught.value)


def test_each_statement_is_read():
    text = "\n".join(
        f"// kernelassay: {line}"
        for line in (
            "x = arg0",
            "w = param:block.fc.weight",
            "y = out from arg1",
            "rows = x.shape[0]",
            "cells = rows * arg0.shape[-1]",
            "part = scratch float[4 * rows]",
            "zero part",
            "ns::k<256, float><<<dim3(rows,",
            "     2), 256>>>(x, w, y, part)",
            "require rows > 2",
            "skip huge-*, wide-*",
        )
    )
    header = read_header(text, "f.cu")
    kinds = [type(statement) for statement in header.statements[:6]]
    assert kinds == [Tensor, Tensor, Tensor, Number, Scratch, Zero]
    launch = header.launches[0]
    assert launch == LaunchLine(
        "k", ("256", "float"), ("dim3(rows,2)", "256"), ("x", "w", "y", "part"), 8
    )
    assert header.tensors[1].reference == "param:block.fc.weight"
    assert (header.tensors[2].reference, header.tensors[2].start) == ("out0", "arg1")
    assert header.skip == ("huge-*", "wide-*")


def test_a_tensor_may_be_bound_to_its_own_name(tmp_path):
    body = KERNEL.replace("float* y", "float* out").replace("y[i]", "out[i]")
    lines = ("arg0 = arg0", "out = out", "n = out.numel")
    call = "scale<<<(n + 63) / 64, 64>>>(arg0, out, n, 2.0f)"
    own = f"{body}void launch(float* arg0, float* out, int n) {{ {call}; }}"
    for path in (written(tmp_path, (*lines, call), body), written(tmp_path, lines, own)):
        assert [b.parameter for b in read_kernel(path).buffers] == ["arg0", "out"]
    for other in ("out = arg0", "arg0 = out", "out1 = out", "out = 3"):
        assert "is a word of the header" in refusal(tmp_path, (other,))


def test_an_output_may_state_its_shape_by_extents_of_inputs(tmp_path):
    shaped = written(tmp_path, ["x = arg0", "y = out[x.shape, arg1.shape[-2], 3]", *GOOD[2:]])
    (output,) = read_kernel(shaped).outputs
    assert output.shape == (Extent("arg0", None), Extent("arg1", -2), 3)
    assert stated_shape(output.shape, {"arg0": (4, 5), "arg1": (6, 7)}, "here") == (4, 5, 6, 3)
    for shapes in ({"arg0": (4, 5)}, {"arg0": (4, 5), "arg1": (6,)}):
        with pytest.raises(UsageError, match=r"arg1.shape\[-2\], which there is not"):
            stated_shape(output.shape, shapes, "here")


def test_an_output_that_states_its_shape_may_be_bound_to_its_own_name(tmp_path):
    body = KERNEL.replace("float* y", "float* out").replace("y[i]", "out[i]")
    lines = ("x = arg0", "out = out[x.shape]", GOOD[2], GOOD[3].replace("y", "out"))
    (output,) = read_kernel(written(tmp_path, lines, body)).outputs
    assert (output.parameter, output.reference, output.shape) == (
        "out",
        "out0",
        (Extent("arg0", None),),
    )


def test_a_size_alone_keeps_its_name_and_an_expression_is_a_statement_of_launch(tmp_path):
    lines = ("x = arg0", "y = out", "n = x.numel", "blocks = (n + 63) / 64")
    kernel = read_kernel(written(tmp_path, (*lines, "scale<<<blocks, 64>>>(x, y, n, 1.5f)")))
    assert "void launch(const float* x, float* y, int n) {" in kernel.source
    assert "const int blocks = (n + 63) / 64;" in kernel.source


def test_the_type_of_a_number_is_that_of_the_parameter_it_goes_to(tmp_path):
    lines = ("x = arg0", "y = out", "n = arg0.shape[0]", "f = 3", "scale<<<1, n>>>(x, y, n, f)")
    assert "const float f = 3;" in read_kernel(written(tmp_path, lines)).source


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({3: "scale<<<1, 64>>>(x, y, n)"}, "parameter 4 'factor' (float) of scale"),
        ({3: "scale<<<1, 64>>>(x, y, n, 1.0f, 2)"}, "'2' has no parameter"),
        ({3: "scale<<<1, 64>>>(n, y, n, 1.0f)"}, "parameter 1 'x' (const float*) of scale"),
        ({3: "scale<<<1, 64>>>(x, y, y, 1.0f)"}, "parameter 3 'n' (int) of scale"),
        ({3: "scale<<<1, 64>>>(y, x, n, 1.0f)"}, "is const, but bound to the output"),
        ({3: "scal<<<1, 64>>>(x, y, n, 1.0f)"}, "did you mean scale"),
        ({3: "scale<<<1, 64>>>(x, y, m, 1.0f)"}, "unknown name 'm'"),
        ({3: "scale<64><<<1, 64>>>(x, y, n, 1.0f)"}, "is no template"),
        ({3: "scale<<<1>>>(x, y, n, 1.0f)"}, "a grid, a block"),
        ({3: "n = 4"}, "'n' is bound twice, first in line 3"),
        ({2: "n = y.size"}, "no member 'size'"),
        ({2: "n = arg0 + 1"}, "arg0 stands inside an expression"),
        ({2: "zero x"}, "'x' is no output and no scratch"),
        ({2: "n : 4"}, "is no statement"),
        ({1: "y = out[x.numel]"}, "'x.numel' is no extent"),
        ({1: "y = out[w.shape]"}, "'w' is no input bound before"),
        ({1: "y = out[]"}, "'' is no extent"),
        ({1: "y = arg1"}, "no parameter is bound to the output"),
    ],
)
def test_a_header_that_does_not_fit_is_told_where_and_which_parameter(tmp_path, change, told):
    lines = [change.get(index, line) for index, line in enumerate(GOOD)]
    message = refusal(tmp_path, lines, kind=KernelassayError)
    assert told in message
    assert "scale.cu" in message


def test_a_parameter_is_located_by_file_and_line(tmp_path):
    lines = (*GOOD[:3], "scale<<<1, 64>>>(x, y, y, 1.0f)")
    assert "parameter 3 'n' (int) of scale at" in (text := refusal(tmp_path, (*lines,)))
    assert text.count("scale.cu:4") == 1  # the header's line
    assert "scale.cu:6" in text  # `int n,` in the file


def test_a_file_without_a_header_is_told_what_to_write(tmp_path):
    assert "no header" in refusal(tmp_path, ())


def test_without_a_launch_the_kernels_are_listed(tmp_path):
    assert "kernels here: scale" in refusal(tmp_path, ("x = arg0", "y = out"))


def test_bytes_that_are_no_text_are_a_usage_error(tmp_path):
    path = tmp_path / "k.cu"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        read_kernel(path)


def test_a_parameter_of_struct_type_is_refused_by_name(tmp_path):
    body = "struct P { int n; };\n__global__ void k(float* y, P p) { y[0] = p.n; }\n"
    text = refusal(tmp_path, ("y = out", "k<<<1, 1>>>(y, 3)"), body, UnsupportedError)
    assert "parameter 2 'p' (P) of k" in text


OWN = KERNEL + (
    "void launch(const float* a, float* b, int count) {\n"
    "    scale<<<(count + 63) / 64, 64>>>(a, b, count, 2.0f);\n}\n"
)


def test_a_launch_of_the_files_own_is_kept_and_bound(tmp_path):
    lines = ("a = arg0", "b = out", "count = arg0.shape[0] * arg0.shape[1]")
    kernel = read_kernel(written(tmp_path, lines, OWN))
    assert kernel.source.count("void launch") == 1
    assert kernel.expressions == ("count",)


def test_a_parameter_of_the_own_launch_without_a_binding_is_named(tmp_path):
    text = refusal(tmp_path, ("a = arg0", "b = out"), OWN)
    assert "parameter 3 'count' (int) of launch" in text
    assert "scale.cu:9" in text


def test_a_launch_in_header_and_file_is_refused(tmp_path):
    assert "defines a function `launch` itself" in refusal(tmp_path, GOOD, OWN)


def test_a_launch_that_cannot_be_evaluated_says_so(tmp_path):
    lines = (*GOOD[:3], "blocks = n ? : 3", "scale<<<blocks, 64>>>(x, y, n, 1.0f)")
    assert "cannot be evaluated" in refusal(tmp_path, lines, kind=KernelSyntaxError)
