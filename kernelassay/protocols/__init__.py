"""Checking protocols: which inputs, which acceptance rule, and what the checker can see.

Adding a protocol is adding one module with one :class:`Protocol` and naming it here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernelassay.errors import unknown_name
from kernelassay.protocols.flashinfer_bench import FLASHINFER, FLASHINFER_LOW_BIT
from kernelassay.protocols.kernelbench import CURRENT, V01
from kernelassay.protocols.kernelbench_verified import VERIFIED, VERIFIED_INPUTS_AT_V01
from kernelassay.protocols.llm_c import LLM_C
from kernelassay.protocols.one_shape import ONE_SHAPE
from kernelassay.protocols.protocol import Protocol

DEFAULT: tuple[Protocol, ...] = (V01, CURRENT, VERIFIED, VERIFIED_INPUTS_AT_V01)
"""Those of a session that was not asked for others."""

PROTOCOLS: tuple[Protocol, ...] = (
    *DEFAULT,
    ONE_SHAPE,
    LLM_C,
    FLASHINFER,
    FLASHINFER_LOW_BIT,
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


def select(names: Iterable[str]) -> tuple[Protocol, ...] | None:
    """The named protocols; ``None``, which is all that a session holds, if none is named."""
    return tuple(protocol(name) for name in names) or None


__all__ = [
    "CURRENT",
    "DEFAULT",
    "FLASHINFER",
    "FLASHINFER_LOW_BIT",
    "LLM_C",
    "ONE_SHAPE",
    "PROTOCOLS",
    "V01",
    "VERIFIED",
    "VERIFIED_INPUTS_AT_V01",
    "Protocol",
    "of_session",
    "protocol",
    "select",
]
