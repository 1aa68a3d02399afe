"""Rung 0: random inputs, by somebody who knows nothing of kernels.

Every value, magnitude and size is drawn; nothing is tried before it is used.
"""

from __future__ import annotations

import math
import random

from kernelassay.synthesis.generate.settling import settled
from kernelassay.synthesis.generate.target import Proposal, Target, WhiteBox, Wish, spec
from kernelassay.tasks import run_task

VALUES = ("official", "sign-mixed", "uniform-10", "log-uniform")
DECADES = 6.0
GROWTH = 2


class Fuzz:
    """Values of four kinds, times a factor that is log-uniform over six decades.

    Every second input has sizes, too, that are log-uniform from 1 to twice the problem's own.
    """

    name = "r0"
    blind = True

    def propose(
        self, target: Target, count: int, seed: int, seen: WhiteBox | None = None
    ) -> Proposal:
        """As :class:`Generator`: ``count`` inputs, good or not."""
        draw = random.Random(seed)
        wishes = []
        for number in range(count):
            values = draw.choice(VALUES)
            factor = 10.0 ** (DECADES * (draw.random() - 0.5))
            sizes = {
                lever.name: max(1, round(math.exp(draw.random() * math.log(GROWTH * lever.value))))
                for lever in target.problem.sizes
            }
            made = spec(
                self.name,
                seed * 1000 + number,
                f"{values}:x{factor:.4g}",
                sizes if number % 2 else None,
            )
            wishes.append(Wish((made,), "", checked=False))
        chosen = run_task(settled, target.problem, wishes, count)
        return Proposal(tuple(made for made, _ in chosen))
