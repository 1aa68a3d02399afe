"""Inputs that try many kinds of values at once: each slice of the first axis has its own.

An output that is computed slice by slice (the rows of a product, the samples of a batch) shows on
one such input what else takes one input per kind of values. Kinds are added while the references,
then the correct kernels, still bear the whole. Blind to mutants, like the taxonomy, whose sizes
and conditions it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelassay.input_values import MOSAIC
from kernelassay.inputs import InputSpec
from kernelassay.synthesis.generate.settling import mosaics
from kernelassay.synthesis.generate.target import Proposal, Target, WhiteBox, named
from kernelassay.synthesis.generate.taxonomy import APART, OBJECTED, Playbook
from kernelassay.tasks import run_task


class Mosaic:
    """See the module."""

    name = "mosaic"
    blind = True

    def propose(
        self, target: Target, count: int, seed: int, seen: WhiteBox | None = None
    ) -> Proposal:
        """As :class:`Generator`; kinds that correct kernels object to are dropped, and counted."""
        book = Playbook(target, APART + seed, self.name)
        made = run_task(mosaics, target.problem, tuple(book.grounds()), tuple(book.kinds()), count)
        chosen: list[InputSpec] = []
        refused = 0
        for one in made:
            left = _borne(one, target)
            refused += _parts(one) - _parts(left)
            if left is not None:
                chosen.append(left)
        return Proposal(tuple(dict.fromkeys(chosen)), {OBJECTED: refused} if refused else {})


def _parts(made: InputSpec | None) -> int:
    return len(made.transform.split(MOSAIC)) if made is not None else 0


def _borne(made: InputSpec, target: Target) -> InputSpec | None:
    """The mosaic with as many of its parts, in order, as correct kernels bear; None for none."""
    if not target.objection(made):
        return made
    borne: InputSpec | None = None
    parts: Sequence[str] = ()
    for part in made.transform.split(MOSAIC):
        tried = named(replace(made, transform=MOSAIC.join((*parts, part))))
        if not target.objection(tried):
            borne, parts = tried, (*parts, part)
    return borne
