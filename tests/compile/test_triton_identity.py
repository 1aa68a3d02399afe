"""Triton modules are told apart by what they launch and by machine code, without a GPU."""

import importlib.util
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelassay.compile.classify import DISTINCT, DUPLICATE, EQUIVALENT, STILLBORN
from kernelassay.compile.triton import TensorSpec, classify, representative_calls
from kernelassay.compile.triton import worker as processes
from kernelassay.compile.triton.lower import compile_error, normalised
from kernelassay.compile.triton.worker import Code, TritonWorker
from kernelassay.errors import (
    DeviceError,
    KernelSyntaxError,
    ToolchainError,
    UnsupportedError,
    UsageError,
)
from kernelassay.illusion.schema import Schema

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)

SOFTMAX = """
import torch
import triton
import triton.language as tl


@triton.jit
def shifted(v, top):
    return tl.exp(v - top)


@triton.jit
def softmax(x, out, n, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    v = tl.load(x + row * row_stride + cols, mask=mask, other=float("-inf"))
    top = tl.max(v, axis=0)
    e = shifted(v, top)
    tl.store(out + row * row_stride + cols, e / tl.sum(e, axis=0), mask=mask)


def run(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    rows, n = x.shape
    softmax[(rows,)](x, out, n, x.stride(0), BLOCK=triton.next_power_of_2(n))
    return out
"""
ROWS = tuple((TensorSpec((rows, n), "float32"),) for rows in (1, 4) for n in (60, 100))
"""Two combos, for blocks of 64 and of 128."""

FLAT = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def shift(out, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(out + at, mask=at < n) + by, mask=at < n)


def run(x):
    out = torch.empty_like(x)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    scale[grid](x, out, n, 0.5, BLOCK=256)
    shift[grid](out, n, 1.5, BLOCK=256)
    return out
"""
LINE = ((TensorSpec((1000,), "float32"),), (TensorSpec((1000,), "float16"),))

HINTED = "tl.arange(0, BLOCK)\n    at = tl.max_contiguous(at, 1)\n    tl.store(out + at, tl.load(x"

MATMUL = """
import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, n, k, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    cols = tl.program_id(1) * B + tl.arange(0, B)
    inner = tl.arange(0, B)
    acc = tl.zeros((B, B), dtype=tl.float32)
    for start in range(0, k, B):
        left = tl.load(a + rows[:, None] * k + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * n + cols[None, :])
        acc = tl.dot(left, right, acc)
    tl.store(c + rows[:, None] * n + cols[None, :], acc)


