"""Facts about the synchronization rules beyond their examples."""

import pytest

from kernelassay.mutation.engine import apply
from kernelassay.mutation.examples import kernel
from kernelassay.mutation.rule import Rule
from kernelassay.mutation.synchronization import RULES
from kernelassay.mutation.tree import KernelTree
from tests.mutation.family_facts import CATALOGUE, MATMUL, ROW_SUM, SOURCES, texts

BARRIER = "__syncthreads();"


def mutants(name: str, source: str) -> list[str]:
    return texts(RULES, name, source)


def test_the_family_has_the_catalogues_rules_in_its_order() -> None:
    assert [rule.id for rule in RULES] == CATALOGUE["synchronization"].split()
    assert {rule.family for rule in RULES} == {"synchronization"}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("name", ["barrier-to-syncwarp", "barrier-to-fence", "barrier-into-branch"])
def test_barrier_rules_fire_once_per_barrier(name: str, source: str) -> None:
    assert len(mutants(name, source)) == source.count(BARRIER)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_two_deletions_share_out_the_barriers(source: str) -> None:
    found = mutants("barrier-delete", source) + mutants("loop-tail-barrier-delete", source)
    assert len(found) == len(set(found)) == source.count(BARRIER)
    assert all(text.count(BARRIER) == source.count(BARRIER) - 1 for text in found)


def test_the_loop_tail_barrier_is_the_one_after_the_last_read() -> None:
    (text,) = mutants("loop-tail-barrier-delete", MATMUL)
    assert text.index(BARRIER) < text.index("sum += sa")


def test_a_barrier_at_the_head_of_a_tile_loop_guards_the_same_write() -> None:
    source = kernel(
        "__shared__ float s[32];\nfor (int t = 0; t < n; ++t) {\n    __syncthreads();\n"
        "    s[threadIdx.x] = x[t];\n    __syncthreads();\n    y[t] = s[0];\n}"
    )
    (text,) = mutants("loop-tail-barrier-delete", source)
    assert text.index("s[threadIdx.x] = x[t]") < text.index(BARRIER)


def test_the_only_barrier_of_a_loop_is_no_loop_tail_barrier() -> None:
    source = kernel(
        "for (int s = 16; s > 0; s >>= 1) {\n    y[s] += x[s];\n    __syncthreads();\n}"
    )
    assert not mutants("loop-tail-barrier-delete", source)
    assert len(mutants("barrier-delete", source)) == 1


def test_hoisting_keeps_every_barrier_and_passes_a_shared_access() -> None:
    for text in mutants("barrier-hoist", MATMUL):
        assert text.count(BARRIER) == MATMUL.count(BARRIER)
    assert not mutants("barrier-hoist", kernel("int i = threadIdx.x;\n__syncthreads();"))


def test_a_barrier_is_not_hoisted_next_to_another() -> None:
    source = kernel(
        "__shared__ float s[32];\ns[0] = 1.0f;\n__syncthreads();\ny[0] = s[0];\n__syncthreads();"
    )
    assert len(mutants("barrier-hoist", source)) == 1


def test_a_barrier_that_is_a_whole_branch_leaves_an_empty_statement() -> None:
    (text,) = mutants("barrier-delete", kernel("if (n > 3) __syncthreads();\ny[0] = x[0];"))
    assert "if (n > 3) ;\ny[0]" in text


def test_a_combine_reads_one_partial_result_too_few_wherever_warps_are_counted() -> None:
    (text,) = mutants("last-warp-skip", ROW_SUM)
    assert "lane < blockDim.x / 32 - 1 ? partial[lane]" in text
    for count in ("(blockDim.x >> 5)", "(blockDim.x + 31) / 32", "NUM_WARPS", "BLOCK / WARP"):
        source = kernel(f"for (int w = 0; w < {count}; ++w) y[0] += x[w];")
        (text,) = mutants("last-warp-skip", source)
        assert f"w < {count} - 1" in text or f"w < ({count}) - 1" in text


def test_a_retry_loop_on_compare_and_swap_is_left_alone() -> None:
    source = kernel("int* lock = (int*)y;\nwhile (atomicCAS(lock, 0, 1) != 0) {}")
    assert not mutants("atomic-to-plain", source)


def test_a_plain_maximum_reads_and_writes_its_target() -> None:
    (text,) = mutants("atomic-to-plain", kernel("int* best = (int*)y;\natomicMax(&best[0], n);"))
    assert "best[0] = max(best[0], n);" in text


def test_named_full_masks_are_narrowed_and_computed_masks_are_not() -> None:
    body = "float v = x[0];\nv += __shfl_xor_sync({}, v, 1);\ny[0] = v;"
    assert len(mutants("shuffle-mask-narrow", kernel(body.format("FULL_MASK")))) == 1
    assert not mutants("shuffle-mask-narrow", kernel(body.format("__activemask()")))


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_rules_make_no_text_twice_and_every_text_parses(source: str) -> None:
    tree = KernelTree(source)
    found = [apply(source, mutation) for rule in RULES for mutation in rule.find(tree)]
    assert len(found) == len(set(found))
    for text in found:
        KernelTree(text)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_no_rule_touches_the_launcher(rule: Rule) -> None:
    for source in SOURCES.values():
        tree = KernelTree(source)
        for mutation in rule.find(tree):
            assert all(edit.end <= tree.launcher.start_byte for edit in mutation.edits)


GROUPED = kernel(
    "auto all = cg::this_thread_block();\n"
    "cg::thread_block_tile<32> warp = cg::tiled_partition<32>(all);\n"
    "__shared__ float s[64];\ns[threadIdx.x] = x[threadIdx.x];\n{block}\n"
    "y[threadIdx.x] = s[0];\n{tile}"
)


@pytest.mark.parametrize(
    "block", ["all.sync();", "cg::sync(all);", "cooperative_groups::this_thread_block().sync();"]
)
@pytest.mark.parametrize("tile", ["warp.sync();", "cg::sync(warp);"])
def test_the_barriers_of_groups_are_those_of_their_intrinsics(block: str, tile: str) -> None:
    source = GROUPED.replace("{block}", block).replace("{tile}", tile)
    for name in ("barrier-delete", "barrier-hoist"):
        (text,) = mutants(name, source)
        assert text.count(tile) == 1
    (text,) = mutants("barrier-delete", source)
    assert block not in text
    (text,) = mutants("barrier-to-syncwarp", source)
    assert text == source.replace(block, "__syncwarp();")
    (text,) = mutants("barrier-into-branch", source)
    assert text == source.replace(block, f"if (threadIdx.x < blockDim.x / 2) {block}")
    (text,) = mutants("syncwarp-delete", source)
    assert tile not in text
    assert block in text


def test_a_group_that_is_handed_over_and_no_group_at_all() -> None:
    helper = "__device__ void meet(cg::thread_block cta, Log log) { cg::sync(cta); log.sync(); }\n"
    (text,) = mutants("barrier-delete", helper + kernel("y[0] = 1;"))
    assert "log.sync();" in text
    assert "cg::sync(cta);" not in text
