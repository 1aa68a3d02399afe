"""The strongest fences that what runs behind them bears."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kernelassay.execute.confinement import ALL_NAMESPACES, NO_PROCESSES, Fences

PROGRAM = """
import os, socket, sys
from pathlib import Path
from kernelassay.execute.bearing import bearable
{starts}
print(repr(bearable(starts)))
"""


def bearable(starts):
    """In a process of its own, which has one thread."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(starts=starts)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return eval(done.stdout, {"Fences": Fences})


def namespaces_work():
    return bearable("def starts(): assert os.getpid() < 10").namespaces != 0


def test_what_needs_nothing_is_put_behind_all():
    assert bearable("def starts(): pass") == Fences()


def test_what_never_starts_is_put_behind_none():
    assert bearable("def starts(): raise OSError") == Fences(0, False)
    assert bearable("def starts(): os._exit(1)") == Fences(0, False)


def test_a_trial_that_cannot_begin_ends_where_it_was_started():
    failing = (
        "from kernelassay.execute import bearing\n"
        "def starts(): pass\n"
        "def unshare(namespaces): raise OSError\n"
        "bearing.unshare = unshare"
    )
    assert bearable(failing) == Fences(0, False)


@pytest.mark.parametrize(("folder", "opened"), [("/dev/shm", ("/dev",)), ("/tmp", None)])
def test_folders_are_opened_that_are_written_to(folder, opened):
    if not os.access(folder, os.W_OK):
        pytest.skip(f"{folder} is not writable here")
    found = bearable(f"def starts(): Path({folder!r}, 'kernelassay').write_text('')")
    assert found.files
    assert found.open == opened if opened else folder in found.open
    Path(folder, "kernelassay").unlink()


def test_a_process_that_must_know_its_number_keeps_it():
    if not namespaces_work():
        pytest.skip("namespaces are not to be had here")
    found = bearable("outer = os.getpid()\ndef starts(): assert os.getpid() >= outer")
    assert found == Fences(NO_PROCESSES)
    assert NO_PROCESSES != ALL_NAMESPACES


def test_the_network_is_left_where_it_is_needed():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        found = bearable(f"def starts(): socket.create_connection(('127.0.0.1', {port}), 5)")
    assert found == Fences(0)
