"""Kernels as real projects write them stand in for a forward; what cannot is refused by name."""

import pytest

from kernelassay.illusion.corpus.cuda_twins import twin
from kernelassay.inputs import InputSpec
from kernelassay.plan import skipped
from tests.user.problems import problem_text

SOFTMAX = problem_text("return torch.softmax(x, dim=1)")
ROWS = "x = arg0\ny = out\nrows = arg0.shape[0]\ncols = arg0.shape[1]\n"
FLAT = "x = arg0\ny = out\nn = arg0.numel\n"


def headed(header, body):
    return "".join(f"// kernelassay: {line}\n" for line in header.strip().split("\n")) + body


TEMPLATE = headed(
    ROWS + "row_softmax<float, 64><<<rows, 64, 2 * sizeof(float)>>>(x, y, cols)",
    """\
#include <torch/extension.h>
#include "missing_helpers.h"
namespace project {
constexpr unsigned FULL = 0xffffffffu;
template <typename T>
__device__ __forceinline__ T fold(T v, bool largest) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        const T other = __shfl_xor_sync(FULL, v, o);
        v = largest ? max(v, other) : v + other;
    }
    return v;
}
template <typename T, int THREADS>
__global__ void __launch_bounds__(THREADS)
row_softmax(const T* __restrict__ x, T* __restrict__ y, const int cols) {
    static_assert(THREADS == 64, "two warps");
    extern __shared__ unsigned char raw[];
    T* both = reinterpret_cast<T*>(raw);
    const T* row = x + static_cast<size_t>(blockIdx.x) * cols;
    T top = -INFINITY;
    for (int i = threadIdx.x; i < cols; i += THREADS) top = max(top, row[i]);
    top = project::fold(top, true);
    if (threadIdx.x % 32 == 0) both[threadIdx.x / 32] = top;
    __syncthreads();
    top = max(both[0], both[1]);
    __syncthreads();
    T total = 0;
    for (int i = threadIdx.x; i < cols; i += THREADS) total += __expf(row[i] - top);
    total = project::fold(total, false);
    if (threadIdx.x % 32 == 0) both[threadIdx.x / 32] = total;
    __syncthreads();
    total = both[0] + both[1];
    for (int i = threadIdx.x; i < cols; i += THREADS)
        y[static_cast<size_t>(blockIdx.x) * cols + i] = __expf(row[i] - top) / total;
}
}  // namespace project
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    project::row_softmax<float, 64><<<x.size(0), 64, 8>>>(x.data_ptr<float>(), nullptr, 1);
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
""",
)

GROUPS = headed(
    ROWS + "softmax<<<rows, 32>>>(x, y, cols)",
    """\
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
struct MaxSum { float top, sum; };
__device__ __forceinline__ MaxSum joined(MaxSum a, MaxSum b) {
    const float top = fmaxf(a.top, b.top);
    return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}
__global__ void softmax(const float* x, float* y, int cols) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    MaxSum mine{-1e30f, 0.0f};
    for (int i = warp.thread_rank(); i < cols; i += warp.size())
        mine = joined(mine, {x[blockIdx.x * cols + i], 1.0f});
    const MaxSum all = cg::reduce(warp, mine, joined);
    const float largest = cg::reduce(warp, mine.top, cg::greater<float>{});
    cg::sync(block);
    for (int i = warp.thread_rank(); i < cols; i += warp.size())
        y[blockIdx.x * cols + i] = expf(x[blockIdx.x * cols + i] - largest) / all.sum;
}
""",
)

