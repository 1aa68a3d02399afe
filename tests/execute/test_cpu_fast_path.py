"""The inlined checks change nothing: random programs give the same findings without them."""

import json
import subprocess
import sys

from kernelassay.execute.cpu import build_runtime

# Every thread interprets the same list of operations, on addresses of its own: some threads and
# blocks meet in one word, some only nearly, some run over an end.
INTERPRETER = """
extern "C" __global__ void k(const int* program, int steps, const float* x, float* y, float* z,
                             int n) {
    __shared__ float s[96];
    __shared__ float4 wide[24];
    float v = threadIdx.x;
    for (int step = 0; step < steps; ++step) {
        const int* op = program + 4 * step;
        const int own = op[1] * (int)threadIdx.x + op[2] * (int)blockIdx.x + op[3];
        const int i = own % (n + 1), j = own % 97;
        switch (op[0]) {
            case 0: v += x[i]; break;
            case 1: v += y[i]; break;
            case 2: y[i] = v; break;
            case 3: v += s[j]; break;
            case 4: s[j] = v; break;
            case 5: v += wide[j / 4].y; break;
            case 6: wide[j / 4] = make_float4(v, v, v, v); break;
            case 7: __syncthreads(); break;
            case 8: __syncwarp(); break;
            case 9: atomicAdd(&z[i], 1.0f); break;
            case 10: v += z[i]; break;
            case 11: __threadfence(); break;
            case 12: v += __shfl_xor_sync(0xffffffffu, v, 1); break;
            case 13: s[j] += y[i]; break;
            case 14: ((char*)s)[4 * j + 1] = 7; break;
            case 15: v += ((const float4*)x)[i / 4].x; break;
        }
    }
    y[(blockIdx.x * blockDim.x + threadIdx.x) % n] = v;
}
"""
SCRIPT = """
import hashlib, json, sys
import numpy as np
from pathlib import Path
from kernelassay.execute.cpu import CpuDevice, Image
from kernelassay.kernel import Launch, LaunchPlan, PointerArgument as P
runtime, library, tag, kernels, programs = json.loads(sys.argv[1])
device = CpuDevice(Path(runtime))
image = Image(Path(library), tag, tuple(kernels))
N = 200
names = ("program", "x", "y", "z")
for seed in range(programs):
    draw = np.random.default_rng(seed)
    steps = int(draw.integers(4, 24))
    columns = [draw.integers(0, 16, steps), draw.integers(0, 5, steps),
               draw.choice([0, 1, 64], steps), draw.integers(0, 200, steps)]
    arrays = (np.stack(columns, 1).astype(np.int32), np.arange(N, dtype=np.float32),
              np.full(N, 2, np.float32), np.zeros(N, np.float32))
    roles = ("operand", "operand", "output", "updated")
    buffers = {n: device.buffer(n, a.nbytes, role=r) for n, a, r in zip(names, arrays, roles)}
    for order in ("forward", "reverse", "seeded:3"):
        surroundings = ("finite", "nan", "packed")[seed % 3]
        for name, array in zip(names, arrays):
            buffers[name].array[:] = array.reshape(-1).view(np.uint8)
        arguments = (P("program"), steps, P("x"), P("y"), P("z"), N)
        plan = LaunchPlan((), (Launch("k", (3, 1, 1), (64, 1, 1), 0, arguments),))
        found = device.run(image, plan, buffers, fuel=10**6, order=order, surroundings=surroundings)
        memory = hashlib.sha256(b"".join(bytes(buffers[n].array) for n in names)).hexdigest()
        print(json.dumps([seed, order, repr(found), memory]))
    for buffer in buffers.values():
        buffer.release()
"""
PROGRAMS = 150


def test_random_programs_run_alike_with_and_without_the_fast_path(compiler, cache_dir, image_of):
    image = image_of(INTERPRETER)
    printed = []
    for defines in ((), ("-DKA_NO_FAST_PATH",)):
        runtime = build_runtime(compiler, cache_dir, *defines)
        setup = [str(runtime), str(image.library), image.tag, list(image.kernels), PROGRAMS]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, json.dumps(setup)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.splitlines())
    assert len(printed[0]) == 3 * PROGRAMS
    assert printed[0] == printed[1]
    text = "\n".join(printed[0])  # and the programs are not tame
    for kind in ("race-shared", "race-global", "oob-shared-write", "oob-global-read"):
        assert text.count(kind) >= 20
