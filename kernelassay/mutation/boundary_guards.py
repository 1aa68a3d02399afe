"""Boundary rules on guards."""

from __future__ import annotations

from collections.abc import Iterator

from kernelassay.mutation.boundary_tails import is_tail_guard
from kernelassay.mutation.bounds import guards, halo_tests, warp_combine_tests
from kernelassay.mutation.examples import example
from kernelassay.mutation.extents import bare, extents
from kernelassay.mutation.nodes import field
from kernelassay.mutation.rewrites import moved, without_operand, without_statement
from kernelassay.mutation.rule import Example, Find, Mutation, Rule
from kernelassay.mutation.tree import KernelTree, mutation, replace

_INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
_TILE = "const float* x, float* y, int M, int N"
_HALO = "int h = threadIdx.y - 1, w = threadIdx.x - 1;"


def _guard_delete(tree: KernelTree) -> Iterator[Mutation]:
    for guard in guards(tree):
        owner = guard.owner
        if not guard.pure or is_tail_guard(tree, guard):
            continue
        if owner.type == "if_statement":
            if guard.exits:
                yield mutation(without_statement(tree, owner))
            elif owner.child_by_field_name("alternative") is None:
                yield mutation(replace(owner, tree.text(field(owner, "consequence"))))
        elif owner.type == "init_declarator":
            yield mutation(replace(guard.condition, "true"))


def _movable(tree: KernelTree, *, loose: bool) -> Iterator[Mutation]:
    owned = halo_tests(tree)
    if not loose:
        owned |= {test.node.id for test in warp_combine_tests(tree)}
    for guard in guards(tree):
        for test in guard.tests:
            if test.node.id not in owned:
                yield mutation(replace(test.node, moved(tree, test, loose=loose)))


def _off_by_one_loose(tree: KernelTree) -> Iterator[Mutation]:
    return _movable(tree, loose=True)


def _off_by_one_tight(tree: KernelTree) -> Iterator[Mutation]:
    return _movable(tree, loose=False)


def _guard_wrong_size(tree: KernelTree) -> Iterator[Mutation]:
    sizes: dict[int, list[str]] = {}
    found = [(tree.function(g.owner), test) for g in guards(tree) for test in g.tests if test.upper]
    for function, test in found:
        name = tree.text(bare(test.bound))
        known = sizes.setdefault(function.id, [])
        if name in extents(tree).sizes(function) and name not in known:
            known.append(name)
    for function, test in found:
        bound = bare(test.bound)
        if bound.type == "identifier":
            for other in sizes[function.id]:
                if other != tree.text(bound):
                    yield mutation(replace(bound, other))


def _drop_conjunct(tree: KernelTree) -> Iterator[Mutation]:
    owned = halo_tests(tree)
    for guard in guards(tree):
        if len(guard.operands) < 2:
            continue
        for test in guard.tests:
            edit = without_operand(tree, test.node)
            if test.node.id not in owned and edit is not None:
                yield mutation(edit)


def _rule(id_: str, what: str, bug: str, find: Find, *examples: Example) -> Rule:
    return Rule(id_, "boundary", what, bug, find, examples)


_GUARDED = f"{_INDEX}\nif (i >= n) return;\ny[i] = x[i];"
_TILED = "int r = threadIdx.y, c = threadIdx.x;\nif (r < M && c < N) y[r * N + c] = x[0];"

RULES = (
    _rule(
        "guard-delete",
        "a guard that consists of bound tests removed",
        "threads past the end read and write memory that is not theirs",
        _guard_delete,
        example(_GUARDED, f"{_INDEX}\n\ny[i] = x[i];"),
        example(f"{_INDEX}\nif (i < n) y[i] = x[i];", f"{_INDEX}\ny[i] = x[i];"),
        example(f"{_INDEX}\nbool ok = i < n;", f"{_INDEX}\nbool ok = true;"),
    ),
    _rule(
        "guard-off-by-one-loose",
        "`i < n` to `i <= n`",
        "one element past the end passes the guard",
        _off_by_one_loose,
        example(_GUARDED, _GUARDED.replace(">=", ">")),
        example(
            _TILED,
            _TILED.replace("r < M", "r <= M"),
            _TILED.replace("c < N", "c <= N"),
            params=_TILE,
        ),
    ),
    _rule(
        "guard-off-by-one-tight",
        "`i < n` to `i < n - 1`",
        "the last element is left out",
        _off_by_one_tight,
        example(_GUARDED, _GUARDED.replace("i >= n", "i >= n - 1")),
        example(
            f"{_INDEX}\nif (n > i) y[i] = x[i];",
            f"{_INDEX}\nif (n - 1 > i) y[i] = x[i];",
        ),
    ),
    _rule(
        "guard-wrong-size",
        "the guard's size replaced by another guard's size of the same kernel",
        "height and width mixed up: unnoticed on square shapes",
        _guard_wrong_size,
        example(
            _TILED,
            _TILED.replace("r < M", "r < N"),
            _TILED.replace("c < N", "c < M"),
            params=_TILE,
        ),
    ),
    _rule(
        "guard-drop-conjunct",
        "`r < M && c < N` to one of the two",
        "one dimension of a tile is not guarded",
        _drop_conjunct,
        example(
            _TILED,
            _TILED.replace("r < M && c < N", "c < N"),
            _TILED.replace("r < M && c < N", "r < M"),
            params=_TILE,
        ),
    ),
)
