"""A file of inputs to judge on: what ``kernelassay suite --export DIR --format json`` writes.

Of it are read ``{"problem": {"id": ..., "shrunk": {...}}, "inputs": [{"spec": {...}}, ...]}``. One
written by hand may have a problem's id as its ``problem``, and specs themselves as its inputs.
"""

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
        named, inputs = data["problem"], list(data["inputs"])
        whole = named if isinstance(named, dict) else {"id": named}
        name, sizes = whole["id"], whole.get("shrunk")
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
    if sizes is not None and sizes != dict(problem.shrunk):
        raise UsageError(
            f"has inputs of {name} at other sizes: {_sizes(sizes)}; here {_sizes(problem.shrunk)}",
            where=str(path),
            hint="scale the problem as the suite's session did (--shrink)",
        )
    if not inputs:
        raise NothingToTestError("has no inputs", where=str(path))
    if not all(isinstance(one, dict) for one in inputs):
        raise UsageError("an input is no object", where=str(path))
    specs = tuple(InputSpec.from_json(one.get("spec", one)) for one in inputs)
    names = [spec.id for spec in specs]
    repeated = sorted({one for one in names if names.count(one) > 1})
    if repeated:
        raise UsageError(f"has two inputs with the id {repeated[0]!r}", where=str(path))
    return specs


def _sizes(sizes: object) -> str:
    pairs = dict(sizes).items() if isinstance(sizes, dict | tuple) else ()
    return ", ".join(f"{name}={value}" for name, value in pairs) or "as written"
