"""Two executors are held against each other by verdict, and every difference has a cause."""

import runpy
import sys
from pathlib import Path

from kernelassay import cell
from kernelassay.kernel import Finding
from tests.test_score import OFFICIAL, cells, result, session

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "compare_executors.py"


def stored(root, executor, *replaced):
    """A session of an executor with some cells of the first input replaced."""
    store = session(root, manifest={"executor": executor, "torch": "2"})
    plan = store.read_plan("suite/p")
    inputs = [{**record, "digest": record["id"], "spec": {}} for record in plan["inputs"]]
    store.write_plan("suite/p", {**plan, "inputs": inputs})
    names = {one.candidate for one in replaced}
    kept = [one for one in cells(OFFICIAL[0]) if one.candidate not in names]
    store.write_cells("suite/p", OFFICIAL[0], cell.table([*kept, *replaced]))
    return root


def test_a_difference_that_cuda_leaves_open_counts_and_is_set_apart(tmp_path, monkeypatch, capsys):
    races = (Finding("race-shared", 1, ""),)
    cpu = stored(tmp_path / "cpu", "cpu", result("hidden", OFFICIAL[0], 1.0, findings=races))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(cpu), str(stored(tmp_path / "g", "cuda"))])
    monkeypatch.syspath_prepend(SCRIPT.parent)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    said = capsys.readouterr().out
    # Six mutants on six inputs; "flagged" races on each, and "hidden" on the first.
    assert "0.01 all but synchronization: 97.22% equal (35/36)" in said
    assert "0.01 where CUDA says what happens: 100.00% equal (29/29)" in said
    assert "other families: threads race for shared memory" in said
    assert "suite/p hidden guard-delete: threads race for shared memory (1)" in said


def test_a_variable_that_nothing_set_is_told_by_what_the_cpu_fills_it_with(
    tmp_path, monkeypatch, capsys
):
    filled = result("hidden", OFFICIAL[0], 1.694739530317379e38)
    cpu = stored(tmp_path / "cpu", "cpu", filled)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(cpu), str(stored(tmp_path / "g", "cuda"))])
    monkeypatch.syspath_prepend(SCRIPT.parent)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    said = capsys.readouterr().out
    assert "suite/p hidden guard-delete: a variable that nothing set" in said
