"""Checking protocols: which inputs, which acceptance rule, and what the checker can see.

Adding a protocol is adding one module with one :class:`Protocol` and naming it here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kernelassay.errors import UsageError, unknown_name
from kernelassay.protocols import file
from kernelassay.protocols.backend_bench import BACKEND_BENCH
from kernelassay.protocols.flashinfer_bench import FLASHINFER, FLASHINFER_LOW_BIT
from kernelassay.protocols.gpu_mode import GPU_MODE
from kernelassay.protocols.illusion import LOG_UNIFORM, SCHEMA
from kernelassay.protocols.kernelbench import CURRENT, V01
from kernelassay.protocols.kernelbench_verified import VERIFIED, VERIFIED_INPUTS_AT_V01
from kernelassay.protocols.llm_c import LLM_C
from kernelassay.protocols.one_shape import ONE_SHAPE
from kernelassay.protocols.protocol import Protocol
from kernelassay.protocols.robust_kbench import ROBUST

DEFAULT: tuple[Protocol, ...] = (V01, CURRENT, VERIFIED, VERIFIED_INPUTS_AT_V01)
"""Those of a session that was not asked for others."""

PROTOCOLS: tuple[Protocol, ...] = (
    *DEFAULT,
    LOG_UNIFORM,
    SCHEMA,
    ROBUST,
    BACKEND_BENCH,
    FLASHINFER,
    FLASHINFER_LOW_BIT,
    GPU_MODE,
    LLM_C,
    ONE_SHAPE,
)


def protocol(name: str) -> Protocol:
    """A protocol by name. Raises :class:`UsageError` with the nearest names."""
    for candidate in PROTOCOLS:
        if candidate.name == name:
            return candidate
    raise unknown_name("protocol", name, (p.name for p in PROTOCOLS))


def of_session(manifest: Mapping[str, Any]) -> tuple[Protocol, ...]:
    """The protocols that a session was run for."""
    names = manifest.get("protocols")
    return DEFAULT if names is None else tuple(map(protocol, names))


ALL = "all"


def chosen(names: Iterable[str]) -> tuple[Protocol, ...] | None:
    """The named protocols, a name that ends in .toml or .py being a file; None for no names.

    :data:`ALL` stands for the known ones. Raises :class:`UsageError` for an unknown name, for two
    protocols of one name, for a file with the name of a known one, and as :func:`file.read`.
    """
    wanted = tuple(names)
    named = [
        _of_file(Path(name)) if file.is_file(name) else protocol(name)
        for name in wanted
        if name != ALL
    ]
    if ALL in wanted:
        named = [*PROTOCOLS, *(one for one in named if one not in PROTOCOLS)]
    for name, count in Counter(one.name for one in named).items():
        if count > 1:
            raise UsageError(
                f"two protocols have the name {name!r}", hint="give one of them another name"
            )
    return tuple(named) or None


def _of_file(path: Path) -> Protocol:
    found = file.read(path)
    if found.name in {known.name for known in PROTOCOLS}:
        raise UsageError(
            f"{found.name!r} is the name of a known protocol",
            where=str(path),
            hint="give yours another name, so that results tell which of the two was scored",
        )
    return found


def asked_for(names: Iterable[str]) -> tuple[Protocol, ...] | None:
    """The protocols that a run is asked for, each once, in the order known; None for no names.

    Raises :class:`UsageError` for an unknown name, and for a file.
    """
    wanted = set(names)
    for name in sorted(filter(file.is_file, wanted)):
        raise UsageError(
            "a run draws the inputs of known protocols; a file names inputs of theirs",
            where=name,
            hint="run first, and give the file to audit, compare or explain",
        )
    chosen = {protocol(name).name for name in wanted - {ALL}}
    return tuple(p for p in PROTOCOLS if ALL in wanted or p.name in chosen) or None


__all__ = [
    "BACKEND_BENCH",
    "CURRENT",
    "DEFAULT",
    "FLASHINFER",
    "FLASHINFER_LOW_BIT",
    "GPU_MODE",
    "LLM_C",
    "LOG_UNIFORM",
    "ONE_SHAPE",
    "PROTOCOLS",
    "ROBUST",
    "SCHEMA",
    "V01",
    "VERIFIED",
    "VERIFIED_INPUTS_AT_V01",
    "Protocol",
    "asked_for",
    "chosen",
    "of_session",
    "protocol",
]
