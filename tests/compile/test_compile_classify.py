import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelassay.compile import nvrtc
from kernelassay.compile.batch import Refusal, stillborn_pass, unit
from kernelassay.compile.cache import ImageCache
from kernelassay.compile.classify import DISTINCT, DUPLICATE, EQUIVALENT, STILLBORN, classify
from kernelassay.compile.worker import Worker, WorkerDiedError
from kernelassay.errors import KernelSyntaxError, SessionError, ToolchainError, UsageError
from kernelassay.execute.cpu.translate import CUDA_HEADERS

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.available(), reason=f"NVRTC: {nvrtc.unavailable_reason()}"
)


def mutant(source, before, after, count=-1):
    assert before in source, before
    return source.replace(before, after, count)


def statuses(found):
    return {name: identity.status for name, identity in found.items()}


@needs_nvrtc
def test_every_bucket_is_found(kernel):
    source = kernel("softmax")
    found = classify(
        source,
        [
            ("comment", mutant(source, "float top", "/* top */ float top")),
            ("s>=1", mutant(source, "s > 0", "s >= 1")),
            ("le", mutant(source, "i < cols", "i <= cols")),
            ("ge", mutant(source, "i < cols", "cols >= i")),
            ("barrier", mutant(source, "__syncthreads();", "", 1)),
            ("undeclared", mutant(source, "partial[t] = top;", "partial[t] = tip;")),
            ("grid", mutant(source, "dim3(rows)", "dim3(rows + 1)")),
            ("grid again", mutant(source, "dim3(rows)", "dim3( rows+1 )")),
            ("block", mutant(source, "dim3(BLOCK)", "dim3(128)")),
            ("no row", mutant(source, "dim3(rows)", "dim3(row)")),
        ],
    )
    assert statuses(found) == {
        "comment": EQUIVALENT,
        "s>=1": EQUIVALENT,
        "le": DISTINCT,
        "ge": DUPLICATE,
        "barrier": DISTINCT,
        "undeclared": STILLBORN,
        "grid": DISTINCT,
        "grid again": DUPLICATE,
        "block": DISTINCT,
        "no row": STILLBORN,
    }
    assert found["ge"].twin == "le"
    assert found["grid again"].twin == "grid"
    assert found["undeclared"].reason == 'line 25: error: identifier "tip" is undefined'
    assert found["no row"].reason == "line 40: error: 'row' is not declared"
    assert sum(found.counts().values()) == 10
    assert found.backend == "nvrtc"
    assert "sm_90" in found.compiler


