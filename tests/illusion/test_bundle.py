"""A bundle is enough to run a failing case again, and nothing else is taken for one."""

import base64
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay.cli import invoke
from kernelassay.errors import DeviceError, KernelassayError, SessionError, UsageError
from kernelassay.execute.execution import Execution
from kernelassay.illusion import benches, bundle_file
from kernelassay.illusion.benches import bench_for
from kernelassay.illusion.bundle import (
    STORED_BYTES,
    content_digest,
    made,
    plain,
    write,
)
from kernelassay.illusion.cases import Case, drawn
from kernelassay.illusion.corpus import entry
from kernelassay.illusion.oracle import Rule
from kernelassay.illusion.replay import replay
from kernelassay.illusion.trial import Examiner
from kernelassay.illusion.values import VALUES
from kernelassay.session import Session
from tests.illusion.benches import NumpyBench

FAULTY = entry("softmax_llm_buggy")
LEAKY = replace(FAULTY, name="leaky", reference="leaky_relu", text="def run(x): return x * 2\n")


def a_case(**changed):
    fields = {
        "strategy": "default",
        "index": 3,
        "seed": 17,
        "dtype": "float32",
        "layout": "padded",
        "sizes": (("B", 2), ("S", 7), ("H", 3)),
        "values": "uniform",
    }
    return Case(**{**fields, **changed})


def bundled(case=None, op=FAULTY, rule=None, **changed):
    examiner = Examiner(op, rule or Rule())
    trial = examiner.run(NumpyBench(forks=False), case or a_case())
    return made(examiner, trial, "numpy", **{"deterministic": True, **changed})


BUNDLE = bundled()
BYTES = BUNDLE.to_bytes()


def again(bundle, **options):
    return replay(bundle, NumpyBench(forks=False), **options)


def changed_file(folder, change, *, digest=True):
    """A file whose content was changed, with a digest that fits or without."""
    data = json.loads(BYTES)
    change(data)
    if digest:
        data["digest"] = content_digest(data)
    path = folder / "changed.json"
    path.write_text(json.dumps(data))
    return path


def said_of(path):
    with pytest.raises(UsageError) as caught:
        bundle_file.read(path)
    assert caught.value.hint
    assert str(path) in caught.value.where
    return caught.value.what


# ---- canonical -----------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    dtype=st.sampled_from(["float32", "float16"]),
    layout=st.sampled_from(["contiguous", "padded", "stepped", "transposed"]),
    values=st.sampled_from(sorted(VALUES)),
    h=st.integers(1, 5),
    rule=st.builds(
        Rule,
        nonfinite=st.sampled_from(["strict", "matched", "ignored"]),
        reference=st.sampled_from(["rounded", "exact"]),
        scale=st.floats(0.5, 2),
    ),
)
def test_equal_content_is_equal_bytes_and_reads_back_as_it_was(
    tmp_path_factory, seed, dtype, layout, values, h, rule
):
    case = a_case(
        seed=seed, dtype=dtype, layout=layout, values=values, sizes=(("B", 1), ("S", 2), ("H", h))
    )
    examiner = Examiner(FAULTY, rule)
    trials = [examiner.run(NumpyBench(forks=False), case) for _ in range(2)]
    if not trials[0].failure:
        with pytest.raises(ValueError, match="does not fail"):
            made(examiner, trials[0], "numpy", deterministic=True)
        return
    first, second = (made(examiner, one, "numpy", deterministic=True).to_bytes() for one in trials)
    assert first == second
    path = tmp_path_factory.mktemp("b") / "one.json"
    path.write_bytes(first)
    read = bundle_file.read(path)
    assert read.to_bytes() == first
    replayed = again(read)
    assert (replayed.differences, replayed.compared) == ((), ("inputs", "bytes", "verdict"))
    assert replayed.trial.inputs[0].strides == trials[0].inputs[0].strides


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, len(BYTES) - 1), byte=st.integers(0, 255))
def test_one_corrupted_byte_is_refused_or_changes_nothing(tmp_path_factory, place, byte):
    path = tmp_path_factory.mktemp("b") / "one.json"
    path.write_bytes(BYTES[:place] + bytes([byte]) + BYTES[place + 1 :])
    try:
        read = bundle_file.read(path)
    except UsageError as error:
        assert error.what and error.hint
    else:
        assert read == BUNDLE