MARKED_LAMBDAS = headed(
    "x = arg0\nout = out\nrows = arg0.shape[0]\ncols = out.shape[1]\n"
    "softmax<<<rows, 32>>>(x, out, cols)",
    """\
#include <cuda.h>
#include <cuda_runtime.h>
template <typename T, typename Op>
__device__ T folded(T value, Op op) {
    for (uint o = 16; o > 0; o >>= 1) value = op(value, __shfl_xor_sync(0xffffffffu, value, o));
    return value;
}
__global__ void softmax(const float* x, float* out, const uint cols) {
    const float floor = -1e30f;
    const auto at = [=] __host__ __device__ (uint i) { return x[blockIdx.x * cols + i]; };
    float top = floor, sum = 0.0f;
    for (uint i = threadIdx.x; i < cols; i += 32) top = max(top, at(i));
    top = folded(top, []__device__(float a, float b) { return a > b ? a : b; });
    for (uint i = threadIdx.x; i < cols; i += 32) sum += expf(at(i) - top);
    sum = folded(sum, [] __device__ (float a, float b) { return a + b; });
    for (uint i = threadIdx.x; i < cols; i += 32)
        out[blockIdx.x * cols + i] = expf(at(i) - top) / sum;
}
""",
)

VECTORS = headed(
    FLAT + "require arg0.numel % 4 == 0\ntwice4<<<(n / 4 + 63) / 64, 64>>>(x, y, n)",
    """\
#define FLOAT4(value) (reinterpret_cast<float4*>(&(value))[0])
__global__ void twice4(float* x, float* y, int n) {
    const int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    float4 v = FLOAT4(x[i]);
    v.x *= 2; v.y *= 2; v.z *= 2; v.w *= 2;
    FLOAT4(y[i]) = v;
}
""",
)

PACKED = headed(
    FLAT + "require arg0.numel % 4 == 0\ntwice<<<(n / 4 + 63) / 64, 64>>>(x, y, n)",
    """\
#if defined(NARROW)
typedef half real;
#else
typedef float real;
#endif
template <class T>
struct alignas(16) Pack {
    static constexpr int size = 16 / sizeof(T);
    T values[size];
    Pack() = default;
    __device__ explicit Pack(int4 bits) { memcpy(values, &bits, sizeof(bits)); }
    __device__ T& operator[](int i) { return values[i]; }
    __device__ int4 bits() const {
        int4 all;
        memcpy(&all, values, sizeof(all));
        return all;
    }
};
template <class T>
__device__ Pack<T> load(const T* at) { return Pack<T>{__ldg(reinterpret_cast<const int4*>(at))}; }
using Wide = Pack<real>;
__global__ void twice(const real* x, real* y, int n) {
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) * Wide::size;
    if (i >= n) return;
    Wide pack = load(x + i);
    for (int k = 0; k < Wide::size; ++k) pack[k] = pack[k] * (real)2.0f;
    *reinterpret_cast<int4*>(y + i) = pack.bits();
}
""",
)

HALVES = headed(
    FLAT + "require arg0.numel % 2 == 0\ntwice<<<(n / 2 + 63) / 64, 64>>>(x, y, n)",
    """\
#include <cuda_fp16.h>
#define HALF2(value) (reinterpret_cast<half2*>(&(value))[0])
__global__ void twice(half* x, half* y, int n) {
    const int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) HALF2(y[i]) = __hmul2(HALF2(x[i]), __float2half2_rn(2.0f));
}
""",
)

STEPS = headed(
    """\
x = arg0
w = param:scale
y = out
rows = arg0.shape[0]
cols = arg0.shape[1]
sums = scratch float[rows]
zero sums
row_sum<<<dim3((cols + 31) / 32, rows), 32>>>(x, sums, cols)
divide<float><<<rows, 64>>>(x, sums, w, y, cols)""",
    """\
typedef float scalar_t;
__global__ void row_sum(const scalar_t* x, scalar_t* sums, int cols) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    if (i < cols) atomicAdd(&sums[blockIdx.y], x[blockIdx.y * cols + i]);
}
template <class T>
__global__ void divide(const T* x, const T* sums, const T* w, T* y, int cols) {
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        y[blockIdx.x * cols + i] = x[blockIdx.x * cols + i] / sums[blockIdx.x] * w[i];
}
""",
)

