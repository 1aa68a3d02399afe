"""The ladder: what generated inputs kill, what they may not judge, and a session that has them."""

import json
import shutil
from dataclasses import replace

import pytest
from rich.console import Console

from kernelassay.analysis.score import Share
from kernelassay.cli import invoke
from kernelassay.errors import NothingToTestError, SessionError
from kernelassay.inputs import GENERATED, GIVEN
from kernelassay.joined import JoinedSessions
from kernelassay.matrix import load
from kernelassay.oracle import AcceptanceRule
from kernelassay.protocols import CURRENT, V01
from kernelassay.replay import replay_cell
from kernelassay.report.ladder import print_ladder
from kernelassay.session import Session
from kernelassay.synthesis.generate import ladder
from kernelassay.synthesis.generate.answers import inputs_of
from kernelassay.synthesis.generate.chat import Answer, Recorder
from kernelassay.synthesis.generate.experiment import experiment
from kernelassay.synthesis.generate.extend import extend
from kernelassay.synthesis.generate.fuzz import Fuzz
from kernelassay.synthesis.generate.ladder import Options, survivors_of
from kernelassay.synthesis.generate.prompts import NAIVE, TAXONOMY, WHITE_BOX, prompt
from kernelassay.synthesis.generate.rungs import NAMES, TOLD, generators
from kernelassay.synthesis.generate.search import Search
from kernelassay.synthesis.generate.target import Proposal, spec
from kernelassay.synthesis.generate.taxonomy import Taxonomy
from tests import made_session
from tests.generate.sessions import measured, problem
from tests.generate.test_answers import fenced
from tests.made_session import STRAYS

MATMUL = "suite/matmul_square"
OPTIONS = Options(V01, 1e-2, budget=3)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("ladder") / "session", MATMUL)


