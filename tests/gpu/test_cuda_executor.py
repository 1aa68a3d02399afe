"""The CUDA executor survives whatever a kernel does, and sees what the CPU executor sees.

Run on a machine with a CUDA device: ``python -m pytest -m gpu tests/gpu``.
"""

from __future__ import annotations

import pytest
import torch

from kernelassay import cell
from kernelassay.compile import nvrtc
from kernelassay.execute.bench import BENIGN, MUTANT, ORIGINAL, Candidate
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.execute.cuda.toolbox import CudaToolbox
from kernelassay.execute.toolbox import CpuToolbox
from kernelassay.execute.worker import Worker
from kernelassay.inputs import InputSpec, official_inputs
from kernelassay.suite import suite_problems

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (torch.cuda.is_available() and nvrtc.available()), reason="needs a CUDA device"
    ),
]

HEAD = (
    'extern "C" __global__ void pointwise(const float* __restrict__ in0, float* __restrict__ out,'
    " long long n) {\n"
    "    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i >= n) return;\n"
)
RIGHT = "    out[i] = fmaxf(in0[i], 0.0f);\n"
TAIL = """}

void launch(const float* in0, float* out, long long n, int max_blocks) {
    const int threads = 256;
    pointwise<<<dim3((n + threads - 1) / threads), dim3(threads)>>>(in0, out, n);
}
"""
ONCE = "    if (i == 0) "
FAULTS = {
    "illegal-address": HEAD + RIGHT + ONCE + "out[1ll << 44] = 1.0f;\n" + TAIL,
    "misaligned-address": HEAD
    + RIGHT
    + ONCE
    + "*(volatile double*)((char*)out + 4) = 1.0;\n"
    + TAIL,
    "crash": HEAD + RIGHT + ONCE + "__trap();\n" + TAIL,
    "timeout": HEAD + RIGHT + "    while (((volatile float*)out)[i] > -1.0f) {}\n" + TAIL,
    "launch-failure": HEAD + RIGHT + TAIL.replace("threads = 256", "threads = 2048"),
    "out-of-memory": HEAD
    + RIGHT
    + TAIL.replace(
        "    const int threads = 256;\n",
        "    const int threads = 256;\n"
        + "".join(f"    char* s{k};\n    cudaMalloc(&s{k}, 4294967296ll);\n" for k in range(40)),
    ),
}
SOUND = HEAD + RIGHT + TAIL
OVERSHOOT = HEAD + RIGHT + ONCE + "out[n] = 7.0f;\n" + TAIL
ZERO_BEYOND = HEAD + "    out[i] = i < 5 ? 0.0f : fmaxf(in0[i], 0.0f);\n" + TAIL


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    return CudaToolbox.at(tmp_path_factory.mktemp("cuda"), CudaOptions())


@pytest.fixture
def worker(tools):
    worker = Worker(tools)
    yield worker
    worker.close()


def problem(name: str):
    return next(p for p in suite_problems() if p.id == f"suite/{name}")


def candidates(tools, call: str, sources: dict[str, str]) -> list[Candidate]:
    images = tools.build(sources)
    return [
        Candidate(name, MUTANT, call, "optimised", text, images[name])
        for name, text in sources.items()
    ]


def originals(tools, infos) -> dict[str, Candidate]:
    texts = {f"{ORIGINAL}/{i.id}/optimised": i.sources["optimised"] for i in infos}
    images = tools.build(texts)
    calls = {f"{ORIGINAL}/{i.id}/optimised": i.id for i in infos}
    return {
        name: Candidate(name, ORIGINAL, calls[name], "optimised", text, images[name])
        for name, text in texts.items()
    }


def measured(worker, tools, spec: InputSpec, sources: dict[str, str]):
    infos = worker.open(problem("relu"))
    found = candidates(tools, infos[0].id, sources)
    return worker.measure(spec, originals(tools, infos), found)


def test_every_fault_has_its_own_outcome_and_costs_no_other_cell(worker, tools):
    sources = {}
    for name, text in FAULTS.items():
        sources[name] = text
        sources[f"after {name}"] = SOUND
    unit = measured(worker, tools, official_inputs()[0], sources)
    assert not unit.rejected
    found = {c.candidate: c for c in unit.cells}
    assert list(found) == list(sources)
    assert {name: found[name].outcome for name in FAULTS} == {name: name for name in FAULTS}
    for name in FAULTS:
        after = found[f"after {name}"]
        assert (after.outcome, after.infected) == (cell.OK, False)


