"""The rungs by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernelassay.errors import unknown_name
from kernelassay.synthesis.generate.fuzz import Fuzz
from kernelassay.synthesis.generate.search import Search
from kernelassay.synthesis.generate.target import Generator
from kernelassay.synthesis.generate.taxonomy import Taxonomy

RUNGS: Mapping[str, Callable[[], Generator]] = {"r0": Fuzz, "taxonomy": Taxonomy, "search": Search}
DEFAULT = ("r0", "taxonomy")


def generators(names: Sequence[str]) -> tuple[Generator, ...]:
    """The generators of some names, each once; the default ones for none.

    Raises :class:`UsageError` for an unknown name.
    """
    wanted = tuple(dict.fromkeys(names or DEFAULT))
    for name in wanted:
        if name not in RUNGS:
            raise unknown_name("rung", name, RUNGS)
    return tuple(RUNGS[name]() for name in wanted)