@pytest.fixture
def copy(session, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(session.root, root, ignore=shutil.ignore_patterns("images"))
    return Session.open(root)


class Fixed:
    """Proposes what it is told to, and keeps what it was told itself."""

    name = "fixed"

    def __init__(self, *specs, blind=True):
        self.specs = specs
        self.blind = blind

    def propose(self, target, count, seed, seen):
        self.target, self.seen = target, seen
        return Proposal(self.specs[:count])


def climb(session, *generators, **changed):
    options = Options(**{"protocol": V01, "tolerance": 1e-2, "budget": 3, **changed})
    return experiment([session], generators, options)


def timeless(found):
    data = found.to_json()
    for rung in data["rungs"]:
        rung["seconds"] = None
        for one in rung["problems"]:
            one["seconds"] = None
    return data


@pytest.fixture(scope="module")
def climbed(session):
    return climb(session, Fuzz(), Taxonomy(), Search(cells=40))


def test_the_survivors_are_what_the_protocol_misses_of_the_witnessed(session, climbed):
    (matrix,) = load(JoinedSessions([session]))
    proven = {m for m in matrix.index if matrix.killing(1e-2)[matrix.index[m]].any()}
    missed = {
        mutant["id"]
        for mutant in matrix.plan["mutants"]
        if mutant["id"] in proven
        and not matrix.rejected_by(V01)[matrix.index[mutant["id"]], matrix.positions(V01)].any()
    }
    who = survivors_of(matrix, V01, 1e-2)
    assert who.missed.keys() == missed and missed
    assert not who.unobserved.keys() & proven
    assert climbed.survivors == len(missed)
    assert all(rung.killed.total == len(missed) for rung in climbed.rungs)


def test_a_rung_that_knows_more_kills_here_at_least_as_much(climbed):
    fuzz, taxonomy, search = climbed.rungs
    assert fuzz.killed.count <= taxonomy.killed.count <= search.killed.count
    assert search.killed.count > 0


def test_inputs_of_the_taxonomy_and_the_search_are_valid_and_kill_nobody_falsely(climbed):
    for rung in climbed.rungs[1:]:
        assert rung.valid.count == rung.valid.total > 0
        assert (rung.false_kills, rung.correct_rejected) == (0, 0)


def test_no_rung_uses_more_inputs_than_its_budget(climbed):
    for rung in climbed.rungs:
        for one in rung.problems:
            assert len(one.inputs) <= 3
            assert len({made.id for made in one.inputs}) == len(one.inputs)


def test_the_parts_of_a_rung_add_up(climbed):
    for rung in climbed.rungs:
        for shares in (rung.by_family, rung.by_mechanism):
            assert sum(s.count for s in shares.values()) == rung.killed.count
            assert sum(s.total for s in shares.values()) == rung.killed.total
        assert rung.cells == sum(one.cells for one in rung.problems)


def test_a_seed_gives_the_same_ladder_again(session, climbed):
    again = climb(session, Fuzz(), Taxonomy(), Search(cells=40))
    assert timeless(again) == timeless(climbed)


def test_another_seed_gives_other_inputs(session, climbed):
    other = climb(session, Fuzz(), seed=2)
    mine = {made.id for one in climbed.rungs[0].problems for made in one.inputs}
    assert not mine & {made.id for one in other.rungs[0].problems for made in one.inputs}


def test_a_blind_generator_is_told_of_no_mutant(session):
    blind, seeing = Fixed(), Fixed(blind=False)
    climb(session, blind, seeing)
    assert blind.seen is None
    assert {s.id for s in seeing.seen.survivors} == set(
        survivors_of(load(JoinedSessions([session]))[0], V01, 1e-2).missed
    )
    (plan,) = session.plans()
    told = repr(blind.target)
    assert not [m["id"] for m in plan["mutants"] if m["id"] in told]
    assert not [record["id"] for record in plan["inputs"] if record["id"] in told]


# On 64 terms of both signs, values this large push correct kernels past 1e-2.
BEYOND = spec("fixed", 1, "sign-mixed:x3000")
FINE = spec("fixed", 1, "sign-mixed")


def test_a_kill_beyond_the_ceiling_is_a_false_kill(session):
    (rung,) = climb(session, Fixed(BEYOND, FINE)).rungs
    (one,) = rung.problems
    beyond, fine = one.inputs
    assert "stray" in beyond.objection and not fine.objection
    assert beyond.falsely and not beyond.killed and not beyond.witnessed
    assert not fine.falsely
    assert rung.valid == Share(1, 2)
    assert rung.false_kills == len(beyond.falsely)
    assert rung.correct_rejected == len(beyond.correct) > 0


def test_what_a_reference_is_not_finite_on_kills_nobody(session):
    (rung,) = climb(session, Fixed(spec("fixed", 1, "sign-mixed:x1e+30"))).rungs
    (made,) = rung.problems[0].inputs
    assert made.objection == "the reference is not finite"
    assert rung.killed.count == 0


def test_an_input_is_held_against_the_tolerance_of_the_protocol(session):
    made = spec("fixed", 1, "sign-mixed:x30")
    (loose,) = climb(session, Fixed(made)).rungs
    (strict,) = climb(session, Fixed(made), protocol=CURRENT).rungs
    assert not loose.problems[0].inputs[0].objection
    assert "the protocol: 5e-05" in strict.problems[0].inputs[0].objection
    assert strict.killed.count == 0


def test_an_input_on_which_the_rule_rejects_a_correct_kernel_kills_nobody(session):
    """Within allclose all is well there, but not within a bound that ignores magnitudes."""
    absolute = replace(V01, name="absolute", default=AcceptanceRule(1e-2, relative=0.0))
    made = spec("fixed", 1, "same-sign:x300")
    (loose,) = climb(session, Fixed(made)).rungs
    (rung,) = climb(session, Fixed(made), protocol=absolute).rungs
    assert not loose.problems[0].inputs[0].objection
    (one,) = rung.problems[0].inputs
    assert one.objection.startswith("the correct kernel ") and one.correct
    assert not one.killed and one.falsely
    assert (rung.valid, rung.killed.count) == (Share(0, 1), 0)


def test_a_problem_at_official_sizes_gets_small_inputs_beside_them(copy, monkeypatch):
    monkeypatch.setattr(ladder, "_small", lambda subject: (("size", 16),))
    found = climb(copy, Taxonomy(), budget=4)
    made = found.rungs[0].problems[0].inputs
    assert {"size"} == {name for one in made for name in one.spec["overrides"]}
    assert 16 in {one.spec["overrides"]["size"] for one in made}
    assert all(one.id.startswith("small/taxonomy/") and not one.objection for one in made)
    assert extend([copy], found) == {copy.name: len(made)}


def test_without_a_survivor_there_is_nothing_to_test(tmp_path):
    session = made_session.made(tmp_path / "s", strays={"aa01": STRAYS["aa01"]})
    with pytest.raises(NothingToTestError, match="nothing is left to kill"):
        climb(session, Fuzz())


# ---- the session that is extended --------------------------------------------------------------


def test_an_extended_session_holds_generated_inputs_like_any_other(copy, climbed, capsys):
    killed = {name for rung in climbed.rungs for p in rung.problems for name in p.all("killed")}
    before = load(JoinedSessions([copy]))[0]
    added = extend([copy], climbed)
    after = load(JoinedSessions([Session.open(copy.root)]))[0]
    new = [r for r in after.plan["inputs"] if r["group"] == GENERATED]
    assert added == {copy.name: len(new)} and new
    assert after.inputs == (*before.inputs, *(r["id"] for r in new))
    columns = [after.inputs.index(r["id"]) for r in new]
    rejected = after.rejected_by(V01)[:, columns].any(axis=1)
    assert all(rejected[after.index[name]] for name in killed)
    assert invoke(["audit", str(copy.root), "--json"]) == 0
    assert invoke(["explain", min(killed), str(copy.root), "--json"]) == 0
    explained = json.loads(capsys.readouterr().out.split("\n}\n")[1] + "\n}")
    assert GENERATED in {killer["group"] for killer in explained["data"]["killers"]}


def test_a_suite_says_that_nothing_is_held_out_to_inputs_of_a_rung_that_was_told(
    copy, climbed, capsys
):
    extend([copy], climbed)
    (plan,) = Session.open(copy.root).plans()
    told = sum(record["id"].startswith("search/") for record in plan["inputs"])
    assert told and invoke(["suite", str(copy.root)]) == 0
    assert f"{told} of the fit inputs were made by a generator that was told" in " ".join(
        capsys.readouterr().out.split()
    )


def test_the_rungs_that_are_told_of_mutants_are_those_that_are_not_blind(tmp_path):
    made = generators(NAMES, lambda: lambda name, prompt: Answer(""), tmp_path)
    assert {one.name for one in made if not one.blind} == TOLD


def test_extending_again_changes_nothing(copy, climbed):
    extend([copy], climbed)
    digest = Session.open(copy.root).digest()
    assert extend([copy], climbed) == {copy.name: 0}
    assert Session.open(copy.root).digest() == digest


def test_a_session_that_a_run_holds_is_not_extended(copy, climbed):
    holder = Session.create(copy.root, copy.manifest)
    try:
        with pytest.raises(SessionError, match="another run"):
            extend([copy], climbed)
    finally:
        holder.close()


def test_given_values_move_with_the_session_and_replay(copy, tmp_path):
    text = fenced("import torch\ndef input_1():\n    return {}, [torch.ones(64, 64)] * 2\n")
    (made,), _ = inputs_of(text, problem(MATMUL), 1, "r1", 1, tmp_path / "elsewhere")
    extend([copy], climb(copy, Fixed(made)))
    digest = Session.open(copy.root).digest()
    shutil.rmtree(tmp_path / "elsewhere")
    moved = copy.root.rename(tmp_path / "moved")
    session = Session.open(moved)
    assert session.digest() == digest
    record = session.plans()[0]["inputs"][-1]
    assert record["spec"]["transform"].startswith(f"{GIVEN}{moved.resolve()}")
    assert not replay_cell(session, session.plans()[0]["mutants"][0]["id"], made.id).differences


# ---- the command -------------------------------------------------------------------------------


def test_the_command_prints_rungs_beside_the_published_ones(session, climbed):
    console = Console(width=200, record=True, highlight=False)
    print_ladder(console, climbed)
    text = console.export_text()
    for word in ("r0", "taxonomy", "search", "21.6%", "61.0%", "57.3%", "false kills"):
        assert word in text
    assert f"{climbed.survivors} survivors of kernelbench-v0.1" in text


def test_without_survivors_no_shares_of_them_are_printed(climbed):
    console = Console(width=200, record=True)
    print_ladder(console, replace(climbed, survivors=0))
    assert "by reason" not in console.export_text()
    print_ladder(console, climbed)
    assert "by reason" in console.export_text()


def test_the_command_gives_its_json(session, capsys):
    arguments = ["ladder", str(session.root), "--rung", "r0", "--budget", "1", "--jobs", "1"]
    assert invoke([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "kernelassay/ladder"
    (rung,) = document["data"]["rungs"]
    assert rung["valid"]["total"] == 1 and rung["blind"] is True


def test_a_rung_of_a_model_without_an_endpoint_is_a_usage_error(session, capsys, monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "KERNELASSAY_MODEL"):
        monkeypatch.delenv(name, raising=False)
    assert invoke(["ladder", str(session.root), "--rung", "r2"]) == 1
    assert "no language model is named" in capsys.readouterr().err


def test_a_seed_that_no_generator_of_numbers_takes_is_a_usage_error(session, capsys):
    assert invoke(["ladder", str(session.root), "--seed", str(10**20)]) == 1
    assert "--seed" in capsys.readouterr().err


def test_an_unknown_rung_is_a_usage_error(session, capsys):
    assert invoke(["ladder", str(session.root), "--rung", "taxnomy"]) == 1
    assert "taxonomy" in capsys.readouterr().err


CODE = """
import torch

def input_1():
    generator = torch.Generator().manual_seed(3)
    return {"size": 33}, [torch.randn(33, 33, generator=generator) * 30 for _ in range(2)]

def input_2():
    return {"size": 0}, []
"""


class Writes:
    """Stands for a model: what it says was written by hand."""

    def ask(self, name, prompt):
        return Answer(fenced(CODE), "", "by hand")


@pytest.mark.parametrize(("rung", "number"), [("r1", NAIVE), ("r2", TAXONOMY), ("r3", WHITE_BOX)])
def test_a_recorded_answer_is_replayed_as_a_rung(rung, number, session, tmp_path, capsys):
    keeper = Fixed(blind=False)
    climb(session, keeper, budget=2)
    text = prompt(keeper.target, number, 2, 1, keeper.seen.survivors)
    Recorder(Writes(), tmp_path).ask(f"{rung}-{MATMUL}", text)
    arguments = ["ladder", str(session.root), "--rung", rung, "--budget", "2", "--json"]
    assert invoke([*arguments, "--replay", str(tmp_path)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["data"]["rungs"]
    assert found["valid"] == {"count": 1, "total": 1, "rate": 1.0}
    assert found["failures"] == {"sizes that do not fit": 1}
    assert found["blind"] is (number < WHITE_BOX)


def test_each_prompt_tells_more_than_the_one_below(session):
    keeper = Fixed(blind=False)
    climb(session, keeper)
    naive, taught, white = (
        prompt(keeper.target, number, 2, 1, keeper.seen.survivors)
        for number in (NAIVE, TAXONOMY, WHITE_BOX)
    )
    assert "class Model" in naive and "ceiling" not in naive
    assert "ceiling" in taught and "```diff" not in taught
    assert white.count("```diff") == len(keeper.seen.survivors)
    assert len(naive) < len(taught) < len(white)