@needs_nvrtc
def test_a_mutant_of_the_host_function_needs_no_compilation(kernel):
    source = kernel("matmul")
    seen = []
    classify(
        source,
        [
            ("rows", mutant(source, "(m + TILE - 1)", "(m + TILE)")),
            ("block", mutant(source, "block(TILE, TILE)", "block(TILE, 8)")),
        ],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (1, 1)  # the original's device text only


@needs_nvrtc
def test_a_macro_only_the_host_reads_makes_a_distinct_mutant(kernel):
    source = "#define THREADS 128\n" + mutant(kernel("blur_table"), ", 128>>>", ", THREADS>>>")
    found = classify(source, [("threads", mutant(source, "THREADS 128", "THREADS 64"))])
    assert statuses(found) == {"threads": DISTINCT}


@needs_nvrtc
def test_a_table_value_is_distinct_even_though_the_code_is_equal(kernel):
    source = kernel("blur_table")
    found = classify(
        source,
        [
            ("value", mutant(source, "0.5f", "0.6f")),
            ("same", mutant(source, "0.5f", "0.50f")),
            ("bound", mutant(source, "j < n", "j <= n")),
        ],
    )
    assert statuses(found) == {"value": DISTINCT, "same": EQUIVALENT, "bound": DISTINCT}


@needs_nvrtc
def test_two_kernels_have_one_identity(kernel):
    source = kernel("two_step_sum")
    found = classify(
        source,
        [
            ("second", mutant(source, "v * scale", "v + scale")),
            ("first", mutant(source, "v += x[i]", "v -= x[i]")),
            ("both equal", mutant(source, "lane == 0", "0 == lane")),
        ],
    )
    assert statuses(found) == {"second": DISTINCT, "first": DISTINCT, "both equal": EQUIVALENT}


@needs_nvrtc
def test_too_much_shared_memory_is_stillborn_by_the_assemblers_word(kernel):
    source = kernel("matmul")
    found = classify(
        source,
        [
            ("shared", mutant(source, "as[TILE][TILE]", "as[TILE][TILE * 64]")),
            ("fine", mutant(source, "sum = 0.0f", "sum = 1.0f")),
            ("fine too", mutant(source, "row < m && col < n", "row < m")),
        ],
    )
    assert statuses(found) == {"shared": STILLBORN, "fine": DISTINCT, "fine too": DISTINCT}
    assert "shared" in found["shared"].reason
    assert "__ka" not in found["shared"].reason


@needs_nvrtc
def test_exactly_the_broken_mutants_are_stillborn(kernel):
    source = kernel("matmul")
    broken = {
        "open comment": mutant(source, "float sum", "/* float sum"),
        "open string": mutant(source, "float sum", '" float sum'),
        "extra brace": mutant(source, "float sum", "} float sum"),
        "lost brace": mutant(source, "    if (row < m", "    } if (row < m"),
        "lost bracket": mutant(source, "(row < m && col < n)", "(row < m && col < n"),
        "if 0": mutant(source, "    float sum", "#if 0\n    float sum"),
        "endif": mutant(source, "    float sum", "#endif\n    float sum"),
        "bad macro": mutant(source, "TILE 16", "TILE 16 +"),
        "name": mutant(source, "sum +=", "sun +="),
        "const": mutant(source, "c[row", "a[row"),
    }
    fine = {
        f"fine {number}": mutant(source, "sum = 0.0f", f"sum = {number}.0f")
        for number in range(1, 12)
    }
    mixed = list((broken | fine).items())
    random.Random(3).shuffle(mixed)
    found = classify(source, mixed)
    assert {name for name in found if found[name].status == STILLBORN} == set(broken)
    assert all(found[name].reason for name in broken)


@needs_nvrtc
def test_more_errors_than_the_compiler_reports_at_once_are_all_found(kernel):
    source = kernel("matmul")
    units = [
        unit(str(number), mutant(source, "sum +=", f"sum{number} +=" if number % 2 else "sum -="))
        for number in range(240)
    ]
    worker = Worker()
    try:
        found = stillborn_pass(worker, units)
    finally:
        worker.close()
    assert set(found) == {str(number) for number in range(240) if number % 2}


@needs_nvrtc
def test_a_mutant_that_the_compiler_gives_up_on_is_distinct_by_its_text(kernel, monkeypatch):
    def stopped(worker, units, reference):
        yield from ((part, Refusal("stopped after 60 s", transient=True)) for part in units)

    monkeypatch.setattr("kernelassay.compile.classify.place_batch", stopped)
    source = kernel("softmax")
    found = classify(source, [("slow", mutant(source, "s > 0", "s > 1")), ("same", source)])
    assert statuses(found) == {"slow": DISTINCT, "same": EQUIVALENT}
    assert "stopped after 60 s" in found["slow"].reason


@needs_nvrtc
def test_a_dead_compiler_is_reported_and_replaced(kernel):
    worker = Worker()
    try:
        assert worker.compile("", (), 60).ok
        os.kill(worker._process.pid, signal.SIGSEGV)
        with pytest.raises(WorkerDiedError, match="signal 11"):
            worker.compile("", (), 60)
        assert worker.compile("", (), 60).ok
        with pytest.raises(WorkerDiedError, match="stopped after") as caught:
            worker.compile(kernel("softmax").split("void launch")[0], (), 0.0)
        assert caught.value.transient
        assert worker.compile("", (), 60).ok
    finally:
        worker.close()


@needs_nvrtc
def test_one_mutant_that_crashes_the_compiler_leaves_the_others_alone(kernel, monkeypatch):
    """Workers whose compiler dies on a certain text, as NVRTC does on some mutants."""
    source = kernel("matmul")
    healthy = Worker.compile

    def fragile(self, program, extra, seconds):
        if "sum = 13.0f" in program and not extra:
            healthy(self, "", (), seconds)
            os.kill(self._process.pid, signal.SIGSEGV)
        return healthy(self, program, extra, seconds)

    monkeypatch.setattr(Worker, "compile", fragile)
    mutants = [
        (str(number), mutant(source, "sum = 0.0f", f"sum = {number}.0f"))
        for number in range(10, 16)
    ]
    found = classify(source, mutants)
    assert {name for name in found if found[name].status == STILLBORN} == {"13"}
    assert found["13"].reason.startswith("compiler crash (signal 11")


@needs_nvrtc
def test_a_second_run_reads_the_cache_and_agrees(kernel, tmp_path, monkeypatch):
    source = kernel("half_scale")
    mutants = [
        ("plus", mutant(source, "(x[i]) * factor", "(x[i]) + factor")),
        ("bad", mutant(source, "(x[i]) * factor", "(x[j]) * factor")),
    ]
    first = classify(source, mutants, cache=tmp_path / "images")

    def refuse(self, program, extra, seconds):
        raise AssertionError("nothing is left to compile")

    monkeypatch.setattr(Worker, "compile", refuse)
    second = classify(source, mutants, cache=tmp_path / "images")
    assert dict(first) == dict(second)
    monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "--use_fast_math"))
    with pytest.raises(AssertionError):  # other options are another key
        classify(source, mutants, cache=tmp_path / "images")


