"""Two protocols on the same candidates: the difference, its parts, and other tolerances."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from math import comb
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay import cell
from kernelassay.analysis.compare import compare, compare_sessions, mcnemar, paired
from kernelassay.analysis.decompose import (
    PARTS,
    decompose,
    differing,
    hybrids,
    split,
    subsets,
)
from kernelassay.analysis.ground import Aside, ground, rejected
from kernelassay.analysis.score import Share, mutant_facts, score
from kernelassay.analysis.sweep import STEPS, at, sweep
from kernelassay.cli import invoke
from kernelassay.errors import SessionError
from kernelassay.execute.outputs import without_output
from kernelassay.matrix import load, of_tables
from kernelassay.oracle import AcceptanceRule
from kernelassay.protocols import (
    CURRENT,
    DEFAULT,
    FLASHINFER,
    FLASHINFER_LOW_BIT,
    V01,
    VERIFIED,
    VERIFIED_INPUTS_AT_V01,
)
from kernelassay.protocols.protocol import Protocol, Unfit
from tests.test_lazy import TARGETED, VERIFIED_ONLY, fixed, lazily, outcomes, planned, run
from tests.test_score import OFFICIAL, result, session

ALL_INPUTS = (*OFFICIAL, *VERIFIED_ONLY, *TARGETED)
BENIGN = ("benign/k00/plain", "benign/k00/order")


def protocol(name="own", inputs=OFFICIAL[:1], tolerance=1e-2, **rule):
    return Protocol(name, "", "", inputs, AcceptanceRule(tolerance, **rule), {})


def whole(plan, cells):
    """The tables of all candidates on all valid inputs; the correct variants among them."""
    names = [record["id"] for record in plan["inputs"] if record["valid"]]
    return {n: cell.table([*fixed(n), *(c for c in cells if c.input == n)]) for n in names}


@st.composite
def made(draw, problem="suite/p"):
    """A plan with mutants and correct variants, and its whole rows."""
    unfit = draw(st.sets(st.sampled_from((*VERIFIED_ONLY, *TARGETED))))
    plan = planned(draw(st.permutations(ALL_INPUTS)), unfit)
    plan["problem"] = {"id": problem}
    plan["benign"] = [{"id": name, "call": "k00", "unsupported": ""} for name in BENIGN]
    names = [*(m["id"] for m in plan["mutants"]), *BENIGN]
    cells = [run(name, i, *draw(outcomes)) for name in names for i in ALL_INPUTS]
    return plan, whole(plan, cells)


rules = st.builds(
    AcceptanceRule,
    st.sampled_from([0.0, 1e-4, 1e-3, 1e-2, 1e-1]),
    st.sampled_from(["sum", "max"]),
    st.sampled_from(["allclose", "matched", "strict", "skips", "wildcard"]),
    st.sampled_from([None, 0.0, 1e-5]),
    st.sampled_from([1.0, 0.5]),
)
protocols = st.builds(
    Protocol,
    st.text("abc", min_size=1, max_size=2),
    st.just(""),
    st.just(""),
    st.lists(st.sampled_from(ALL_INPUTS), min_size=1, max_size=4, unique=True).map(tuple),
    rules,
    st.dictionaries(st.sampled_from(["float16", "bfloat16"]), rules),
    st.sampled_from(["seen", "poisoned"]),
    st.sampled_from(get_args(Unfit)),
)


# ---- paired counts ------------------------------------------------------------------------------


def test_the_paired_counts_of_a_small_matrix(tmp_path):
    found = compare(load(session(tmp_path / "s")), V01, CURRENT, 1e-2)
    one, two = found.detection, found.false_rejection
    assert (one.both, one.only_first, one.only_second, one.neither) == (2, 0, 1, 1)
    assert (one.first, one.second, one.p_value) == (Share(2, 4), Share(3, 4), 1.0)
    assert one.band == (0.25, 0.25)  # one problem, drawn again and again
    assert (two.both, two.only_first, two.only_second, two.neither) == (0, 0, 1, 0)
    assert found.decomposition.parts == ("tolerance",)


def test_the_band_is_over_problems(tmp_path):
    both = {"problems": {"suite/p": "d", "suite/q": "d"}}
    # Where "quiet" is lost, nothing else changes; where it hangs, it is detected by both.
    one = session(tmp_path / "p", manifest=both)
    other = session(tmp_path / "q", problem="suite/q", manifest=both, quiet=cell.TIMEOUT)
    result = compare_sessions([one, other], (V01, CURRENT), 1e-2).comparison
    assert (result.detection.total, result.detection.only_second) == (9, 2)
    low, high = result.detection.band
    assert (low, high) == (1 / 5, 1 / 4)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemars_test_is_symmetric_and_exact(one, other):
    n, fewer = one + other, min(one, other)
    exact = Fraction(2 * sum(comb(n, k) for k in range(fewer + 1)), 2**n)
    assert mcnemar(one, other) == mcnemar(other, one) == float(min(Fraction(1), exact))


def test_mcnemars_test_on_known_counts():
    assert mcnemar(0, 0) == mcnemar(7, 7) == 1.0
    assert mcnemar(0, 5) == 0.0625
    assert mcnemar(0, 5000) == 0.0  # smaller than any float
    assert 0.04 < mcnemar(4900, 5100) < 0.05


@settings(max_examples=30, deadline=None)
@given(made(), protocols)
def test_equal_protocols_differ_in_nothing(matrix, one):
    matrices = (of_tables(*matrix),)
    other = replace(one, name="other", inputs=one.inputs[::-1])
    assert differing(one, other) == ()
    facts = mutant_facts(matrices, (), 1e-2)
    shared = ground(matrices, facts, (one, other))
    for candidates in (shared.mutants, shared.variants):
        found = paired(shared.matrices, candidates, one, other)
        assert (found.only_first, found.only_second, found.p_value) == (0, 0, 1.0)
        assert found.band in (None, (0.0, 0.0))
    parts = decompose(shared.matrices, facts, one, other)
    for one_split in (parts.detection, parts.false_rejection):
        assert (one_split.difference, one_split.parts, one_split.orders) == (0, (), ())


# ---- decomposition ------------------------------------------------------------------------------


@st.composite
def games(draw):
    parts = PARTS[: draw(st.integers(0, len(PARTS)))]
    return {taken: draw(st.integers(0, 30)) for taken in subsets(parts)}


@given(games())
def test_the_shapley_shares_are_means_over_all_orders_and_sum_to_the_difference(counts):
    found = split(counts, 30)
    parts = max(counts, key=len)
    assert sum(part.shapley for part in found.parts) == counts[parts] - counts[()]
    orders = list(permutations(parts))
    for part in found.parts:
        gains = []
        for order in orders:
            before = set(order[: order.index(part.name)])
            after = tuple(p for p in parts if p in before or p == part.name)
            gains.append(counts[after] - counts[tuple(p for p in parts if p in before)])
        assert part.shapley == Fraction(sum(gains), len(orders))
        assert min(gains) <= part.shapley <= max(gains)


@given(games(), st.data())
def test_a_part_that_never_changes_the_count_has_no_share_and_is_in_no_order(counts, data):
    parts = max(counts, key=len)
    if not parts:
        return
    idle = data.draw(st.sampled_from(parts))
    still = {taken: counts[tuple(p for p in taken if p != idle)] for taken in counts}
    found = split(still, 30)
    (part,) = (p for p in found.parts if p.name == idle)
    assert (part.first, part.last, part.shapley) == (0, 0, 0)
    assert all(idle != name for order in found.orders for name, _ in order)


def test_a_split_that_does_not_close_is_noticed():
    found = split({(): 2, ("inputs",): 4}, 4)
    with pytest.raises(AssertionError):
        replace(found, counts={(): 2, ("inputs",): 5}).check()
    with pytest.raises(AssertionError):
        replace(found, orders=((("inputs", 1),),)).check()


def test_the_parts_of_a_small_matrix(tmp_path):
    # "hidden" needs the other input, "tolerated" one of the two, "seen" and "hangs" none.
    loose = protocol("loose")
    tight = protocol("tight", (OFFICIAL[0], "targeted-0"), 1e-4)
    parts = compare(load(session(tmp_path / "s")), loose, tight, 1e-2).decomposition
    assert parts.parts == ("inputs", "tolerance")
    assert parts.detection.counts == {
        (): 2,
        ("inputs",): 4,
        ("tolerance",): 3,
        ("inputs", "tolerance"): 4,
    }
    assert parts.detection.total == 4
    assert [(p.first, p.last, p.shapley) for p in parts.detection.parts] == [
        (2, 1, Fraction(3, 2)),
        (1, 0, Fraction(1, 2)),
    ]
    assert parts.detection.orders == (
        (("inputs", 2), ("tolerance", 0)),
        (("tolerance", 1), ("inputs", 1)),
    )
    assert parts.false_rejection.counts[("inputs",)] == 0
    assert parts.false_rejection.counts[("tolerance",)] == parts.false_rejection.total == 1
    exact = parts.to_json()["detection"]["parts"][0]["shapley"]
    assert exact == {"count": 1.5, "exact": "3/2", "total": 4, "rate": 0.375}


def test_a_share_of_elements_and_a_relative_tolerance_are_parts_of_the_tolerance():
    assert differing(FLASHINFER, FLASHINFER_LOW_BIT) == ("tolerance",)
    assert differing(protocol(relative=1e-5), protocol()) == ("tolerance",)


@given(protocols, protocols)
def test_hybrids_lead_from_the_first_protocol_to_the_second(one, other):
    made = hybrids(one, other)
    parts = differing(one, other)
    assert len(made) == 2 ** len(parts)
    assert len({p.name for p in made.values()} - {one.name, other.name}) == max(0, len(made) - 2)
    assert made[()] is one
    for taken, mixed in made.items():
        assert differing(one, mixed) == taken
        assert differing(mixed, other) == tuple(p for p in parts if p not in taken)


@settings(max_examples=30, deadline=None)
@given(made(), made("suite/q"), protocols, protocols)
def test_the_parts_of_any_two_protocols_sum_to_their_difference(p, q, one, other):
    matrices = (of_tables(*p), of_tables(*q))
    facts = mutant_facts(matrices, (), 1e-2)
    both = ground(matrices, facts, (one, other))
    parts = decompose(both.matrices, facts, one, other)
    assert {*parts.problems, *(a.problem for a in parts.aside)} == set(both.problems)
    kept = ground(
        [m for m in matrices if m.problem in parts.problems], facts, [*parts.hybrids.values()]
    )
    for found, some in (
        (parts.detection, kept.mutants),
        (parts.false_rejection, kept.variants),
    ):
        ends = [int(rejected(kept.matrices, some, p).sum()) for p in (one, other)]
        assert found.total == len(some)
        assert sum(part.shapley for part in found.parts) == ends[1] - ends[0] or not parts.parts
        assert found.counts[()] == ends[0]
        assert found.counts[parts.parts] == ends[1]


def test_the_candidates_of_a_comparison_are_those_of_the_scores(tmp_path):
    matrices = load(session(tmp_path / "s"))
    found = compare(matrices, V01, CURRENT, 1e-2)
    for one, side in ((V01, "first"), (CURRENT, "second")):
        alone = score(matrices, mutant_facts(matrices, (one,), 1e-2), one, 1e-2)
        assert getattr(found.detection, side) == alone.detection
        assert getattr(found.false_rejection, side) == alone.false_rejection


# ---- lazy cells ---------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(made(), st.sampled_from(list(permutations(DEFAULT, 2))))
def test_lazy_cells_decide_every_hybrid_of_the_known_protocols_as_whole_rows_do(matrix, pair):
    plan, full = matrix
    complete, lazy = of_tables(plan, full), of_tables(plan, lazily(plan, full))
    if any(one.missing_in(plan) for one in pair):
        return
    there, here = (decompose((m,), mutant_facts((m,), (), 1e-2), *pair) for m in (complete, lazy))
    assert here.gaps == ()
    assert here == there


@settings(max_examples=30, deadline=None)
@given(made(), st.sampled_from(DEFAULT))
def test_lazy_cells_decide_tolerances_no_laxer_than_any_they_were_decided_for(matrix, one):
    plan, full = matrix
    complete, lazy = of_tables(plan, full), of_tables(plan, lazily(plan, full))
    if one.missing_in(plan):
        return
    there, here = (sweep((m,), mutant_facts((m,), (), 1e-2), one) for m in (complete, lazy))
    # All steps score the same candidates: fewer where a lost cell leaves open one that is no gap.
    lost = there.lost != here.lost or complete.lost[complete.rows(BENIGN)].any()
    for whole_step, step in zip(there.steps, here.steps, strict=True):
        assert step.gap is None or step.tolerance > 1e-2
        assert step.gap is not None or lost or step == whole_step


def test_a_hybrid_that_lazy_cells_leave_open_is_a_named_gap():
    """A run decided for the verified inputs in full alone leaves them open at a laxer tolerance."""
    inputs = (*OFFICIAL, *VERIFIED_ONLY)
    plan = planned(inputs)
    errors = {"official-0": 3, "official-1": 4}  # critical tolerances of 5e-3 and 1.5e-2
    cells = [
        run("m0", name, seen=errors.get(name, 0), exact=errors.get(name, 0)) for name in inputs
    ]
    cells += [run(m["id"], name) for m in plan["mutants"][1:] for name in inputs]
    full = whole(plan, cells)
    matrix = of_tables(plan, lazily(plan, full, (V01, VERIFIED)))
    found = compare((matrix,), V01, VERIFIED, 1e-2)
    assert (found.detection.both, found.detection.total) == (1, 1)
    parts = found.decomposition
    assert parts.detection is None and parts.false_rejection is None
    assert [(g.protocol, g.where) for g in parts.gaps] == [
        (f"{V01.name} with inputs of {VERIFIED.name}", "suite/p"),
        (f"{V01.name} with inputs, drops unfit of {VERIFIED.name}", "suite/p"),
    ]
    assert "--cells rows" in parts.gaps[0].hint
    assert json.loads(json.dumps(found.to_json()))["decomposition"]["detection"] is None
    enough = of_tables(plan, lazily(plan, full, (V01, VERIFIED, VERIFIED_INPUTS_AT_V01)))
    assert compare((enough,), V01, VERIFIED, 1e-2).decomposition.gaps == ()
    with pytest.raises(SessionError, match="lazily"):
        compare((matrix,), V01, VERIFIED_INPUTS_AT_V01, 1e-2)


# ---- sweep --------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(made(), protocols)
def test_a_laxer_tolerance_never_detects_more_nor_rejects_more_correct_kernels(matrix, one):
    matrices = (of_tables(*matrix),)
    found = sweep(matrices, mutant_facts(matrices, (), 1e-2), one, (*STEPS, 0.0, 1e9))
    assert [step.tolerance for step in found.steps] == [1e9, *STEPS, 0.0]
    for name in ("detection", "false_rejection", "originals"):
        shares = [getattr(step, name) for step in found.steps]
        assert len({share.total for share in shares}) == 1
        counts = [share.count for share in shares]
        assert counts == sorted(counts)


def test_a_sweep_meets_the_protocol_at_its_own_tolerance(tmp_path):
    matrices = load(session(tmp_path / "s"))
    facts = mutant_facts(matrices, (), 1e-2)
    found = sweep(matrices, facts, V01, (1e-2, 1e-4, 0.0, 100.0))
    assert [s.tolerance for s in found.steps] == [100.0, 1e-2, 1e-4, 0.0]
    assert [s.detection.count for s in found.steps] == [1, 2, 3, 3]
    assert [s.false_rejection for s in found.steps] == [Share(n, 1) for n in (0, 0, 1, 1)]
    assert found.tolerances == (1e-2,)
    assert at(CURRENT, 1e-3).rule_for(("float16",)).tolerance == 1e-3


def test_a_sweep_counts_the_mutated_originals_that_a_tolerance_rejects(tmp_path):
    matrices = load(session(tmp_path / "s", original_error=1e-3))
    found = sweep(matrices, mutant_facts(matrices, (), 1e-2), V01, (1e-2, 1e-4))
    assert [step.originals for step in found.steps] == [Share(0, 1), Share(1, 1)]


def test_a_mutant_lost_at_one_tolerance_is_left_out_of_all(tmp_path):
    store = session(tmp_path / "s")
    table = store.read_cells("suite/p", OFFICIAL[0])
    lost = [
        without_output(r["candidate"], OFFICIAL[0], cell.INFRASTRUCTURE, "out of memory").row()
        if r["candidate"] == "tolerated"
        else r
        for r in table.to_pylist()
    ]
    store.write_cells("suite/p", OFFICIAL[0], table.from_pylist(lost, schema=table.schema))
    matrices = load(store)
    facts = mutant_facts(matrices, (), 1e-2)
    found = sweep(matrices, facts, CURRENT, (1e-2, 1e-4))
    assert (found.lost, [step.detection for step in found.steps]) == (1, [Share(2, 3)] * 2)
    # At its own tolerance other inputs reject it, so no cell of it matters there.
    alone = score(matrices, mutant_facts(matrices, (CURRENT,), 1e-2), CURRENT, 1e-2)
    assert (alone.lost, alone.detection) == (0, Share(3, 4))
    assert compare(matrices, V01, CURRENT, 1e-2).ground.lost == 1


def test_a_mutant_of_which_one_tolerance_does_not_tell_is_left_out_of_all(tmp_path):
    store = session(tmp_path / "s")
    table = store.read_cells("suite/p", OFFICIAL[0])
    changed = result("tolerated", OFFICIAL[0], np.array([0.0, 0.0, 1e-3])).row()
    rows = [changed if r["candidate"] == "tolerated" else r for r in table.to_pylist()]
    store.write_cells("suite/p", OFFICIAL[0], table.from_pylist(rows, schema=table.schema))
    matrices = load(store)
    # The error is 1e-3 where the reference is 3; without the reference it may be 4e-4 at 1.
    one = protocol(tolerance=1e-2, relative=1e-9)
    found = sweep(matrices, mutant_facts(matrices, (), 1e-2), one, (1e-2, 5e-4))
    assert (found.lost, [step.detection for step in found.steps]) == (1, [Share(2, 3)] * 2)


# ---- edges --------------------------------------------------------------------------------------


def test_a_problem_that_lacks_inputs_of_a_protocol_is_set_aside_by_name(tmp_path):
    both = {"problems": {"suite/p": "d", "suite/q": "d"}}
    one = session(tmp_path / "p", manifest=both)
    other = session(tmp_path / "q", problem="suite/q", manifest=both)
    plan = other.read_plan("suite/q")
    fewer = [record for record in plan["inputs"] if record["id"] != "official-4"]
    other.write_plan("suite/q", {**plan, "inputs": fewer})
    found = compare_sessions([one, other], (protocol(), V01), 1e-2, ladder=(1e-2,))
    why = Aside("suite/q", V01.name, "no valid input official-4")
    assert found.comparison.ground.aside == (why,)
    assert found.comparison.detection.total == 4
    assert [one.aside for one in found.sweeps] == [(), (why,)]


def test_a_problem_that_only_a_hybrid_cannot_be_scored_on_is_set_aside_from_the_parts(tmp_path):
    # The second drops an input that is not finite there, and the first is strict about its own.
    plan = planned((*OFFICIAL, *VERIFIED_ONLY), unfit=("verified-x3",))
    cells = [run(m["id"], n) for m in plan["mutants"] for n in (*OFFICIAL, *VERIFIED_ONLY)]
    found = compare((of_tables(plan, whole(plan, cells)),), V01, VERIFIED, 1e-2)
    assert found.ground.problems == ("suite/p",)
    (aside,) = found.decomposition.aside
    assert aside.protocol == f"{V01.name} with inputs of {VERIFIED.name}"
    assert aside.why == "no valid input verified-x3"
    assert found.decomposition.detection.total == 0


def test_a_protocol_that_rejects_everything_has_its_price_and_gains_nothing(tmp_path):
    """It detects mutants whatever their fault, so they count for nothing."""
    store, extreme = session(tmp_path / "s"), protocol(tolerance=-1.0)
    found = compare_sessions([store], (V01, extreme), 1e-2).comparison
    assert (found.detection.total, found.ground.set_aside) == (0, 4)
    assert found.false_rejection.second == Share(1, 1)
    assert (found.originals.first, found.originals.second) == (Share(0, 1), Share(1, 1))


def test_a_problem_whose_correct_kernel_a_protocol_rejects_is_part_of_its_price(tmp_path):
    store = session(tmp_path / "s", original_error=5e-4)
    found = compare_sessions([store], (V01, CURRENT), 1e-2).comparison
    assert found.ground.problems == ("suite/p",)
    assert found.ground.aside == ()
    assert (found.originals.only_first, found.originals.only_second) == (0, 1)
    assert found.false_rejection.second == Share(1, 1)
    assert (found.detection.total, found.ground.set_aside) == (0, 4)


def test_a_protocol_that_accepts_everything_detects_what_hangs_alone(tmp_path):
    blind = protocol(tolerance=float("inf"), nonfinite="ignored")
    found = compare(load(session(tmp_path / "s")), V01, blind, 1e-2)
    assert found.detection.second == Share(1, 4)
    assert found.false_rejection.second == Share(0, 1)


def test_a_tolerance_of_zero_is_one_like_others(tmp_path):
    found = compare(load(session(tmp_path / "s")), V01, protocol(tolerance=0.0), 1e-2)
    assert found.detection.second == Share(3, 4)
    assert found.false_rejection.second == Share(1, 1)


def test_without_witnessed_mutants_all_counts_are_zero(tmp_path):
    store = session(tmp_path / "s")
    plan = store.read_plan("suite/p")
    store.write_plan("suite/p", {**plan, "mutants": []})
    found = compare_sessions([store], (V01, CURRENT), 1e-2, ladder=STEPS)
    detection = found.comparison.detection
    assert (detection.total, detection.band, detection.p_value) == (0, None, 1.0)
    assert found.comparison.decomposition.detection.difference == 0
    assert {step.detection for step in found.sweeps[0].steps} == {Share(0, 0)}
    data = json.loads(json.dumps(found.to_json()))
    assert data["comparison"]["detection"]["difference"] is None


# ---- command line -------------------------------------------------------------------------------


def test_the_command_prints_the_difference_its_parts_and_a_sweep(tmp_path, capsys):
    root = str(session(tmp_path / "s").root)
    names = ["--protocol", V01.name, "--protocol", CURRENT.name]
    assert invoke(["compare", root, *names, "--sweep"]) == 0
    printed = capsys.readouterr().out
    assert "+25.0 (1 of 4)" in printed and "75.0% (3/4)" in printed and "1e-06" in printed
    assert invoke(["compare", root, *names, "--at", "0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "kernelassay/compare"
    assert document["data"]["comparison"]["detection"]["only_second"] == 1
    assert [step["tolerance"] for step in document["data"]["sweeps"][0]["steps"]] == [0.0]
    assert invoke(["compare", root, *names[:2], "--sweep", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["comparison"] is None


@pytest.mark.parametrize("count", [1, 3])
def test_the_command_compares_two_protocols_no_more_and_no_fewer(tmp_path, capsys, count):
    root = str(session(tmp_path / "s").root)
    names = [word for one in DEFAULT[:count] for word in ("--protocol", one.name)]
    assert invoke(["compare", root, *names]) == 1
    assert f"{count} protocols" in capsys.readouterr().err