@pytest.mark.parametrize("kept", [0, 1, 2, len(BYTES) // 2, len(BYTES) - 3])
def test_a_truncated_file_is_refused(tmp_path, kept):
    path = tmp_path / "one.json"
    path.write_bytes(BYTES[:kept])
    assert "is no JSON" in said_of(path)


def test_another_process_writes_the_same_bytes(tmp_path):
    program = (
        "from tests.illusion.test_bundle import BYTES; import sys; sys.stdout.buffer.write(BYTES)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env=environment, cwd=root
    )
    assert run.stdout == BYTES


def test_a_file_is_named_after_its_kernel_and_case_and_written_whole(tmp_path):
    path = write(tmp_path, BUNDLE)
    assert path.name == f"softmax_llm_buggy-{BUNDLE.case.id}.json"
    assert path.read_bytes() == BYTES
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    other = bundled(a_case(seed=18))
    assert other.name != BUNDLE.name
    assert write(tmp_path / "named.json", other).read_bytes() == other.to_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError):
        write(tmp_path / "file" / "x.json", BUNDLE)


def test_small_inputs_are_stored_and_large_ones_drawn_again():
    assert BUNDLE.elements is not None
    large = bundled(a_case(sizes=(("B", 8), ("S", 128), ("H", 257))))
    assert STORED_BYTES < 4 * 8 * 128 * 257
    assert large.elements is None
    assert not again(large).differences


def test_stored_inputs_are_those_that_the_case_draws():
    assert again(replace(BUNDLE, elements=None)).differences == ()


# ---- what is no bundle ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no JSON"),
        ("\udcff\udcfe", "is no JSON"),
        ('{"a": NaN}', "is no replay bundle"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "its content is list"),
        ("{}", "it does not say what it is"),
        ('{"schema": "kernelassay/check"}', "it says 'kernelassay/check'"),
        ('{"kernelassay": "other"}', "it says 'other'"),
        ('{"kernelassay": "illusion-replay"}', "of version None, not 1"),
        ('{"kernelassay": "illusion-replay", "version": 2}', "of version 2, not 1"),
        ('{"kernelassay": "illusion-replay", "version": true}', "of version True, not 1"),
        ('{"kernelassay": "illusion-replay", "version": 1}', "its digest differs"),
        ('{"kernelassay": "illusion-replay", "version": 1, "x": NaN}', "its digest differs"),
        ('{"kernelassay": "illusion-replay", "version": 1, "kernel": []}', "its digest differs"),
    ],
)
def test_foreign_files_are_told_apart(tmp_path, text, said):
    path = tmp_path / "one.json"
    path.write_text(text, errors="surrogateescape")
    assert said in said_of(path)


def test_a_file_that_is_not_there_is_an_error_of_use(tmp_path):
    assert "cannot be read: No such file" in said_of(tmp_path / "none.json")
    assert "cannot be read: Is a directory" in said_of(tmp_path)


def test_an_edited_kernel_and_an_edited_verdict_are_refused(tmp_path):
    def edits_text(data):
        data["kernel"]["text"] += "\n"

    def edits_verdict(data):
        data["expected"]["failure"] = "shape"

    for digest in (False, True):
        assert "the kernel's text is not the one" in said_of(
            changed_file(tmp_path, edits_text, digest=digest)
        )
    assert "not what was written" in said_of(changed_file(tmp_path, edits_verdict, digest=False))


def put(*keys, value):
    def change(data):
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("reference", "name", value="softmaxx"), "unknown reference 'softmaxx'"),
        (put("kernel", "language", value="opencl"), "unknown language 'opencl'"),
        (put("device", value="tpu"), "unknown device 'tpu'"),
        (put("device", value="cuda"), "a numpy kernel does not run on 'cuda'"),
        (put("case", "values", value="odd"), "unknown distribution of values 'odd'"),
        (put("case", "layout", value="odd"), "unknown layout 'odd'"),
        (put("case", "dtype", value="int8"), "unknown dtype 'int8'"),
        (put("case", "seed", value=1.5), "1.5 is no integer"),
        (put("case", "sizes", value=[["B", 1], ["H", 3], ["S", 1]]), "the dimensions B, H, S"),
        (put("case", "sizes", value=[["B", 1], ["S", 1]]), "the dimensions B, S"),
        (put("case", "sizes", value=[["B", 1], ["S", 0], ["H", 3]]), "a size is less than 1"),
        (put("case", "sizes", value=[["B", 10**6], ["S", 10**6], ["H", 3]]), "elements"),
        (put("case", "sizes", value=[["B", 1], ["S", 7], ["H", 3]]), "elements of [168] bytes"),
        (put("case", "sizes", value=3), "another form: TypeError"),
        (put("schema", "output", value=["B", "Z"]), "unknown dimension 'Z'"),
        (put("schema", "inputs", value=[]), "has no input tensor"),
        (put("schema", "dims", 0, value=["B", []]), "dimension B has the candidates []"),
        (put("rule", "nonfinite", value="lax"), "unknown treatment of non-finites 'lax'"),
        (put("rule", "scale", value="much"), "'much' is no number"),
        (put("expected", "failure", value=""), "unknown failure ''"),
        (put("expected", "deterministic", value=1), "1 is neither true nor false"),
        (put("expected", "verdict", "past", value=[1]), "past has 1 counts, not 6"),
        (put("inputs", "elements", value=["?"]), "another form: Error"),
        (put("inputs", "elements", value=[]), "elements of [] bytes"),
        (put("kernel", value=None), "None is no object"),
        (lambda data: data.pop("rule"), "lacks a part, or one has another form: KeyError: 'rule'"),
        (
            lambda data: data["inputs"].update(explicit=True, elements=None),
            "explicit inputs without elements",
        ),
    ],
)
def test_a_bundle_whose_parts_do_not_fit_is_refused_with_the_part(tmp_path, change, said):
    assert said in said_of(changed_file(tmp_path, change))


