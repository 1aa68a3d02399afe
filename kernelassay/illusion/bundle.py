"""A failing case of a kernel as one file that is enough to run it again, anywhere.

The file is canonical: equal content is equal bytes, whoever writes it. So it holds no time and no
compressed data (which differ by the compressor), and floats are the shortest text that reads back.
Inputs are made again from the case and checked by their digest. Up to :data:`STORED_BYTES` their
elements are stored as well, which a later kernelassay with another generator still reads; those of
a shrunk case that no draw gives (``explicit``) always are.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.host import machine, versions
from kernelassay.illusion.cases import Case, laid_out
from kernelassay.illusion.cases import inputs as drawn_inputs
from kernelassay.illusion.op import Language, Op, text_digest
from kernelassay.illusion.oracle import Failure, Rule
from kernelassay.illusion.reference import Reference
from kernelassay.illusion.schema import Schema
from kernelassay.illusion.trial import Examiner, Trial
from kernelassay.oracle import Verdict, output_digest

KIND, VERSION = "illusion-replay", 1
STORED_BYTES = 64 << 10
"""Up to this size the elements of all inputs together are stored."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What came of the execution. ``verdict`` is the one that the rule looks at.

    ``deterministic`` tells whether the same bytes are to be expected again on the same device.
    """

    outcome: str
    failure: Failure
    output_digest: str
    verdict: Verdict | None
    deterministic: bool


@dataclass(frozen=True, slots=True)
class Bundle:
    """A kernel, a case on which it fails, how that was decided and what was seen.

    ``elements`` are the inputs' own bytes, little endian and in logical order, or ``None`` where
    the case gives them; ``explicit`` tells that the case gives other ones. ``about`` has versions
    and the machine, for information.
    """

    kernel: str
    language: Language
    text: str
    reference: Reference
    schema: Schema
    case: Case
    rule: Rule
    tolerance: float
    device: str
    inputs_digest: str
    elements: tuple[bytes, ...] | None
    explicit: bool
    expected: Expected
    about: Mapping[str, str]

    @property
    def name(self) -> str:
        """The file's name: one per kernel and case; explicit inputs are a case of their own."""
        from kernelassay.session import slug

        key = self.inputs_digest[:12] if self.explicit else self.case.id
        return f"{slug(self.kernel)}-{key}.json"

    @property
    def examiner(self) -> Examiner:
        """What judges an execution as it was judged then."""
        dtype = self.case.dtype
        op = Op(
            name=self.kernel,
            language=self.language,
            text=self.text,
            schema=self.schema,
            dtypes=(dtype,),
            tolerances={dtype: self.tolerance},
            reference=self.reference.name,
            control=self.kernel,
            reference_text=self.reference.text,
        )
        return Examiner(op, self.rule)

    def inputs(self) -> list[NDArray[Any]]:
        """The inputs, in the layout of the case; those stored, or else drawn again."""
        if self.elements is None:
            return drawn_inputs(self.case, self.schema)
        made, sizes = [], dict(self.case.sizes)
        for name, data in zip(self.schema.inputs, self.elements, strict=True):
            stored = np.frombuffer(data, _little(self.case.dtype))
            shaped = stored.reshape(self.schema.shape(name, sizes)).astype(self.case.dtype)
            made.append(laid_out(shaped, self.case.layout))
        return made

    def content(self) -> dict[str, Any]:
        """The file's content as plain data, all but its digest."""
        elements = self.elements
        verdict = self.expected.verdict
        return {
            "kernelassay": KIND,
            "version": VERSION,
            "kernel": {
                "name": self.kernel,
                "language": self.language,
                "text": self.text,
                "digest": text_digest(self.text),
            },
            "reference": asdict(self.reference),
            "schema": self.schema.record(),
            "case": {**self.case.record(), "sizes": [list(pair) for pair in self.case.sizes]},
            "rule": {**asdict(self.rule), "tolerance": self.tolerance},
            "device": self.device,
            "inputs": {
                "digest": self.inputs_digest,
                "explicit": self.explicit,
                "elements": None
                if elements is None
                else [base64.b64encode(data).decode() for data in elements],
            },
            "expected": {
                **asdict(self.expected),
                "verdict": None if verdict is None else asdict(verdict),
            },
            "about": dict(self.about),
        }

    def to_bytes(self) -> bytes:
        """The file: canonical JSON, with a digest over all the rest."""
        content = plain(self.content())
        return _canonical({**content, "digest": content_digest(content)})


def made(
    examiner: Examiner,
    trial: Trial,
    device: str,
    *,
    deterministic: bool,
    explicit: bool = False,
) -> Bundle:
    """The bundle of a failing trial. Raises ``ValueError`` for one that passes."""
    if not trial.failure:
        raise ValueError(f"{examiner.op.name} does not fail on {trial.case.in_words()}")
    size = sum(array.nbytes for array in trial.inputs)
    judged = trial.judged
    return Bundle(
        kernel=examiner.op.name,
        language=examiner.op.language,
        text=examiner.op.text,
        reference=examiner.op.computes,
        schema=examiner.op.schema,
        case=trial.case,
        rule=examiner.rule,
        tolerance=examiner.op.tolerance(trial.case.dtype),
        device=device,
        inputs_digest=output_digest(trial.inputs),
        elements=elements(trial.inputs) if explicit or size <= STORED_BYTES else None,
        explicit=explicit,
        expected=Expected(
            outcome=trial.execution.outcome,
            failure=trial.failure,
            output_digest=judged.output_digest,
            verdict=examiner.rule.looks_at(judged),
            deterministic=deterministic,
        ),
        about=about(),
    )


def write(where: Path, bundle: Bundle) -> Path:
    """Write a bundle whole or not at all, under its name if ``where`` is a directory.

    Returns the file. Raises :class:`SessionError` if it cannot be written.
    """
    from kernelassay.session import write_whole

    path = where / bundle.name if where.is_dir() else where
    write_whole(path, bundle.to_bytes())
    return path


def about() -> dict[str, str]:
    """Versions and the machine, which may explain why bytes differ elsewhere."""
    facts = machine()
    found = versions(("kernelassay", "numpy", "triton", "torch"))
    return {**found, "python": str(facts["python"]), "cpu": str(facts["cpu"])}


def content_digest(content: Mapping[str, Any]) -> str:
    """The digest over plain content without its ``digest``."""
    rest = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.blake2b(_canonical(rest), digest_size=16).hexdigest()


def plain(value: Any) -> Any:
    """Data that JSON can hold: numbers that are not finite become their names."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def _canonical(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, indent=1, allow_nan=False)
    return (text + "\n").encode()


def elements(arrays: Sequence[NDArray[Any]]) -> tuple[bytes, ...]:
    """The bytes of arrays as a bundle stores them."""
    return tuple(array.astype(_little(array.dtype)).tobytes() for array in arrays)


def _little(dtype: Any) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("<")
