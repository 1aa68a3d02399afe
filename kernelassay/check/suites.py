"""A file of inputs to judge on: ``{"problem": id, "inputs": [InputSpec.to_json(), ...]}``."""

from __future__ import annotations

import json
from pathlib import Path

from kernelassay.errors import NothingToTestError, UsageError
from kernelassay.inputs import InputSpec
from kernelassay.problem import Problem


def read_suite(path: Path, problem: Problem) -> tuple[InputSpec, ...]:
    """The inputs of a suite file, which must be of ``problem``.

    Raises :class:`UsageError` for a file of another form or problem, :class:`NothingToTestError`
    for one without inputs.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        name, inputs = data["problem"], list(data["inputs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"is no suite of inputs: {type(error).__name__}: {error}",
            where=str(path),
            hint='a suite is {"problem": "suite/softmax_rows", "inputs": [{...}, ...]}',
        ) from error
    if name != problem.id:
        raise UsageError(
            f"has inputs of {name!r}, not of {problem.id!r}", where=str(path), hint="name that one"
        )
    if not inputs:
        raise NothingToTestError("has no inputs", where=str(path))
    if not all(isinstance(one, dict) for one in inputs):
        raise UsageError("an input is no object", where=str(path))
    specs = tuple(InputSpec.from_json(one) for one in inputs)
    names = [spec.id for spec in specs]
    repeated = sorted({one for one in names if names.count(one) > 1})
    if repeated:
        raise UsageError(f"has two inputs with the id {repeated[0]!r}", where=str(path))
    return specs
