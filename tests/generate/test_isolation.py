"""Code that nobody has read computes and reads files; the system permits it nothing else."""

import os
import random
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from kernelassay.errors import KernelassayError, LimitError, ProblemError
from kernelassay.execute.sandbox import run_limited
from kernelassay.session import Session


def isolated(function, *arguments):
    return run_limited(
        function, arguments, seconds=10, memory_bytes=1 << 30, where="here", isolated=True
    )


def computes():
    import fractions  # noqa: F401 - a file is read

    return np.arange(3.0) @ np.ones(3), random.Random(1).random(), {"features": 3}


def test_isolated_code_computes_and_imports():
    total, drawn, sizes = isolated(computes)
    assert (float(total), drawn, sizes) == (3.0, random.Random(1).random(), {"features": 3})


def writes(path):
    Path(path).write_text("x")


def appends(path):
    with Path(path).open("a") as file:
        file.write("x")


def truncates(path):
    os.truncate(path, 0)


def removes(path):
    Path(path).unlink()


def renames(path):
    Path(path).rename(f"{path}.other")


def links(path):
    Path(f"{path}.link").symlink_to(path)


def permits(path):
    Path(path).chmod(0o777)


def connects(path):
    socket.create_connection(("127.0.0.1", 9), timeout=1)


def pairs(path):
    socket.socketpair()


def forks(path):
    os.fork()


def starts(path):
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def replaces(path):
    os.execv(sys.executable, [sys.executable, "-c", "pass"])


def threads(path):
    threading.Thread(target=print).start()


def kills(path):
    os.kill(os.getppid(), 9)


def loosens(path):
    resource.setrlimit(resource.RLIMIT_CPU, (10_000, 10_000))


ACTS = (
    *(writes, appends, truncates, removes, renames, links, permits),
    *(connects, pairs, forks, starts, replaces, threads, kills, loosens),
)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_isolated_code_is_refused_what_changes_anything(act, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    mode = kept.stat().st_mode
    with pytest.raises(ProblemError, match=r"not permitted|new thread|not allowed"):
        isolated(act, str(kept))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "as it was" and kept.stat().st_mode == mode


def test_isolated_code_holds_no_file_of_its_parent(tmp_path):
    with (tmp_path / "open").open("w") as file, pytest.raises(ProblemError, match="Bad file"):
        isolated(os.write, file.fileno(), b"x")
    assert (tmp_path / "open").read_text() == ""


def loops():
    while True:
        pass


def test_isolated_code_that_loops_is_ended():
    with pytest.raises(LimitError, match="did not end"):
        run_limited(loops, (), seconds=0.5, memory_bytes=1 << 30, where="x", isolated=True)


class Sneaky:
    def __reduce__(self):
        return Session.open, (Path("/"),)


class Built:
    def __reduce__(self):
        return Session, (Path("/"), {}, None)


@pytest.mark.parametrize("sent", [Sneaky, Built], ids=lambda one: one.__name__)
def test_an_isolated_result_builds_no_object_of_ours(sent):
    with pytest.raises(ProblemError, match="no plain value"):
        isolated(sent)


def raises():
    raise KernelassayError("said so", where="inside")


def test_an_error_of_ours_comes_back_as_it_is():
    with pytest.raises(KernelassayError, match="inside: said so"):
        isolated(raises)