# ---- replaying -----------------------------------------------------------------------------------


def test_other_inputs_are_told_and_the_kernel_is_not_run():
    zeros = (bytes(len(BUNDLE.elements[0])),)
    bench = NumpyBench(forks=False)
    replayed = replay(replace(BUNDLE, elements=zeros), bench)
    assert (replayed.differences, replayed.trial, bench.runs) == (("inputs",), None, 0)
    assert "not run" in replayed.describe()


def test_a_kernel_that_gives_other_bytes_or_passes_is_told():
    other = replace(BUNDLE, text=BUNDLE.text.replace("0.0", "1.0"))
    assert again(other).differences == ("bytes",)
    right = replace(BUNDLE, text=BUNDLE.text.replace("0.0, dtype", "-np.inf, dtype"))
    replayed = again(right)
    assert replayed.differences == ("bytes", "verdict")
    assert replayed.to_json()["again"]["failure"] == ""


def test_on_another_device_and_without_determinism_the_verdict_alone_is_compared():
    other = replace(BUNDLE, text=BUNDLE.text.replace("0.0", "1.0"))
    replayed = again(other, device="cuda")
    assert (replayed.compared, replayed.differences) == (("inputs", "verdict"), ())
    assert "failed on numpy and runs on cuda" in replayed.describe()
    unsure = again(replace(other, expected=replace(BUNDLE.expected, deterministic=False)))
    assert (unsure.compared, unsure.differences) == (("inputs", "verdict"), ())
    assert "may differ from one execution to the next" in unsure.describe()


@pytest.mark.parametrize(
    ("text", "failure", "outcome"),
    [
        ("def run(x): raise ValueError('no')", "outcome", "raised"),
        ("x = 1", "outcome", "raised"),
        ("def run(x:", "outcome", "raised"),
        ("def run(x): return x[0]", "shape", "ok"),
        ("def run(x): return x.astype('float64')", "dtype", "ok"),
        ("def run(x): return x * float('nan')", "nonfinite", "ok"),
    ],
)
def test_every_kind_of_failure_replays(tmp_path, text, failure, outcome):
    op = replace(FAULTY, text=text)
    trial = Examiner(op, Rule()).run(NumpyBench(), a_case())
    bundle = made(Examiner(op, Rule()), trial, "numpy", deterministic=True)
    assert (bundle.expected.failure, bundle.expected.outcome) == (failure, outcome)
    read = bundle_file.read(write(tmp_path, bundle))
    replayed = replay(read, NumpyBench())
    assert replayed.differences == ()
    assert replayed.wrong


def test_a_failed_device_is_no_verdict():
    class Broken(NumpyBench):
        def run(self, text, inputs):
            return Execution("infrastructure", "the device is gone", None)

    with pytest.raises(DeviceError, match="could not run the kernel"):
        replay(BUNDLE, Broken())


def test_the_first_wrong_element_is_named_by_the_absolute_error():
    op = replace(LEAKY, text="def run(x):\n y = x * 1\n y[0, 0, 1] += 0.5\n return y\n")
    op = replace(op, reference="relu", tolerances={"float32": 0.4})
    case = a_case(layout="contiguous", values="opposed")
    examiner = Examiner(op, Rule())
    trial = examiner.run(NumpyBench(forks=False), case)
    assert trial.failure == "tolerance"
    # Of a reference of this size, 0.5 is less than 0.4 in units of 1 + |ref|.
    assert trial.reference[0, 0, 1] > 1
    assert "output 0 [0, 0, 1] is" in examiner.wrong(trial)
    assert "the first of 1 wrong of 42" in examiner.wrong(trial)


