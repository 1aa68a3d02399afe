import os
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from kernelassay.errors import ProblemError, UsageError
from kernelassay.execute.sandbox import run_limited
from kernelassay.problem import Lever, load, read_problem

TAIL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.rand(4)]
def get_init_inputs():
    return []
"""


def limited(function, *args, seconds=20.0, memory=1 << 30):
    return run_limited(function, args, seconds=seconds, memory_bytes=memory, where="here")


@pytest.fixture
def importing(tmp_path):
    """Import a problem file with this text under limits."""

    def run(text, **limits):
        path = tmp_path / "p.py"
        path.write_text(text + TAIL)

        def work():
            load(read_problem(path))

        return limited(work, **limits)

    return run


def test_results_and_arguments_cross_unchanged():
    value = {"a": (1, 2.5, None), "b": [Lever("rows", 3)], "c": {1, 2}}
    assert limited(lambda x: x, value) == value
    assert np.array_equal(limited(np.arange, 5), np.arange(5))


def test_torch_computes_on_one_thread_after_the_parent_used_several():
    x = torch.rand(300, 300)
    expected = (x @ x).sum().item()
    threads, total = limited(lambda: (torch.get_num_threads(), (x @ x).sum().item()))
    assert threads == 1
    assert total == pytest.approx(expected, rel=1e-4)


def test_errors_of_the_package_arrive_as_they_were():
    def fail():
        raise UsageError("wrong", where="there", hint="do so")

    with pytest.raises(UsageError, match="there: wrong\n  hint: do so"):
        limited(fail)


def test_an_endless_loop_is_ended(importing):
    began = time.monotonic()
    with pytest.raises(ProblemError, match=r"here: did not end within 0\.5 s"):
        importing("while True: pass", seconds=0.5)
    assert time.monotonic() - began < 10


def test_a_process_that_ends_itself_is_reported(importing):
    with pytest.raises(ProblemError, match="the process exited with 7"):
        importing("import os; os._exit(7)")
    with pytest.raises(ProblemError, match="was killed by SIGSEGV"):
        importing("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")


@pytest.mark.parametrize("statement", ["bytearray(8 << 30)", "torch.ones(2 << 30)"])
def test_too_much_memory_is_refused(importing, statement):
    with pytest.raises(ProblemError, match="needs more than 1024 MB"):
        importing(f"import torch\nx = {statement}\n")


def test_endless_output_is_ended(importing):
    with pytest.raises(ProblemError, match="printed more than 16 MB"):
        importing("while True: print('x' * 4096)")


def test_an_exception_on_import_names_its_line(importing):
    with pytest.raises(ProblemError, match=r"p\.py:1: does not import: ZeroDivisionError"):
        importing("1 / 0")


def test_output_is_captured_and_its_last_line_shown(importing, capfd):
    with pytest.raises(ProblemError, match="its last output was: goodbye"):
        importing("import os; print('hello\\ngoodbye', flush=True); os._exit(1)")
    assert capfd.readouterr() == ("", "")


def test_processes_the_child_started_are_ended_with_it():
    def start():
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        return process.pid

    pid = limited(start)
    for _ in range(100):
        if not os.path.exists(f"/proc/{pid}") or is_zombie(pid):  # noqa: PTH110
            return
        time.sleep(0.05)
    pytest.fail("the grandchild is alive")


def is_zombie(pid):
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        return file.read().rsplit(")", 1)[1].split()[0] == "Z"


def test_a_result_that_is_no_plain_value_is_refused():
    with pytest.raises(ProblemError, match=r"os\.getcwd is no plain value|posix\.getcwd"):
        limited(lambda: os.getcwd)


def test_no_file_descriptor_stays_open():
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        limited(len, "abc")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
