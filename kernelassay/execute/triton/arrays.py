"""NumPy texts: arrays in, an array out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay import cell, oracle
from kernelassay.execute.triton.serving import Ran, array_head, several, wrong_output
from kernelassay.kernel import Finding

_ALLOCATE = ("empty", "empty_like")


def output_of(array: NDArray[Any]) -> Ran:
    """A run that ended well with an array."""
    held = np.ascontiguousarray(array).reshape(array.shape)
    unwritten = int(oracle.unwritten(held).sum())
    return Ran(
        cell.OK, "", array_head(held.dtype.name, held.shape), held.tobytes(), unwritten=unwritten
    )


class Arrays:
    """Runs NumPy texts. What ``numpy.empty`` gives them holds the unwritten mark."""

    def __init__(self) -> None:
        self._given: list[tuple[bytearray, bytes]] = []
        for name in _ALLOCATE:
            setattr(np, name, _poisoning(getattr(np, name)))

    @contextmanager
    def around(self) -> Iterator[None]:
        """Nothing to do: allocations are marked at all times."""
        yield

    def inputs(self, heads: Sequence[dict[str, Any]], blobs: Sequence[bytes]) -> list[Any]:
        """Arrays of the same strides in memory of their own."""
        self._given = [(bytearray(blob), blob) for blob in blobs]
        return [
            np.ndarray(
                head["shape"],
                head["dtype"],
                memory if memory else None,
                strides=[step * np.dtype(head["dtype"]).itemsize for step in head["strides"]],
            )
            for head, (memory, _) in zip(heads, self._given, strict=True)
        ]

    def finish(self, found: Any) -> Ran:
        """The output, and which inputs changed."""
        if isinstance(found, np.generic):
            found = np.asarray(found)
        if not isinstance(found, np.ndarray):
            return wrong_output(several(found, "array"))
        if found.dtype.kind not in "biufc":
            return wrong_output(f"returns an array of {found.dtype}")
        ran = output_of(found)
        return Ran(
            ran.outcome, "", ran.output, ran.data, ran.unwritten, changed=changed(self._given)
        )

    def failed(self, error: BaseException) -> Ran | None:
        """NumPy has nothing to say of an error."""
        return None

    def findings(self) -> tuple[Finding, ...]:
        """None: arrays know their bounds."""
        return ()


def changed(given: Sequence[tuple[bytearray, bytes]]) -> tuple[int, ...]:
    """The positions of inputs whose bytes are not what they were."""
    return tuple(index for index, (now, before) in enumerate(given) if now != before)


def _poisoning(allocate: Callable[..., NDArray[Any]]) -> Callable[..., NDArray[Any]]:
    def poisoned(*args: Any, **keywords: Any) -> NDArray[Any]:
        made = allocate(*args, **keywords)
        if type(made) is np.ndarray and made.dtype.kind in "iufc" and made.size:
            dense = made if made.flags.c_contiguous else made.T
            if dense.flags.c_contiguous:
                oracle.poison(dense)
        return made

    return poisoned


__all__ = ["Arrays", "changed", "output_of"]
