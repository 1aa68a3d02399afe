"""Rungs 1 to 3: a language model is asked for code that builds inputs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kernelassay.synthesis.generate.answers import inputs_of
from kernelassay.synthesis.generate.chat import Asks
from kernelassay.synthesis.generate.prompts import WHITE_BOX, prompt
from kernelassay.synthesis.generate.target import Proposal, Target, WhiteBox


class Asked:
    """A rung of a model: its prompt has what :mod:`prompts` tells at this number."""

    def __init__(self, rung: int, asks: Asks, folder: Path) -> None:
        self.name = f"r{rung}"
        self.blind = rung < WHITE_BOX
        self._rung = rung
        self._asks = asks
        self._folder = folder

    def propose(
        self, target: Target, count: int, seed: int, seen: WhiteBox | None = None
    ) -> Proposal:
        """As :class:`Generator`. Raises :class:`UsageError` if a recording lacks the answer."""
        survivors = seen.survivors if seen is not None else ()
        text = prompt(target, self._rung, count, seed, survivors)
        answer = self._asks.ask(f"{self.name}-{target.problem.id}", text)
        if answer.failure:
            return Proposal((), Counter({answer.failure: count}))
        specs, failures = inputs_of(
            answer.text, target.problem, count, self.name, seed, self._folder
        )
        return Proposal(specs, failures)
