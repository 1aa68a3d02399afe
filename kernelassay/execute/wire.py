"""What crosses between processes one of which is not trusted: frames of a JSON head and raw bytes.

Nothing is unpickled, and where a head comes from a candidate it is only believed where it speaks
against it: an output is what its bytes are, of the shape and dtype that the judge expects.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelassay.errors import UnsupportedError

HEAD_LIMIT = 1 << 16
"""Bytes of the head of an answer."""

GUARD_BYTES = 256
"""Between the tensors of a region, and at its ends, lies this much that no kernel may touch."""
GUARD = 0xFF
_ALIGNMENT = 256

_LENGTH = struct.Struct("<I")


class BrokenFrameError(Exception):
    """What came is no frame: the process that wrote it does not keep to the protocol."""


class SilentError(Exception):
    """No frame came in time."""


class ClosedError(Exception):
    """The other side is gone."""


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor's memory: the bytes its elements span, with their shape and strides in elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    data: bytes

    def head(self, offset: int) -> dict[str, Any]:
        """What a receiver needs to know beside the bytes, which lie at ``offset``."""
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "strides": list(self.strides),
            "offset": offset,
            "nbytes": len(self.data),
        }


Value = Held | int | float | bool | str | None | list[Any] | tuple[Any, ...]


def encode(value: Any, tensors: list[Held]) -> Any:
    """``value`` as JSON; tensors go to ``tensors`` and leave their number.

    Raises ``UnsupportedError`` for a value that has no such form.
    """
    if isinstance(value, Held):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {"tuple": [encode(item, tensors) for item in value]}
    if isinstance(value, list):
        return [encode(item, tensors) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode(item, tensors) for key, item in value.items()}}
    raise UnsupportedError(
        f"a {type(value).__name__} cannot be handed to a candidate's process",
        hint="arguments are tensors, numbers, strings, and lists, tuples or dicts of these",
    )


def decode(value: Any, tensors: Sequence[Any]) -> Any:
    """The inverse of :func:`encode`."""
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if isinstance(value, dict):
        ((kind, inner),) = value.items()
        if kind == "tensor":
            return tensors[inner]
        if kind == "tuple":
            return tuple(decode(item, tensors) for item in inner)
        return {key: decode(item, tensors) for key, item in inner.items()}
    return value


def placed(tensors: Iterable[Held]) -> tuple[list[int], int]:
    """Where tensors lie in a region between guards, and the bytes that takes.

    It depends on their sizes alone, so that inputs of one shape lie at one address.
    """
    offsets: list[int] = []
    end = GUARD_BYTES
    for held in tensors:
        offsets.append(end)
        end += -(-(len(held.data) + GUARD_BYTES) // _ALIGNMENT) * _ALIGNMENT
    return offsets, end


def pack(head: Mapping[str, Any], blobs: Iterable[bytes] = ()) -> bytes:
    """One frame."""
    text = json.dumps(head).encode()
    return b"".join((_LENGTH.pack(len(text)), text, *blobs))


def send(descriptor: int, data: bytes) -> None:
    """Write all of ``data``. Raises :class:`ClosedError`."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view[: 1 << 20]) :]
    except (BrokenPipeError, OSError) as error:
        raise ClosedError(str(error)) from None


class Source:
    """Frames that come out of a descriptor, as far as they come until a deadline.

    ``others`` are descriptors to empty meanwhile; ``drained`` is told what came out of them and
    may raise.
    """

    def __init__(self, descriptor: int, others: Sequence[int] = (), drained: Any = None) -> None:
        self._descriptor = descriptor
        self._others = list(others)
        self._drained = drained

    def head(self, deadline: float = math.inf) -> dict[str, Any]:
        """The head of the next frame."""
        (length,) = _LENGTH.unpack(self.bytes(_LENGTH.size, deadline))
        if length > HEAD_LIMIT:
            raise BrokenFrameError(f"a head of {length} bytes")
        try:
            head = json.loads(self.bytes(length, deadline))
        except (ValueError, RecursionError) as error:
            raise BrokenFrameError(f"a head that is no JSON: {error}") from None
        if not isinstance(head, dict):
            raise BrokenFrameError("a head that is no object")
        return head

    def bytes(self, count: int, deadline: float = math.inf) -> bytes:
        """The next ``count`` bytes. Raises :class:`SilentError` or :class:`ClosedError`."""
        found = bytearray()
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._descriptor, *self._others):
                selector.register(descriptor, selectors.EVENT_READ)
            while len(found) < count:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise SilentError
                ready = {key.fd for key, _ in selector.select(None if left == math.inf else left)}
                for descriptor in ready - {self._descriptor}:
                    data = os.read(descriptor, 1 << 16)
                    if not data:
                        selector.unregister(descriptor)
                        self._others.remove(descriptor)
                    self._drained(data)
                if self._descriptor in ready:
                    data = os.read(self._descriptor, min(count - len(found), 1 << 20))
                    if not data:
                        raise ClosedError("the pipe is at its end")
                    found += data
        return bytes(found)
