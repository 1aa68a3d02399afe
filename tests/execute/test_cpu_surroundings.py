"""What lies around buffers and shared arrays, as the surroundings of a run say."""

from pathlib import Path

import numpy as np
import pytest

from kernelassay.errors import UsageError
from tests.execute.cpu_kernels import VADD
from tests.execute.runs import NAN_PATTERN, Out

PATTERN = np.uint32(0x3F003F00).view(np.float32)
X = np.random.default_rng(3).normal(size=(3, 200)).astype(np.float32)


def test_nan_surroundings_give_a_nan_past_the_end_and_change_nothing_else(execute):
    a = np.arange(10, dtype=np.float32)
    broken = VADD.replace("i < n", "i < n + 1").replace("c[i] =", "c[i - (i == n)] =")
    arguments = (a, np.zeros(11, np.float32), Out((10,)), 10)
    ran = execute(broken, 1, 32, *arguments, surroundings="nan")
    assert ran.finding("oob-global-read").count == 1
    assert np.isnan(ran.out[9]) and ran.out.view(np.uint32)[9] != NAN_PATTERN
    np.testing.assert_array_equal(ran.out[:9], a[:9])
    assert not execute(VADD, 1, 32, a, a, Out((10,)), 10, surroundings="nan").kinds


def test_in_packed_surroundings_the_outputs_are_followed_by_the_operands(execute):
    """One write past the end of c lands in a[0], before thread 0 reads it in the reverse order."""
    a = np.arange(12, dtype=np.float32)
    b = np.full(13, 7, np.float32)
    broken = VADD.replace("i < n", "i < n + 1").replace("a[i] +", "(i < n ? a[i] : 5.0f) +")
    arguments = (a, b, Out((12,)), 12)
    ran = execute(broken, 1, 32, *arguments, surroundings="packed", order="reverse")
    assert ran.finding("oob-global-write").count == 1
    np.testing.assert_array_equal(ran.out, np.r_[12 + 7, a[1:] + 7])
    np.testing.assert_array_equal(a, np.arange(12))  # the caller's own is as it was
    for conditions in ({"surroundings": "packed"}, {"surroundings": "nan", "order": "reverse"}, {}):
        np.testing.assert_array_equal(execute(broken, 1, 32, *arguments, **conditions).out, a + 7)


def test_buffers_are_packed_at_multiples_of_16_bytes(execute):
    a = np.arange(10, dtype=np.float32)
    for far, lands in ((10, False), (11, False), (12, True)):
        source = VADD.replace("c[i] =", f"c[i == 9 ? {far} : i] =")
        arguments = (a, 0 * a, Out((10,)), 10)
        ran = execute(source, 1, 32, *arguments, surroundings="packed", order="reverse")
        assert ran.finding("oob-global-write").count == 1
        np.testing.assert_array_equal(ran.out[:9], np.r_[9 if lands else 0, a[1:9]])


def test_packed_buffers_lie_as_far_as_an_access_reaches(execute):
    """Outputs y (16 bytes) and z (4), then the operands a and b: as views of one tensor."""
    source = """extern "C" __global__ void k(const float* a, const float* b, float* y, float* z) {
        y[0] = b[-3];    // a[5]
        y[1] = a[-4];    // z[0], not yet written
        y[2] = a[8];     // b[0]
        y[3] = b[4];     // nothing lies behind b
        z[0] = y[4];     // z itself, through y
        y[9] = 50.0f;    // a[1]
        y[0] += a[1];
        z[12] = 60.0f;   // b[0]
        y[2] += b[0];
    }"""
    a, b = np.arange(8, dtype=np.float32), np.arange(4, dtype=np.float32) + 100
    ran = execute(source, 1, 1, a, b, Out((4,)), Out((1,)), surroundings="packed")
    assert {f.kind: f.count for f in ran.result.findings} == {
        "oob-global-read": 5,
        "oob-global-write": 2,
    }
    y, z = ran.outputs
    assert y[0] == 5 + 50 and y[2] == 100 + 60
    assert np.isnan(y[1]) and y[1:2].view(np.uint32) == NAN_PATTERN
    assert np.isnan(y[3]) and y[3:4].view(np.uint32) != NAN_PATTERN
    assert np.isnan(z[0]) and z.view(np.uint32) == NAN_PATTERN
    assert not execute(VADD, 1, 8, a, a, Out((8,)), 8, surroundings="packed").kinds


