"""A candidate may do what it likes: there is a verdict, and the next candidate gets its own."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import pytest

from kernelassay.check import Candidate

RIGHT = "return torch.softmax(x, dim=1)"


@pytest.fixture(autouse=True)
def the_next_candidate_is_judged_as_ever(judged):
    yield
    assert judged(RIGHT).accepted


def running():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace")


def rejected(verdict, reason):
    assert not verdict.accepted
    assert verdict.rejection.reason == reason, verdict.rejection
    return verdict.rejection


@pytest.mark.parametrize(
    ("top", "said"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("1 / 0", "ZeroDivisionError"),
        ("def broken(:", "SyntaxError"),
        ("sys.exit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_a_file_that_does_not_import_is_rejected_with_its_error(judged, top, said):
    found = rejected(judged(top=top), "does-not-import")
    assert said in found.detail
    assert found.input is None


def test_a_file_without_the_class_is_rejected(softmax):
    found = rejected(softmax.check(Candidate("c", "x = 1\n")), "does-not-import")
    assert "ModelNew" in found.detail


def test_a_class_that_cannot_be_built_is_rejected(softmax):
    text = "class ModelNew:\n    def __init__(self):\n        raise ValueError('no')\n"
    found = rejected(softmax.check(Candidate("c", text)), "does-not-build")
    assert "ValueError: no" in found.detail


def test_a_forward_that_raises_is_rejected_with_its_error(judged):
    found = rejected(judged("raise RuntimeError('not today')"), "raises")
    assert "RuntimeError: not today" in found.detail
    assert found.input.id == "official-0"
    assert found.smallest.shapes == ((1, 1),)


def test_an_error_that_cannot_be_shown_is_rejected(judged):
    top = "class Odd(Exception):\n    def __str__(self):\n        raise ValueError"
    assert "cannot be read" in rejected(judged("raise Odd", top), "raises").detail


def test_a_loop_without_end_is_ended(judged):
    assert "within 3 s" in rejected(judged("while True: pass"), "hangs").detail
    rejected(judged("time.sleep(1000)"), "hangs")


@pytest.mark.parametrize("code", [0, 7])
def test_the_exit_code_of_a_process_that_ends_itself_says_nothing(judged, code):
    found = rejected(judged(f"os._exit({code})"), "ends")
    assert f"exited with {code}" in found.detail


def test_a_crash_of_the_process_is_rejected(judged):
    found = rejected(judged("import ctypes\nctypes.string_at(8)"), "ends")
    assert "SIGSEGV" in found.detail


def test_too_much_memory_is_refused(judged):
    rejected(judged("return torch.ones(8 << 30).sum() + x"), "out-of-memory")
    rejected(judged("return bytearray(8 << 30)"), "out-of-memory")


def test_endless_output_is_ended(judged):
    rejected(judged("while True: os.write(1, b'x' * 65536)"), "prints")


def test_little_output_does_no_harm(judged):
    assert judged(f"print('hello', file=sys.stderr)\n{RIGHT}").accepted


def test_files_can_be_written_in_the_scratch_folder_alone(judged, tmp_path):
    assert judged(f"open('kept', 'w').write('x')\n{RIGHT}").accepted
    verdict = judged(f"open({str(tmp_path / 'escaped')!r}, 'w').write('x')\n{RIGHT}")
    assert not (tmp_path / "escaped").exists() or verdict.missing
    assert not verdict.accepted or verdict.missing


def test_the_memory_of_the_inputs_cannot_be_shrunk(judged):
    forward = (
        "for n in range(3, 4096):\n"
        "    try:\n        os.ftruncate(n, 0)\n    except OSError:\n        pass\n"
        "for name in os.listdir('.'):\n    os.truncate(name, 0)\n"
    )
    assert judged(forward + RIGHT).accepted


def test_a_file_without_end_is_ended(judged):
    forward = "f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20))"
    assert not judged(forward).accepted


def test_nothing_that_a_candidate_starts_outlives_it(judged, tmp_path):
    mark = f"sleeper-{os.getpid()}"
    forward = (
        f"if os.fork() == 0:\n    os.setsid()\n    os.execv({sys.executable!r}, ['{mark}', '-c',"
        f" 'import time; time.sleep(60)'])\n{RIGHT}"
    )
    judged(forward)
    assert mark not in "".join(running())


def test_processes_without_end_are_ended(judged):
    forward = "while True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    assert not judged(forward).accepted


def test_the_problem_cannot_be_read(judged, softmax):
    verdict = judged(f"open({softmax.problem.path!r}).read()\n{RIGHT}")
    if not verdict.missing:
        assert "PermissionError" in rejected(verdict, "raises").detail


def test_other_processes_cannot_be_reached(judged):
    verdict = judged(f"os.kill({os.getpid()}, 0)\n{RIGHT}")
    if not verdict.missing:
        assert "ProcessLookupError" in rejected(verdict, "raises").detail


def test_what_it_does_to_torch_stays_in_its_process(judged):
    top = "torch.softmax = torch.allclose = torch.equal = lambda *a, **k: torch.zeros(16, 256)"
    rejected(judged("return torch.softmax(x)", top), "wrong-values")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("torch.softmax(x, dim=1)[:1]", "wrong-shape"),
        ("torch.softmax(x, dim=1).double()", "wrong-dtype"),
        ("torch.softmax(x, dim=1).bfloat16()", "wrong-dtype"),
        ("torch.softmax(x, dim=1).to('meta')", "no-values"),
        ("torch.softmax(x, dim=1).to_sparse()", "no-values"),
        ("(x, x)", "wrong-count"),
        ("[x] * 3000", "wrong-count"),
        ("torch.softmax(x, dim=1).as_subclass(Odd)", "no-values"),
        ("{'y': torch.softmax(x, dim=1)}", "no-tensor"),
        ("[[torch.softmax(x, dim=1)]]", "no-tensor"),
        ("torch.nested.nested_tensor(list(x))", "no-values"),
        ("torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)", "wrong-dtype"),
        ("torch.softmax(x, dim=1) + 0j", "wrong-dtype"),
        ("[]", "no-tensor"),
        ("None", "no-tensor"),
        ("torch.softmax(x, dim=1).numpy()", "no-tensor"),
        ("torch.empty(1 << 20, 1 << 20, device='meta').expand(4, -1, -1)", "no-values"),
        ("torch.zeros(1).expand(1 << 12, 1 << 14)", "wrong-shape"),
    ],
)
def test_a_result_of_another_kind_is_rejected(judged, result, reason):
    top = (
        "class Odd(torch.Tensor):\n    @classmethod\n"
        "    def __torch_function__(cls, *arguments): raise ValueError('no')"
    )
    rejected(judged(f"return {result}", top), reason)


def test_the_input_back_as_a_view_is_rejected(judged):
    found = judged("out = torch.softmax(x, dim=1)\nreturn x.copy_(out)")
    rejected(found, "changes-input")


def test_text_of_a_candidate_reaches_no_terminal_as_it_is(judged):
    found = rejected(judged("raise RuntimeError('a\\x1b[2Jb\\nc')"), "raises")
    assert "\x1b" not in found.detail
    assert "\n" not in found.detail


def test_the_scratch_folder_is_gone_after_a_verdict(judged, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    forward = f"open('kept', 'w').write('x')\nassert os.getcwd().startswith({str(tmp_path)!r})\n"
    assert judged(forward + RIGHT).accepted
    assert not list(tmp_path.iterdir())


def test_nothing_stays_in_shared_memory(judged):
    name = f"/dev/shm/left-by-{os.getpid()}"
    verdict = judged(f"open({name!r}, 'w').write('x')\n{RIGHT}")
    left = Path(name).exists()
    Path(name).unlink(missing_ok=True)
    assert verdict.missing or not left
    assert verdict.missing or "PermissionError" in rejected(verdict, "raises").detail


# Replaces the answer by a head of its own, whose number it reads from the frames around it.
FORGES = """import struct
frame = sys._getframe()
while "head" not in frame.f_locals: frame = frame.f_back
number = frame.f_locals["head"]["number"]
head = b'{"number": %d, HEAD, "notes": NOTES}' % number
for n in range(3, 64):
    try: os.write(n, struct.pack("<I", len(head)) + head)
    except OSError: pass
"""


@pytest.mark.parametrize(
    ("head", "notes"),
    [
        ('"outputs": [{"dtype": "float32", "shape": [Infinity], "device": "cpu"}]', "[]"),
        ('"outputs": [{"dtype": "float32", "shape": [NaN], "device": "cpu"}]', "[]"),
        ('"outputs": [[]]', "[]"),
        ('"outputs": []', "{}"),
        ('"outputs": 3', "3"),
    ],
)
def test_a_forged_head_of_another_form_is_rejected(judged, head, notes):
    forward = FORGES.replace("HEAD", head).replace("NOTES", notes) + RIGHT
    assert not judged(forward).accepted


def test_names_of_parameters_reach_no_terminal_as_they_are(softmax):
    text = (
        "import torch\nfrom torch import nn\n"
        "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_parameter('a\\x1b[2J', nn.Parameter(torch.ones(3)))\n"
        "    def forward(self, x):\n        next(self.parameters()).add_(1)\n"
        "        return torch.softmax(x, dim=1)\n"
    )
    found = rejected(softmax.check(Candidate("c", text)), "changes-parameter")
    assert found.detail == "a [2J"
