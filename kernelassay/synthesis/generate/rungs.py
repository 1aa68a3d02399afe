"""The rungs by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kernelassay.errors import unknown_name
from kernelassay.synthesis.generate.asked import Asked
from kernelassay.synthesis.generate.chat import Make
from kernelassay.synthesis.generate.fuzz import Fuzz
from kernelassay.synthesis.generate.mosaic import Mosaic
from kernelassay.synthesis.generate.prompts import NAIVE, TAXONOMY, WHITE_BOX
from kernelassay.synthesis.generate.search import Search
from kernelassay.synthesis.generate.target import Generator
from kernelassay.synthesis.generate.taxonomy import Taxonomy

DEFAULT = ("r0", "taxonomy", "search")
TOLD = frozenset({f"r{WHITE_BOX}", Search.name})
"""The rungs that are not blind."""
NAMES = ("r0", "r1", "r2", "r3", "taxonomy", "mosaic", "search")


def generators(names: Sequence[str], make: Make, folder: Path) -> tuple[Generator, ...]:
    """The generators of some names, each once; those that need no model for none.

    ``make`` gives what answers the prompts of a model's rungs, whose inputs are files of
    ``folder``. Raises :class:`UsageError` for an unknown name, and as ``make`` does.
    """
    asked = {f"r{number}": number for number in (NAIVE, TAXONOMY, WHITE_BOX)}
    known: Mapping[str, Callable[[], Generator]] = {
        "r0": Fuzz,
        "taxonomy": Taxonomy,
        "mosaic": Mosaic,
        "search": Search,
    }
    wanted = tuple(dict.fromkeys(names or DEFAULT))
    for name in wanted:
        if name not in NAMES:
            raise unknown_name("rung", name, NAMES)
    asks = make() if asked.keys() & set(wanted) else None
    return tuple(
        Asked(asked[name], asks, folder) if name in asked and asks else known[name]()
        for name in wanted
    )