IN_PLACE = headed(
    "y = out from arg0\nfactor = arg1\nn = out.numel\nscale<<<(n + 63) / 64, 64>>>(y, factor, n)",
    """\
__global__ void scale(float* y, float factor, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] *= factor;
}
""",
)

OPTIONAL = headed(
    FLAT + "w = scratch float[n]\nscale<<<(n + 63) / 64, 64>>>(x, nullptr, y, NULL, w, n)",
    """\
__global__ void scale(const float* x, const float* bias, float* y, int* mask, float* w, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float b = bias ? bias[i] : 0.0f;
    if (w != nullptr) w[i] = 2.0f;
    y[i] = x[i] * w[i] + b;
    if (mask != NULL) mask[i] = 1;
}
""",
)

FUNCTION_ARGUMENTS = headed(
    FLAT + "project::mapped<float, project::doubled<float>, &project::plus, project::ops::Halved>"
    "<<<(n + 63) / 64, 64>>>(x, y, n)",
    """\
namespace project {
__device__ float plus(const float& a, const float& b) { return a + b; }
template <typename T, T (*FIRST)(const T&), T (*SECOND)(const T&, const T&), class Third>
__global__ void mapped(const T* x, T* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = Third()(SECOND(FIRST(x[i]), FIRST(x[i])));
}
template <typename T>
__device__ T doubled(const T& x) { return x * 2; }
namespace ops {
struct Halved { __device__ float operator()(float x) const { return x * 0.5f; } };
}
}  // namespace project
""",
)

UNSIGNED_VECTORS = headed(
    "x = arg0\ny = out\nn = arg0.numel\nrequire n % 4 == 0\n"
    "twice<<<(n / 4 + 63) / 64, 64>>>(x, y, n / 4)",
    """\
__global__ void twice(const uint4* x, uint4* y, unsigned n) {
    const uint i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const uint4 v = x[i];
    y[i] = make_uint4(v.x + v.x, 2 * v.y, 2 * v.z, 2 * v.w);
}
""",
)

TWO_OUTPUTS = headed(
    "x = arg0\ntop = out0\nat = out1\nrows = arg0.shape[0]\ncols = arg0.shape[1]\n"
    "best<<<rows, 1>>>(x, top, at, cols)",
    """\
__global__ void best(const float* x, float* top, int64_t* at, int cols) {
    int found = 0;
    const float* row = x + blockIdx.x * cols;
    for (int i = 1; i < cols; i++) if (row[i] > row[found]) found = i;
    top[blockIdx.x] = row[found];
    at[blockIdx.x] = found;
}
""",
)

OWN_LAUNCH = headed(
    "x = arg0\ny = out\nn = arg0.shape[0] * arg0.shape[1]",
    """\
template <int BLOCK>
__global__ void negate(const float* x, float* y, long n) {
    const long i = (long)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = -x[i];
}
void launch(const float* x, float* y, long n) {
    const int blocks = (n + 63) / 64;
    negate<64><<<blocks, 64>>>(x, y, n);
}
""",
)

SAME_VALUE = headed(
    ROWS + "row_total<<<rows, 32, sizeof(float)>>>(x, y, cols)",
    """\
__global__ void row_total(const float* x, float* y, int cols) {
    __shared__ float total;
    float mine = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 32) mine += x[blockIdx.x * cols + i];
    for (int o = 16; o > 0; o >>= 1) mine += __shfl_xor_sync(0xffffffffu, mine, o);
    total = mine;  // every lane stores the same value
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = total;
}
""",
)

DOUBLE = problem_text("return x * 2")
HALF = problem_text("return x * 2", inputs="torch.randn(rows, cols).half()")
DIVIDED = problem_text(
    "return x / x.sum(dim=1, keepdim=True) * self.scale",
    inputs="torch.rand(rows, cols) + 0.5",
    init="self.scale = nn.Parameter(torch.rand(cols))",
)
SCALED = problem_text("return x * s", inputs="torch.randn(rows, cols), 2.5", parameters="x, s")
BEST = problem_text("return x.max(dim=1).values, x.max(dim=1).indices")

