"""Every rule runs on every kernel the op library can write, and none takes a run down."""

import pytest

from kernelassay.errors import UnsupportedError
from kernelassay.mutation import RULES, Rule, mutants
from kernelassay.mutation.benign import BENIGN
from kernelassay.substrate import lowering

TEMPLATES = sorted(path.stem for path in lowering._CU.glob("*.cu"))

DYNAMIC = """
extern "C" __global__ void total(const float* x, float* y, int n) {
    extern __shared__ float partial[];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, o);
    if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0.0f;
        for (int w = 0; w < blockDim.x / 32; ++w) all += partial[w];
        y[blockIdx.x] = all;
    }
}
void launch(const float* x, float* y, int n) {
    total<<<dim3(1), dim3(128), 4 * sizeof(float)>>>(x, y, n);
}
"""


def sources():
    yield "dynamic shared memory", DYNAMIC
    for name in TEMPLATES:
        text = (lowering._CU / f"{name}.cu").read_text()
        if "@" not in text:
            yield name, text


@pytest.mark.parametrize(("name", "source"), list(sources()), ids=lambda value: str(value)[:40])
def test_every_rule_runs_on_the_op_librarys_kernels(name, source):
    for rules in (RULES, BENIGN):
        mutants(source, problem=name, call="k00", style="optimised", rules=rules)


def test_every_rule_runs_on_attention_kept_whole():
    import torch
    from torch import nn

    from kernelassay.substrate.lowering import lower
    from kernelassay.trace import trace

    class Attention(nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    tensors = tuple(torch.rand(1, 2, 16, 8) for _ in range(3))
    for call in lower(trace(Attention(), tensors)):
        for style, source in call.sources.items():
            assert mutants(source, problem="p", call=call.id, style=style).mutants


def test_a_rule_that_fails_is_named():
    def explode(tree):
        raise AssertionError("no size")

    rule = Rule("exploding", "boundary", "w", "b", explode, ())
    with pytest.raises(UnsupportedError, match=r"exploding.*no size"):
        mutants(DYNAMIC, problem="p", call="k", style="optimised", rules=[rule])
