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


def descendants(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                child = int(stat.parent.name)
                found += [child, *descendants(child)]
    return found


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_is_killed(tmp_path, sent):
    session = tmp_path / "session"
    command = [*COMMAND, *arguments(session, "--strategy", "all", "--cases", "10000")]
    process = subprocess.Popen(command, start_new_session=True)
    until = time.monotonic() + 120
    # The process that multiprocessing tracks resources with, two lanes, and what they run.
    while len(started := descendants(process.pid)) < 5 and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(sent)
    process.wait(timeout=60)
    until = time.monotonic() + 60
    while any(map(running, started)) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(started) >= 5
    assert not [pid for pid in started if running(pid)]


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
    assert {one["strategy"] for one in found["mutants"]} == {"boundary", "matrix-chosen"}


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
