"""The device part of a user's file keeps what the kernels use, in its place, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.errors import UnsupportedError, UsageError
from kernelassay.user.extract import DeviceFile, extract
from kernelassay.user.templates import Instance


def device(text, *instances, uses=()):
    file = DeviceFile.read(text, "f.cu")
    return extract(file, [Instance(*i) for i in instances or [("k", None, "k")]], uses)


def squeezed(text):
    return " ".join(text.split())


HOST = """\
#include <torch/extension.h>
#include <vector>
#define CHECK(x) TORCH_CHECK(x.is_cuda(), "no")
static std::vector<int> cache;
at::Tensor forward(at::Tensor x) { CHECK(x); auto y = at::empty_like(x); return y; }
template <typename T> T host_max(T a, T b) { return a > b ? a : b; }
int main(int argc, char** argv) { printf("}"); return 0; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


def test_host_code_is_left_out_and_named():
    found = device(HOST + "__global__ void k(float* y) { y[0] = 1.0f; }\n")
    assert squeezed(found.text) == 'extern "C" __global__ void k(float* y) { y[0] = 1.0f; }'
    assert found.left_out_functions == ("forward", "host_max", "main", "PYBIND11_MODULE")
    assert found.left_out_includes == ("torch/extension.h", "vector")


def test_what_a_kernel_uses_is_kept_through_every_step():
    found = device(
        "#define LANES 32\n#define HALF (LANES / 2)\n#define UNUSED asm\n"
        "using real = float;\nstruct Pair { real a, b; };\n"
        "__device__ Pair operator+(Pair p, Pair q) { return {p.a + q.a, p.b + q.b}; }\n"
        "template <typename T> __device__ __forceinline__ T twice(T v) { return v + v; }\n"
        "__device__ float other(float v) { return v; }\n"
        "__constant__ float table[2] = {1, 2};\n"
        "__global__ void k(real* y) { Pair p{HALF, 2}; p = p + p; y[0] = twice(p.a) * table[1]; }\n"
        '__global__ void neighbour(float* y) { UNUSED(""); }\n'
    )
    for kept in ("LANES 32", "HALF (", "struct Pair", "operator+", "T twice", "table[2]"):
        assert kept in found.text
    for gone in ("UNUSED", "other", "neighbour"):
        assert gone not in found.text
    assert "void k(float* y)" in found.text  # the host side must know a parameter's type


def test_namespaces_are_flattened_and_qualifiers_go():
    found = device(
        "namespace outer { namespace {\n__device__ float f(float v) { return v; }\n}\n"
        "namespace inner {\n__global__ void k(float* y) { y[0] = outer::f(1.0f); }\n} }\n"
    )
    assert "namespace" not in found.text
    assert "y[0] = f(1.0f)" in found.text


def test_a_template_becomes_its_instances():
    text = (
        "template <typename T, int N = 4, bool LAST = false>\n"
        "__global__ void __launch_bounds__(N * 32) k(const T* x, T* y) { y[N] = T(LAST); }\n"
    )
    two = device(text, ("k", ("float",), "k"), ("k", ("half", "8"), "k_half_8"))
    flat = squeezed(two.text)
    assert "__launch_bounds__(4 * 32) k(const float* x, float* y) { using T = float;" in flat
    assert "constexpr int N = 4; constexpr bool LAST = false; y[N] = T(LAST); }" in flat
    assert "k_half_8(const half* x, half* y) { using T = half; constexpr int N = 8;" in flat
    assert "template" not in flat


@pytest.mark.parametrize(
    ("text", "arguments", "error", "told"),
    [
        ("template <typename T, int N> __global__ void k(T* y) {}", ("float",), UsageError, "'N'"),
        ("template <int N> __global__ void k(float* y) {}", ("1", "2"), UsageError, "gives 2"),
        (
            "template <typename... T> __global__ void k(T... y) {}",
            ("float",),
            UnsupportedError,
            "a pack",
        ),
        ("__global__ void k(float* y) {}", ("1",), UsageError, "no template"),
    ],
)
def test_template_arguments_that_do_not_fit_are_named(text, arguments, error, told):
    with pytest.raises(error, match=told):
        device(text, ("k", arguments, "k"))


GENERAL = "template <typename T, int N>\n__global__ void k(T* y) { y[N] = one<T>(); }\n"
HELPERS = (
    "template <typename T> __device__ T one() { return 1; }\n"
    "template <> __device__ __forceinline__ float one<float>() { return 2; }\n"
)
SPECIAL = "template <>\n__global__ void k<__half, 4>(__half* y) { y[0] = 3; }\n"


def test_a_specialised_helper_stays_with_its_template():
    assert HELPERS in device(HELPERS + GENERAL, ("k", ("float", "4"), "k")).text


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (("half", "4"), "k(__half* y) { y[0] = 3; }"),
        (("real", "4"), "k(__half* y) { y[0] = 3; }"),
        (("float", "4"), "k(float* y) { using T = float; constexpr int N = 4; y[N] = one<T>(); }"),
        (("half", "8"), "k(half* y) { using T = half; constexpr int N = 8; y[N] = one<T>(); }"),
    ],
)
def test_an_instance_is_the_definition_that_the_compiler_takes(arguments, body):
    text = "typedef half real;\n" + HELPERS + GENERAL + SPECIAL
    flat = squeezed(device(text, ("k", arguments, "k")).text)
    assert flat.endswith('extern "C" __global__ void ' + body)


