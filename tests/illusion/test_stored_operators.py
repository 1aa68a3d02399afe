"""What a session stores of operators and failures means the same when it is read again."""

import threading
from dataclasses import replace

import pytest

from kernelassay.errors import NothingToTestError, SessionError
from kernelassay.illusion import bundle_file, campaign
from kernelassay.illusion.bundles import write_failures
from kernelassay.illusion.corpus import entries, entry
from kernelassay.illusion.op import text_digest
from kernelassay.illusion.oracle import Rule
from kernelassay.illusion.replay import replay
from kernelassay.illusion.trials import CONTROL, Subject, Trials
from kernelassay.session import Session
from tests.illusion.benches import NumpyBench

MANIFEST = {
    "kind": "illusion",
    "kernels": {op.name: {op.name: text_digest(op.text)} for op in entries()},
}


def test_a_stored_operator_keeps_the_order_of_its_inputs_and_dimensions(tmp_path):
    session = Session.create(tmp_path / "s", MANIFEST)
    trials = Trials(session)
    try:
        for op in entries():
            trials.write_operator(op, (Subject(op.name, CONTROL, op.text),), ())
            back, _ = trials.operator(op.name)
            assert back == op
            # Mappings are equal in any order; arguments are given by position.
            assert list(back.schema.inputs) == list(op.schema.inputs)
            assert list(back.schema.dims) == list(op.schema.dims)
    finally:
        session.close()


def test_trials_of_one_operator_are_not_continued_with_another_of_its_name(tmp_path):
    op = entry("matmul")
    other = replace(op.schema, dims={**op.schema.dims, "K": (5,)})
    turned = replace(op.schema, inputs=dict(reversed(op.schema.inputs.items())))
    changes = {"schema": other, "tolerances": {"float32": 0.5}, "reference": "softmax"}
    session = Session.create(tmp_path / "s", MANIFEST)
    try:
        trials = Trials(session)
        trials.write_operator(op, (Subject(op.name, CONTROL, op.text),), ())
        trials.write_operator(op, (Subject(op.name, CONTROL, op.text),), ())
        for name, value in (*changes.items(), ("schema", turned)):
            changed = replace(op, **{name: value})
            with pytest.raises(SessionError, match="another operator matmul"):
                trials.write_operator(changed, (Subject(op.name, CONTROL, op.text),), ())
        assert trials.operator("matmul")[0] == op
    finally:
        session.close()


def test_a_damaged_operator_is_named(tmp_path):
    session = Session.create(tmp_path / "s", MANIFEST)
    try:
        trials = Trials(session)
        op = entry("matmul")
        trials.write_operator(op, (Subject(op.name, CONTROL, op.text),), ())
        for text in ("{", "[]", '{"operator": {}, "kernels": [], "population": []}'):
            (tmp_path / "s" / "kernels" / "matmul.json").write_text(text)
            with pytest.raises(SessionError, match="is damaged"):
                trials.operator("matmul")
    finally:
        session.close()


def test_every_failure_of_a_session_replays(tmp_path, monkeypatch):
    op = replace(entry("matmul"), name="twice", text="def run(a, b):\n    return (a @ b) * 2\n")
    plan = campaign.Plan(
        (campaign.Group(op, (Subject(op.name, CONTROL, op.text),)),),
        ("default",),
        seed=0,
        count=5,
        device="cpu",
        seconds=5.0,
    )
    session = Session.create(tmp_path / "s", plan.manifest())
    try:
        trials = Trials(session)
        trials.write_operator(op, plan.groups[0].subjects, ())
        lane = campaign.Lane(plan, trials, threading.Event())
        monkeypatch.setattr(lane, "_bench", lambda op: NumpyBench(forks=False))
        for unit in campaign.units(plan):
            lane.do(unit)
        out = tmp_path / "out"
        assert write_failures(trials, Rule(), out, None) == 5
        paths = sorted(out.iterdir())
        for path in paths:
            bundle = bundle_file.read(path)
            assert bundle.to_bytes() == path.read_bytes()
            assert replay(bundle, NumpyBench(forks=False)).differences == ()
        assert write_failures(trials, Rule(), tmp_path / "fewer", 2) == 2
        with pytest.raises(NothingToTestError):
            write_failures(trials, Rule(scale=1e9), tmp_path / "none", None)
    finally:
        session.close()
