import os

import pytest

from kernelassay.execute import confinement
from kernelassay.execute.sandbox import run_limited


def confined(readable, writable, hidden, function):
    def inside():
        if not confinement.confine_files(readable, writable, hidden):
            return "no fence"
        return function()

    found = run_limited(inside, (), seconds=20, memory_bytes=1 << 30, where="here")
    if found == "no fence":
        pytest.skip("this kernel has no Landlock")
    return found


def reads(path):
    try:
        return path.read_text()
    except PermissionError:
        return "refused"


def test_what_is_hidden_cannot_be_read_and_what_lies_beside_it_can(tmp_path):
    for name in ("open/a", "open/inner/b", "open/inner/secret", "closed/c"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)

    def look():
        names = ("open/a", "open/inner/b", "open/inner/secret", "closed/c")
        return [reads(tmp_path / name) for name in names]

    hidden = [tmp_path / "open/inner/secret"]
    found = confined([tmp_path / "open"], [], hidden, look)
    assert found == ["open/a", "open/inner/b", "refused", "refused"]


def test_only_the_scratch_folder_can_be_written(tmp_path):
    (tmp_path / "scratch").mkdir()

    def write():
        (tmp_path / "scratch/a").write_text("kept")
        try:
            (tmp_path / "b").write_text("escaped")
        except PermissionError:
            return (tmp_path / "scratch/a").read_text()

    assert confined([], [tmp_path / "scratch"], [], write) == "kept"
    assert not (tmp_path / "b").exists()


def test_processes_outside_cannot_be_traced(tmp_path):
    pid = os.getpid()

    def look():
        try:
            with open(f"/proc/{pid}/mem", "rb"):  # noqa: PTH123
                return "opened"
        except PermissionError:
            return "refused"

    from pathlib import Path

    assert confined([Path("/proc")], [], [], look) == "refused"