def test_a_write_past_the_end_is_a_finding_and_does_not_decide(worker, tools):
    unit = measured(worker, tools, official_inputs()[0], {"over": OVERSHOOT, "sound": SOUND})
    over, sound = unit.cells
    assert [f.kind for f in over.findings] == ["oob-global-write"]
    assert (over.outcome, over.infected) == (cell.OK, False)
    assert (sound.findings, sound.infected) == ((), False)


def test_a_write_far_away_is_a_crash_even_if_the_device_lets_it_pass(worker, tools):
    text = (
        HEAD + RIGHT + "    for (long long k = 1 << 19; k < 1 << 24; k += 64) out[k + i] = 9.0f;\n"
    )
    sources = {"far": text + TAIL, "sound": SOUND}
    unit = measured(worker, tools, official_inputs()[0], sources)
    far, sound = unit.cells
    assert far.outcome in (cell.CRASH, cell.ILLEGAL_ADDRESS)
    assert (sound.outcome, sound.infected) == (cell.OK, False)


@pytest.mark.parametrize("name", ["relu", "softmax_rows", "matmul_square", "argmax_middle"])
def test_cells_of_correct_and_faulty_kernels_are_those_of_the_cpu_executor(name, tmp_path):
    executors = {
        "cpu": CpuToolbox.at(tmp_path / "cpu"),
        "cuda": CudaToolbox.at(tmp_path / "cuda", CudaOptions()),
    }
    cells = {}
    for executor, tools in executors.items():
        worker = Worker(tools)
        infos = worker.open(problem(name))
        kept = originals(tools, infos)
        plain = {i.id: i.sources["plain"] for i in infos}
        images = tools.build(plain)
        found = [Candidate(k, BENIGN, k, "optimised", t, images[k]) for k, t in plain.items()]
        unit = worker.measure(official_inputs()[1], kept, found)
        assert not unit.rejected, unit.rejected
        cells[executor] = {c.candidate: c for c in (*unit.fixed, *unit.cells)}
        worker.close()
    for name_, one in cells["cpu"].items():
        other = cells["cuda"][name_]
        assert (one.outcome, one.unwritten) == (other.outcome, other.unwritten)
        assert one.seen.critical_tolerance == pytest.approx(other.seen.critical_tolerance, abs=2e-6)
        assert (one.seen.out_nan, one.seen.out_inf) == (other.seen.out_nan, other.seen.out_inf)


def test_what_nobody_wrote_is_counted_and_read_as_zero(worker, tools):
    text = HEAD + "    if (i >= 5) out[i] = fmaxf(in0[i], 0.0f);\n" + TAIL
    unit = measured(worker, tools, official_inputs()[0], {"late": text, "zero": ZERO_BEYOND})
    late, zero = unit.cells
    assert (late.unwritten, zero.unwritten) == (5, 0)
    assert late.output_digest == zero.output_digest
    assert late.seen == zero.seen
    assert late.exact.out_nan == 5


def test_a_kept_input_is_not_prepared_again_and_a_fault_costs_a_replacement(worker, tools):
    infos = worker.open(problem("relu"))
    kept, spec, name = originals(tools, infos), official_inputs()[0], cell.ILLEGAL_ADDRESS
    faulty, sound = candidates(tools, infos[0].id, {name: FAULTS[name], "sound": SOUND})
    first = worker.measure(spec, kept, [sound]).timing
    assert first.prepare > 0
    assert first.fixed > sum(first.kernels.values()) > 0
    assert set(first.kernels) == set(kept)
    assert first.runs == dict.fromkeys(kept, 1)
    assert all(seconds > 0 for seconds in first.candidates.values())
    assert first.replacements == ()
    again = worker.measure(spec, kept, [faulty, sound]).timing
    assert (again.prepare, again.kernels) == (0.0, {})
    assert again.runs == dict.fromkeys(kept, 2)
    (lost,) = again.replacements
    assert lost.why == name
    assert lost.seconds > 0