@pytest.mark.parametrize(
    ("declared", "index", "offset"),
    [
        ("float s[32]", "[threadIdx.x - 1]", -4),
        ("double s[32]", "[threadIdx.x - 1]", -8),
        ("short s[32]", "[threadIdx.x - 1]", -2),
        ("float s[32][33]", "[threadIdx.x - 1][0]", -132),
        ("float s[2][32][65]", "[0][threadIdx.x - 1][0]", -260),
    ],
)
@pytest.mark.parametrize("surroundings", ["finite", "nan"])
def test_an_unsigned_index_below_zero_lies_just_before_a_shared_array(
    execute, declared, index, offset, surroundings
):
    source = f"""extern "C" __global__ void k(float* y) {{
        __shared__ {declared};
        if (threadIdx.x < 31) s{index.replace("threadIdx.x - 1", "threadIdx.x")} = 3;
        __syncthreads();
        y[threadIdx.x] = s{index} == 3;
        if (threadIdx.x == 0) s{index} = 4;
    }}"""
    ran = execute(source, 1, 32, Out((32,)), surroundings=surroundings)
    assert ran.result.outcome == "ok"
    assert ran.kinds == {"oob-shared-read", "oob-shared-write"}
    assert f"shared array s byte {offset} " in ran.finding("oob-shared-read").detail
    np.testing.assert_array_equal(ran.out, [0] + [1] * 31)


def test_what_an_address_does_is_independent_of_what_ran_before(execute):
    """Arrays of earlier launches are gone."""
    far = """extern "C" __global__ void k(float* y) {
        __shared__ float s[32];
        s[threadIdx.x] = 1.0f;
        y[threadIdx.x] = s[threadIdx.x + (1 << 20)];
    }"""
    two = """extern "C" __global__ void k(float* y) {
        __shared__ float s[32], t[32];
        s[threadIdx.x] = 77.0f;
        t[threadIdx.x] = 77.0f;
        y[threadIdx.x] = s[threadIdx.x] + t[threadIdx.x];
    }"""
    before = execute(far, 1, 32, Out((32,))).result
    assert before.outcome == "crash"
    assert execute(two, 1, 32, Out((32,))).result.outcome == "ok"
    assert execute(far, 1, 32, Out((32,))).result == before


def test_pages_of_wrapped_addresses_are_given_back(execute):
    """Each launch opens other pages; were they kept, a process would run out of mappings."""
    source = """extern "C" __global__ void k(float* y, unsigned before) {
        __shared__ char s[16][64];
        y[threadIdx.x] = s[threadIdx.x - before][0];
    }"""
    maps = []
    for launch in range(1, 40):
        ran = execute(source, 1, 64, Out((64,)), 80 + 500 * launch)
        assert ran.result.outcome == "ok" and ran.kinds == {"oob-shared-read"}
        maps.append(len(Path("/proc/self/maps").read_text().splitlines()))
    assert maps[-1] <= maps[0] + 8


def test_a_shared_index_far_outside_is_a_crash(execute):
    source = """extern "C" __global__ void k(float* y) {
        __shared__ float s[32];
        s[threadIdx.x] = 1.0f;
        y[threadIdx.x] = s[threadIdx.x + (1u << 28)];
    }"""
    assert execute(source, 1, 32, Out((32,))).result.outcome == "crash"


def test_memory_that_nothing_wrote_holds_what_the_surroundings_do(execute):
    source = """extern "C" __global__ void k(float* y) {
        __shared__ float s[4];
        if (threadIdx.x == 0) s[0] = 1.0f;
        __syncthreads();
        if (threadIdx.x == 0) { y[0] = s[0]; y[1] = s[3]; }
    }"""
    for _ in range(2):  # the setting holds for one run
        assert np.isnan(execute(source, 1, 32, Out((2,)), surroundings="nan").out).tolist() == [
            0,
            1,
        ]
        np.testing.assert_array_equal(execute(source, 1, 32, Out((2,))).out, [1, PATTERN])


def test_unknown_surroundings_are_an_error(execute):
    with pytest.raises(UsageError, match="surroundings"):
        execute(VADD, 1, 32, X, X, Out((32,)), 32, surroundings="zeros")
