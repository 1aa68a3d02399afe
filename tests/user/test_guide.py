"""The guide's example runs as it is written, and says what the guide says it says."""

import os
import re
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import kernelassay
from kernelassay.cli import invoke
from kernelassay.errors import UsageError
from kernelassay.user.kernel_file import read_kernel

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "your-own-kernel.md").read_text()
FILES = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", GUIDE, re.S | re.M))
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"^```sh\n(.*?)^```", GUIDE, re.S | re.M)
    for line in block.splitlines()
]
(MESSAGE,) = re.findall(r"^```text\n(.*?)\n```", GUIDE, re.S | re.M)


@pytest.fixture
def example(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_guide_has_its_three_files():
    assert set(FILES) == {"rms_norm.py", "rms_norm.cu", "test_rms_norm.py"}


def test_every_command_of_the_guide_ends_well(example, capsys):
    assert len(COMMANDS) == 4
    for words in COMMANDS:
        assert words[0] == "kernelassay"
        assert invoke(words[1:]) == 0, words
    printed = capsys.readouterr().out
    assert (
        "void launch(const float* x, const float* weight, float* y, int rows, int cols)" in printed
    )
    assert "boundary" in printed


def test_the_misfit_of_the_guide_is_told_as_it_says(example):
    kernel = Path("rms_norm.cu")
    kernel.write_text(
        kernel.read_text().replace("weight, y, cols, 1e-5f)\n#", "weight, y, x, 0)\n#")
    )
    with pytest.raises(UsageError) as caught:
        read_kernel(kernel)
    assert str(caught.value).splitlines()[0] == MESSAGE


def pytest_of(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, with the plugin as an installed package brings it."""
    found = {entry.value for entry in metadata.entry_points(group="pytest11")}
    load = () if "kernelassay.pytest_plugin" in found else ("-p", "kernelassay.pytest_plugin")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *load, *arguments]
    # The package under test, also where the installed one is another.
    root = str(Path(kernelassay.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    return subprocess.run(
        env=environment,
        args=command,
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=540,
    )


def test_the_test_of_the_guide_passes_and_reads_its_measurements_again(example):
    first = pytest_of(example)
    assert first.returncode == 0, first.stdout + first.stderr
    sessions = list(example.glob(".pytest_cache/d/kernelassay/*/manifest.json"))
    assert len(sessions) == 1
    cells = {p: p.stat().st_mtime_ns for p in sessions[0].parent.glob("cells/*/*.parquet")}
    assert cells
    strict = Path("test_rms_norm.py").read_text().replace(">= 0.5", "> 1")
    Path("test_rms_norm.py").write_text(strict)
    again = pytest_of(example)
    assert again.returncode == 1
    assert re.search(r"mutation score \d+\.\d% \(\d+ of \d+ proven faults", again.stdout)
    assert {p: p.stat().st_mtime_ns for p in cells} == cells


def test_a_suite_that_does_not_use_the_fixture_sees_nothing_of_the_plugin(tmp_path):
    (tmp_path / "test_plain.py").write_text(
        "import sys\n\ndef test_plain():\n    assert 'torch' not in sys.modules\n"
    )
    ran = pytest_of(tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert "kernelassay" not in ran.stdout
