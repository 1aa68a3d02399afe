"""Every template agrees with float64 PyTorch in every style, and is clean in the checked build."""

from __future__ import annotations

import pytest
import torch
import tree_sitter
import tree_sitter_cuda
from torch import Tensor

from kernelassay.compile import nvrtc, parse_launcher
from kernelassay.substrate import bind
from tests.substrate.cases import ACTIVATIONS, CASES, Case
from tests.substrate.harness import Bench

TOLERANCE = 1e-5
# Odd, aligned, longer than a block; activations differ only in their expressions.
SIZES = (1, 7, 33, 64, 257)
ACTIVATION_SIZES = (33,)

# The tests of one case run in one process, which traces it once at each size.
by_name = pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=pytest.mark.xdist_group(f"case {c.name}")) for c in CASES],
)


@by_name
def test_kernels_agree_with_float64_and_have_no_findings(case: Case, bench: Bench) -> None:
    calls = case.calls(64)
    styles = sorted({style for call in calls for style in call.sources})
    for n in ACTIVATION_SIZES if case in ACTIVATIONS else SIZES:
        inputs = case.inputs(n)
        traced = case.traced(n)
        expected = case.function(*(_widened(tensor) for tensor in inputs))
        for style in styles:
            ran = bench.run_graph(traced, calls, inputs, style)
            assert ran.findings == (), (n, style)
            assert _error(ran.outputs[0], expected) <= TOLERANCE, (n, style)


@by_name
def test_a_case_reaches_the_templates_it_names(case: Case) -> None:
    calls = case.calls(7)
    assert case.templates <= {call.template for call in calls}


@by_name
def test_styles_share_launch_parameters_that_the_call_binds(case: Case) -> None:
    traced = case.traced(7)
    for call in case.calls(7):
        launchers = [parse_launcher(source) for source in call.sources.values()]
        pointers = {name for name, _ in (*call.operands, *call.outputs)}
        for launcher in launchers:
            assert launcher.pointer_parameters == launchers[0].pointer_parameters
            assert launcher.scalar_parameters == launchers[0].scalar_parameters
        assert {name for name, _ in launchers[0].pointer_parameters} == pointers
        assert {name for name, _ in launchers[0].scalar_parameters} == set(bind(call, traced))


@by_name
def test_sources_parse_without_an_error_node(case: Case) -> None:
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
    for call in case.calls(7):
        for source in call.sources.values():
            assert not parser.parse(source.encode()).root_node.has_error, source


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@by_name
def test_sources_compile_for_a_gpu(case: Case) -> None:
    for call in case.calls(7):
        for source in call.sources.values():
            assert nvrtc.compile_cubin(source)


@by_name
def test_sources_do_not_depend_on_sizes(case: Case) -> None:
    small, large = (case.calls(n) for n in (7, 64))
    assert [call.sources for call in small] == [call.sources for call in large]


def _widened(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _error(output: Tensor, expected: Tensor) -> float:
    """The largest |out - ref| / (1 + |ref|); infinite for a wrong shape or a wrong integer."""
    if output.shape != expected.shape:
        return float("inf")
    if not output.is_floating_point():
        return 0.0 if torch.equal(output, expected) else float("inf")
    return float(((output.double() - expected).abs() / (1 + expected.abs())).max())
