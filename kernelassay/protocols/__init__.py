"""Checking protocols: which inputs, which acceptance rule, and what the checker can see.

Adding a protocol is adding one module with one :class:`Protocol` and naming it here.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelassay.errors import unknown_name
from kernelassay.protocols.kernelbench import CURRENT, V01
from kernelassay.protocols.kernelbench_verified import VERIFIED, VERIFIED_INPUTS_AT_V01
from kernelassay.protocols.protocol import Protocol

PROTOCOLS: tuple[Protocol, ...] = (V01, CURRENT, VERIFIED, VERIFIED_INPUTS_AT_V01)


def protocol(name: str) -> Protocol:
    """A protocol by name. Raises :class:`UsageError` with the nearest names."""
    for candidate in PROTOCOLS:
        if candidate.name == name:
            return candidate
    raise unknown_name("protocol", name, (p.name for p in PROTOCOLS))


def select(names: Iterable[str]) -> tuple[Protocol, ...] | None:
    """The named protocols; ``None``, which is all that a session holds, if none is named."""
    return tuple(protocol(name) for name in names) or None


__all__ = [
    "CURRENT",
    "PROTOCOLS",
    "V01",
    "VERIFIED",
    "VERIFIED_INPUTS_AT_V01",
    "Protocol",
    "protocol",
    "select",
]
