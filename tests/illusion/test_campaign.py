"""A campaign of the fuzz: lanes, resumption, interruption, mutants from a file."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelassay import cli
from kernelassay.illusion import population
from kernelassay.illusion.corpus import entry
from kernelassay.illusion.trials import Trials

ROWS = ("softmax", "softmax_llm_buggy", "matmul")
COMMAND = [sys.executable, "-c", "from kernelassay.cli import main; main()"]


def arguments(session, *more):
    return [
        "illusion",
        "run",
        *ROWS,
        "--session",
        str(session),
        "--cases",
        "3",
        "--jobs",
        "2",
        *more,
    ]


def rows(session):
    table = Trials.open(session).table()
    return sorted(table.to_pylist(), key=lambda row: (row["kernel"], row["strategy"], row["index"]))


def test_a_run_resumes_where_it_was_interrupted_and_ends_as_if_it_had_not_been(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    every = ("--strategy", "published")
    assert cli.invoke(arguments(whole, *every)) == 0
    process = subprocess.Popen([*COMMAND, *arguments(cut, *every)], start_new_session=True)
    until = time.monotonic() + 120
    while not list(cut.glob("trials/*/*.parquet")) and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) in (0, 130)
    kept = {path: path.stat().st_mtime_ns for path in cut.glob("trials/*/*.parquet")}
    assert kept
    assert cli.invoke(arguments(cut, *every)) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert rows(cut) == rows(whole)


def test_a_run_leaves_no_folder_of_its_workers(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    done = subprocess.run([*COMMAND, *arguments(tmp_path / "session")], check=False)
    assert done.returncode == 0
    assert [*scratch.iterdir()] == []


def test_lanes_end_with_a_run_that_is_killed(tmp_path):
    marked = {**os.environ, "KERNELASSAY_TEST_RUN": str(tmp_path)}
    more = ("--cases", "100000")
    process = subprocess.Popen([*COMMAND, *arguments(tmp_path / "session"), *more], env=marked)
    _until(lambda: len(_with(marked)) >= 4)  # the run, two lanes, what starts processes
    process.kill()
    process.wait()
    _until(lambda: not _with(marked))


def _with(environment):
    """The processes that have inherited a mark."""
    mark = f"KERNELASSAY_TEST_RUN={environment['KERNELASSAY_TEST_RUN']}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(path)
    return found


def _until(holds):
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_session_of_another_plan_is_not_continued(tmp_path, capsys):
    session = tmp_path / "session"
    assert cli.invoke(arguments(session)) == 0
    assert cli.invoke(arguments(session, "--seed", "1")) == 1
    assert "another plan" in capsys.readouterr().err


@pytest.fixture
def triton():
    pytest.importorskip("triton")
    pytest.importorskip("libcst")


def test_mutants_are_made_run_and_scored_and_their_buckets_close(tmp_path, capsys, triton):
    made, session = tmp_path / "mutants.json", tmp_path / "session"
    made_by = ["illusion", "mutants", "relu_triton", "--sample", "5", "--out", str(made)]
    assert cli.invoke([*made_by, "--jobs", "2"]) == 0
    (population,) = json.loads(made.read_text())["populations"]
    faults = [one for one in population["mutants"] if not one["benign"]]
    assert len(faults) == 5
    run = ["illusion", "run", "relu_triton", "--session", str(session), "--cases", "2"]
    assert cli.invoke([*run, "--strategy", "boundary", "--mutants", str(made), "--jobs", "1"]) == 0
    capsys.readouterr()
    assert cli.invoke(["illusion", "score", str(session), "--budget", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    assert found["buckets"]["generated"] == 5
    assert found["buckets"]["distinct"] == sum(one["status"] == "distinct" for one in faults)
    assert {one["strategy"] for one in found["mutants"]} == {
        "boundary",
        "matrix-chosen",
        "matrix-chosen, by rule",
    }


def test_without_a_kernel_to_mutate_there_is_no_file(tmp_path, capsys):
    made = tmp_path / "mutants.json"
    kernels = ["matmul", "gelu_triton_buggy"]
    assert cli.invoke(["illusion", "mutants", *kernels, "--out", str(made)]) == 4
    assert "no correct kernel in Triton" in capsys.readouterr().err
    assert not made.exists()


def test_mutants_of_the_kernels_that_are_done_are_kept(tmp_path, monkeypatch):
    made = tmp_path / "mutants.json"

    def interrupted(op, *_):
        if op.name == "silu_triton":
            raise KeyboardInterrupt
        return population.Population(op.name, "0" * 16, ())

    monkeypatch.setattr(population, "populate", interrupted)
    kernels = ["relu_triton", "silu_triton"]
    assert cli.invoke(["illusion", "mutants", *kernels, "--out", str(made)]) == 130
    assert [*population.read(made)] == ["relu_triton"]


def test_a_users_kernel_has_mutants_and_is_their_control(tmp_path, capsys, triton):
    text = entry("relu_triton").text
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "mine.toml").write_text(
        'kernel = "mine.py"\nreference = "relu"\noutput = ["N"]\n'
        "[dims]\nN = [1, 33]\n[inputs]\nx = ['N']\n"
    )
    made, op = str(tmp_path / "mutants.json"), ["--op", str(tmp_path / "mine.toml")]
    assert cli.invoke(["illusion", "mutants", *op, "--sample", "3", "--out", made]) == 0
    session = str(tmp_path / "session")
    run = ["illusion", "run", *op, "--session", session, "--cases", "2", "--jobs", "1"]
    assert cli.invoke([*run, "--mutants", made]) == 0
    capsys.readouterr()
    assert cli.invoke(["illusion", "score", session, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    assert found["buckets"]["generated"] == 3
    assert [one["role"] for one in found["strategies"][0]["kernels"]] == ["control"]


def test_mutants_of_another_text_are_refused(tmp_path, capsys):
    made = tmp_path / "mutants.json"
    record = {"kernel": "relu_triton", "digest": "0" * 16, "mutants": []}
    whole = {"kernelassay": "triton-mutants", "version": 1, "populations": [record]}
    made.write_text(json.dumps(whole))
    run = ["illusion", "run", "--session", str(tmp_path / "s"), "--mutants", str(made)]
    assert cli.invoke([*run, "relu_triton"]) == 1
    assert "another text" in capsys.readouterr().err
    assert cli.invoke([*run, "gelu_triton"]) == 1
    assert "relu_triton" in capsys.readouterr().err
    made.write_text("{}")
    assert cli.invoke([*run, "relu_triton"]) == 1
    assert "no file of mutants" in capsys.readouterr().err