def test_a_rejected_infinity_that_the_reference_has_is_named():
    op = replace(LEAKY, text="def run(x): return x", reference="relu")
    examiner = Examiner(op, Rule(nonfinite="strict"))
    case = a_case(layout="contiguous")
    trial = examiner.run(NumpyBench(forks=False), case, [np.full((2, 7, 3), np.inf, np.float32)])
    assert trial.failure == "nonfinite"
    assert "output 0 [0, 0, 0] is inf" in examiner.wrong(trial)


def test_numbers_that_are_not_finite_are_stored_by_name():
    assert plain({"a": [np.inf, (-np.inf, np.nan)]}) == {"a": ["inf", ["-inf", "nan"]]}
    ratio = bundled(op=replace(LEAKY, text="def run(x): return x * 0 + 1", reference="relu"))
    assert ratio.expected.verdict.max_rel == np.inf
    assert bundle_file.bundle(json.loads(ratio.to_bytes()), "here") == ratio


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture
def benched(monkeypatch):
    made_benches = []

    def make(language, device, **options):
        benches.require_runs(language, device)
        made_benches.append(NumpyBench())
        return made_benches[-1]

    monkeypatch.setattr(benches, "bench_for", make)
    return made_benches


def test_the_command_replays_a_bundle_and_a_directory_of_them(tmp_path, benched, capsys):
    path = write(tmp_path, BUNDLE)
    assert invoke(["replay", str(path)]) == 0
    out = capsys.readouterr().out
    assert "replay: the same inputs, bytes, verdict" in out
    assert "wrong: output 0 [0, 0, 0]" in out
    write(tmp_path, bundled(a_case(seed=18)))
    assert invoke(["replay", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "kernelassay/replay-bundles"
    assert [one["differences"] for one in document["data"]["bundles"]] == [[], []]
    assert len(benched) == 3 and all(bench.closed for bench in benched)


def test_the_command_ends_with_two_where_a_replay_differs(tmp_path, benched, capsys):
    other = replace(BUNDLE, text=BUNDLE.text.replace("0.0", "1.0"))
    path = write(tmp_path, replace(other, about={**other.about, "numpy": "0.1"}))
    assert invoke(["replay", str(path), "--json"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["data"]["bundles"][0]["differences"] == ["bytes"]
    assert "1 of 1 replays differ, the first in bytes" in said.err
    assert "numpy" in said.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["none.json"], 1, "cannot be read"),
        (["foreign.json"], 1, "is no replay bundle"),
        (["good.json", "--device", "cuda"], 1, "does not run on 'cuda'"),
        (["good.json", "--device", "tpu"], 1, "tpu"),
        (["empty"], 4, "neither a session nor a directory of bundles"),
        (["session"], 1, "needs a mutant and an input"),
        (["session", "m1"], 1, "needs a mutant and an input"),
        (["session", "m1", "x", "--device", "cuda"], 1, "--device is for bundles"),
    ],
)
def test_the_command_tells_what_it_cannot_replay(
    tmp_path, monkeypatch, benched, capsys, arguments, code, said
):
    (tmp_path / "good.json").write_bytes(BYTES)
    (tmp_path / "foreign.json").write_text('{"schema": "kernelassay/score"}')
    (tmp_path / "empty").mkdir()
    Session.create(tmp_path / "session", {"problems": {}}).close()
    monkeypatch.chdir(tmp_path)
    assert invoke(["replay", *arguments]) == code
    found = capsys.readouterr().err
    assert said in found and "Traceback" not in found


def test_a_device_that_does_not_run_the_language_is_an_error():
    for language, device in (("numpy", "cuda"), ("triton", "numpy"), ("cuda", "interpreter")):
        with pytest.raises(KernelassayError, match="does not run on"):
            bench_for(language, device)


def test_elements_are_little_endian_in_logical_order():
    case = a_case(sizes=(("B", 1), ("S", 2), ("H", 3)), layout="transposed")
    bundle = bundled(case)
    (stored,) = bundle.elements
    data = json.loads(bundle.to_bytes())
    assert base64.b64decode(data["inputs"]["elements"][0]) == stored
    first, *_ = bundle.inputs()
    assert not first.flags.c_contiguous
    assert np.frombuffer(stored, "<f4").tolist() == first.ravel().tolist()


def test_the_same_case_of_another_index_has_another_bundle():
    schema = FAULTY.schema
    one, two = (
        drawn(schema, strategy="s", index=i, master=0, dtypes=("float32",), values="uniform")
        for i in (0, 1)
    )
    assert one.id != two.id
