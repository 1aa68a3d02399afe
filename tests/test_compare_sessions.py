"""Two sessions count as equal in what they share only where they share something."""

import runpy
import sys
from pathlib import Path

import pytest

from kernelassay import cell
from kernelassay.kernel import Finding
from kernelassay.session import Session
from tests.test_score import OFFICIAL, cells, result, session

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "compare_sessions.py"


def compared(monkeypatch, capsys, *roots):
    """The exit code, and what is printed."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, roots)])
    with pytest.raises(SystemExit) as ending:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return ending.value.code, capsys.readouterr().out


def test_sessions_without_a_cell_in_common_are_not_called_equal(tmp_path, monkeypatch, capsys):
    for name in ("a", "b"):
        Session.create(tmp_path / name, {"problems": {}, "torch": "2"}).close()
    code, said = compared(monkeypatch, capsys, tmp_path / "a", tmp_path / "b")
    assert code == 1
    assert "0 cells of 0 inputs" in said


@pytest.mark.parametrize(("executor", "equal"), [("cuda", True), ("cpu", False)])
def test_what_two_runs_on_a_gpu_differed_in_is_not_compared(
    tmp_path, monkeypatch, capsys, executor, equal
):
    """One session saw it and the other did not; on the CPU no output depends on who comes first."""
    races = (Finding("order-dependent", 1, "two runs differ"),)
    for name, seen in (("a", result("seen", OFFICIAL[0], 0.5, findings=races)), ("b", None)):
        store = session(tmp_path / name, manifest={"executor": executor, "torch": "2"})
        plan = store.read_plan("suite/p")
        inputs = [{**record, "digest": record["id"], "spec": {}} for record in plan["inputs"]]
        problem = {**plan["problem"], "digest": "d"}
        store.write_plan("suite/p", {**plan, "problem": problem, "inputs": inputs})
        if seen:
            others = [one for one in cells(OFFICIAL[0]) if one.candidate != "seen"]
            store.write_cells("suite/p", OFFICIAL[0], cell.table([*others, seen]))
    code, said = compared(monkeypatch, capsys, tmp_path / "a", tmp_path / "b")
    assert (code == 0) == equal
    assert ("1 candidates are left out" in said) == equal
    assert ("; 0 differ" in said) == equal