def run(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    matmul[(m // 32, n // 32)](a, b, c, n, k, B=32, num_stages=3)
    return c
"""
SQUARES = ((TensorSpec((64, 64), "float16"), TensorSpec((64, 64), "float16")),)


def edited(text, *edits):
    for before, after in edits:
        assert before in text, before
        text = text.replace(before, after)
    return text


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("images")


def statuses(found):
    return {name: identity.status for name, identity in found.items()}


SOFTMAX_EDITS = {
    "comment": ("    row =", "    # each row\n    row ="),
    "renamed kernel": ("softmax", "rows_kernel"),
    "renamed helper": ("shifted", "moved"),
    "renamed local": ("cols", "lanes"),
    "renamed parameter": ("row_stride", "step"),
    "commuted mask": ("mask = cols < n", "mask = n > cols"),
    "grid spelled out": ("[(rows,)]", "[(rows, 1, 1)]"),
    "stages that no loop uses": ("BLOCK=triton", "num_stages=2, BLOCK=triton"),
    "one more": ("cols < n", "cols <= n"),
    "one more, commuted": ("cols < n", "n >= cols"),
    "other": ('float("-inf")', "0.0"),
    "no maximum": ("v - top", "v"),
    "helper": ("tl.exp(v", "tl.exp2(v"),
    "grid": ("[(rows,)]", "[(rows - 1,)]"),
    "scalar": ("out, n, x", "out, n - 1, x"),
    "swapped tensors": ("(x, out, n", "(out, x, n"),
    "zeroed": ("empty_like", "zeros_like"),
    "warps": ("BLOCK=triton", "num_warps=8, BLOCK=triton"),
    "block": ("next_power_of_2(n)", "next_power_of_2(2 * n)"),
    "unknown name": ("e / tl.sum", "f / tl.sum"),
    "shapes": ("e / tl.sum(e, axis=0)", "e[:, None] / tl.arange(0, 16)[None, :]"),
    "not a power of 2": ("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK - 1)"),
    "does not parse": ("def run(x):", "def run(x:"),
    "does not load": ("import torch\n", "import torhc\n"),
    "no run": ("def run", "def ran"),
}
SAME = list(SOFTMAX_EDITS)[:8]


@needs_triton
def test_every_bucket_is_found(cache):
    texts = [(name, edited(SOFTMAX, edit)) for name, edit in SOFTMAX_EDITS.items()]
    found = classify(SOFTMAX, texts, ROWS, jobs=2, cache=cache)
    dead = list(SOFTMAX_EDITS)[-6:]
    expected = dict.fromkeys(SOFTMAX_EDITS, DISTINCT)
    expected |= dict.fromkeys(SAME, EQUIVALENT) | dict.fromkeys(dead, STILLBORN)
    expected["one more, commuted"] = DUPLICATE
    assert statuses(found) == expected
    assert found["one more, commuted"].twin == "one more"
    assert found["one more, commuted"].digest == found["one more"].digest != found.digest
    assert {found[name].digest for name in SAME} == {found.digest}
    assert sum(found.counts().values()) == len(texts)
    reasons = {name: found[name].reason for name in dead}
    assert "f is not defined" in reasons["unknown name"]
    assert "power of 2" in reasons["not a power of 2"]
    assert reasons["does not parse"].startswith("line ")
    assert "torhc" in reasons["does not load"]
    assert "function run" in reasons["no run"]
    assert all(reasons.values())


@needs_triton
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(order=st.permutations(list(SOFTMAX_EDITS)), count=st.integers(1, len(SOFTMAX_EDITS)))
def test_a_bucket_depends_on_no_other_mutant_but_a_twin_that_is_earlier(cache, order, count):
    chosen = order[:count]
    found = classify(
        SOFTMAX, [(n, edited(SOFTMAX, SOFTMAX_EDITS[n])) for n in chosen], ROWS, cache=cache
    )
    whole = classify(
        SOFTMAX, [(n, edited(SOFTMAX, e)) for n, e in SOFTMAX_EDITS.items()], ROWS, cache=cache
    )
    twins = [name for name in chosen if name.startswith("one more")]
    for name in chosen:
        if name in twins:
            assert found[name].twin == (None if name == twins[0] else twins[0])
        else:
            assert found[name] == whole[name]
    assert sum(found.counts().values()) == len(chosen)


@needs_triton
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    benign=st.lists(
        st.sampled_from(["comment", "renamed kernel", "renamed local", "commuted mask"]),
        unique=True,
        min_size=1,
    ),
    fault=st.sampled_from(["other", "no maximum", "grid", "zeroed"]),
)
def test_edits_that_change_nothing_change_no_class(cache, benign, fault):
    text = edited(SOFTMAX, SOFTMAX_EDITS[fault])
    edits = [SOFTMAX_EDITS[name] for name in sorted(benign)]
    texts = [("fault", text), ("again", edited(text, *edits)), ("none", edited(SOFTMAX, *edits))]
    found = classify(SOFTMAX, texts, ROWS, cache=cache)
    assert statuses(found) == {"fault": DISTINCT, "again": DUPLICATE, "none": EQUIVALENT}


@needs_triton
def test_launches_are_compared_with_their_arguments_and_order(cache):
    edits = {
        "factor": ("n, 0.5", "n, 0.25"),
        "integer factor": ("n, 0.5", "n, 1"),
        "last first": (
            "    scale[grid](x, out, n, 0.5, BLOCK=256)\n    shift[grid](out, n, 1.5, BLOCK=256)",
            "    shift[grid](out, n, 1.5, BLOCK=256)\n    scale[grid](x, out, n, 0.5, BLOCK=256)",
        ),
        "one launch": ("    shift[grid](out, n, 1.5, BLOCK=256)\n", ""),
        "in place": ("torch.empty_like(x)", "x"),
        "returns its input": ("return out", "return x"),
        "returns a view": ("return out", "return out[:]"),
        "wider": ("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float32)"),
        "grid by hand": ("triton.cdiv(n", "-(-n // 256), 1 if n else triton.cdiv(n"),
        "floor": ("triton.cdiv(n, ", "n // ("),
        "second kernel": ("+ by", "- by"),
        "second kernel commuted": (
            "tl.load(out + at, mask=at < n) + by",
            "by + tl.load(out + at, mask=n > at)",
        ),
        "keywords": ("x, out, n, 0.5,", "x=x, out=out, n=n, factor=0.5,"),
        "float grid": ("triton.cdiv(n, ", "n / ("),
    }
    found = classify(FLAT, [(n, edited(FLAT, e)) for n, e in edits.items()], LINE, cache=cache)
    same = {"returns a view", "grid by hand", "second kernel commuted", "keywords"}
    assert {name for name, status in statuses(found).items() if status == EQUIVALENT} == same
    assert found.counts()[DISTINCT] == len(edits) - len(same)
    # 1 is not what Triton would make of it: a constant of the code.
    assert found["float grid"].reason.startswith("run raises on 2 of 2 calls: TypeError")


@needs_triton
def test_a_loop_has_its_stages_and_its_operand_order(cache):
    edits = {
        "stages": ("num_stages=3", "num_stages=1"),
        "sum": ("acc = tl.dot(left, right, acc)", "acc += tl.dot(left, right)"),
        "swapped": ("tl.dot(left, right, acc)", "tl.dot(right, left, acc)"),
        "no sum": ("tl.dot(left, right, acc)", "tl.dot(left, right)"),
        "last block": ("range(0, k, B)", "range(0, k - B, B)"),
        "too small": ("B=32", "B=8"),
    }
    found = classify(
        MATMUL, [(n, edited(MATMUL, e)) for n, e in edits.items()], SQUARES, cache=cache
    )
    expected = dict.fromkeys(edits, DISTINCT) | {"sum": EQUIVALENT, "too small": STILLBORN}
    assert statuses(found) == expected


@needs_triton
def test_constants_of_host_code_are_compared_by_value(cache):
    text = edited(FLAT, ("torch.empty_like(x)", "x * torch.tensor([2.0])"))
    other, same = edited(text, ("2.0", "3.0")), edited(text, ("[2.0]", "[4.0 / 2]"))
    found = classify(text, [("other", other), ("same", same)], LINE, cache=cache)
    assert statuses(found) == {"other": DISTINCT, "same": EQUIVALENT}


@needs_triton
def test_a_kernel_that_compiles_for_some_calls_is_distinct(cache):
    limit = "    row = tl.program_id(0)\n    tl.static_assert(BLOCK {} 64)\n"
    texts = [
        (sign, edited(SOFTMAX, ("    row = tl.program_id(0)\n", limit.format(sign))))
        for sign in (">", "<", "<=", ">=")
    ]
    found = classify(SOFTMAX, texts, ROWS, cache=cache)
    assert statuses(found) == {">": DISTINCT, "<": STILLBORN, "<=": DISTINCT, ">=": EQUIVALENT}
    assert found["<="].reason.startswith("does not compile for every call: error: at")


@needs_triton
def test_a_run_that_raises_is_distinct_and_like_no_other_text(cache):
    raising = edited(SOFTMAX, ("rows, n = x.shape", "rows, n = x.shape[1:]"))
    later = edited(raising, ("BLOCK=triton", "num_warps=8, BLOCK=triton"))
    sometimes = edited(SOFTMAX, ("    return out", "    assert n < 100\n    return out"))
    texts = [
        ("raising", raising),
        ("later", later),
        ("again", raising + "# comment\n"),
        ("unknown option", edited(SOFTMAX, ("BLOCK=triton", "num_wraps=8, BLOCK=triton"))),
        ("sometimes", sometimes),
        ("exits", edited(SOFTMAX, ("    return out", "    raise SystemExit(0)"))),
        ("no code either", edited(raising, ("e / tl.sum", "f / tl.sum"))),
    ]
    found = classify(SOFTMAX, texts, ROWS, cache=cache)
    assert statuses(found) == dict.fromkeys(dict(texts), DISTINCT) | {"again": DUPLICATE}
    assert found["raising"].reason.startswith("run raises on 4 of 4 calls: ValueError")
    assert found["sometimes"].reason.startswith("run raises on 2 of 4 calls: AssertionError")


@needs_triton
def test_host_code_that_does_not_end_or_ends_its_process_is_distinct(cache, monkeypatch):
    texts = [
        ("endless", edited(SOFTMAX, ("    x = x.contiguous()", "    while True:\n        pass"))),
        ("aborts", edited(SOFTMAX, ("    return out", "    import os\n    os.abort()"))),
        ("one more", edited(SOFTMAX, ("cols < n", "cols <= n"))),
    ]
    record = TritonWorker.record

    def shortly(self, text, calls, every, seconds):
        return record(self, text, calls, every, 2 if text == dict(texts)["endless"] else seconds)

    monkeypatch.setattr(TritonWorker, "record", shortly)
    found = classify(SOFTMAX, texts, ROWS, cache=cache)
    assert statuses(found) == dict.fromkeys(dict(texts), DISTINCT)
    assert "host code" in found["endless"].reason and "2" in found["endless"].reason
    assert "SIGABRT" in found["aborts"].reason
    assert found["one more"].reason == ""


@needs_triton
def test_nothing_is_asked_of_a_worker_twice(cache, monkeypatch):
    texts = [("other", edited(SOFTMAX, SOFTMAX_EDITS["other"]))]
    first = classify(SOFTMAX, texts, ROWS, cache=cache)

    def ask(*arguments):
        raise AssertionError("a worker is asked")

    monkeypatch.setattr(TritonWorker, "ask", ask)
    assert dict(classify(SOFTMAX, texts, ROWS, cache=cache)) == dict(first)
    with pytest.raises(AssertionError, match="asked"):
        classify(SOFTMAX, texts, ROWS[:1], cache=cache)


@needs_triton
def test_machine_code_is_made_only_where_it_is_needed(tmp_path, monkeypatch):
    compiled = []
    ask = TritonWorker.ask

    def counting(self, request, seconds):
        compiled.extend([request[1]] if request[0] == "compile" else [])
        return ask(self, request, seconds)

    monkeypatch.setattr(TritonWorker, "ask", counting)
    classify(SOFTMAX, [], ROWS, cache=tmp_path)
    assert len(compiled) == 1  # the original, for the first call
    texts = [(n, edited(SOFTMAX, SOFTMAX_EDITS[n])) for n in ("grid", "renamed local")]
    classify(SOFTMAX, texts, ROWS, cache=tmp_path)
    assert len(compiled) == 1  # the kernel is the original's
    classify(SOFTMAX, [("o", edited(SOFTMAX, SOFTMAX_EDITS["other"]))], ROWS, cache=tmp_path)
    assert len(compiled) == 2  # the first call tells


@needs_triton
def test_an_original_that_cannot_be_compared_is_refused_by_name(cache):
    configs = "[triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128})]"
    tuned = edited(
        SOFTMAX,
        (
            "@triton.jit\ndef softmax",
            f"@triton.autotune({configs}, key=['n'])\n@triton.jit\ndef softmax",
        ),
        (", BLOCK=triton.next_power_of_2(n))", ")"),
    )
    with pytest.raises(UnsupportedError, match="autotune"):
        classify(tuned, [], ROWS, cache=cache)
    with pytest.raises(UnsupportedError, match=r"float32\[1000\]\): Data"):
        classify(edited(FLAT, ("n, 0.5", "n, x.sum().item()")), [], LINE, cache=cache)
    with pytest.raises(UnsupportedError, match="same twice"):
        changing = edited(FLAT, ("n, 0.5", "n, __import__('time').time()"))
        classify(changing, [], LINE, cache=cache)
    with pytest.raises(UnsupportedError, match="cannot record a function"):
        classify(edited(FLAT, ("return out", "return run")), [], LINE, cache=cache)
    with pytest.raises(KernelSyntaxError, match="f is not defined"):
        classify(edited(SOFTMAX, SOFTMAX_EDITS["unknown name"]), [], ROWS, cache=cache)
    with pytest.raises(KernelSyntaxError, match="launches no kernel"):
        classify("def run(x):\n    return x\n", [], ROWS, cache=cache)
    with pytest.raises(KernelSyntaxError, match="torhc"):
        classify(edited(SOFTMAX, SOFTMAX_EDITS["does not load"]), [], ROWS, cache=cache)
    with pytest.raises(KernelSyntaxError, match="does not parse: line"):
        classify("def run(x:\n", [], ROWS, cache=cache)
    with pytest.raises(UsageError, match="not unique"):
        classify(SOFTMAX, [("a", SOFTMAX), ("a", SOFTMAX)], ROWS, cache=cache)
    with pytest.raises(UsageError, match="no representative call"):
        classify(SOFTMAX, [], [], cache=cache)


@needs_triton
def test_heuristics_and_a_single_configuration_are_followed(cache):
    tuned = edited(
        SOFTMAX,
        (
            "@triton.jit\ndef softmax",
            "@triton.autotune([triton.Config({}, num_warps=2)], key=['n'])\n"
            "@triton.heuristics({'BLOCK': lambda a: triton.next_power_of_2(a['n'])})\n"
            "@triton.jit\ndef softmax",
        ),
        (", BLOCK=triton.next_power_of_2(n))", ")"),
    )
    plain = edited(SOFTMAX, ("BLOCK=triton", "num_warps=2, BLOCK=triton"))
    wider = edited(tuned, ("(a['n'])", "(2 * a['n'])"))
    found = classify(tuned, [("plain", plain), ("wider", wider)], ROWS, cache=cache)
    assert statuses(found) == {"plain": EQUIVALENT, "wider": DISTINCT}


@needs_triton
def test_code_is_compared_as_it_runs_and_for_any_arguments(cache):
    ones = ((TensorSpec((4, 1), "float32"),),)  # 1 is a constant in the code that runs
    texts = [("no stride", edited(SOFTMAX, ("row * row_stride", "row")))]
    assert statuses(classify(SOFTMAX, texts, ones, cache=cache)) == {"no stride": DISTINCT}
    # What is loaded at once hangs on the alignment of pointers, of which general code knows none.
    hint = edited(FLAT, ("tl.arange(0, BLOCK)\n    tl.store(out + at, tl.load(x", HINTED))
    assert statuses(classify(FLAT, [("hint", hint)], LINE, cache=cache)) == {"hint": DISTINCT}


def test_a_schema_gives_a_call_for_every_size_and_dtype():
    schema = Schema({"B": (1, 2), "N": (3, 5)}, {"x": ("B", "N"), "w": ("N",)}, ("B", "N"))
    calls = representative_calls(schema, ("float32", "float16"))
    assert len(set(calls)) == 8
    assert calls[1] == (TensorSpec((1, 5), "float32"), TensorSpec((5,), "float32"))
    assert {spec.dtype for spec in calls[-1]} == {"float16"}


@needs_triton
def test_strides_are_those_of_the_call(cache):
    turned = ((replace(ROWS[0][0], shape=(60, 60), strides=(1, 60)),),)
    texts = [("trusting", edited(SOFTMAX, ("x.contiguous()", "x")))]
    assert statuses(classify(SOFTMAX, texts, ROWS, cache=cache)) == {"trusting": EQUIVALENT}
    assert statuses(classify(SOFTMAX, texts, turned, cache=cache)) == {"trusting": DISTINCT}


def crash(*arguments):
    os.abort()


def test_a_compiler_crash_counts_once_it_repeats(tmp_path, monkeypatch):
    def crash_once(*arguments):
        try:
            (tmp_path / "crashed").mkdir()
        except FileExistsError:
            return "digest", ""
        os.abort()

    monkeypatch.setattr("kernelassay.compile.triton.lower.machine_code", crash_once)
    assert processes._compiled("", "{}", 60) == Code("digest")
    monkeypatch.setattr("kernelassay.compile.triton.lower.machine_code", crash)
    made = processes._compiled("", "{}", 60)
    assert made.error.startswith("error: compiler crash") and "SIGABRT" in made.error
    assert not made.transient


def test_a_crash_of_the_compilers_front_end_is_not_the_host_codes(monkeypatch):
    def record(text, calls, wanted):
        if wanted is False or wanted == (1,):
            os.abort()
        return "", [("host", [0], [1], "")], dict.fromkeys(wanted, ("ttir", "{}", ""))

    monkeypatch.setattr(processes, "_record", record)
    found, lowerings = processes._recorded("", (), False, 60)
    assert [(call.launches, call.general) for call in found.calls] == [((0,), (1,))]
    assert not found.lost
    assert lowerings[0].text == "ttir" and not lowerings[0].error
    assert "compiler crash" in lowerings[1].error and not lowerings[1].transient


@needs_triton
def test_missing_tools_are_the_machines_fault(monkeypatch):
    compiler = pytest.importorskip("triton.backends.nvidia.compiler")

    def missing(architecture):
        raise RuntimeError("Cannot find ptxas")

    monkeypatch.setattr(compiler, "get_ptxas", missing)
    with pytest.raises(ToolchainError, match="Cannot find ptxas"):
        processes._greeting()


def test_functions_are_renamed_but_not_what_strings_say():
    text = (
        'tt.func public @soft(%a: i32) {\n  tt.call @"soft.h__(1,)"() "@soft" @elsewhere\n}\n'
        'tt.func private @"soft.h__(1,)"() {\n}\n'
    )
    assert normalised(text) == (
        'tt.func public @f0(%a: i32) {\n  tt.call @f1() "@soft" @elsewhere\n}\n'
        "tt.func private @f1() {\n}\n"
    )


def test_a_compile_error_is_one_line_from_the_innermost_place():
    outer, inner = ValueError("at 3:4:\n  f(x)\n  ^\n"), ValueError("at 1:2:\n  y\n  ^\nno y")
    outer.__cause__ = inner
    assert compile_error(outer) == "error: at 1:2: no y"
    assert compile_error(RuntimeError("PassManager failed\nmore")) == (
        "error: RuntimeError: PassManager failed"
    )


@needs_triton
def test_a_compiling_process_that_is_lost_is_the_doing_of_no_text():
    worker = TritonWorker()
    try:
        assert worker.machine_code("no ttir", "{}", 60.0).error
        worker._process.kill()
        worker._process.wait()
        with pytest.raises(DeviceError, match="was lost"):
            worker.machine_code("no ttir", "{}", 60.0)
    finally:
        worker.close()
