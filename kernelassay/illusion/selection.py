"""Which kernels a command is about, and the groups that a campaign runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from kernelassay.errors import UsageError, unknown_name
from kernelassay.illusion.campaign import Group
from kernelassay.illusion.corpus import entries, extras
from kernelassay.illusion.corpus.cuda_twins import twins
from kernelassay.illusion.op import Op
from kernelassay.illusion.op_file import read
from kernelassay.illusion.population import Population
from kernelassay.illusion.trials import BENIGN, CONTROL, FAULTY, MUTANT, OWN, Subject


def selected(names: Sequence[str], files: Sequence[Path]) -> list[Op]:
    """Kernels by name or glob, then the operators of files; the published corpus for neither.

    Beside the 26 published ones there are the extras and the CUDA twins, for those who name them.
    An unknown name raises ``UsageError``, as does a file that is no operator or has the name of
    another kernel.
    """
    if not names and not files:
        return [*entries()]
    known = _known()
    chosen: dict[str, Op] = {}
    for name in names:
        matching = {n: op for n, op in known.items() if fnmatchcase(n, name)}
        if not matching:
            raise unknown_name("kernel", name, known)
        chosen |= matching
    for path in files:
        op = read(path)
        if op.name in chosen:
            raise UsageError(
                f"there is another kernel {op.name}",
                where=str(path),
                hint='give the file another name, or write name = "..." in it',
            )
        chosen[op.name] = op
    return [*chosen.values()]


def _known() -> dict[str, Op]:
    return {op.name: op for op in (*entries(), *extras(), *twins())}


def groups(ops: Sequence[Op], populations: Mapping[str, Population]) -> tuple[Group, ...]:
    """A group per operator, with its distinct mutants and its correct variants.

    A population of a kernel that is not among ``ops`` raises ``UsageError``.
    """
    for name in populations:
        if name not in {op.name for op in ops}:
            raise unknown_name("kernel of the mutants", name, [op.name for op in ops])
    return tuple(_group(op, populations.get(op.name)) for op in ops)


def _group(op: Op, population: Population | None) -> Group:
    if population is None:
        role = CONTROL if _known().get(op.name) == op else OWN
        return Group(op, (Subject(op.name, FAULTY if op.fault else role, op.text),))
    population.require_of(op)
    others = [
        Subject(one.id, BENIGN if one.benign else MUTANT, text, one.rule, one.family)
        for one, text in population.to_run(op.text)
    ]
    control = Subject(op.name, CONTROL, op.text)
    return Group(op, (control, *others), population.records())
