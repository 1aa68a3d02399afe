"""Kernel texts in Python, run in a worker process."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

from kernelassay import cell, oracle
from kernelassay.errors import KernelassayError, ToolchainError, UnsupportedError
from kernelassay.execute.execution import RAISED, WRONG_OUTPUT, Execution
from kernelassay.execute.triton import TritonBench
from kernelassay.execute.triton.bench import held_array

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

X = np.arange(10, dtype=np.float32)
SECONDS = 3.0


def text(body: str, host: str = "y = torch.empty_like(x)", grid: str = "(1,)") -> str:
    """A Triton text with one kernel k(x, y, n, B), launched with B = 16."""
    lines = "\n".join("    " + line for line in body.splitlines())
    return f"""
import os, sys, time
import torch, triton, triton.language as tl

@triton.jit
def k(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
{lines}

def run(x):
    {host}
    k[{grid}](x, y, x.numel(), B=16)
    return y
"""


COPY = text("tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n)")


@pytest.fixture(scope="module")
def bench() -> Iterator[TritonBench]:
    with TritonBench("interpreter", seconds=SECONDS, memory_bytes=1 << 30) as made:
        yield made


@pytest.fixture(scope="module")
def arrays() -> Iterator[TritonBench]:
    with TritonBench("numpy", seconds=SECONDS, memory_bytes=1 << 30) as made:
        yield made


def ran_well(bench: TritonBench) -> bool:
    """Whether a bench still runs what is right."""
    found = bench.run(COPY, [X])
    return found.outcome == cell.OK and bool(np.array_equal(found.output, X)) and not found.findings


def kinds(found: Execution) -> dict[str, int]:
    return {finding.kind: finding.count for finding in found.findings}


# ---- what is right ------------------------------------------------------------------------------


def test_a_right_kernel_gives_its_output_and_nothing_else(bench):
    found = bench.run(COPY, [X])
    assert found == Execution(cell.OK, "", found.output)
    np.testing.assert_array_equal(found.output, X)
    assert found.output.dtype == np.float32


def test_a_caller_that_imported_triton_to_compile_still_gets_the_interpreter(bench):
    import triton
    from triton.runtime.jit import JITFunction

    assert isinstance(triton.jit(ran_well), JITFunction)
    assert ran_well(bench)


def test_a_text_is_loaded_once():
    counting = (
        "import torch\ncalls = []\ndef run(x):\n    calls.append(1)\n    return x + len(calls)"
    )
    other = counting.replace("+ len", "- len")
    with TritonBench("interpreter", texts=1) as bench:
        seen = [bench.run(t, [X]).output[0] for t in (counting, counting, other, counting)]
    assert seen == [1, 2, -1, 1]


def test_several_inputs_of_several_dtypes_arrive(bench):
    adding = "def run(a, b, c):\n    return a + b.float() + c.float()"
    a, b = np.float32([1, 2]), np.float16([3, 4])
    found = bench.run(adding, [a, b, np.array([True, False])])
    np.testing.assert_array_equal(found.output, [5, 6])


def test_benches_work_side_by_side():
    def one(number: int) -> Any:
        with TritonBench("interpreter") as bench:
            return bench.run(COPY, [X + number]).output

    with ThreadPoolExecutor(4) as pool:
        for number, output in enumerate(pool.map(one, range(6))):
            np.testing.assert_array_equal(output, X + number)


def test_a_closed_bench_can_be_used_again(bench):
    with TritonBench("numpy") as own:
        own.run("def run(x): return x", [X])
        own.close()
        np.testing.assert_array_equal(own.run("def run(x): return x", [X]).output, X)


# ---- strides ------------------------------------------------------------------------------------


@st.composite
def views(draw: Any) -> NDArray[Any]:
    """Arrays of any layout that a tensor can have."""
    dtype = draw(st.sampled_from(["float32", "float16", "int64", "uint8", "bool"]))
    shape = draw(st.lists(st.integers(0, 5), min_size=0, max_size=4))
    steps = [draw(st.integers(1, 3)) for _ in shape]
    starts = [draw(st.integers(0, 2)) for _ in shape]
    whole = [start + n * step for n, step, start in zip(shape, steps, starts, strict=True)]
    base = (np.arange(np.prod(whole, dtype=int)) % 251).astype(dtype).reshape(whole)
    ends = zip(starts, whole, steps, strict=True)
    cut = base[tuple(slice(start, end, step) for start, end, step in ends)]
    view = cut.transpose(draw(st.permutations(range(len(shape)))))
    if view.ndim and draw(st.booleans()):
        view = np.broadcast_to(view, (3, *view.shape))
    return view


# The worker outlives examples on purpose: it is what is tested.
EXAMPLES = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@EXAMPLES
@given(view=views())
def test_strided_arrays_arrive_as_tensors_with_equal_elements_and_strides(bench, view):
    same = bench.run("def run(x): return x.clone()", [view])
    assert same.outcome == cell.OK
    assert same.output.dtype == view.dtype
    assert same.output.shape == view.shape
    assert same.output.tobytes() == np.ascontiguousarray(view).tobytes()
    if view.size:
        strides = bench.run("import torch\ndef run(x): return torch.tensor(x.stride())", [view])
        for n, real, step in zip(view.shape, strides.output, view.strides, strict=True):
            assert n == 1 or real * view.itemsize == step


@EXAMPLES
@given(view=views())
def test_strided_arrays_arrive_as_arrays_with_equal_elements_and_strides(arrays, view):
    same = arrays.run("def run(x): return x.copy()", [view])
    assert same.output.tobytes() == np.ascontiguousarray(view).tobytes()
    assert same.output.shape == view.shape
    if view.size and view.ndim:
        strides = arrays.run("import numpy\ndef run(x): return numpy.array(x.strides)", [view])
        for n, real, step in zip(view.shape, strides.output, view.strides, strict=True):
            assert n == 1 or real == step


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (X[::-1], "strides"),
        (np.zeros(3, "f4,f2")["f0"], "strides"),
        (np.zeros(2, "complex64"), "complex64"),
        (np.array(["a"]), "str"),
        (np.array([None]), "object"),
    ],
)
def test_an_array_that_has_no_tensor_like_it_is_refused_by_name(bench, array, why):
    with pytest.raises(UnsupportedError, match=why) as error:
        bench.run(COPY, [X, array])
    assert "input 1" in str(error.value)
    assert ran_well(bench)


def test_bytes_between_the_first_and_the_last_element_alone_are_handed_over():
    held = held_array(np.arange(20, dtype=np.int8).reshape(4, 5)[1:3, 1:4], 0)
    assert held.data == bytes(range(6, 14))
    assert held.strides == (5, 1)


# ---- accesses outside of tensors ----------------------------------------------------------------


def test_a_store_near_a_tensor_is_lost_and_found(bench):
    found = bench.run(text("tl.store(y + o, tl.load(x + o, mask=o < n))"), [X])
    np.testing.assert_array_equal(found.output, X)
    (finding,) = found.findings
    assert (finding.kind, finding.count) == ("oob-global-write", 6)
    assert "byte 40 of y, which has 40" in finding.detail
    assert found.changed == ()


def test_a_load_near_a_tensor_reads_the_pattern_and_is_found(bench):
    shifted = text("tl.store(y + o, tl.load(x + o + 1, mask=o < n), mask=o < n)")
    found = bench.run(shifted, [X])
    np.testing.assert_array_equal(found.output[:-1], X[1:])
    assert found.output[-1:].view(np.uint32)[0] == 0x3F003F00
    assert kinds(found) == {"oob-global-read": 1}
    before = bench.run(shifted.replace("+ 1", "- 1"), [X.astype(np.float16)])
    assert before.output[0] == np.float16(1.75)
    assert "byte -2 of x" in before.findings[0].detail


def test_surroundings_of_nan_read_as_nan():
    with TritonBench("interpreter", surroundings="nan") as bench:
        found = bench.run(text("tl.store(y + o, tl.load(x + o + 9), mask=o < n)"), [X])
    assert found.output[0] == 9
    assert np.isnan(found.output[1:]).all()


def test_one_tensors_overflow_never_lands_in_another(bench):
    host = "y = torch.zeros(2); z = torch.zeros(2)"
    spilling = text("tl.store(y + o, tl.load(x + o, mask=o < n))", host)
    found = bench.run(spilling.replace("return y", "return z"), [X])
    np.testing.assert_array_equal(found.output, [0, 0])
    assert kinds(found) == {"oob-global-write": 14}


@pytest.mark.parametrize("offset", ["1000000", "(1 << 34)", "-3000000"])
@pytest.mark.parametrize("kind", ["load", "store", "atomic_add"])
def test_an_access_far_from_every_tensor_is_an_illegal_address(bench, kind, offset):
    at = f"o.to(tl.int64) + {offset}"
    call = {
        "load": f"tl.store(y + o, tl.load(x + {at}), mask=o < n)",
        "store": f"tl.store(y + {at}, 1.0)",
        "atomic_add": f"tl.atomic_add(y + {at}, 1.0)",
    }[kind]
    found = bench.run(text(call), [X])
    assert (found.outcome, found.output) == (cell.ILLEGAL_ADDRESS, None)
    assert "far outside of every tensor" in found.detail
    assert ran_well(bench)


def test_a_text_cannot_catch_an_illegal_address(bench):
    far = text("tl.store(y + o + 100000000, 1.0)")
    caught = far.replace("    k[(1,)]", "    try: k[(1,)]").replace(
        "    return y", "    except Exception: pass\n    return y"
    )
    assert bench.run(caught, [X]).outcome == cell.ILLEGAL_ADDRESS


def test_a_wild_address_of_a_masked_lane_is_no_access(bench):
    wild = text("tl.store(y + o * (1 << 30), tl.load(x + o * (1 << 30), mask=o < 1), mask=o < 1)")
    found = bench.run(wild, [X])
    assert (found.outcome, found.findings, found.unwritten) == (cell.OK, (), 9)


def test_atomics_near_a_tensor_are_lost_and_give_the_pattern(bench):
    added = bench.run(
        text("tl.atomic_add(y + o, tl.load(x + o, mask=o < n))", "y = torch.ones(10)"), [X]
    )
    np.testing.assert_array_equal(added.output, X + 1)
    assert kinds(added) == {"oob-global-write": 6}
    swapping = text(
        "was = tl.atomic_cas(y + o, 0, 7)\ntl.store(x + o, was, mask=o < n)",
        "y = torch.zeros(4, dtype=torch.int32)",
    ).replace("return y", "return torch.cat([y, x])")
    swapped = bench.run(swapping, [np.arange(10, dtype=np.int32)])
    np.testing.assert_array_equal(swapped.output, [7] * 4 + [0] * 4 + [0x3F003F00] * 6)
    assert kinds(swapped) == {"oob-global-write": 12}
    assert swapped.changed == (0,)


def test_an_address_within_a_tensors_own_storage_is_inside(bench):
    host = "y = torch.empty_like(x); x = x[2:]"
    found = bench.run(
        text("tl.store(y + o, tl.load(x + o - 2, mask=o < 10), mask=o < 10)", host), [X]
    )
    assert found.findings == ()
    np.testing.assert_array_equal(found.output, X)


def test_findings_before_an_end_are_kept(bench):
    both = text("tl.store(y + o, 1.0)\ntl.store(y + o + 100000000, 1.0)")
    found = bench.run(both, [X])
    assert (found.outcome, kinds(found)) == (cell.ILLEGAL_ADDRESS, {"oob-global-write": 6})


# ---- memory without a value ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "y = torch.empty_like(x)",
        "y = torch.empty(10)",
        "from torch import empty; y = empty((10,), dtype=x.dtype)",
        "y = x.new_empty(10)",
        "y = torch.empty_strided((10,), (1,))",
    ],
)
def test_elements_that_were_not_written_are_counted_and_can_be_filled(bench, host):
    found = bench.run(text("tl.store(y + o, tl.load(x + o), mask=o < 4)", host), [X])
    assert (found.outcome, found.unwritten) == (cell.OK, 6)
    assert oracle.unwritten(found.output).tolist() == [False] * 4 + [True] * 6
    np.testing.assert_array_equal(found.filled(0.0), [0, 1, 2, 3] + [0] * 6)
    assert np.isnan(found.filled(np.nan)[4:]).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
def test_marks_are_seen_in_every_width(bench, arrays, dtype):
    array = np.zeros((2, 3), dtype)
    for run, kind in ((bench, "torch"), (arrays, "numpy")):
        found = run.run(f"import {kind}\ndef run(x): return {kind}.empty_like(x)", [array])
        assert found.unwritten == 6
        assert not found.filled(0.0).any()


def test_integers_that_were_not_written_have_no_nan():
    made = np.zeros(2, np.int32)
    oracle.poison(made)
    found = Execution(cell.OK, "", made, unwritten=2)
    np.testing.assert_array_equal(found.filled(np.nan), made)
    np.testing.assert_array_equal(found.filled(0.0), [0, 0])


def test_masked_lanes_without_other_hold_a_stated_value(bench):
    masked = text("tl.store(y + o, tl.load(x + o, mask=o < 3), mask=o < n)")
    np.testing.assert_array_equal(bench.run(masked, [X]).output, [0, 1, 2] + [0] * 7)
    with TritonBench("interpreter", undefined="nan") as other:
        assert np.isnan(other.run(masked, [X]).output[3:]).all()
        whole = other.run(masked, [np.arange(10, dtype=np.int32)])
        np.testing.assert_array_equal(whole.output, [0, 1, 2] + [0] * 7)
        full = masked.replace("mask=o < 3", "mask=o < 3, other=5.0")
        np.testing.assert_array_equal(other.run(full, [X]).output, [0, 1, 2] + [5] * 7)


def test_inputs_that_change_are_named_and_change_nothing_for_the_caller(bench, arrays):
    mine = X.copy()
    found = bench.run("def run(a, b):\n    b[3] = 7\n    return a + b", [X, mine])
    assert found.changed == (1,)
    assert arrays.run("def run(a, b):\n    a[0] = 1\n    return b", [X, mine]).changed == (0,)
    np.testing.assert_array_equal(mine, X)


# ---- bfloat16 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [
        text("tl.store(y + o, tl.load(x + o, mask=o < n).to(tl.bfloat16).to(tl.float32))"),
        text(
            "tl.store(y + o, tl.load(x + o), mask=o < n)",
            "y = torch.empty_like(x); x = x.bfloat16()",
        ),
    ],
)
def test_bfloat16_is_refused_where_it_would_be_silently_wrong(bench, program):
    with pytest.raises(UnsupportedError, match="bfloat16"):
        bench.run(program, [X])
    assert ran_well(bench)


def test_a_bfloat16_output_is_no_array(bench):
    found = bench.run("import torch\ndef run(x): return x.to(torch.bfloat16)", [X])
    assert found.outcome == WRONG_OUTPUT
    assert "bfloat16" in found.detail


def test_autotuning_takes_the_first_configuration(bench):
    configs = "configs=[triton.Config({'B': b}) for b in (16, 32)], key=['n']"
    tuned = COPY.replace("@triton.jit", f"@triton.autotune({configs})\n@triton.jit")
    tuned = tuned.replace(", B=16)", ")").replace("mask=o < n)", "mask=o < B)")
    found = bench.run(tuned, [X])
    np.testing.assert_array_equal(found.output, X)
    assert kinds(found) == {"oob-global-read": 6, "oob-global-write": 6}


# ---- what is no kernel ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("def run(x) return x", "SyntaxError"),
        ("def run(x): return '\ud800'", "UnicodeEncodeError"),
        ("def run(x):\0", "null bytes"),
        ("x = 1", "defines no function run"),
        ("import no_such_module", "no_such_module"),
        (
            "def run(x):\n    raise ValueError('too long')",
            "ValueError: too long (line 2 of the text)",
        ),
        ("def run(x, y): return x", "missing 1 required positional argument"),
        ("def run(x): raise SystemExit(4)", "exit(4)"),
        ("class E(Exception):\n    __str__ = 3\ndef run(x): raise E", "cannot be read"),
        (text("tl.store(y + o, nowhere)"), "nowhere"),
        (text("tl.store(y + tl.arange(0, 3), 1.0)"), "power of 2"),
        ("def run(x): raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_what_a_text_raises_is_said(bench, program, says):
    found = bench.run(program, [X])
    assert (found.outcome, found.output) == (RAISED, None)
    assert says in found.detail
    assert ran_well(bench)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("None", "NoneType"),
        ("(x, x)", "2 outputs in a tuple"),
        ("[x]", "1 outputs in a list"),
        ("3.0", "float"),
        ("x.to_sparse()", "sparse"),
        ("x.to('meta')", "meta"),
    ],
)
def test_an_output_that_is_not_one_tensor_is_said(bench, value, says):
    found = bench.run(f"def run(x): return {value}", [X])
    assert (found.outcome, found.output) == (WRONG_OUTPUT, None)
    assert says in found.detail


@pytest.mark.parametrize("value", ["None", "(x, x)", "x.tolist()", "x.astype(object)"])
def test_an_output_that_is_not_one_array_is_said(arrays, value):
    assert arrays.run(f"def run(x): return {value}", [X]).outcome == WRONG_OUTPUT


def test_an_input_may_be_the_output(bench, arrays):
    for one in (bench, arrays):
        found = one.run("def run(x): return x", [X])
        np.testing.assert_array_equal(found.output, X)
        assert (found.changed, found.unwritten) == ((), 0)


def test_a_number_of_numpy_is_an_array_without_dimensions(arrays):
    assert arrays.run("def run(x): return x.sum()", [X]).output.shape == ()


# ---- what ends or outlives its process -----------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "outcome", "says"),
    [
        ("import os\ndef run(x): os._exit(3)", cell.CRASH, "exited with 3"),
        ("import os\nos._exit(0)", cell.CRASH, "exited with 0"),
        ("import ctypes\ndef run(x): ctypes.string_at(0)", cell.CRASH, "SIGSEGV"),
        ("def run(x): print('y' * (32 << 20)); return x", cell.CRASH, "printed more than 16 MB"),
        ("import os\ndef run(x): os.closerange(3, 999); return x", cell.CRASH, ""),
        ("import torch\ndef run(x): return torch.ones(1 << 34)", cell.OUT_OF_MEMORY, ""),
        ("def run(x): return bytearray(1 << 40)", cell.OUT_OF_MEMORY, ""),
        (
            "def run(x):\n    a = []\n    while True: a.append(bytes(1 << 20))",
            cell.OUT_OF_MEMORY,
            "",
        ),
    ],
)
def test_the_end_of_its_process_is_an_outcome_and_the_bench_lives_on(bench, program, outcome, says):
    found = bench.run(program, [X])
    assert (found.outcome, found.output) == (outcome, None)
    assert says in found.detail
    assert ran_well(bench)


@pytest.fixture(scope="module")
def hasty() -> Iterator[TritonBench]:
    with TritonBench("interpreter", seconds=0.5, memory_bytes=1 << 30) as made:
        assert ran_well(made)
        yield made


@pytest.mark.parametrize(
    "program",
    [
        "def run(x):\n    while True: pass",
        "while True: pass",
        "import time\ndef run(x): time.sleep(60)",
        "def run(x):\n    while True:\n        try:\n            while True: pass\n"
        "        except Exception: pass",
        text("v = tl.load(x)\nwhile v < 5.0: v = v * 1.0\ntl.store(y + o, v)"),
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\nsignal.pause()",
        "def run(x):\n    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass",
        "import threading\ndef run(x): threading.Event().wait()",
        "import ctypes\ndef run(x): ctypes.PyDLL(None).sleep(60)",
    ],
)
def test_what_does_not_end_is_ended(hasty, program):
    found = hasty.run(program, [X])
    assert (found.outcome, found.output) == (cell.TIMEOUT, None)
    assert ran_well(hasty)


@pytest.mark.parametrize(
    ("code", "outcome", "says"),
    [
        (-9, cell.INFRASTRUCTURE, "SIGKILL"),
        (-40, cell.CRASH, "SIG40"),
        (None, cell.CRASH, "lost"),
    ],
)
def test_a_process_that_is_killed_says_nothing_of_the_text(monkeypatch, code, outcome, says):
    with TritonBench("numpy") as bench:
        with monkeypatch.context() as patch:
            patch.setattr(bench, "_end", lambda patience=0.0: code)
            found = bench._died()
        assert (found.outcome, found.output) == (outcome, None)
        assert says in found.detail


def test_a_child_that_a_text_forks_does_not_answer_for_it(bench):
    forking = "import os\ndef run(x):\n    return x + (os.fork() == 0)"
    for _ in range(3):
        np.testing.assert_array_equal(bench.run(forking, [X]).output, X)
    assert ran_well(bench)


@pytest.mark.parametrize("ending", ["return x", "os._exit(1)"])
def test_what_a_text_starts_ends_with_its_bench(ending):
    program = f"""
import os, subprocess
def run(x):
    subprocess.Popen(["sleep", "98765.4321"], start_new_session=True)
    {ending}
"""
    with TritonBench("interpreter") as bench:
        bench.run(program, [X])
    assert not any("98765.4321" in command for command in _commands())


def _commands() -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield process.read_text()
        except OSError:
            continue


def test_a_forged_answer_is_a_broken_protocol(bench):
    forging = """
import os
def run(x):
    for descriptor in range(3, 64):
        try: os.write(descriptor, b"\\x02\\x00\\x00\\x00{}")
        except OSError: pass
    return x
"""
    found = bench.run(forging, [X])
    assert (found.outcome, found.output) == (cell.CRASH, None)
    assert "protocol" in found.detail
    assert ran_well(bench)


def test_a_large_input_and_output_cross_while_a_text_prints(arrays):
    big = np.arange(1 << 22, dtype=np.float32)
    found = arrays.run("def run(x): print('.' * 300000); return x * 2", [big])
    np.testing.assert_array_equal(found.output, big * 2)


def test_a_text_cannot_write_outside_of_its_folder(bench, tmp_path):
    target = tmp_path / "written"
    program = f"def run(x):\n    open({str(target)!r}, 'w').write('here')\n    return x"
    found = bench.run(program, [X])
    assert not target.exists() or found.outcome == cell.OK  # a kernel without Landlock allows it
    assert ran_well(bench)


# ---- a GPU, as far as it can be told without one -------------------------------------------------


@pytest.fixture
def zones() -> Any:
    from kernelassay.execute.triton.device import Zones

    return Zones(0x3F003F00, device="cpu")


@EXAMPLES
@given(view=views())
def test_strided_arrays_lie_between_zones_unchanged(view):
    from kernelassay.execute.triton.device import Zones

    held = held_array(view, 0)
    zones = Zones(0x3F003F00, device="cpu")
    (tensor,) = zones.inputs([held.head(0)], [held.data])
    assert tensor.numpy().tobytes() == np.ascontiguousarray(view).tobytes()
    assert tensor.stride() == held.strides
    assert zones.survey() == ((), ())


@pytest.mark.parametrize("offset", [-1, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8])
def test_an_element_written_beside_a_buffer_is_one_finding(zones, offset, dtype):
    held = held_array(np.arange(7, dtype=dtype), 0)
    _, tensor = zones.inputs([held.head(0)] * 2, [held.data] * 2)
    beside = tensor.as_strided((1,), (1,), tensor.storage_offset() + offset)
    beside.fill_(113)
    (finding,), changed = zones.survey()
    assert (finding.kind, finding.count) == ("oob-global-write", 1)
    assert f"byte {offset * tensor.element_size()} of input 1" in finding.detail
    assert changed == ()
    tensor[3] = 50
    assert zones.survey()[1] == (1,)


def test_allocations_lie_between_zones_and_hold_what_their_function_says(zones):
    import torch

    zones.inputs([], [])
    for func, args in ((torch.empty, ((2, 3),)), (torch.zeros, ((2, 3),))):
        made = zones.allocate(func, args, {"dtype": torch.float16})
        marks = oracle.unwritten(made.numpy()).sum()
        assert (made.shape, int(marks)) == ((2, 3), 6 if func is torch.empty else 0)
    made.as_strided((7,), (1,)).fill_(1.0)
    (finding,), _ = zones.survey()
    assert "byte 12 of allocation 1, which has 12" in finding.detail
    assert zones.allocate(torch.ones, ((2,),), {}) is None


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        ("CUDA error: an illegal memory access was encountered\nmore", cell.ILLEGAL_ADDRESS),
        ("Triton Error [CUDA]: an illegal memory access was encountered", cell.ILLEGAL_ADDRESS),
        ("CUDA error: misaligned address", cell.MISALIGNED_ADDRESS),
        ("CUDA error: unspecified launch failure", cell.CRASH),
        ("CUDA error: device-side assert triggered", cell.CRASH),
        ("CUDA error: a thing nobody has heard of", cell.CRASH),
        ("CUDA error: out of memory", cell.OUT_OF_MEMORY),
        ("Triton Error [CUDA]: invalid argument", cell.LAUNCH_FAILURE),
        ("out of resource: shared memory, Required: 300000", cell.LAUNCH_FAILURE),
    ],
)
def test_what_a_driver_says_is_an_outcome(message, outcome):
    from kernelassay.execute.triton.device import fault

    found = fault(RuntimeError(message))
    assert found is not None
    assert found.outcome == outcome
    assert found.lost == (outcome not in (cell.LAUNCH_FAILURE, cell.OUT_OF_MEMORY))
    wrapped = ValueError("in a kernel")
    wrapped.__cause__ = RuntimeError(message)
    assert fault(wrapped) == found
    assert fault(ValueError("no such thing")) is None


# ---- the tool itself -----------------------------------------------------------------------------


def test_an_interpreter_without_the_names_that_are_replaced_is_refused(monkeypatch):
    from triton.runtime import interpreter as private

    from kernelassay.execute.triton.interpreter import self_test

    monkeypatch.delattr(private, "GridExecutor")
    with pytest.raises(ToolchainError, match="GridExecutor") as error:
        self_test()
    assert "3.6 to 3.9" in str(error.value)


def test_an_option_that_does_not_exist_is_named():
    for wrong in ({"device": "tpu"}, {"device": "cuda", "undefined": "maybe"}):
        with pytest.raises(KernelassayError, match=r"tpu|maybe"):
            TritonBench(**wrong)


def test_a_bench_for_a_gpu_that_is_not_there_says_so():
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with TritonBench("cuda") as bench, pytest.raises(KernelassayError, match="GPU"):
        bench.run(COPY, [X])


def test_a_run_takes_no_longer_than_its_limit_and_a_grace():
    start = time.monotonic()
    with TritonBench("numpy", seconds=0.2) as bench:
        outcome = bench.run(
            "while True:\n    try:\n        while True: pass\n    except: pass", []
        ).outcome
    assert outcome == cell.TIMEOUT
    assert time.monotonic() - start < 60