KINDS = {
    "template, namespace, extern shared, shuffles, host code": (TEMPLATE, SOFTMAX),
    "cooperative groups, a struct, a function as operator": (GROUPS, SOFTMAX),
    "lambdas with an execution space, uint, the driver's header": (MARKED_LAMBDAS, SOFTMAX),
    "float4 through a macro": (VECTORS, DOUBLE),
    "half and half2": (HALVES, HALF),
    "a class with methods, memcpy, an alias under a condition": (PACKED, DOUBLE),
    "two launches, scratch, zero, a parameter, a typedef": (STEPS, DIVIDED),
    "an output that starts as an input, a plain number": (IN_PLACE, SCALED),
    "functions and a later type as template arguments": (FUNCTION_ARGUMENTS, DOUBLE),
    "optional pointers that are null": (OPTIONAL, DOUBLE),
    "vectors of unsigned integers": (
        UNSIGNED_VECTORS,
        problem_text(
            "return x * 2", inputs="torch.randint(-9, 9, (rows, cols), dtype=torch.int32)"
        ),
    ),
    "two outputs, one of them integer": (TWO_OUTPUTS, BEST),
    "a launch function of the file's own, with a template": (OWN_LAUNCH, problem_text("return -x")),
    "an output that states its shape, a type under a condition": (
        twin("matmul_cuda").text,
        problem_text(
            "return a @ b",
            sizes="rows = 5\ninner = 37\ncols = 20",
            inputs="torch.randn(rows, inner), torch.randn(inner, cols)",
            parameters="a, b",
        ),
    ),
    "a same-value store race": (SAME_VALUE, problem_text("return x.sum(dim=1)")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_as_projects_write_it_is_admitted(kind, desk, tmp_path):
    kernel, problem = KINDS[kind]
    plan = desk.plan(tmp_path, problem, kernel, rules=["guard-delete", "barrier-delete"])
    assert plan["refused"] == ""
    assert all(record["valid"] for record in plan["inputs"])
    assert not [m["unsupported"] for m in plan["mutants"] if m["unsupported"]]
    assert {m["status"] for m in plan["mutants"]} <= {"distinct", "equivalent", "duplicate"}


def test_skip_means_an_input_by_its_id_and_values_at_all_sizes():
    huge = InputSpec("batch=33/huge-3e5/redrawn", "shape", 1, "huge-3e5", (("batch", 33),))
    assert skipped(huge, ["huge-*"]) and skipped(huge, ["batch=33/*"])
    assert not skipped(huge, ["large-*", "batch=3/*", "official"])


def refused(desk, folder, kernel, problem=DOUBLE, **options):
    plan = desk.plan(folder, problem, kernel, **options)
    assert plan["mutants"] == []
    return plan["refused"]


SCALE = """\
__global__ void scale(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * %s;
}
"""
CALL = "scale<<<(n + 63) / 64, 64>>>(x, y, n)"


def test_a_wrong_kernel_is_told_its_first_wrong_and_its_worst_element(desk, tmp_path):
    factor = "(i == 100 ? 3.0f : i == 200 ? -5.0f : 2.0f)"
    text = refused(desk, tmp_path, headed(FLAT + CALL, SCALE % factor))
    assert "not admitted on input official-0" in text
    assert "output 0 [1, 4] is" in text
    assert "(the first of 2 wrong of 480; the worst [2, 8] is" in text


def test_elements_that_are_never_written_are_counted(desk, tmp_path):
    text = refused(desk, tmp_path, headed(FLAT + CALL.replace("n + 63", "n - 63"), SCALE % "2.0f"))
    assert "elements are never written" in text


def test_an_access_out_of_bounds_is_refused_with_its_place(desk, tmp_path):
    body = (SCALE % "2.0f").replace("if (i < n) ", "")
    text = refused(desk, tmp_path, headed(FLAT + CALL.replace("63", "100"), body))
    assert "has a finding: oob-global" in text


def test_a_race_that_decides_the_output_is_refused(desk, tmp_path):
    body = SAME_VALUE.replace("total = mine;", "total = mine + 1e-3f * threadIdx.x;")
    problem = problem_text("return x.sum(dim=1)")
    assert "has a finding: race-shared" in refused(desk, tmp_path, body, problem)


def test_shapes_the_kernel_is_not_made_for_are_left_out_by_require(desk, tmp_path):
    body = SCALE.replace("if (i < n) ", "") % "2.0f"
    header = FLAT + "scale<<<n / 32, 32>>>(x, y, n)"
    text = refused(desk, tmp_path, headed(header, body), inputs=22)
    assert "// kernelassay: require" in text
    header = "require arg0.numel % 32 == 0\n" + header
    plan = desk.plan(tmp_path, DOUBLE, headed(header, body), inputs=22)
    assert plan["refused"] == ""
    assert [r["reason"] for r in plan["inputs"] if not r["valid"]] == []


def test_values_the_kernel_is_not_made_for_are_left_out_by_skip(desk, tmp_path):
    body = """\
__global__ void naive(const float* x, float* y, int cols) {
    float total = 0.0f;
    for (int i = 0; i < cols; i++) total += expf(x[blockIdx.x * cols + i]);
    for (int i = 0; i < cols; i++)
        y[blockIdx.x * cols + i] = expf(x[blockIdx.x * cols + i]) / total;
}
"""
    header = ROWS + "naive<<<rows, 1>>>(x, y, cols)"
    text = refused(desk, tmp_path, headed(header, body), SOFTMAX, inputs=22)
    assert "// kernelassay: skip" in text
    assert " is nan, not " in text
    skip = (
        "\nskip *huge-*, *large-*, *offset-*, *spikes-*, *saturating*, *thresholds*, *sign-mixed*"
    )
    plan = desk.plan(tmp_path, SOFTMAX, headed(header + skip, body), inputs=22)
    assert plan["refused"] == ""


@pytest.mark.parametrize(
    ("header", "problem", "told"),
    [
        (FLAT + CALL, HALF, "parameter 1 'x' (const float*) of scale at"),
        (FLAT.replace("arg0\n", "arg1\n", 1) + CALL, DOUBLE, "has no arg1; it has arg0, out0"),
        (FLAT.replace("numel", "shape[2]") + CALL, DOUBLE, "2 dimensions, so no shape[2]"),
        (FLAT.replace("= out", "= out1") + CALL, DOUBLE, "has the outputs out0, the header binds"),
        (
            FLAT.replace("= out", "= out[x.shape, 1]") + CALL,
            DOUBLE,
            "states the shape [5, 96, 1] of out0, the problem has [5, 96]",
        ),
        (FLAT + CALL + "\nrequire rows(3)", DOUBLE, "cannot be evaluated"),
    ],
)
def test_a_binding_that_does_not_fit_the_problem_is_told(desk, tmp_path, header, problem, told):
    from kernelassay.errors import KernelassayError

    try:
        text = refused(desk, tmp_path, headed(header, SCALE % "2.0f"), problem)
    except KernelassayError as error:
        text = str(error)
    assert told in text
    assert "kernel.cu" in text


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('asm("");', "inline PTX"),
        ("float v = std::max(1.0f, 2.0f);", "std::"),
        ("auto g = cooperative_groups::this_grid();", "cooperative groups beyond block and tile"),
    ],
)
def test_a_construct_without_counterpart_is_refused_by_name(desk, tmp_path, line, name):
    body = (SCALE % "2.0f").replace("    if (i", f"    {line}\n    if (i")
    assert name in refused(desk, tmp_path, headed(FLAT + CALL, body))


def test_a_name_from_a_header_that_was_left_out_is_explained(desk, tmp_path):
    body = '#include "vendor/reduce.cuh"\n' + SCALE % "vendor_scale(2.0f)"
    text = refused(desk, tmp_path, headed(FLAT + CALL, body))
    assert "vendor_scale" in text
    assert "vendor/reduce.cuh" in text
