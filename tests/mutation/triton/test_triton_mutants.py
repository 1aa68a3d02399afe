"""Mutants of Triton modules: byte-exact, in one order, of device code and launches only."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay.errors import KernelSyntaxError, UnsupportedError, UsageError
from kernelassay.mutation import catalogue
from kernelassay.mutation.engine import Mutant, apply, mutants
from kernelassay.mutation.language import LANGUAGES, rules_of
from kernelassay.mutation.rule import FAMILIES, Mutation, Rule
from kernelassay.mutation.triton.catalogue import BENIGN, RULES
from kernelassay.mutation.triton.examples import module
from tests.mutation.triton.modules import FLAT, MODULES, ONLINE, PRODUCT, ROWS

EVERY = (*RULES, *BENIGN)


def all_of(source: str, *rules: Rule, problem: str = "p") -> tuple[Mutant, ...]:
    chosen = rules or EVERY
    return mutants(
        source, problem=problem, call="", style="", rules=chosen, language="triton"
    ).mutants


@pytest.mark.parametrize("source", MODULES.values(), ids=MODULES)
def test_every_mutant_is_a_module_that_differs_at_its_edits_only(source):
    raw = source.encode()
    for mutant in all_of(source):
        ast.parse(mutant.source)
        rest = mutant.source.encode()
        position = 0
        for edit in mutant.edits:
            kept = raw[position : edit.start]
            assert rest.startswith(kept + edit.text.encode())
            rest, position = rest[len(kept) + len(edit.text.encode()) :], edit.end
        assert rest == raw[position:]
        assert mutant.source != source
        assert mutant.line == raw[: mutant.edits[0].start].count(b"\n") + 1
        assert apply(source, Mutation(mutant.edits)) == mutant.source


@pytest.mark.parametrize("source", MODULES.values(), ids=MODULES)
def test_two_runs_give_the_same_mutants_rule_by_rule(source):
    found = all_of(source)
    assert found == all_of(source)
    order = [rule.id for rule in EVERY]
    assert [m.rule for m in found] == sorted((m.rule for m in found), key=order.index)
    assert len({m.id for m in found}) == len(found)
    assert not {m.id for m in found} & {m.id for m in all_of(source, problem="q")}


@settings(max_examples=15, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=30))
def test_text_before_a_module_moves_every_edit_by_its_bytes(text):
    comment = f"# {text}\n"
    shift = len(comment.encode())
    plain = [(m.rule, m.edits, m.source) for m in all_of(ROWS)]
    moved = [(m.rule, m.edits, m.source) for m in all_of(comment + ROWS)]
    assert [rule for rule, _, _ in plain] == [rule for rule, _, _ in moved]
    for (_, before, old), (_, after, new) in zip(plain, moved, strict=True):
        assert new == comment + old
        assert [(e.start + shift, e.end + shift, e.text) for e in before] == [
            (e.start, e.end, e.text) for e in after
        ]


LOADED = "tl.load(x_ptr + i, mask=i < n)"

#: Each mutant as the text that it takes away and the text that it puts there.
SMALL = [
    "program-axis-swap: 0 -> 1",
    "drop-block-offset: tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) -> tl.arange(0, BLOCK)",
    "block-offset-plus-one: tl.program_id(0) * BLOCK -> tl.program_id(0) * BLOCK + 1",
    "block-offset-short: BLOCK -> (BLOCK - 1)",
    "drop-block-factor: tl.program_id(0) * BLOCK -> tl.program_id(0)",
    "arange-shift: tl.arange(0, BLOCK) -> (1 + tl.arange(0, BLOCK))",
    "argument-swap: x_ptr -> y_ptr | y_ptr -> x_ptr",
    "address-plus-one: y_ptr + i -> y_ptr + i + 1",
    "address-plus-one: x_ptr + i -> x_ptr + i + 1",
    "address-minus-one: y_ptr + i -> y_ptr + i - 1",
    "address-minus-one: x_ptr + i -> x_ptr + i - 1",
    "constant-output: tl.load(x_ptr + i, mask=i < n) -> tl.load(x_ptr + i, mask=i < n) * 0",
    "mask-drop-load: , mask=i < n -> ",
    "mask-drop-store: , mask=i < n -> ",
    "mask-widen: < -> <=",
    "mask-widen: < -> <=",
    "mask-narrow: n -> n - 1",
    "mask-narrow: n -> n - 1",
    "mask-skip-first: i < n -> (i < n) & (i > 0)",
    "mask-skip-first: i < n -> (i < n) & (i > 0)",
    "mask-true: i < n -> i >= 0",
    "mask-true: i < n -> i >= 0",
    "mask-round-down: n -> n // 16 * 16",
    "mask-round-down: n -> n // 16 * 16",
    "block-halved: BLOCK -> BLOCK // 2",
    *(
        f"{place}-{short}: {LOADED} -> {LOADED}.to(tl.{dtype}).to(tl.float32)"
        for place in ("load", "store")
        for short, dtype in (("fp16", "float16"), ("bf16", "bfloat16"))
    ),
]


def changed(mutant: Mutant, source: str) -> str:
    raw = source.encode()
    return " | ".join(f"{raw[e.start : e.end].decode()} -> {e.text}" for e in mutant.edits)


def test_the_mutants_of_a_small_module_are_these():
    source = module(
        "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)"
    )
    assert [f"{m.rule[7:]}: {changed(m, source)}" for m in all_of(source, *RULES)] == SMALL


def test_an_id_is_the_same_on_every_machine():
    (mutant,) = all_of(FLAT, catalogue.rule("triton-mask-drop-store", RULES))
    assert mutant.id == "fd795ff61c57"


def test_a_helper_that_is_no_kernel_is_left_alone():
    start = ONLINE.index("def scaled")
    end = ONLINE.index("def run")
    for mutant in all_of(ONLINE):
        assert all(e.end <= start or e.start >= end for e in mutant.edits), mutant.rule


def test_a_jit_function_that_a_kernel_calls_is_mutated():
    assert any("old + new" in m.source for m in all_of(ONLINE))


@pytest.mark.parametrize("source", MODULES.values(), ids=MODULES)
def test_imports_decorators_and_parameters_are_left_alone(source):
    lines = source.splitlines()
    for mutant in all_of(source):
        changed_line = lines[mutant.line - 1]
        assert not changed_line.startswith(("import", "from", "@", "def")), mutant.rule


def test_a_rule_without_a_site_makes_no_mutant():
    assert not all_of(FLAT, *catalogue.select(["synchronization"], RULES))


def test_a_block_size_that_the_grid_follows_is_not_halved():
    rule = catalogue.rule("triton-block-halved", RULES)
    assert len(all_of(FLAT, rule)) == 1
    assert not all_of(PRODUCT, rule)
    follows = FLAT.replace(
        "[(triton.cdiv(n, BLOCK),)]", "[lambda meta: (triton.cdiv(n, meta['BLOCK']),)]"
    )
    assert follows != FLAT and not all_of(follows, rule)


def test_a_block_size_that_a_loop_steps_by_is_not_halved():
    assert not all_of(ONLINE, catalogue.rule("triton-block-halved", RULES))


def test_a_causal_mask_is_widened_and_narrowed():
    found = {
        m.rule: m.source
        for m in all_of(ONLINE, *catalogue.select(["triton-mask-*"], RULES))
        if "cols <= row," not in m.source
    }
    assert "cols - 1 <= row," in found["triton-mask-widen"]
    assert "cols < row," in found["triton-mask-narrow"]


def test_what_does_not_parse_or_has_no_kernel_is_refused():
    with pytest.raises(KernelSyntaxError):
        all_of("def (")
    with pytest.raises(UnsupportedError):
        all_of("x = 1\n")


def test_a_rule_of_another_language_is_refused():
    with pytest.raises(UsageError, match="add-to-sub is for cuda"):
        all_of(FLAT, catalogue.rule("add-to-sub"))
    with pytest.raises(UsageError, match="unknown language"):
        mutants(FLAT, problem="p", call="", style="", language="metal")


def test_a_rule_that_fails_is_named():
    def explode(tree):
        raise AssertionError("no mask")

    rule = Rule("triton-exploding", "boundary", "w", "b", explode, (), language="triton")
    with pytest.raises(UnsupportedError, match=r"triton-exploding.*no mask"):
        all_of(FLAT, rule)


# -- the catalogue ------------------------------------------------------------------------------


def test_no_two_rules_share_an_id_whatever_their_language():
    ids = [rule.id for language in LANGUAGES for rule in rules_of(language)]
    ids += [rule.id for rule in BENIGN]
    assert len(set(ids)) == len(ids)
    assert all(rule.id.startswith("triton-") and rule.language == "triton" for rule in EVERY)


@pytest.mark.parametrize(
    ("family", "least"),
    [
        ("arithmetic", 18),
        ("indexing", 21),
        ("semantic", 39),
        ("boundary", 29),
        ("synchronization", 14),
        ("precision", 22),
    ],
)
def test_a_family_has_all_its_rules(family, least):
    assert len(catalogue.select([family], RULES)) >= least
    assert {rule.family for rule in RULES} == set(FAMILIES)


def test_benign_rewrites_are_no_fault_family():
    assert {rule.family for rule in BENIGN} == {"benign"}
    assert len(BENIGN) >= 8


def test_rules_of_a_language_are_selected_by_id_glob_or_family():
    loops = catalogue.select(["triton-loop-*"], RULES)
    assert len(loops) == 6 and loops[0].id == "triton-loop-start-late"
    with pytest.raises(UsageError, match="did you mean"):
        catalogue.select(["triton-mask-widenn"], RULES)
