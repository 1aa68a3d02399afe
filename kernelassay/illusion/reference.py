"""What an operator should compute: a known float64 reference, or a user's in a worker process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.errors import ProblemError
from kernelassay.execute.sandbox import run_limited
from kernelassay.illusion.references import reference

SECONDS = 60.0
MEMORY_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference by its name, or by its ``text``.

    ``name`` is one of :mod:`kernelassay.illusion.references` if ``text`` is ``None``. Otherwise it
    is that of the file that the text came from: a Python module with a function ``reference`` that
    takes the operator's inputs by position, in float64, and returns the output. It is code by
    others: it computes in a process of its own that can read files and do nothing else.
    """

    name: str
    text: str | None = None

    def require_known(self) -> None:
        """Raise :class:`UsageError` for a name without a text that is no known reference."""
        if self.text is None:
            reference(self.name)

    def __call__(self, inputs: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """The output for inputs of any float dtype, in float64.

        Raises :class:`ProblemError` if the user's text defines no ``reference``, raises, or returns
        no array of numbers.
        """
        wide = [np.ascontiguousarray(array, np.float64) for array in inputs]
        if self.text is None:
            return np.asarray(reference(self.name)(*wide), np.float64)
        found = run_limited(
            _computed,
            (self.text, self.name, wide),
            seconds=SECONDS,
            memory_bytes=MEMORY_BYTES,
            where=self.name,
            isolated=True,
        )
        # What comes out of the worker is whatever the user's code put there.
        if not isinstance(found, np.ndarray) or found.dtype != np.float64:
            raise _no_output(self.name, type(found).__name__)
        return found


def _computed(text: str, name: str, inputs: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """In the worker: what the text's function ``reference`` returns."""
    module: dict[str, Any] = {"__name__": "kernelassay_user_reference", "__file__": name}
    exec(compile(text, name, "exec", dont_inherit=True), module)
    function = module.get("reference")
    if not callable(function):
        raise ProblemError(
            "defines no function reference",
            where=name,
            hint="write def reference(x): ..., which takes the inputs as float64 arrays",
        )
    with np.errstate(all="ignore"):
        found = function(*inputs)
    try:
        output = np.asarray(found)
    except (TypeError, ValueError):
        raise _no_output(name, type(found).__name__) from None
    if output.dtype.kind not in "fiub":
        raise _no_output(name, type(found).__name__)
    return output.astype(np.float64)


def _no_output(name: str, kind: str) -> ProblemError:
    return ProblemError(
        f"reference returns {kind}, no array of numbers",
        where=name,
        hint="return one NumPy array of the output's shape",
    )
