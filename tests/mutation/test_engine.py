"""The engine: byte-exact edits, stable ids, a fixed order, and no mutant lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.errors import UsageError
from kernelassay.mutation import catalogue
from kernelassay.mutation.engine import Mutant, apply, diff, mutants
from kernelassay.mutation.examples import kernel
from kernelassay.mutation.rule import FAMILIES, Edit, Mutation, Rule
from kernelassay.mutation.tree import delete, insert, mutation, replace

SOURCES = sorted({example.before for rule in catalogue.RULES for example in rule.examples})
LOOP = kernel("float s = 0.0f;\nfor (int i = 0; i < n; ++i) s += x[i] * x[i];\ny[0] = s + 1.0f;")


def all_of(source: str, rules: list[Rule] | None = None) -> tuple[Mutant, ...]:
    return mutants(source, problem="p", call="c", style="plain", rules=rules).mutants


@given(st.text(max_size=40), st.data())
def test_edits_change_their_spans_and_no_other_byte(text: str, data: st.DataObject) -> None:
    boundaries = [len(text[:i].encode()) for i in range(len(text) + 1)]
    cuts = sorted(data.draw(st.lists(st.sampled_from(boundaries), min_size=4, max_size=4)))
    new = data.draw(st.tuples(st.text(max_size=5), st.text(max_size=5)))
    edits = (Edit(cuts[0], cuts[1], new[0]), Edit(cuts[2], cuts[3], new[1]))
    raw = text.encode()
    expected = (
        raw[: cuts[0]] + new[0].encode() + raw[cuts[1] : cuts[2]] + new[1].encode() + raw[cuts[3] :]
    )
    assert apply(text, Mutation(edits)) == expected.decode()


def test_overlapping_edits_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        apply("abcdef", Mutation((Edit(0, 3, "x"), Edit(2, 4, "y"))))


def test_the_helpers_build_edits_in_ascending_order() -> None:
    made = mutation(replace((4, 5), "!"), delete((0, 1)), insert(2, "-"))
    assert apply("abcdef", made) == "b-cd!f"


@pytest.mark.parametrize("source", SOURCES)
def test_a_mutant_keeps_every_byte_outside_its_edits(source: str) -> None:
    raw = source.encode()
    for mutant in all_of(source):
        first, last = mutant.edits[0], mutant.edits[-1]
        mutated = mutant.source.encode()
        assert mutated.startswith(raw[: first.start])
        assert mutated.endswith(raw[last.end :])
        assert mutant.source != source
        assert mutant.line == raw[: first.start].count(b"\n") + 1


@pytest.mark.parametrize("source", SOURCES[::7])
def test_two_runs_give_the_same_mutants_in_the_same_order(source: str) -> None:
    assert all_of(source) == all_of(source)


def test_ids_are_unique_and_depend_on_what_identifies_a_mutant() -> None:
    found = all_of(LOOP)
    assert len({m.id for m in found}) == len(found)
    elsewhere = mutants(LOOP, problem="q", call="c", style="plain").mutants
    assert not {m.id for m in found} & {m.id for m in elsewhere}


def test_an_id_is_the_same_on_every_machine() -> None:
    (mutant,) = all_of(kernel("y[0] = x[0] + x[1];"), [catalogue.rule("add-to-sub")])
    assert mutant.id == "f63f646cc3b5"


def test_mutants_come_rule_by_rule_in_catalogue_order() -> None:
    order = [rule.id for rule in catalogue.RULES]
    found = [order.index(m.rule) for m in all_of(LOOP)]
    assert found == sorted(found)


def test_a_second_mutant_with_the_same_text_is_kept_and_names_its_twin() -> None:
    add = catalogue.rule("add-to-sub")
    again = Rule("again", "arithmetic", add.what, add.bug, add.find, add.examples)
    made = mutants(
        kernel("y[0] = x[0] + x[1];"), problem="p", call="c", style="plain", rules=[add, again]
    )
    first, second = made.mutants
    assert (first.twin_of, second.twin_of) == ("", first.id)


def test_an_edit_that_changes_nothing_makes_no_mutant() -> None:
    add = catalogue.rule("add-to-sub")
    idle = Rule("idle", "arithmetic", "", "", lambda tree: [mutation(replace((0, 0), ""))], ())
    assert [m.rule for m in all_of(kernel("y[0] = x[0] + x[1];"), [idle, add])] == ["add-to-sub"]


def test_a_diff_shows_the_changed_line_only() -> None:
    source = kernel("y[0] = x[0] + x[1];")
    (mutant,) = all_of(source, [catalogue.rule("add-to-sub")])
    changed = [
        line
        for line in diff(source, mutant.source, mutant.rule).splitlines()
        if line[0] in "+-" and line[1] not in "+-"
    ]
    assert changed == ["-y[0] = x[0] + x[1];", "+y[0] = x[0] - x[1];"]


def test_no_two_rules_share_an_id_and_each_is_of_a_known_family() -> None:
    ids = [rule.id for rule in catalogue.RULES]
    assert len(set(ids)) == len(ids)
    assert {rule.family for rule in catalogue.RULES} <= set(FAMILIES)
    assert all(id_ == id_.lower() and " " not in id_ for id_ in ids)


@pytest.mark.parametrize(
    ("family", "least"),
    [
        ("arithmetic", 23),
        ("indexing", 27),
        ("semantic", 34),
        ("boundary", 34),
        ("synchronization", 15),
        ("precision", 36),
    ],
)
def test_a_family_has_all_its_rules(family: str, least: int) -> None:
    assert len(catalogue.select([family])) >= least


def test_rules_are_selected_by_id_glob_or_family_in_catalogue_order() -> None:
    assert [r.id for r in catalogue.select(["sub-to-add", "add-to-sub"])] == [
        "add-to-sub",
        "sub-to-add",
    ]
    assert {r.id for r in catalogue.select(["float-const-*"])} == {
        "float-const-plus",
        "float-const-minus",
    }


def test_an_unknown_rule_is_named_with_its_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean add-to-sub"):
        catalogue.rule("add-to-subb")
    with pytest.raises(UsageError, match="unknown mutation rule"):
        catalogue.select(["no-such-*"])
