"""Toolchain and images: what is refused, how a bad mutant is isolated, what is cached."""

import numpy as np
import pytest

from kernelassay.errors import KernelSyntaxError, ToolchainError, UnsupportedError, UsageError
from kernelassay.execute.cpu import (
    BuildFailure,
    CpuDevice,
    Image,
    build,
    build_images,
    build_original,
    build_runtime,
    find_compiler,
    unsupported_construct,
)
from kernelassay.execute.cpu.toolchain import Outcome, run_commands
from kernelassay.kernel import Launch, LaunchPlan, Memset, PointerArgument, Scratch
from tests.execute.cpu_kernels import HALF_DOT, LAYERNORM, MATMUL, SOFTMAX, VADD

HOST = "\nvoid launch() { /* { */ }\n"
UNSUPPORTED = {
    "inline PTX": '__global__ void k(int* x) { asm volatile("mov.u32 %0, 1;" : "=r"(*x)); }',
    "cooperative groups": "__global__ void k() { cooperative_groups::this_grid().sync(); }",
    "wmma": "__global__ void k() { wmma::fragment<int> f; }",
    "cp.async": "__global__ void k(int* s, int* g) { __pipeline_memcpy_async(s, g, 16); }",
    "textures": "__global__ void k(cudaTextureObject_t t) { tex2D<float>(t, 0, 0); }",
    "clusters": "__global__ void __cluster_dims__(2, 1, 1) k() {}",
    "dynamic parallelism": "__global__ void a() {} __global__ void k() { a<<<1, 1>>>(); }",
    "__activemask": "__global__ void k(unsigned* m) { *m = __activemask(); }",
    "#include <cub/cub.cuh>": "#include <cub/cub.cuh>\n__global__ void k() {}",
    "a template as kernel": "template <class T> __global__ void k(T* x) {}",
    "__shared__ inside a macro": "#define S __shared__ float s[4]\n__global__ void k() { S; }",
    "__shared__ at file scope": "__shared__ float s[4]; __global__ void k() { s[0] = 1; }",
    "a __device__ variable that is not const": "__device__ int n = 0; __global__ void k() { n++; }",
    "a __constant__ variable without a value": "__constant__ int n[4]; __global__ void k() {}",
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_the_shim_lacks_is_refused_by_name(compiler, cache_dir, name):
    source = UNSUPPORTED[name] + HOST
    assert name in unsupported_construct(source)
    with pytest.raises(UnsupportedError, match=r"does not have .*"):
        build_original(source, cache_dir, compiler, where="k.cu")
    failure = build_images({"k": source}, cache_dir, compiler)["k"]
    assert isinstance(failure, BuildFailure)
    assert name in failure.unsupported


@pytest.mark.parametrize("source", [VADD, SOFTMAX, MATMUL, LAYERNORM, HALF_DOT])
def test_ordinary_kernels_are_supported(source):
    assert unsupported_construct(source + HOST) is None


ACCEPTED = {
    "a constexpr function with a loop": """
constexpr int log2i(int n) { int r = 0; while (n > 1) { n >>= 1; r++; } return r; }
__global__ void k(float* y) { __shared__ float s[log2i(64)]; s[5] = 7; y[0] = s[5]; }""",
    "a template with a shared array per instantiation": """
template <typename T, int N> __device__ T keep(T x) { __shared__ T s[N]; s[0] = x; return s[0]; }
__global__ void k(float* y) { y[0] = keep<float, 4>(2.5f) + keep<double, 4>(4.5); }""",
    "aligned dynamic shared memory of bytes": """
__global__ void k(float* y) {
    extern __shared__ __align__(16) unsigned char raw[];
    float4* s = reinterpret_cast<float4*>(raw);
    s[0] = make_float4(1, 2, 3, 4);
    y[0] = s[0].z + s[0].w;
}""",
    "dynamic shared memory at file scope": """
extern __shared__ float smem[];
__global__ void k(float* y) { smem[3] = 7; y[0] = smem[3]; }""",
    "shared scalars, structs, unions and several declarators": """
struct Pair { float v; long long i; };
__global__ void k(float* y) {
    __shared__ Pair p[2];
    __shared__ union { float f[4]; int i[4]; } u;
    alignas(16) __shared__ int a, b[3];
    p[1] = {1.0f, 2};
    u.f[0] = 1.0f;
    a = b[1] = 3;
    Pair q = p[1];
    y[0] = q.v + q.i + (u.i[0] == 0x3f800000) + a;
}""",
    "constant tables in every spelling": """
__constant__ float a[2] = {1, 2};
__constant__ const int b[2] = {1, 2};
static __device__ __constant__ int c = 2;
static constexpr float d[1] = {1};
__global__ void k(float* y) { y[0] = a[1] + b[1] + c + d[0]; }""",
    "loops and branches without braces": """
__global__ void k(float* y) {
    int n = 2, i = 0;
    for (;;) { if (n-- > 0) continue; break; }
    while (true) if (++i > 3) break;
    if (i == 0) for (int j = 0; j < 3; j++) y[j] = 0;
    else y[0] = i + 3;
    switch (i) { case 1: for (int q = 0; q < 2; ++q) y[q] = 1; break; default: break; }
}""",
    "half and bfloat16 mixed with float": """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void k(float* y) {
    __half h = 1.5f;
    h *= __half(2);
    __nv_bfloat16 b = __float2bfloat16(0.5f);
    __half2 p = __halves2half2(h, __hadd(h, h));
    float2 f = __half22float2(p);
    y[0] = f.y + (float)(b + b) + (h > __half(9) ? 1.0f : 0.0f);
}""",
    "assertions, printf and lambdas": """
__global__ void k(float* y) {
    auto next = [&](float a) { return a + 1; };
    y[0] = next(6.0f);
    assert(y[0] > 0);
    printf("%f", y[0]);
}""",
}


def test_the_dialect_of_an_op_library_is_accepted_and_means_what_it_says(
    compiler, cache_dir, device
):
    images = build_images({k: v + HOST for k, v in ACCEPTED.items()}, cache_dir, compiler)
    buffer = device.buffer("y", 16, role="output")
    launch = Launch("k", (1, 1, 1), (1, 1, 1), 64, (PointerArgument("y"),))
    for name, image in images.items():
        assert isinstance(image, Image), f"{name}: {image}"
        result = device.run(image, LaunchPlan((), (launch,)), {"y": buffer}, fuel=100)
        assert (result.outcome, result.findings) == ("ok", ()), name
        assert buffer.array.view(np.float32)[0] == 7, name
    buffer.release()


def test_words_in_comments_and_constant_tables_are_no_features():
    source = "// asm, wmma\n__constant__ float t[2] = {1, 2};\n__device__ const int n = 3;\n"
    assert unsupported_construct(source + VADD + HOST) is None


def test_bad_mutants_fail_alone_and_leave_the_batch_intact(compiler, tmp_path):
    bad = {
        "type": VADD.replace("c[i] = a[i]", "c[i] = a[i].nothing"),
        "brace": VADD.replace("{", "{ {", 1),
        "closing": VADD.rstrip().removesuffix("}"),
        "name": VADD.replace("blockIdx", "blockIdxx"),
    }
    good = {f"n{i}": VADD.replace("a[i] + b[i]", f"a[i] + {i} * b[i]") for i in range(6)}
    mixed = dict(pair for pairs in zip(good.items(), bad.items(), strict=False) for pair in pairs)
    sources = {key: text + HOST for key, text in {**mixed, **good}.items()}
    images = build_images(sources, tmp_path, compiler)
    assert list(images) == list(sources)
    for key in bad:
        assert isinstance(images[key], BuildFailure)
        assert images[key].unsupported is None
        assert "error" in images[key].log or "closing" in images[key].log
    assert all(isinstance(images[key], Image) for key in good)
    with pytest.raises(KernelSyntaxError, match="does not compile"):
        build_original(sources["type"], tmp_path, compiler)


def test_mutants_of_one_batch_do_not_share_macros_or_names(compiler, cache_dir, device):
    text = "#define STEP {0}\n__device__ float f(float x) {{ return x + STEP; }}\n" + (
        'extern "C" __global__ void k(float* y) {{ y[0] = f({0}); }}'
    )
    images = build_images({i: text.format(i) + HOST for i in (1, 2, 3)}, cache_dir, compiler)
    plan = LaunchPlan((), (Launch("k", (1, 1, 1), (1, 1, 1), 0, (PointerArgument("y"),)),))
    buffer = device.buffer("y", 4, role="output")
    for i, image in images.items():
        assert device.run(image, plan, {"y": buffer}, fuel=100).outcome == "ok"
        assert buffer.array.view(np.float32)[0] == 2 * i
    buffer.release()


def test_images_are_cached_on_disk_by_content(compiler, tmp_path):
    sources = {"good": VADD + HOST, "bad": VADD.replace("int i", "int") + HOST}
    first = build_images(sources, tmp_path, compiler)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    assert build_images(sources, tmp_path, compiler) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")} == stamps
    plain = build_images(sources, tmp_path, compiler, checked=False)
    assert plain["good"].library != first["good"].library


def test_a_full_disk_stops_the_build_instead_of_losing_mutants(compiler, tmp_path, monkeypatch):
    full = Outcome(False, "k.s: fatal error: error closing: No space left on device", final=True)
    with monkeypatch.context() as patch:
        patch.setattr(build, "run_commands", lambda *commands, **options: full)
        with pytest.raises(ToolchainError, match="disk is full"):
            build_images({"good": VADD + HOST}, tmp_path, compiler)
    assert isinstance(build_images({"good": VADD + HOST}, tmp_path, compiler)["good"], Image)


def test_a_plain_image_computes_the_same_without_checks(compiler, cache_dir, device):
    source = SOFTMAX + HOST
    images = [
        build_images({"k": source}, cache_dir, compiler, checked=checked)["k"]
        for checked in (True, False)
    ]
    x = np.random.default_rng(0).normal(size=(2, 150)).astype(np.float32)
    bx, by = (
        device.buffer("x", x.nbytes, role="operand"),
        device.buffer("y", x.nbytes, role="output"),
    )
    bx.array[:] = x.reshape(-1).view(np.uint8)
    pointers = (PointerArgument("x"), PointerArgument("y"))
    plan = LaunchPlan((), (Launch("softmax", (2, 1, 1), (128, 1, 1), 512, (*pointers, 150)),))
    results = []
    for image in images:
        assert device.run(image, plan, {"x": bx, "y": by}, fuel=10**6).outcome == "ok"
        results.append(by.array.tobytes())
    assert results[0] == results[1]
    bx.release(), by.release()


def test_the_portable_context_switch_gives_the_same_results(compiler, cache_dir, image_of):
    # In a process of its own: the images of this one are bound to the first runtime.
    import subprocess
    import sys

    image = image_of(SOFTMAX)
    runtime = build_runtime(compiler, cache_dir, "-DKA_UCONTEXT")
    assert runtime != build_runtime(compiler, cache_dir)
    script = f"""
import numpy as np
from pathlib import Path
from kernelassay.execute.cpu import CpuDevice, Image
from kernelassay.kernel import Launch, LaunchPlan, PointerArgument as P
device = CpuDevice(Path({str(runtime)!r}))
image = Image(Path({str(image.library)!r}), {image.tag!r}, {image.kernels!r})
x = np.random.default_rng(0).normal(size=(2, 150)).astype(np.float32)
bx, by = device.buffer("x", x.nbytes, role="operand"), device.buffer("y", x.nbytes, role="output")
bx.array[:] = x.reshape(-1).view(np.uint8)
plan = LaunchPlan((), (Launch("softmax", (2, 1, 1), (128, 1, 1), 512, (P("x"), P("y"), 150)),))
print(device.run(image, plan, {{"x": bx, "y": by}}, fuel=10**6))
e = np.exp(x - x.max(1, keepdims=True))
y = by.array.view(np.float32).reshape(x.shape)
np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "outcome='ok', detail='', findings=()" in done.stdout


def test_a_missing_compiler_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("KERNELASSAY_CXX", raising=False)
    with pytest.raises(ToolchainError, match=r"install g\+\+ 9") as error:
        find_compiler()
    assert "kernelassay[zig]" in error.value.hint
    with pytest.raises(ToolchainError, match="'my-c\\+\\+'"):
        find_compiler("my-c++")


def test_the_environment_names_the_compiler(monkeypatch, compiler):
    monkeypatch.setenv("KERNELASSAY_CXX", "no-such-compiler")
    with pytest.raises(ToolchainError, match="no-such-compiler"):
        find_compiler()
    monkeypatch.setenv("KERNELASSAY_CXX", compiler.command[0])
    assert find_compiler() == compiler


def test_a_compiler_that_does_not_end_is_stopped():
    outcome = run_commands((("/bin/sh", "-c", "sleep 30"),), timeout_s=0.2)
    assert (outcome.ok, outcome.final) == (False, False)


@pytest.mark.parametrize(
    ("script", "final"),
    [
        ("kill -KILL $$", False),
        ("kill -TERM $$", False),
        ("kill -SEGV $$", True),
        ("echo 'g++: fatal error: Killed signal terminated program cc1plus' && exit 1", False),
        ("echo 'clang++: error: unable to execute command: Killed' && exit 1", False),
        ("echo 'k:3: error: expected a type' && exit 1", True),
    ],
)
def test_a_compiler_that_was_ended_may_do_another_time(script, final):
    outcome = run_commands((("/bin/sh", "-c", script),))
    assert (outcome.ok, outcome.final) == (False, final)


def test_what_a_compiler_was_ended_at_is_not_kept(compiler, tmp_path, monkeypatch):
    sources = {"k": VADD + HOST}
    with monkeypatch.context() as ended:
        ended.setattr(build, "run_commands", lambda commands: Outcome(False, "signal 9", False))
        assert build_images(sources, tmp_path, compiler)["k"] == BuildFailure(
            "signal 9", transient=True
        )
        assert build.image_bytes(sources["k"], compiler) == BuildFailure("signal 9", transient=True)
    assert isinstance(build_images(sources, tmp_path, compiler)["k"], Image)
    assert isinstance(build.image_bytes(sources["k"], compiler), bytes)


TWO_STEPS = r"""
extern "C" __global__ void halves(const float* x, float* partial, int n) {
    atomicAdd(&partial[blockIdx.x], x[blockIdx.x * n + threadIdx.x]);
}
extern "C" __global__ void combine(const float* partial, float* y, float scale, bool negate) {
    y[0] = (partial[0] + partial[1]) * (negate ? -scale : scale);
}
"""


def two_steps(memset=True, nbytes=8):
    partial = PointerArgument("partial")
    first = Launch("halves", (2, 1, 1), (16, 1, 1), 0, (PointerArgument("x"), partial, 16))
    second = Launch("combine", (1, 1, 1), (1, 1, 1), 0, (partial, PointerArgument("y"), 2, True))
    steps = (Memset(partial, 0, 8), first, second) if memset else (first, second)
    return LaunchPlan((Scratch("partial", nbytes),), steps)


@pytest.fixture
def two_step_run(device, image_of):
    x, y = device.buffer("x", 128, role="operand"), device.buffer("y", 4, role="output")
    x.array.view(np.float32)[:] = np.arange(32)
    yield lambda plan: (
        device.run(image_of(TWO_STEPS), plan, {"x": x, "y": y}, fuel=1000),
        y.array.view(np.float32)[0],
    )
    x.release(), y.release()


def test_a_plan_with_scratch_and_memset_runs_in_one_call(two_step_run):
    for _ in range(2):  # the second run reuses the scratch buffer
        result, y = two_step_run(two_steps())
        assert (result.outcome, result.findings) == ("ok", ())
        assert y == -2 * np.arange(32).sum()


def test_scratch_without_its_memset_is_an_uninitialised_read(two_step_run):
    result, y = two_step_run(two_steps(memset=False))
    assert [f.kind for f in result.findings] == ["uninitialised-read"]
    assert "buffer partial byte 0" in result.findings[0].detail
    pattern = np.uint32(0x3F003F00).view(np.float32)
    assert y == pytest.approx(-2 * (np.arange(32).sum() + 2 * pattern))


def test_scratch_that_is_too_small_is_out_of_bounds(two_step_run):
    result, _ = two_step_run(two_steps(memset=False, nbytes=4))
    assert {"oob-global-read", "oob-global-write"} <= {f.kind for f in result.findings}
    result, _ = two_step_run(two_steps(nbytes=4))
    assert result.outcome == "launch-failure"
    assert "cudaMemset" in result.detail


def test_scratch_no_device_has_is_a_launch_failure(two_step_run):
    for nbytes in (-4, 1 << 50):
        result, _ = two_step_run(two_steps(nbytes=nbytes))
        assert (result.outcome, result.detail) == (
            "launch-failure",
            f"cudaMalloc of {nbytes} bytes",
        )


def test_arguments_convert_as_a_call_in_cpp_does(device, image_of):
    source = r"""
    extern "C" __global__ void convert(double* y, char a, float b, long long c, unsigned d, bool e,
                                       size_t f) {
        y[0] = a; y[1] = b; y[2] = c; y[3] = d; y[4] = e; y[5] = f;
    }
    """
    y = device.buffer("y", 48, role="output")
    arguments = (PointerArgument("y"), 300, 1, 2.9, -1, 7, 1 << 40)
    plan = LaunchPlan((), (Launch("convert", (1, 1, 1), (1, 1, 1), 0, arguments),))
    assert device.run(image_of(source), plan, {"y": y}, fuel=10).outcome == "ok"
    assert y.array.view(np.float64).tolist() == [44, 1, 2, 2**32 - 1, 1, 2**40]
    y.release()


def test_a_launch_of_an_unknown_kernel_or_with_missing_arguments_fails(device, image_of):
    image = image_of(VADD)
    for launch, why in (
        (Launch("other", (1, 1, 1), (1, 1, 1), 0, ()), "no kernel 'other'"),
        (Launch("vadd", (1, 1, 1), (1, 1, 1), 0, (1,)), "1 arguments for 4 parameters"),
    ):
        result = device.run(image, LaunchPlan((), (launch,)), {}, fuel=10)
        assert (result.outcome, why in result.detail) == ("launch-failure", True)


def test_empty_buffers_are_buffers_and_missing_ones_are_named(device, image_of):
    empty = device.buffer("c", 0, role="output")
    assert empty.array.shape == (0,)
    pointers = tuple(PointerArgument(name) for name in ("c", "c", "c"))
    plan = LaunchPlan((), (Launch("vadd", (1, 1, 1), (32, 1, 1), 0, (*pointers, 0)),))
    assert device.run(image_of(VADD), plan, {"c": empty}, fuel=99).findings == ()
    with pytest.raises(UsageError, match="buffer 'c', which was not handed over"):
        device.run(image_of(VADD), plan, {}, fuel=99)
    empty.release()


def test_an_unknown_thread_order_is_refused(device, image_of):
    with pytest.raises(UsageError, match="unknown thread order 'sideways'"):
        device.run(image_of(VADD), LaunchPlan((), ()), {}, fuel=1, order="sideways")


def test_signal_handlers_are_the_callers_again_after_a_run(device, image_of):
    import signal

    before = [signal.getsignal(s) for s in (signal.SIGSEGV, signal.SIGFPE, signal.SIGALRM)]
    hits = []
    previous = signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
    device.run(image_of(VADD), LaunchPlan((), ()), {}, fuel=1)
    signal.raise_signal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, previous)
    assert hits == [1]
    assert [signal.getsignal(s) for s in (signal.SIGSEGV, signal.SIGFPE, signal.SIGALRM)] == before


def test_buffers_can_be_right_aligned_and_many(device):
    buffers = [device.buffer(f"b{i}", 100, role="operand", right_aligned=True) for i in range(50)]
    assert {(b.address + 112) % 4096 for b in buffers} == {0}
    for i, buffer in enumerate(buffers):
        buffer.array[:] = i
    assert all((buffer.array == i).all() for i, buffer in enumerate(buffers))
    for buffer in buffers:
        buffer.release()


def test_a_runtime_that_does_not_load_is_a_toolchain_error(tmp_path, monkeypatch):
    monkeypatch.setattr("kernelassay.execute.cpu.device._RUNTIME", {})
    (tmp_path / "x.so").write_text("no library")
    with pytest.raises(ToolchainError, match="does not load"):
        CpuDevice(tmp_path / "x.so")


def test_a_process_has_one_runtime(compiler, device, image_of, tmp_path):
    """Images find its functions by name: with two, one would set up memory and the other check."""
    with pytest.raises(ToolchainError, match="this process has loaded another runtime"):
        CpuDevice(tmp_path / "runtime-0123.so")
    same = build_runtime(compiler, tmp_path)  # the same contents in another cache
    again = CpuDevice(same)
    image = image_of(SOFTMAX + HOST)
    x = again.buffer("x", 600, role="operand")
    y = again.buffer("y", 600, role="output")
    pointers = (PointerArgument("x"), PointerArgument("y"))
    plan = LaunchPlan((), (Launch("softmax", (1, 1, 1), (128, 1, 1), 512, (*pointers, 150)),))
    for each in (device, again):
        assert each.run(image, plan, {"x": x, "y": y}, fuel=10**6).outcome == "ok"
    x.release(), y.release()
