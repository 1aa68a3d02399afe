"""The suite's kernels, compiled for a real device, compute what the float64 reference says.

Run on a machine with a CUDA device: ``python -m pytest -m gpu tests/gpu``.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from kernelassay import oracle
from kernelassay.compile import nvrtc
from kernelassay.compile.launcher import parse_launcher
from kernelassay.compile.source import kernel_signatures
from kernelassay.inputs import official_inputs
from kernelassay.kernel import Launch, PointerArgument
from kernelassay.problem import load
from kernelassay.styles import STYLES
from kernelassay.substrate.lowering import bind, lower, lower_fused
from kernelassay.suite import suite_problems
from kernelassay.trace import evaluate, trace

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SCALAR_TYPES = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "unsigned int": ctypes.c_uint,
    "long long": ctypes.c_longlong,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
}


def ctype(text: str):
    if "*" in text:
        return ctypes.c_void_p
    return SCALAR_TYPES[text.replace("const", "").strip()]


class DeviceCode:
    """One source compiled and loaded; runs launch plans on torch's stream."""

    def __init__(self, source: str) -> None:
        from cuda.bindings import driver

        self.driver = driver
        self.source = source
        torch.zeros(1, device="cuda")  # makes torch's context current
        image = nvrtc.compile_cubin(source)
        self.module = self.call(driver.cuModuleLoadData(image))
        self.types = {
            k.name: [ctype(text) for text, _ in k.parameters] for k in kernel_signatures(source)
        }

    def call(self, result):
        error, *values = result
        assert int(error) == 0, error
        return values[0] if values else None

    def run(self, scalars, buffers) -> None:
        plan = parse_launcher(self.source).plan(scalars)
        memory = {name: tensor.data_ptr() for name, tensor in buffers.items()}
        scratch = [
            torch.empty(max(1, s.nbytes), dtype=torch.uint8, device="cuda") for s in plan.scratch
        ]
        memory |= {s.name: t.data_ptr() for s, t in zip(plan.scratch, scratch, strict=True)}
        stream = torch.cuda.current_stream().cuda_stream
        for step in plan.steps:
            if isinstance(step, Launch):
                self.launch(step, memory, stream)
            else:
                start = memory[step.buffer.buffer] + step.buffer.byte_offset
                self.call(self.driver.cuMemsetD8Async(start, step.value, step.nbytes, stream))
        torch.cuda.synchronize()

    def launch(self, step, memory, stream) -> None:
        values = tuple(
            memory[a.buffer] + a.byte_offset if isinstance(a, PointerArgument) else a
            for a in step.arguments
        )
        kernel = self.call(self.driver.cuModuleGetFunction(self.module, step.kernel.encode()))
        types = tuple(self.types[step.kernel])
        self.call(
            self.driver.cuLaunchKernel(
                kernel, *step.grid, *step.block, step.shared_bytes, stream, (values, types), 0
            )
        )


OPERANDS = {"half": torch.float16, "bfloat16": torch.bfloat16, "tensor_core": torch.float16}
"""The styles that keep operands in 16 bits. A call on which that alone strays goes without one."""


def output_of(traced, values, changed, call):
    """The problem's output when some nodes have the values of a kernel in place of ``call``."""
    changed = dict(changed)
    for name, node in downstream(traced, changed, set(call.nodes)):
        changed[name] = evaluate(node, {**values, **changed})
    (output,) = traced.outputs
    return changed.get(output, values[output]).numpy()


def with_rounded_operands(traced, values, call, dtype):
    """The output when the call's float operands are kept in ``dtype``, and nothing else is."""
    known = dict(values)
    for _, name in call.operands:
        if values[name].is_floating_point():
            known[name] = values[name].to(dtype).to(values[name].dtype)
    for name in call.nodes:
        known[name] = evaluate(traced.nodes[name], known)
    return output_of(traced, values, {name: known[name] for name in call.nodes}, call)


def downstream(traced, changed, replaced):
    for name, node in traced.nodes.items():
        depends = any(source.name in changed for source in node.all_input_nodes)
        if node.op == "call_function" and name not in replaced and depends:
            yield name, node


@pytest.mark.parametrize("problem", suite_problems(), ids=lambda p: p.id)
def test_every_style_of_every_kernel_is_right_on_the_device(problem):
    loaded = load(problem)
    spec = official_inputs()[0]
    inputs = loaded.draw(spec.seed)
    model = loaded.build_model(42)
    state = dict(model.state_dict())
    traced = trace(loaded.build_model(42), tuple(inputs))
    values = traced.run(state, inputs)
    with torch.no_grad():
        doubled = [
            x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
            for x in inputs
        ]
        torch.set_default_dtype(torch.float64)
        try:
            exact = loaded.build_model(42).double()
            exact.load_state_dict(state)
            reference = exact(*doubled).numpy()
        finally:
            torch.set_default_dtype(torch.float32)
    for call in (*lower(traced), *lower_fused(traced)):
        scalars = bind(call, traced)
        for style, source in call.sources.items():
            buffers = {p: values[n].contiguous().cuda() for p, n in call.operands}
            outputs = {}
            for parameter, name in call.outputs:
                blank = np.empty(tuple(values[name].shape), dtype=values[name].numpy().dtype)
                oracle.poison(blank)
                outputs[parameter] = torch.from_numpy(blank).cuda()
            DeviceCode(source).run(scalars, buffers | outputs)
            changed = {}
            for parameter, name in call.outputs:
                array = outputs[parameter].cpu()
                assert not oracle.unwritten(array.numpy()).any(), (call.id, style)
                changed[name] = torch.empty_like(values[name]).copy_(array)
            verdict = oracle.grade(output_of(traced, values, changed, call), reference)
            bound = oracle.AcceptanceRule(STYLES[style].admission)
            if not bound.accepts(verdict) and style in OPERANDS:
                rounded = with_rounded_operands(traced, values, call, OPERANDS[style])
                if not bound.accepts(oracle.grade(rounded, reference)):
                    continue
            assert bound.accepts(verdict), (call.id, style, verdict)
