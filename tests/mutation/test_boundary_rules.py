"""Facts about the boundary rules beyond their examples."""

import pytest

from kernelassay.mutation.boundary import RULES
from kernelassay.mutation.engine import apply
from kernelassay.mutation.examples import kernel
from kernelassay.mutation.extents import extents, floor_of_ceil
from kernelassay.mutation.rule import Rule
from kernelassay.mutation.tree import KernelTree
from tests.mutation.family_facts import (
    CATALOGUE,
    CONV,
    MATMUL,
    ROW_SUM,
    SOURCES,
    changed_lines,
    texts,
)

LAUNCH = [rule for rule in RULES if rule.id.startswith(("grid-", "block-", "shared-"))]


def mutants(name: str, source: str) -> list[str]:
    return texts(RULES, name, source)


def test_the_family_has_the_catalogues_rules_in_its_order() -> None:
    assert [rule.id for rule in RULES] == CATALOGUE["boundary"].split()
    assert {rule.family for rule in RULES} == {"boundary"}


@pytest.mark.parametrize("rule", LAUNCH, ids=lambda rule: rule.id)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_launch_rules_touch_only_the_launcher(rule: Rule, source: str) -> None:
    tree = KernelTree(source)
    for mutation in rule.find(tree):
        for edit in mutation.edits:
            assert tree.launcher.start_byte < edit.start <= edit.end < tree.launcher.end_byte


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_rules_make_no_text_twice_and_every_text_parses(source: str) -> None:
    tree = KernelTree(source)
    found = [apply(source, mutation) for rule in RULES for mutation in rule.find(tree)]
    assert len(found) == len(set(found)) > 20
    assert source not in found
    for text in found:
        KernelTree(text)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_sites_come_in_source_order_and_are_the_same_every_time(rule: Rule) -> None:
    for source in SOURCES.values():
        first, again = (tuple(rule.find(KernelTree(source))) for _ in range(2))
        assert first == again


def test_guard_delete_leaves_the_guarded_statement() -> None:
    (text,) = mutants("guard-delete", MATMUL)
    assert changed_lines(MATMUL, text)[1] == ["c[row * N + col] = sum;"]


def test_a_data_comparison_is_no_guard() -> None:
    source = kernel("float best = 0.0f;\nif (x[0] < best) best = x[0];\ny[0] = best;")
    assert not mutants("guard-delete", source)
    assert not mutants("guard-off-by-one-loose", source)


def test_a_causal_mask_is_no_guard() -> None:
    source = kernel("int i = threadIdx.x;\nfor (int j = 0; j < n; ++j) if (j <= i) y[i] += x[j];")
    assert not mutants("guard-delete", source)


def test_the_guard_of_a_tree_reduction_and_of_a_warp_scan_is_a_guard() -> None:
    tree = kernel(
        "__shared__ float s[32];\n"
        "for (int h = blockDim.x / 2; h > 0; h >>= 1)\n"
        "    if (threadIdx.x < h) s[threadIdx.x] += s[threadIdx.x + h];"
    )
    assert "threadIdx.x <= h" in mutants("guard-off-by-one-loose", tree)[0]
    scan = kernel(
        "int lane = threadIdx.x % 32;\nfloat v = x[lane];\n"
        "for (int o = 1; o < 32; o <<= 1) if (lane >= o) v += x[o];\ny[lane] = v;"
    )
    assert "lane >= o - 1" in mutants("guard-off-by-one-loose", scan)[0]


def test_padding_tests_belong_to_the_halo_rules_alone() -> None:
    moved = mutants("guard-off-by-one-loose", CONV) + mutants("guard-drop-conjunct", CONV)
    assert all("ih < 0 || ih >= H" in text and "iw >= 0 && iw < W" in text for text in moved)
    assert len(mutants("halo-drop-lower", CONV)) == len(mutants("halo-drop-upper", CONV)) == 2
    assert len(mutants("halo-off-by-one", CONV)) == 8


def test_halo_clamp_reads_the_edge_in_place_of_skipping() -> None:
    row, column = mutants("halo-clamp", CONV)
    assert "if (false || false) continue;" in row
    assert "x[(ih < 0 ? 0 : ih > H - 1 ? H - 1 : ih) * W + iw]" in row
    assert "x[ih * W + (iw < 0 ? 0 : iw > W - 1 ? W - 1 : iw)]" in column


def test_tail_drop_removes_the_scalar_loop_after_a_float4_loop() -> None:
    (text,) = mutants("tail-drop", ROW_SUM)
    assert "v += row4[i].x" in text
    assert "v += row[i]" not in text


def test_a_halving_loop_never_becomes_endless() -> None:
    for name in ("loop-end-inclusive", "loop-end-plus-one", "loop-start-plus-one"):
        assert all(text.count("o > 0") == 2 for text in mutants(name, ROW_SUM))


def test_only_the_partial_tile_is_lost_by_the_floored_tile_count() -> None:
    (text,) = mutants("loop-skip-last-tile", MATMUL)
    assert "t < K / TILE;" in text
    assert not any("TILE + 1;" in text for text in mutants("loop-end-plus-one", MATMUL))


def test_the_ceiling_is_found_behind_a_variable_that_is_capped_later() -> None:
    (text,) = mutants("grid-ceil-to-floor", CONV)
    assert "int blocks = (OH * OW) / 256;" in text or "int blocks = OH * OW / 256;" in text


def test_a_block_rule_leaves_the_grid_and_the_block_variable_alone() -> None:
    for text in mutants("block-halved", MATMUL):
        assert "dim3 block(TILE, TILE);" in text
        assert "<<<grid, dim3(" in text


def test_a_block_that_no_device_accepts_is_not_made() -> None:
    source = kernel("y[0] = x[0];", block="dim3(32, 32)")
    assert not mutants("block-doubled", source)
    assert len(mutants("block-halved", source)) == 2


def test_grid_rules_pass_over_a_single_block() -> None:
    source = kernel("y[0] = x[0];", grid="1")
    assert not mutants("grid-minus-one", source) and not mutants("grid-plus-one", source)


@pytest.mark.parametrize(
    ("quotient", "floor"),
    [
        ("(n + 255) / 256", "n / 256"),
        ("(n + B - 1) / B", "n / B"),
        ("(n - 1 + B) / B", "n / B"),
        ("(n + 31) >> 5", "n >> 5"),
        ("(n - 1) / B + 1", "n / B"),
        ("ceil_div(n, B)", "n / B"),
        ("(a * n + (B - 1)) / B", "(a * n) / B"),
        ("(n + 3) / 2", None),
        ("n / 4", None),
    ],
)
def test_quotients_that_round_up_are_told_from_others(quotient: str, floor: str | None) -> None:
    tree = KernelTree(kernel(f"int q = {quotient};"))
    node = next(tree.nodes("init_declarator")).child_by_field_name("value")
    assert node is not None
    assert floor_of_ceil(tree, node) == floor


def test_extents_tell_sizes_from_what_varies_between_threads() -> None:
    tree = KernelTree(
        kernel("int total = n * 4;\nint i = blockIdx.x;\nint m = 3;\nm += 1;\ny[i + total] = m;")
    )
    named = {tree.text(node): node for node in tree.nodes("identifier")}
    fixed = {name for name in ("n", "total", "i", "m") if extents(tree).fixed(named[name])}
    assert fixed == {"n", "total"}