@needs_nvrtc
def test_two_workers_give_what_one_gives(kernel):
    source = kernel("matmul")
    mutants = [
        (str(number), mutant(source, "sum = 0.0f", f"sum = {number % 4}.0f")) for number in range(8)
    ]
    one = classify(source, mutants)
    assert dict(classify(source, mutants, jobs=2)) == dict(one)
    assert one.counts() == {STILLBORN: 0, EQUIVALENT: 2, DUPLICATE: 3, DISTINCT: 3}


@needs_nvrtc
def test_two_that_have_the_same_to_do_compile_no_batch_twice(kernel, tmp_path, monkeypatch):
    source = kernel("half_scale")
    mutants = [
        (str(number), mutant(source, "(x[i]) * factor", f"(x[i]) * {number}.0f"))
        for number in range(30)
    ]
    healthy, batched, lock = Worker.compile, [], threading.Lock()

    def counted(self, program, extra, seconds):
        if "ka99999" in program:
            with lock:
                batched.append(program)
        return healthy(self, program, extra, seconds)

    monkeypatch.setattr(Worker, "compile", counted)

    def run(_):
        return classify(source, mutants, jobs=2, cache=tmp_path)

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(run, range(2))
    assert dict(one) == dict(other)
    assert one.counts()[DISTINCT] == 30
    assert len(batched) == len(set(batched)) == 2


@needs_nvrtc
def test_an_original_that_does_not_compile_is_refused(kernel):
    with pytest.raises(KernelSyntaxError, match=r"the original does not compile.*sun"):
        classify(mutant(kernel("matmul"), "sum +=", "sun +="), [])


@needs_nvrtc
def test_it_works_in_a_script_without_a_main_guard_beside_torch(tmp_path, kernel):
    (tmp_path / "m.cu").write_text(kernel("half_scale"))
    script = textwrap.dedent(
        """
        import sys, torch
        from pathlib import Path
        from kernelassay.compile.classify import classify
        torch.ones(8) @ torch.ones(8)
        text = Path(sys.argv[1]).read_text()
        print(classify(text, [("a", text + "// end")], jobs=2)["a"].status)
        """
    )
    path = tmp_path / "script.py"
    path.write_text(script)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(path), str(tmp_path / "m.cu")],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.strip() == EQUIVALENT, done.stderr


def test_the_host_backend_says_so_and_compares_the_hosts_code(kernel):
    source = kernel("softmax")
    found = classify(
        source,
        [
            ("comment", mutant(source, "float top", "/* top */ float top")),
            ("s>1", mutant(source, "s > 0", "s > 1")),
            ("again", mutant(source, "s > 0", "s >  1")),
            ("brace", mutant(source, "return total;\n}", "return total;\n")),
            ("name", mutant(source, "return total;", "return nothing;")),
            ("grid", mutant(source, "dim3(rows)", "dim3(rows + 1)")),
        ],
        backend="host",
    )
    assert found.backend == "host"
    assert statuses(found) == {
        "comment": EQUIVALENT,
        "s>1": DISTINCT,
        "again": DUPLICATE,
        "brace": STILLBORN,
        "name": STILLBORN,
        "grid": DISTINCT,
    }


def test_auto_falls_back_openly_and_nvrtc_does_not(kernel, monkeypatch):
    monkeypatch.setattr(nvrtc, "unavailable_reason", lambda: "cuda.bindings.nvrtc is missing")
    assert classify(kernel("matmul"), []).backend == "host"
    with pytest.raises(ToolchainError, match="missing"):
        classify(kernel("matmul"), [], backend="nvrtc")


def test_ids_must_be_unique(kernel):
    source = kernel("matmul")
    with pytest.raises(UsageError, match="unique"):
        classify(source, [("a", source), ("a", source)], backend="host")


def test_a_damaged_cache_is_named(tmp_path):
    path = tmp_path / "images.sqlite"
    path.write_bytes(b"no database" * 200)
    with pytest.raises(SessionError, match=r"cache cannot be used") as caught:
        ImageCache(path)
    assert str(path) in str(caught.value)


@needs_nvrtc
@pytest.mark.parametrize("header", sorted(CUDA_HEADERS))
def test_every_cuda_header_that_a_file_may_include_compiles(header):
    kernel = 'extern "C" __global__ void k(uint* out) { out[0] = (ushort)1 + (ulong)2; }'
    made = nvrtc.compile_program(f"#include <{header}>\n{nvrtc.PRELUDE}{kernel}\n")
    assert made.ok, made.log
