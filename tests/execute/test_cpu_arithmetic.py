"""The shim's arithmetic against exact or double-precision results."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay.kernel import Launch, LaunchPlan, PointerArgument
from tests.execute.runs import Out

N = 4096
rng = np.random.default_rng(11)


@pytest.fixture(scope="session")
def elementwise(execute):
    """Evaluates an expression in ``x`` and ``z`` (float) over arrays, as type ``kind``."""

    def run(expression, x, z=None, *, dtype="float32", kind="float", load="float"):
        source = f"""
        #include <cuda_fp16.h>
        extern "C" __global__ void f(const {load}* xs, const {load}* zs, {kind}* y, int n) {{
            for (int i = threadIdx.x; i < n; i += 128) {{
                {load} x = xs[i], z = zs[i];
                y[i] = {expression};
            }}
        }}"""
        z = x if z is None else z
        ran = execute(source, 1, 128, x, z, Out(x.shape, dtype), len(x))
        assert (ran.result.outcome, ran.result.findings) == ("ok", ())
        return ran.out

    return run


def spread(low, high):
    return rng.uniform(low, high, N).astype(np.float32)


ACCURATE = {
    "expf(x)": (np.exp, (-80, 80)),
    "exp2f(x)": (np.exp2, (-120, 120)),
    "expm1f(x)": (np.expm1, (-5, 5)),
    "logf(x)": (np.log, (1e-30, 1e6)),
    "log2f(x)": (np.log2, (1e-30, 1e6)),
    "log1pf(x)": (np.log1p, (-0.99, 10)),
    "tanhf(x)": (np.tanh, (-10, 10)),
    "sinf(x)": (np.sin, (-100, 100)),
    "cos(x)": (np.cos, (-100, 100)),
    "sqrtf(x)": (np.sqrt, (0, 1e9)),
    "rsqrtf(x)": (lambda x: 1 / np.sqrt(x), (1e-9, 1e9)),
    "powf(x, 2.5f)": (lambda x: x**2.5, (0, 1e6)),
    "1.0f / x": (lambda x: 1 / x, (1e-5, 1e5)),
}


@pytest.mark.parametrize("expression", ACCURATE)
def test_accurate_functions_are_rounded_once(elementwise, expression):
    exact, (low, high) = ACCURATE[expression]
    x = spread(low, high)
    expected = exact(x.astype(np.float64)).astype(np.float32)
    actual = elementwise(expression, x)
    ulp = np.spacing(np.abs(expected))
    assert (np.abs(actual - expected) <= ulp).all()
    assert (actual == expected).mean() > 0.999


FAST = {
    "__expf(x)": ("expf(x)", (-20, 20), 1e-7, 1e-5),
    "__logf(x)": ("logf(x)", (2, 1e5), 0, 1e-6),
    "__fdividef(x, 3.7f)": ("x / 3.7f", (-50, 50), 0, 3e-7),
    "__sinf(x)": ("sinf(x)", (0.5, 2.5), 1e-9, 1e-5),
    "__powf(x, 1.7f)": ("powf(x, 1.7f)", (0.1, 100), 0, 1e-5),
    "__tanhf(x)": ("tanhf(x)", (0.1, 4), 1e-6, 1e-3),
}


@pytest.mark.parametrize("fast", FAST)
def test_fast_functions_are_near_but_not_equal(elementwise, fast):
    accurate, (low, high), least, most = FAST[fast]
    x = spread(low, high)
    a, b = elementwise(fast, x), elementwise(accurate, x)
    error = np.abs(a - b) / np.abs(b)
    assert least < error.max() < most
    assert (a != b).any()


def test_fast_division_flushes_huge_divisors(elementwise):
    x = np.array([1.0, 1.0, np.inf, 1.0], np.float32)
    z = np.array([2.0**126, 1.5 * 2.0**126, 1.5 * 2.0**126, 2.0], np.float32)
    result = elementwise("__fdividef(x, z)", x, z)
    np.testing.assert_array_equal(result, [np.float32(2.0**-126), 0.0, np.nan, 0.5])


def test_minimum_and_maximum_ignore_a_nan_and_order_zeros(elementwise):
    x = np.array([np.nan, 1.0, np.nan, -0.0, 2.0], np.float32)
    z = np.array([1.0, np.nan, np.nan, 0.0, 3.0], np.float32)
    np.testing.assert_array_equal(elementwise("fmaxf(x, z)", x, z), [1, 1, np.nan, 0, 3])
    np.testing.assert_array_equal(elementwise("min(x, z)", x, z), [1, 1, np.nan, 0, 2])
    assert not np.signbit(elementwise("fmaxf(x, z)", x, z)[3])
    assert np.signbit(elementwise("fminf(x, z)", x, z)[3])


def test_conversion_functions_saturate(elementwise):
    x = np.array([np.nan, 1e20, -1e20, 2.5, -2.5, 3.5], np.float32)
    rounded = elementwise("__float2int_rn(x)", x, dtype="int32", kind="int")
    assert rounded.tolist() == [0, 2**31 - 1, -(2**31), 2, -2, 4]
    cut = elementwise("__float2uint_rz(x)", x, dtype="uint32", kind="unsigned")
    assert cut.tolist() == [0, 2**32 - 1, 0, 2, 0, 3]


def test_bit_operations(elementwise):
    x = np.array([0, 1, 0x80000000, 0x00F0, 0xFFFFFFFF], np.uint32)
    bits = {
        "__popc(x)": [0, 1, 1, 4, 32],
        "__clz(x)": [32, 31, 0, 24, 0],
        "__ffs(x)": [0, 1, 32, 5, 1],
        "__brev(x)": [0, 0x80000000, 1, 0x0F000000, 0xFFFFFFFF],
        "__funnelshift_l(x, 5u, 4)": [80, 80, 88, 80, 95],
        "__umulhi(x, 16u)": [0, 0, 8, 0, 15],
        "__byte_perm(x, 0u, 0x0123)": [0, 1 << 24, 128, 0xF0000000, 0xFFFFFFFF],
    }
    for expression, expected in bits.items():
        out = elementwise(expression, x, dtype="uint32", kind="unsigned", load="unsigned")
        assert out.tolist() == expected, expression


def every_half():
    return np.arange(1 << 16, dtype=np.uint16)


def test_every_half_converts_exactly(elementwise):
    bits = every_half()
    out = elementwise("__half2float(x)", bits, load="__half")
    np.testing.assert_array_equal(out, bits.view(np.float16).astype(np.float32))


def test_floats_round_to_the_nearest_half(elementwise):
    x = np.r_[spread(-70000, 70000), spread(-1e-4, 1e-4), spread(-3e-7, 3e-7)]
    x = np.r_[x, np.float32([np.inf, -np.inf, 65519.9, 65520.0, 2.0**-25, 2.9802322e-08 * 1.5])]
    out = elementwise("__half_as_ushort(__float2half(x))", x, dtype="uint16", kind="unsigned short")
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out.view(np.float16), x.astype(np.float16))


def test_floats_round_to_the_nearest_bfloat(elementwise):
    import torch

    x = np.r_[spread(-1e30, 1e30), spread(-1, 1), np.float32([np.inf, 3.4e38, 1e-40])]
    out = elementwise("__float2bfloat16(x)", x, dtype="uint16", kind="__nv_bfloat16")
    expected = torch.from_numpy(x).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("kind", "name"), [("__NV_E4M3", "float8_e4m3fn"), ("__NV_E5M2", "float8_e5m2")]
)
def test_floats_round_to_the_nearest_fp8(elementwise, kind, name):
    import torch

    limit = 448 if kind == "__NV_E4M3" else 57344
    x = np.r_[spread(-limit, limit), spread(-1, 1), spread(-0.02, 0.02), np.float32([0.0, limit])]
    expression = f"__nv_cvt_float_to_fp8(x, __NV_SATFINITE, {kind})"
    out = elementwise(expression, x, dtype="uint8", kind="unsigned char")
    expected = torch.from_numpy(x).to(getattr(torch, name)).view(torch.uint8).numpy()
    np.testing.assert_array_equal(out, expected)


def test_every_fp8_converts_back(elementwise):
    import torch

    bits = np.arange(256, dtype=np.uint8)
    for kind, name in (("__nv_fp8_e4m3", "float8_e4m3fn"), ("__nv_fp8_e5m2", "float8_e5m2")):
        out = elementwise("(float)x", bits, load=kind)
        expected = torch.from_numpy(bits).view(getattr(torch, name)).float().numpy()
        np.testing.assert_array_equal(out, expected)


@pytest.fixture(scope="session")
def directed(device, image_of):
    """(a, b) -> results of the directed-rounding intrinsics, in a kept kernel."""
    image = image_of(r"""
    extern "C" __global__ void directed(float* y, float a, float b) {
        y[0] = __fadd_rz(a, b); y[1] = __fadd_ru(a, b); y[2] = __fadd_rd(a, b);
        y[3] = __fmul_rz(a, b); y[4] = __fmul_ru(a, b); y[5] = __fmul_rd(a, b);
    }""")
    buffer = device.buffer("y", 24, role="output")

    def run(a, b):
        launch = Launch("directed", (1, 1, 1), (1, 1, 1), 0, (PointerArgument("y"), a, b))
        assert device.run(image, LaunchPlan((), (launch,)), {"y": buffer}, fuel=9).outcome == "ok"
        return buffer.array.view(np.float32).copy()

    yield run
    buffer.release()


moderate = st.floats(min_value=-(2.0**60), max_value=2.0**60, width=32).filter(
    lambda x: x == 0 or abs(x) > 2.0**-60
)


@settings(max_examples=200, deadline=None)
@given(moderate, moderate)
def test_directed_rounding_brackets_the_exact_result(directed, a, b):
    results = directed(a, b)
    for offset, exact in ((0, Fraction(a) + Fraction(b)), (3, Fraction(a) * Fraction(b))):
        zero, up, down = (Fraction(float(r)) for r in results[offset : offset + 3])
        assert down <= exact <= up
        assert zero == (down if exact > 0 else up)
        if down != up:  # neighbours: nothing lies between
            after = np.nextafter(np.float32(float(down)), np.float32(np.inf))
            assert Fraction(float(after)) == up