def test_a_kernel_may_have_specialisations_alone():
    text = "template <typename T, int N> __global__ void k(T* y);\n" + SPECIAL
    assert "k(__half* y) { y[0] = 3; }" in device(text, ("k", ("half", "4"), "k")).text
    with pytest.raises(UsageError, match="for some template arguments only, not for <float, 4>"):
        device(text, ("k", ("float", "4"), "k"))


def test_an_instance_that_may_or_may_not_be_specialised_is_refused():
    for arguments in (("half",), ("half", "WIDTH"), None):
        with pytest.raises(UsageError, match="cannot be told"):
            device(HELPERS + GENERAL + SPECIAL, ("k", arguments, "k"))


@pytest.mark.parametrize("arguments", [("float", "4"), ("half", "4")])
def test_macros_for_specifiers_and_marks_of_lambdas_are_spelled_out_everywhere(arguments):
    text = (
        "#define DEVICE_INLINE __device__   __forceinline__\n#define KERNEL static __global__\n"
        "#define WIDTH 4\n#define CALL() f\n"
        "template <typename T>\nDEVICE_INLINE T f(T x) { return x; }\n"
        "template <typename T, int N>\nKERNEL void k(T* y)"
        " { auto g = [=] __device__ (T v) { return CALL()(v); }; y[WIDTH] = g(N); }\n"
    )
    both = device(text, ("k", ("double", "4"), "k"), ("k", arguments, "k2")).text
    assert squeezed(both).count("__device__ __forceinline__ T f(T x)") == 1
    assert squeezed(both).count('extern "C" __global__ void k') == 2
    assert squeezed(both).count("[=] (T v)") == 2
    assert both.count("y[WIDTH] = g(N)") == 2
    assert "DEVICE_INLINE T" not in both


@pytest.mark.parametrize("stated", ["template <typename T, int N> __global__ void k(T* y);\n", ""])
def test_prototypes_and_explicit_instantiations_of_kernels_go(stated):
    text = stated + HELPERS + GENERAL + "template __global__ void k<float, 4>(float* y);\n"
    found = device(text, ("k", ("float", "4"), "k"))
    assert found.text.count("k(") == 1
    assert found.left_out_functions == ()
    plain = "__global__ void k(float* y);\n__global__ void k(float* y) { y[0] = 1; }\n"
    assert squeezed(device(plain).text) == 'extern "C" __global__ void k(float* y) { y[0] = 1; }'


def test_a_constant_is_kept_for_its_own_name_alone_and_without_its_declarations():
    constants = 'extern "C" const int USED;\nextern "C" const int OTHER;\n#define SIZE 4\n'
    defined = "const int USED = 2 * SIZE, MORE = USED;\nconst int OTHER = 4 * SIZE;\n"
    kernel = "__global__ void k(float* y) { y[MORE] = SIZE; }\n"
    found = squeezed(device(constants + defined + kernel).text)
    assert found.startswith("#define SIZE 4 const int USED = 2 * SIZE, MORE = USED; extern")
    assert "OTHER" not in found


def test_an_overloaded_kernel_is_refused():
    file = DeviceFile.read("__global__ void k(int* y) {}\n__global__ void k(float* y) {}", "f.cu")
    with pytest.raises(UnsupportedError, match="defined twice"):
        file.kernels()


def test_static_kernels_get_c_linkage():
    assert 'extern "C" __global__ void k()' in squeezed(
        device("static __global__ void k() {}").text
    )
    assert device('extern "C" { __global__ void k() {} }').text.count('extern "C"') == 1


def test_assertions_on_what_is_kept_stay():
    found = device(
        "constexpr int A = 4;\nconstexpr int B = 5;\nstatic_assert(A == 4);\n"
        "static_assert(B == 5);\n"
        "__global__ void k(int* y) { y[0] = A; }\n"
    )
    assert "A == 4" in found.text
    assert "B == 5" not in found.text


def test_a_header_beside_the_file_is_put_in_once(tmp_path):
    (tmp_path / "sum.cuh").write_text("#pragma once\n__device__ int one() { return 1; }\n")
    path = tmp_path / "k.cu"
    text = '#include "sum.cuh"\n#include "sum.cuh"\n__global__ void k(int* y) { y[0] = one(); }\n'
    file = DeviceFile.read(text, str(path))
    found = extract(file, [Instance("k", None, "k")], ())
    assert found.text.count("int one()") == 1
    assert file.where(file.tokens[-1]) == f"{path}:3"


ITEMS = {
    "#define USED 3": True,
    "#define LOST 4": False,
    "__device__ int used(int v) {\n  return v;\n}": True,
    "void host() {\n  int used = 1;\n}": False,
    "constexpr int kept = 2;": True,
    "std::vector<int>\n  lost;": False,
    "template <typename T>\n__device__ T both(T v) { return v; }": True,
    "__global__ void idle(float* y) {\n}": False,
}
KERNEL = "__global__ void k(int* y) {\n  y[0] = both(used(USED) + kept);\n}"


@given(st.permutations(list(ITEMS)), st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_every_line_that_is_kept_stays_where_it_was(order, gaps):
    text = "".join(item + "\n" * (1 + gap) for item, gap in zip(order, gaps, strict=True)) + KERNEL
    before, after = text.split("\n"), device(text).text.split("\n")
    for number, line in enumerate(before):
        now = after[number].removeprefix('extern "C" ')
        assert now.strip() in (line.strip(), "")
    for item, kept in ITEMS.items():
        assert (item in device(text).text) == kept
