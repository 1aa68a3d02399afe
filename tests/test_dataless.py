"""A graph traced without data is the graph that is traced on data."""

from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from kernelassay.dataless import draw_layout, trace_layout
from kernelassay.execute.bench import ProblemBench
from kernelassay.inputs import InputSpec, materialise
from kernelassay.problem import MODEL_SEED, load, read_problem
from kernelassay.references import run_model
from kernelassay.substrate.lowering import bind, lower, lower_fused
from kernelassay.suite import suite_problems
from kernelassay.trace import trace

PROBLEMS = {problem.id: problem for problem in suite_problems()}

FILE = """
import torch
from torch import nn
rows = {rows}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        return {forward}
def get_inputs():
    {before}
    return [{inputs}]
def get_init_inputs():
    return []
"""


def written(path, *, rows=4, init="pass", forward="x * 2", before="", inputs="torch.rand(rows, 8)"):
    file = path / "problem.py"
    text = FILE.format(rows=rows, init=init, forward=forward, before=before, inputs=inputs)
    file.write_text(text)
    return read_problem(file)


def both(problem):
    """The first output, by the graph that a bench traced and by the module itself."""
    bench, spec = ProblemBench(problem), InputSpec("one", "official", 7)
    loaded = bench.loaded(())
    inputs, state = materialise(loaded, spec)
    traced = bench.trace((), loaded, inputs)
    value = traced.run(state, inputs)[traced.outputs[0]]
    return value, torch.as_tensor(run_model(loaded, state, inputs, torch.float32)[0])


def described(traced):
    nodes = {
        name: (value.shape, value.stride(), value.dtype, value.device)
        if isinstance(value := node.meta.get("val"), torch.Tensor)
        else None
        for name, node in traced.nodes.items()
    }
    calls = [
        (c.id, dict(c.sources), c.operands, c.outputs, c.nodes, dict(bind(c, traced)), c.fixed)
        for c in (*lower(traced), *lower_fused(traced))
    ]
    fed = (traced.parameters, traced.inputs, traced.outputs, list(traced.constants))
    return traced.signature(), nodes, calls, fed


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
def test_every_problem_of_the_suite_traces_and_lowers_alike_with_and_without_data(problem):
    loader = partial(load, problem)
    inputs = draw_layout(loader)
    assert all(isinstance(x, FakeTensor) for x in inputs if isinstance(x, torch.Tensor))
    loaded = loader()
    with_data = trace(loaded.build_model(), tuple(loaded.draw(MODEL_SEED)))
    assert described(trace_layout(loader, inputs)) == described(with_data)


def test_sizes_past_the_memory_of_any_machine_can_be_opened(tmp_path):
    problem = written(
        tmp_path,
        rows=1 << 40,
        init="self.layer = nn.Linear(rows, 8)",
        forward="self.layer(x.t())",
        inputs="torch.rand(rows, 1 << 20)",
    )
    bench = ProblemBench(problem)
    assert 1 << 40 in bench.arguments(())[bench.calls[0].id].values()


@pytest.mark.parametrize(
    "looks",
    [
        {"before": "n = int(torch.ones(1).sum())", "inputs": "torch.rand(rows, n + 1)"},
        {"before": "x = torch.rand(rows, 2)", "inputs": "x if float(x.sum()) > 0 else x.t()"},
        {"init": "self.n = int(torch.full((1,), 3.0).item())", "forward": "x * self.n"},
    ],
    ids=["a-size", "a-branch", "a-constant"],
)
def test_code_that_looks_at_values_is_given_values(tmp_path, looks):
    loader = partial(load, written(tmp_path, **looks))
    loaded = loader()
    with_data = trace(loaded.build_model(), tuple(loaded.draw(MODEL_SEED)))
    assert described(trace_layout(loader, draw_layout(loader))) == described(with_data)


@pytest.mark.parametrize(
    ("init", "forward"),
    [
        ("self.shift = torch.rand(8)", "x + self.shift"),
        ("self.register_buffer('shift', torch.rand(8), persistent=False)", "x + self.shift"),
        ("self.held = [torch.tensor(3.0)]", "x * self.held[0]"),
        ("self.held = [torch.tensor([1, 0])]", "x[:, self.held[0]] * 2"),
    ],
    ids=["plain", "buffer", "held", "index"],
)
def test_tensors_that_a_model_keeps_beside_its_state_have_their_values(tmp_path, init, forward):
    problem = written(tmp_path, init=init, forward=forward)
    value, reference = both(problem)
    assert torch.equal(value, reference)


def test_what_a_file_keeps_at_module_level_is_not_shared_with_runs_on_data(tmp_path):
    problem = written(
        tmp_path,
        init="KEPT.setdefault('shift', torch.ones(8)); self.shift = nn.Parameter(KEPT['shift'])",
        forward="x + self.shift",
    )
    (tmp_path / "problem.py").write_text("KEPT = {}\n" + problem.source)
    _, reference = both(read_problem(tmp_path / "problem.py"))
    assert (reference >= 1).all()
