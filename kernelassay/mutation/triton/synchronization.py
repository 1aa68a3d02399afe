"""The synchronization family: atomics, barriers, and what one launch leaves to the next."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import libcst as cst

from kernelassay.mutation.rule import Edit, Find, Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import body, edited, module, rule
from kernelassay.mutation.triton.match import argument, atom, names, replace, value
from kernelassay.mutation.triton.semantic_reduction import renamed
from kernelassay.mutation.triton.tree import LaunchSite, TritonTree
from kernelassay.mutation.triton.values import all_values, values_of

# -- atomics ------------------------------------------------------------------------------------


def _alone(tree: TritonTree, call: cst.CSTNode) -> bool:
    """Whether a call is a statement of its own."""
    return isinstance(tree.parent(call), cst.Expr)


def _plain(tree: TritonTree, call: cst.Call, stored: str) -> str | None:
    """The text of a plain store in the place of an atomic."""
    pointer, mask = value(call, 0, "pointer"), argument(call, 2, "mask")
    if pointer is None:
        return None
    masked = f", mask={tree.text(mask.value)}" if mask is not None else ""
    return f"{tree.language}.store({tree.full(pointer)}, {stored}{masked})"


def _atomic_to_store(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("atomic_add", "atomic_max", "atomic_min"):
        given = value(call, 1, "val")
        text = _plain(tree, call, tree.full(given)) if given is not None else None
        if text is not None and _alone(tree, call):
            yield mutation(replace(tree, call, text))


def _atomic_to_plain(tree: TritonTree) -> Iterator[Mutation]:
    tl = tree.language
    for call in tree.calls("atomic_add", "atomic_max", "atomic_min"):
        given, pointer = value(call, 1, "val"), value(call, 0, "pointer")
        mask = argument(call, 2, "mask")
        if given is None or pointer is None or not _alone(tree, call):
            continue
        masked = f", mask={tree.text(mask.value)}" if mask is not None else ""
        old = f"{tl}.load({tree.full(pointer)}{masked})"
        operation = tree.callee(call).removeprefix("atomic_")
        new = (
            f"{old} + {atom(tree, given)}"
            if operation == "add"
            else f"{tl}.{operation}imum({old}, {tree.full(given)})"
        )
        text = _plain(tree, call, new)
        if text is not None:
            yield mutation(replace(tree, call, text))


def _atomic_operation(tree: TritonTree) -> Iterator[Mutation]:
    other = {"atomic_add": "atomic_max", "atomic_max": "atomic_add", "atomic_min": "atomic_max"}
    for call in tree.calls(*other):
        if isinstance(call.func, cst.Attribute):
            yield mutation(renamed(tree, call, other[tree.callee(call)]))


def _atomic_mask_drop(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("atomic_add", "atomic_max", "atomic_min"):
        mask = argument(call, 2, "mask")
        if mask is not None and mask is not call.args[0]:
            before = call.args[call.args.index(mask) - 1]
            yield mutation(Edit(tree.span(before)[1], tree.span(mask)[1], ""))


def _cas_unconditional(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("atomic_cas"):
        compared, given = argument(call, 1, "cmp"), argument(call, 2, "val")
        if compared is not None and given is not None and isinstance(call.func, cst.Attribute):
            before = call.args[call.args.index(compared) - 1]
            yield mutation(
                renamed(tree, call, "atomic_xchg"),
                Edit(tree.span(before)[1], tree.span(compared)[1], ""),
            )


def _weaker(keyword: str, new: str, *old: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for values in all_values(tree):
            for call in values.accesses():
                given = value(call, None, keyword)
                if isinstance(given, cst.SimpleString) and given.evaluated_value in old:
                    yield mutation(replace(tree, given, f'"{new}"'))

    return find


# -- barriers and the order of statements -------------------------------------------------------


def _barriers(tree: TritonTree) -> Iterator[cst.Call]:
    return (call for call in tree.calls("debug_barrier") if _alone(tree, call))


def _barrier_drop(tree: TritonTree) -> Iterator[Mutation]:
    for call in _barriers(tree):
        yield mutation(replace(tree, call, "pass"))


def _line(tree: TritonTree, node: cst.CSTNode) -> cst.SimpleStatementLine | None:
    """The line of a statement that stands alone on it."""
    line = tree.enclosing(node, cst.SimpleStatementLine)
    single = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    return line if single else None


def _barrier_first_program(tree: TritonTree) -> Iterator[Mutation]:
    for call in _barriers(tree):
        if _line(tree, call) is not None:
            condition = f"if {tree.language}.program_id(0) == 0: "
            yield mutation(replace(tree, call, condition + tree.text(call)))


def _siblings(tree: TritonTree, line: cst.SimpleStatementLine) -> list[cst.CSTNode]:
    block = tree.parent(line)
    return list(block.body) if isinstance(block, cst.IndentedBlock) else []


def _barrier_hoist(tree: TritonTree) -> Iterator[Mutation]:
    for call in _barriers(tree):
        line = _line(tree, call)
        around = _siblings(tree, line) if line is not None else []
        position = around.index(line) if line in around else 0
        before = around[position - 1] if position else None
        if line is None or not isinstance(before, cst.SimpleStatementLine) or len(before.body) != 1:
            continue
        moved = before.body[0]
        if any(tree.calls("load", "store", within=moved)):
            yield mutation(
                replace(tree, moved, tree.text(call)), replace(tree, call, tree.text(moved))
            )


def _exchange_late(tree: TritonTree) -> Iterator[Mutation]:
    """A store moved behind the load that reads what it has stored."""
    for values in all_values(tree):
        calls = list(values.accesses())
        for store in calls:
            line = _line(tree, store) if tree.callee(store) == "store" else None
            if line is None or not _alone(tree, store):
                continue
            around = _siblings(tree, line)
            base = values.base(store.args[0].value)
            for load in calls:
                held = _line(tree, load) if tree.callee(load) == "load" else None
                later = held in around and around.index(held) > around.index(line)
                if held is not None and later and values.base(load.args[0].value) == base:
                    end = tree.span(held.body[0])[1]
                    yield mutation(
                        replace(tree, store, "pass"), Edit(end, end, f"; {tree.text(store)}")
                    )
                    break


# -- launches -----------------------------------------------------------------------------------


def _launch_lines(tree: TritonTree) -> Iterator[tuple[LaunchSite, cst.SimpleStatementLine]]:
    for site in tree.launches:
        line = _line(tree, site.node)
        if line is not None and _alone(tree, site.node):
            yield site, line


def _launch_order(tree: TritonTree) -> Iterator[Mutation]:
    for (one, first), (other, second) in pairwise(_launch_lines(tree)):
        if tree.parent(first) is not tree.parent(second):
            continue
        shared = set(_pointers(tree, one)) & set(_pointers(tree, other))
        if shared:
            yield mutation(
                replace(tree, one.node, tree.text(other.node)),
                replace(tree, other.node, tree.text(one.node)),
            )


def _pointers(tree: TritonTree, site: LaunchSite) -> Iterator[str]:
    """The names of the tensors that a launch hands over."""
    pointers = values_of(tree, site.kernel.node.body).pointers
    for position, arg in enumerate(site.arguments):
        if arg.star:
            return
        parameter = arg.keyword.value if arg.keyword else _at(site.kernel.parameters, position)
        if parameter in pointers:
            yield from names(tree, arg.value)


def _at(parameters: tuple[str, ...], position: int) -> str:
    return parameters[position] if position < len(parameters) else ""


def _accumulating(tree: TritonTree) -> Iterator[LaunchSite]:
    """The launches of kernels that add to what is in memory."""
    for site in tree.launches:
        if any(tree.calls("atomic_add", within=site.kernel.node.body)):
            yield site


def _launch_repeated(tree: TritonTree) -> Iterator[Mutation]:
    accumulating = {site.node for site in _accumulating(tree)}
    for site, _ in _launch_lines(tree):
        if site.node in accumulating:
            end = tree.span(site.node)[1]
            yield mutation(Edit(end, end, f"; {tree.text(site.node)}"))


def _not_zeroed(tree: TritonTree) -> Iterator[Mutation]:
    """Host tensors that kernels accumulate into made without zeros."""
    targets = {name for site in _accumulating(tree) for name in _accumulated_names(tree, site)}
    for call in tree.host(cst.Call):
        made = tree.qualified(call.func)
        outer = tree.parent(call)
        if made not in ("torch.zeros", "torch.zeros_like") or not isinstance(outer, cst.Assign):
            continue
        target = outer.targets[0].target
        if isinstance(target, cst.Name) and target.value in targets:
            held = call.func.attr if isinstance(call.func, cst.Attribute) else None
            if held is not None:
                yield mutation(replace(tree, held, held.value.replace("zeros", "empty")))


def _accumulated_names(tree: TritonTree, site: LaunchSite) -> Iterator[str]:
    values = values_of(tree, site.kernel.node.body)
    bases = {
        values.base(call.args[0].value)
        for call in tree.calls("atomic_add", within=site.kernel.node.body)
    }
    for position, arg in enumerate(site.arguments):
        parameter = arg.keyword.value if arg.keyword else _at(site.kernel.parameters, position)
        if not arg.star and parameter in bases:
            yield from names(tree, arg.value)


_ADD = "i = tl.program_id(0)\ntl.atomic_add(y_ptr, tl.load(x_ptr + i), mask=i < n)"
_EXCHANGE = (
    "i = tl.arange(0, BLOCK)\n"
    "tl.store(x_ptr + i, 1.0)\n"
    "tl.debug_barrier()\n"
    "x = tl.load(x_ptr + i - n)\n"
    "tl.store(y_ptr + i, x)"
)
_HOST = (
    "import torch\n\n\ndef total(x, n):\n    y = torch.zeros(1)\n    k[(n,)](x, y, n, BLOCK=1)\n"
)
_TWICE = "k[(4,)](x_ptr, y_ptr, n, BLOCK=BLOCK)"

RULES: tuple[Rule, ...] = (
    rule(
        "atomic-to-store",
        "synchronization",
        "an atomic to a plain store of its value",
        "programs that overwrite one another's results",
        _atomic_to_store,
        body(_ADD, ("tl.atomic_add", "tl.store")),
    ),
    rule(
        "atomic-to-plain",
        "synchronization",
        "an atomic to a load, the operation, and a store",
        "updates that are lost between the load and the store",
        _atomic_to_plain,
        body(
            _ADD,
            (
                "atomic_add(y_ptr, tl.load(x_ptr + i)",
                "store(y_ptr, tl.load(y_ptr, mask=i < n) + tl.load(x_ptr + i)",
            ),
        ),
        body(
            "tl.atomic_max(y_ptr, tl.load(x_ptr))",
            (
                "atomic_max(y_ptr, tl.load(x_ptr)",
                "store(y_ptr, tl.maximum(tl.load(y_ptr), tl.load(x_ptr))",
            ),
        ),
    ),
    rule(
        "atomic-operation",
        "synchronization",
        "`atomic_add` to `atomic_max`, `atomic_max` to `atomic_add`",
        "results of programs combined by the wrong operation",
        _atomic_operation,
        body(_ADD, ("atomic_add", "atomic_max")),
    ),
    rule(
        "atomic-mask-drop",
        "synchronization",
        "the mask of an atomic removed",
        "programs past the end take part",
        _atomic_mask_drop,
        body(_ADD, (", mask=i < n", "")),
    ),
    rule(
        "cas-unconditional",
        "synchronization",
        "`atomic_cas(p, c, v)` to `atomic_xchg(p, v)`",
        "a lock that everyone gets",
        _cas_unconditional,
        body("tl.atomic_cas(y_ptr, 0, 1)", ("atomic_cas(y_ptr, 0, 1)", "atomic_xchg(y_ptr, 1)")),
    ),
    rule(
        "sem-relax",
        "synchronization",
        "`sem` of an atomic to relaxed",
        "a lock or a counter that orders nothing",
        _weaker("sem", "relaxed", "acquire", "release", "acq_rel"),
        body("tl.atomic_add(y_ptr, 1.0, sem='release')", ("'release'", '"relaxed"')),
    ),
    rule(
        "scope-narrow",
        "synchronization",
        "`scope` of an atomic to a block",
        "an update that other blocks need not see",
        _weaker("scope", "cta", "gpu", "sys"),
        body("tl.atomic_add(y_ptr, 1.0, scope='gpu')", ("'gpu'", '"cta"')),
    ),
    rule(
        "barrier-drop",
        "synchronization",
        "`tl.debug_barrier()` removed",
        "threads that read what others have not written yet",
        _barrier_drop,
        body(_EXCHANGE, ("tl.debug_barrier()", "pass")),
    ),
    rule(
        "barrier-first-program",
        "synchronization",
        "`tl.debug_barrier()` in the first program only",
        "a barrier that depends on a condition",
        _barrier_first_program,
        body(_EXCHANGE, ("tl.debug", "if tl.program_id(0) == 0: tl.debug")),
    ),
    rule(
        "barrier-hoist",
        "synchronization",
        "`tl.debug_barrier()` moved before the access it follows",
        "a barrier before the write it should wait for",
        _barrier_hoist,
        body(
            _EXCHANGE,
            (
                "tl.store(x_ptr + i, 1.0)\n    tl.debug_barrier()",
                "tl.debug_barrier()\n    tl.store(x_ptr + i, 1.0)",
            ),
        ),
    ),
    rule(
        "exchange-late",
        "synchronization",
        "a store moved behind the load that reads what it stores",
        "an exchange that hands on the state of the step before",
        _exchange_late,
        body(
            _EXCHANGE,
            (
                "tl.store(x_ptr + i, 1.0)\n    tl.debug_barrier()\n    x = tl.load(x_ptr + i - n)",
                "pass\n    tl.debug_barrier()\n"
                "    x = tl.load(x_ptr + i - n); tl.store(x_ptr + i, 1.0)",
            ),
        ),
    ),
    rule(
        "launch-order-swap",
        "synchronization",
        "two launches that share a tensor in the other order",
        "a kernel launched before what it needs is computed",
        _launch_order,
        edited(
            module(_ADD) + f"    {_TWICE.replace('x_ptr, y_ptr', 'y_ptr, x_ptr')}\n",
            (
                f"{_TWICE}\n    {_TWICE.replace('x_ptr, y_ptr', 'y_ptr, x_ptr')}",
                f"{_TWICE.replace('x_ptr, y_ptr', 'y_ptr, x_ptr')}\n    {_TWICE}",
            ),
        ),
    ),
    rule(
        "launch-repeated",
        "synchronization",
        "a launch that adds to memory repeated",
        "an autotuned kernel that accumulates, and is not reset between its trials",
        _launch_repeated,
        body(_ADD, (_TWICE, f"{_TWICE}; {_TWICE}")),
    ),
    rule(
        "scratch-not-zeroed",
        "synchronization",
        "`torch.zeros` of what kernels add to, to `torch.empty`",
        "a sum that starts from whatever memory holds",
        _not_zeroed,
        edited(module(_ADD) + "\n\n" + _HOST, ("torch.zeros(1)", "torch.empty(1)")),
    ),
)
