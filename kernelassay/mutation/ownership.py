"""General rules leave a rewrite to the rule that names the fault."""

from __future__ import annotations

from collections.abc import Iterator

from kernelassay.mutation.engine import apply
from kernelassay.mutation.rule import Find, Mutation, Rule
from kernelassay.mutation.tree import KernelTree


def unless_owned(find: Find, *owners: Rule) -> Find:
    """The mutations of ``find`` whose text none of the rules ``owners`` makes."""

    def found(tree: KernelTree) -> Iterator[Mutation]:
        general = list(find(tree))
        if not general:
            return
        taken = {apply(tree.source, owned) for rule in owners for owned in rule.find(tree)}
        yield from (m for m in general if apply(tree.source, m) not in taken)

    return found
