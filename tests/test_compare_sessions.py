"""Two sessions count as equal in what they share only where they share something."""

import runpy
import sys
from pathlib import Path

import pytest

from kernelassay.session import Session

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "compare_sessions.py"


def test_sessions_without_a_cell_in_common_are_not_called_equal(tmp_path, monkeypatch, capsys):
    for name in ("a", "b"):
        Session.create(tmp_path / name, {"problems": {}, "torch": "2"}).close()
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(tmp_path / "a"), str(tmp_path / "b")])
    with pytest.raises(SystemExit) as ending:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert ending.value.code == 1
    assert "0 cells of 0 inputs" in capsys.readouterr().out
