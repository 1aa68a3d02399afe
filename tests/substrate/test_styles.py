"""Every further style of an op agrees with float64, and is clean in the checked build."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from kernelassay.compile import nvrtc, parse_launcher
from kernelassay.errors import UnsupportedError
from kernelassay.execute.cpu.translate import unsupported_construct
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.styles import STYLES
from kernelassay.substrate.lowering import bind, lower, lower_fused
from kernelassay.trace import trace
from tests.substrate import op_cases
from tests.substrate.harness import Bench
from tests.substrate.opcheck import TOLERANCE, Case, Function, check, error_of

CASES = {
    f"{case.template}: {name}": case
    for name, case in chain(
        op_cases.MATMUL.items(),
        op_cases.CONVOLUTION.items(),
        op_cases.ATTENTION.items(),
        op_cases.LOSS.items(),
    )
}
by_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def further_styles(case: Case) -> list[str]:
    return [style for style in case.call().sources if style not in (PLAIN, OPTIMISED)]


@by_case
def test_further_styles_agree_with_float64_and_have_no_findings(case: Case, bench: Bench) -> None:
    for style in further_styles(case):
        if "cpu" in STYLES[style].executors:
            check(case, style, bench)


@by_case
def test_styles_share_the_parameters_of_launch(case: Case) -> None:
    plain, *others = (parse_launcher(source) for source in case.call().sources.values())
    for other in others:
        assert other.pointer_parameters == plain.pointer_parameters
        assert other.scalar_parameters == plain.scalar_parameters


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@by_case
def test_further_styles_compile_for_a_gpu(case: Case) -> None:
    for style in further_styles(case):
        assert nvrtc.compile_cubin(case.call().sources[style])


def test_the_executor_refuses_tensor_cores_by_name() -> None:
    source = CASES["matmul: nn"].call().sources["tensor_core"]
    assert unsupported_construct(source) == "inline PTX (asm)"


def test_a_style_knows_no_source_without_being_listed() -> None:
    assert {s for case in CASES.values() for s in case.call().sources} <= set(STYLES)


# -- long enough for several blocks to share one result ------------------------------------------

_ROWS = (((3, 2500),), ((2, 1024),))
_COLUMNS = (((2, 70, 5),),)
LONG = {
    "sum of rows": Case("sum", lambda x: x.sum(1), _ROWS),
    "sum of columns": Case("sum", lambda x: x.sum(1), _COLUMNS),
    "sum of a whole tensor": Case("sum", lambda x: x.sum(), _ROWS),
    "mean of columns": Case("mean", lambda x: x.mean(1), _COLUMNS),
    "norm of rows": Case("norm", lambda x: torch.linalg.vector_norm(x, 2, 1), _ROWS),
    "largest of rows": Case("amax", lambda x: x.amax(1), _ROWS),
    "smallest of columns": Case("amin", lambda x: x.amin(1), _COLUMNS),
    "largest of a whole tensor": Case("amax", lambda x: x.max(), _ROWS),
    "all of rows": Case("any", lambda x: (x < 3).all(1), _ROWS),
    "sum of integers": Case("sum", lambda x: (x * 10).long().sum(1), _ROWS),
    "variance of rows": Case("var", lambda x: torch.var(x, 1), _ROWS),
    "instance norm": Case("batch_norm", F.instance_norm, (((1, 2, 1300),),)),
    "layer norm": Case("layer_norm", lambda x: F.layer_norm(x, x.shape[1:]), (((3, 1028),),)),
    "divergence": Case(
        "kl_div",
        lambda x, t: F.kl_div(F.log_softmax(x, 1), F.softmax(t, 1), reduction="sum"),
        (((3, 700), (3, 700)),),
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_results_that_several_blocks_share_agree_with_float64(name: str, bench: Bench) -> None:
    for style in further_styles(LONG[name]):
        check(LONG[name], style, bench)


@pytest.mark.parametrize("name", ("sum of rows", "largest of a whole tensor", "instance norm"))
def test_the_order_of_threads_and_blocks_changes_no_bit(name: str, bench: Bench) -> None:
    case = LONG[name]
    shapes = case.shapes[0]
    traced = case.trace(shapes)
    values = traced.run({}, case.inputs(shapes))
    call = case.call()
    operands = {parameter: values[node].contiguous() for parameter, node in call.operands}
    for style, source in call.sources.items():
        found = []
        for order in ("forward", "reverse"):
            outputs = {p: torch.empty(values[n].shape) for p, n in call.outputs}
            bench.run(source, bind(call, traced), operands, outputs, order=order)
            found.append(outputs)
        for parameter, first in found[0].items():
            assert torch.equal(first, found[1][parameter]), style


# -- fused epilogues ----------------------------------------------------------------------------


FUSED = {
    "linear, gelu": (
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        (((7, 17), (33, 17), (33,)), ((65, 36), (40, 36), (40,))),
    ),
    "linear of a cube, scaled by column": (
        lambda x, w, b, s: F.relu(F.linear(x, w, b)) * s,
        (((2, 5, 17), (33, 17), (33,), (33,)),),
    ),
    "convolution, bias per channel, relu": (
        lambda x, w, b: F.relu(F.conv2d(x, w, padding=1) + b),
        (((2, 3, 9, 11), (5, 3, 3, 3), (5, 1, 1)),),
    ),
    "layer norm, silu": (
        lambda x, w, b: F.silu(F.layer_norm(x, x.shape[1:], w, b)),
        (((5, 33), (33,), (33,)),),
    ),
    "instance norm, relu": (lambda x: F.relu(F.instance_norm(x)), (((2, 3, 17),),)),
    "sum, tanh": (lambda x: torch.tanh(x.sum(1) * 0.01 + 1), (((5, 300),), ((1, 7),))),
    "product, residual": (lambda x, w, y: F.linear(x, w) + y, (((5, 40), (9, 40), (5, 9)),)),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_epilogue_agrees_with_float64_and_has_no_findings(name: str, bench: Bench) -> None:
    function, all_shapes = FUSED[name]
    call = None
    for shapes in all_shapes:
        torch.manual_seed(3)
        tensors = [torch.randn(shape) for shape in shapes]
        traced = trace(Function(function), tuple(tensors))
        call = call or lower_fused(traced)[0]
        exact = traced.run({}, [t.double() for t in tensors])
        assert call.outputs[0][1] in traced.outputs
        for style, source in call.sources.items():
            operands = {p: exact[n].float().contiguous() for p, n in call.operands}
            outputs = {p: torch.empty(exact[n].shape) for p, n in call.outputs}
            findings = bench.run(source, bind(call, traced), operands, outputs)
            assert not findings, (style, findings)
            for parameter, node in call.outputs:
                assert error_of(outputs[parameter], exact[node]) <= TOLERANCE, style


def fused(function, *shapes):
    return lower_fused(trace(Function(function), tuple(torch.randn(shape) for shape in shapes)))


def test_a_fused_call_covers_the_nodes_of_both_its_parts() -> None:
    traced = trace(
        Function(lambda x, w: F.relu(F.linear(x, w))), (torch.rand(3, 4), torch.rand(5, 4))
    )
    heavy, light = lower(traced)
    (both,) = lower_fused(traced)
    assert set(heavy.nodes) | set(light.nodes) <= set(both.nodes)
    assert both.outputs[0][1] == light.outputs[0][1]


def test_a_result_with_another_use_is_not_fused() -> None:
    def function(x, w):
        product = x @ w
        return F.relu(product) + 1, product.sum()

    assert fused(function, (3, 4), (4, 5)) == ()


def test_a_result_that_broadcasts_in_what_follows_is_not_fused() -> None:
    assert fused(lambda x, y: x.sum(1, keepdim=True) + y, (3, 4), (3, 4)) == ()


def test_a_kernel_that_reads_its_output_back_is_not_fused() -> None:
    from kernelassay.substrate.epilogue import Epilogue, with_epilogue

    source = (
        'extern "C" __global__ void k(float* y) {{ {body} }}\n'
        "void launch(float* y) {{ k<<<1, 1>>>(y); }}\n"
    )
    epilogue = Epilogue("", (("float", "scale"),))
    assert with_epilogue(source.format(body="y[0] = 1.0f; y[0] += y[1];"), "y", epilogue) is None
    assert with_epilogue(source.format(body="float* p = y; p[0] = 1.0f;"), "y", epilogue) is None
    changed = with_epilogue(source.format(body="y[0] = 1.0f;"), "y", epilogue)
    assert changed is not None
    assert "k(float* y, float scale) { y[0] = epilogue(1.0f, 0, scale); }" in changed
    assert "launch(float* y, float scale) { k<<<1, 1>>>(y, scale); }" in changed


def test_a_fused_call_at_shapes_that_broadcast_otherwise_is_refused() -> None:
    def traced(*shapes):
        return trace(Function(lambda x, w, s: x @ w * s), tuple(torch.rand(s) for s in shapes))

    (call,) = lower_fused(traced((3, 4), (4, 5), (5,)))
    with pytest.raises(UnsupportedError):
        bind(call, traced((3, 4), (4, 5), (1,)))
