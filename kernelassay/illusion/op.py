"""One kernel under a fuzzer: its text, what it takes, what it should compute, how near is right."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernelassay.errors import ProblemError, UsageError
from kernelassay.illusion.reference import Reference
from kernelassay.illusion.schema import Dims, Schema

Language = Literal["numpy", "triton", "cuda"]

FALLBACK: Mapping[str, float] = {"float32": 1e-5, "float16": 1e-2}
"""Absolute tolerances for operators that name none for a dtype (the original corpus's own)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One documented transcription error: ``before``, once in the control's text, is ``after``.

    ``what`` says what the mistake is, ``hides`` on which inputs the kernel is right all the same.
    """

    before: str
    after: str
    what: str
    hides: str

    def in_text(self, control: str) -> str:
        """The faulty text. Raises ``ValueError`` unless the edit has exactly one place."""
        if control.count(self.before) != 1:
            raise ValueError(f"{self.before!r} stands {control.count(self.before)} times, not once")
        return control.replace(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Op:
    """A kernel, correct (a *control*) or with one known ``fault``.

    ``text`` is its source. A ``"numpy"`` or ``"triton"`` text is a Python module with a function
    ``run`` that takes the schema's inputs by position and returns the output: arrays, or torch
    tensors on the device to compute on, of any strides. A ``"cuda"`` text is a kernel file as
    ``kernelassay run --kernel`` takes it. ``reference`` names the float64 reference
    (:mod:`kernelassay.illusion.references`), or is the name of the user's file whose source is
    ``reference_text`` (:mod:`kernelassay.illusion.reference`). ``tolerances`` are absolute, by
    dtype. ``control`` is the name of the correct twin, of a control its own.
    """

    name: str
    language: Language
    text: str
    schema: Schema
    dtypes: tuple[str, ...]
    tolerances: Mapping[str, float]
    reference: str
    control: str
    fault: Fault | None = None
    reference_text: str | None = None

    @property
    def computes(self) -> Reference:
        """What computes what the output should be."""
        return Reference(self.reference, self.reference_text)

    def expected(self, inputs: Sequence[NDArray[Any]], sizes: Dims) -> NDArray[np.float64]:
        """What the output should be, for inputs of these sizes.

        Raises :class:`ProblemError` if the reference cannot be computed or has another shape than
        the schema's output.
        """
        found = self.computes(inputs)
        shape = self.schema.shape("output", dict(sizes))
        if found.shape != shape:
            raise ProblemError(
                f"the reference gives the shape {list(found.shape)}, not {list(shape)}",
                where=self.name,
                hint="the output of the schema and the reference must agree",
            )
        return found

    def tolerance(self, dtype: str) -> float:
        """The absolute tolerance for a dtype. Raises :class:`UsageError` if there is none."""
        known = {**FALLBACK, **self.tolerances}
        if dtype not in known:
            raise UsageError(
                f"no tolerance for {dtype}", where=self.name, hint=f"known: {', '.join(known)}"
            )
        return known[dtype]


def text_digest(text: str) -> str:
    """Names a kernel's text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def op(record: Mapping[str, Any]) -> Op:
    """An operator from its fields as plain values (``dataclasses.asdict`` made them)."""
    fault = record["fault"]
    schema = record["schema"]
    return Op(
        **{
            **record,
            "schema": Schema(
                dims={name: tuple(sizes) for name, sizes in schema["dims"].items()},
                inputs={name: tuple(dims) for name, dims in schema["inputs"].items()},
                output=tuple(schema["output"]),
            ),
            "dtypes": tuple(record["dtypes"]),
            "fault": None if fault is None else Fault(**fault),
        }
    )
