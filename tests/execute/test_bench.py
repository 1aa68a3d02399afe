"""A network with more calls than the device has buffers runs like any other."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kernelassay import cell
from kernelassay.compile import parse_launcher
from kernelassay.errors import ProblemError, UnsupportedError
from kernelassay.execute.bench import ProblemBench
from kernelassay.execute.cpu import CpuDevice, bound, build_original, build_runtime
from kernelassay.execute.cpu import bench as benches
from kernelassay.execute.cpu.bench import CpuInputBench
from kernelassay.execute.messages import CallInfo
from kernelassay.execute.toolbox import CpuToolbox
from kernelassay.inputs import official_inputs
from kernelassay.population import correct_kernels
from kernelassay.problem import Problem, read_problem
from kernelassay.styles import DEFAULT

NETWORK = """
import torch
from torch import nn
layers = {layers}
class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.body = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))
    def forward(self, x):
        start = torch.randn(x.shape[0], 8)
        for part in self.body:
            start = torch.tanh(part(start + x))
        return start
def get_inputs():
    return [torch.rand(3, 8)]
def get_init_inputs():
    return [layers]
"""


@pytest.fixture
def network(tmp_path: Path):
    def make(layers: int) -> Problem:
        path = tmp_path / "network.py"
        path.write_text(NETWORK.format(layers=layers))
        return read_problem(path)

    return make


@pytest.fixture
def prepared(device, compiler, cache_dir):
    def prepare(problem: Problem):
        bench = ProblemBench(problem)
        infos = tuple(CallInfo(c.id, c.template, c.sources, c.nodes) for c in bench.calls)
        tools = CpuToolbox(compiler, Path(), cache_dir)
        correct = correct_kernels(problem.id, infos, tools, DEFAULT)
        return CpuInputBench(bench, device, official_inputs()[0]), correct

    return prepare


def test_a_bench_holds_few_buffers_at_a_time(network, prepared, monkeypatch):
    monkeypatch.setattr(bound, "OPEN_WINDOWS", 8)
    bench, correct = prepared(network(6))
    cells = bench.prepare(correct.originals)
    assert set(cells) == set(correct.originals)
    assert len({c.call for c in correct.originals.values()}) == 13
    assert bench._calls.windows() <= 8
    # Calls whose buffers were given back run again, in any order, and splice as before.
    plain = [c for c in correct.benign if c.id.endswith("/plain")]
    for candidate in reversed(plain):
        found = bench.run(candidate)
        assert found.outcome == cell.OK
        assert found.exact.critical_tolerance < 1e-5
        assert bench._calls.windows() <= 8
    again = bench.run(next(c for c in correct.originals.values() if c.call == plain[0].call))
    assert not again.infected
    bench.close()
    assert bench._calls.windows() == 0


def test_both_references_and_the_graph_start_from_the_same_drawn_state(network, prepared):
    bench, correct = prepared(network(1))
    facts = bench.facts()
    assert facts.reference_error < 1e-5
    assert all(c.exact.critical_tolerance < 1e-5 for c in bench.prepare(correct.originals).values())
    bench.close()


def test_a_closed_device_leaves_its_windows_to_the_next(compiler, cache_dir):
    runtime = build_runtime(compiler, cache_dir)
    image = build_original(SCRATCH, cache_dir, compiler)
    for nbytes in range(4, 4 * 400, 4):  # more sizes than there are windows
        device = CpuDevice(runtime)
        plan = parse_launcher(SCRATCH).plan({"n": nbytes})
        assert device.run(image, plan, {}, fuel=1000).outcome == cell.OK
        device.close()


SCRATCH = """
__global__ void fill(char* p, int n) { p[threadIdx.x] = 0; }
void launch(int n) {
    char* p;
    cudaMalloc(&p, n);
    fill<<<dim3(1), dim3(1)>>>(p, n);
}
"""


NOISE = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.scale = torch.full((8,), 2.0)
    def forward(self, x):
        hidden = self.body(x)
        return hidden + 0.5 * self.scale * torch.randn_like(hidden)
def get_inputs():
    return [torch.rand(3, 8)]
def get_init_inputs():
    return []
"""


def test_a_draw_of_a_spliced_value_s_shape_is_not_drawn_anew(tmp_path, prepared):
    path = tmp_path / "noise.py"
    path.write_text(NOISE)
    bench, _ = prepared(read_problem(path))
    assert bench.facts().reference_error < 1e-5  # plain tensors follow the dtype too
    (draw,) = (n.name for n in bench.traced.nodes.values() if "randn_like" in str(n.target))
    first = bench.bench.calls[0]
    downstream = bench._calls.bind(first.id).downstream
    assert downstream
    assert draw not in downstream


@pytest.mark.parametrize(
    ("group", "error"), [("shape", UnsupportedError), ("official", ProblemError)]
)
def test_an_input_that_costs_too_much_is_unfit_unless_it_is_official(
    network, prepared, monkeypatch, group, error
):
    """Fuel is a bound of ours: only where a benchmark itself draws is running out a refusal."""
    monkeypatch.setattr(benches, "ORIGINAL_FUEL", 5)
    bench, correct = prepared(network(1))
    bench.spec = dataclasses.replace(bench.spec, group=group)
    with pytest.raises(error, match="ended with timeout: fuel used up"):
        bench.prepare(correct.originals)
    bench.close()
