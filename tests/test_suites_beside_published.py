"""Suites of a session beside the published ones: whose shares they are, and of what."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from kernelassay.synthesis import choosers
from tests.made_session import made

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "suites_beside_published.py"


def printed(monkeypatch, capsys, *arguments):
    """What the command prints, its lines split into cells, by section."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
    monkeypatch.syspath_prepend(SCRIPT.parent)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    head, *sections = capsys.readouterr().out.split("\n\n")
    found = {"": head}
    for section in sections:
        title, _, *lines = section.splitlines()
        rows = [[c.strip() for c in line.split("  ") if c.strip()] for line in lines]
        found[title] = {row[0]: row[1:] for row in rows}
    return found


def test_ours_stand_beside_the_published_figures_with_both_denominators(
    tmp_path, monkeypatch, capsys
):
    made(tmp_path / "s", benign={"benign/b": {"ramp-s1": 0.5}})
    found = printed(monkeypatch, capsys, tmp_path / "s")
    assert found[""].startswith("1 problems, 6 mutants witnessed at 0.01; 5 of them detectable")
    known = found["chosen on all mutants, scored on them"]
    assert known["greedy"] == ["66.7%", "83.3%", "83.3%", "83.3%"]
    assert known["published (greedy)"] == ["87.1%", "98.0%", "99.5%", "100.0%"]
    assert "the five official inputs: 16.7% (published 83.1%)" in known
    assert "held out by problem" not in found


def test_trying_other_constants_leaves_the_constants_as_they_are(tmp_path, monkeypatch, capsys):
    made(tmp_path / "s", problems=("suite/p", "suite/q"))
    kept = choosers.DOUBT, choosers.PRIOR
    found = printed(monkeypatch, capsys, "--doubt", tmp_path / "s")
    assert kept == (choosers.DOUBT, choosers.PRIOR)
    assert found["held out by problem"]["smoothed"] == ["66.7%", "83.3%", "100.0%", "100.0%"]
    assert "0.1" in found["the smoothed choice with other constants"]


def test_many_ways_to_halve_have_a_mean_within_their_bounds(tmp_path, monkeypatch, capsys):
    made(tmp_path / "s", problems=("suite/p", "suite/q"))
    found = printed(monkeypatch, capsys, "--splits", tmp_path / "s")
    (rows,) = (rows for title, rows in found.items() if title.startswith("20 ways to halve"))
    for cells in (rows["smoothed"], rows["greedy"]):
        for cell in cells[1:]:
            mean, least, most = map(float, re.fullmatch(r"(.+) \((.+) to (.+)\)", cell).groups())
            assert least <= mean <= most <= 100


def test_a_directory_that_is_no_session_ends_with_an_error(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="not a session directory"):
        printed(monkeypatch, capsys, tmp_path)
