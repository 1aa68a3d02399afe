"""From the answer of a model to inputs: its code runs isolated, and only arrays come back.

Each function that the code defines is one input, and runs in a process of its own, with limits on
time, memory and what it may ask of the system. Whatever it does is one outcome, which is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelassay.errors import LimitError, ProblemError
from kernelassay.execute.sandbox import run_limited
from kernelassay.inputs import GENERATED, GIVEN, InputSpec
from kernelassay.problem import Problem
from kernelassay.synthesis.generate.settling import Layout, layouts
from kernelassay.synthesis.generate.target import named
from kernelassay.tasks import run_task

if TYPE_CHECKING:
    import torch

SECONDS = 20.0
MEMORY_BYTES = 4 << 30

NO_CODE, NO_FUNCTION = "no code", "no such function"
RAISES, LIMIT, NO_INPUTS = "the code raises", "the code passed a limit", "no inputs"
SIZES, SHAPES, TWICE = "sizes that do not fit", "other shapes or dtypes", "the same input twice"

_BLOCK = re.compile(r"```[ \t]*(\w*)[^\n]*\n(.*?)```", re.DOTALL)
_LANGUAGES = ("python", "py", "python3", "")


@dataclass(frozen=True, slots=True)
class Given:
    """The values of one input, as NumPy arrays and numbers, and the sizes that it changes."""

    sizes: Mapping[str, int]
    values: tuple[Any, ...]


def code_of(text: str) -> str:
    """The longest Python block of an answer; without fences, all of it, if it has functions."""
    found = _BLOCK.finditer(text)
    blocks = [match[2] for match in found if match[1].lower() in _LANGUAGES]
    if blocks:
        return max(blocks, key=len)
    return text if re.search(r"^def input_1\s*\(", text, re.MULTILINE) else ""


def inputs_of(
    text: str, problem: Problem, count: int, rung: str, seed: int, folder: Path
) -> tuple[tuple[InputSpec, ...], Counter[str]]:
    """The inputs of one answer, their values in files of ``folder``, and what failed, by kind.

    Every one of ``count`` inputs is either there or counted.
    """
    failures: Counter[str] = Counter()
    code = code_of(text)
    if not code.strip():
        return (), Counter({NO_CODE: count})
    found: dict[int, Given] = {}
    for number, (given, failure) in enumerate(run_task(_run_each, code, count, problem)):
        if given is None:
            failures[failure] += 1
        else:
            found[number] = given
    wanted = run_task(layouts, problem, [dict(one.sizes) for one in found.values()])
    specs: dict[str, InputSpec] = {}
    for given, layout in zip(found.values(), wanted, strict=True):
        if isinstance(layout, str):
            failures[SIZES] += 1
        elif layout != _layout(given.values):
            failures[SHAPES] += 1
        else:
            spec = _stored(given, rung, seed, folder)
            failures[TWICE] += spec.id in specs
            specs.setdefault(spec.id, spec)
    return tuple(specs.values()), +failures


def _run_each(code: str, count: int, problem: Problem) -> list[tuple[Given | None, str]]:
    """In a process that has torch, which the isolated ones are forked from."""
    return [_run(code, number, problem) for number in range(1, count + 1)]


def _run(code: str, number: int, problem: Problem) -> tuple[Given | None, str]:
    try:
        sizes, values = run_limited(
            _build,
            (code, number),
            seconds=SECONDS,
            memory_bytes=MEMORY_BYTES,
            where=f"{problem.id} input_{number}",
            isolated=True,
        )
        known = {lever.name for lever in problem.sizes}
        given = Given({str(k): int(v) for k, v in sizes.items()}, tuple(values))
        if not given.sizes.keys() <= known or any(n < 1 for n in given.sizes.values()):
            return None, SIZES
    except LimitError:
        return None, LIMIT
    except ProblemError as error:
        for kind in (NO_INPUTS, NO_FUNCTION):
            if kind in error.what:
                return None, kind
        return None, RAISES
    except (TypeError, ValueError, AttributeError):  # whatever was written into the pipe
        return None, NO_INPUTS
    return given, ""


def _build(code: str, number: int) -> tuple[dict[str, int], list[Any]]:
    """EXECUTES generated code: in an isolated process only."""
    import torch

    scope: dict[str, Any] = {"__name__": "generated"}
    exec(compile(code, "<generated>", "exec", dont_inherit=True), scope)
    function = scope.get(f"input_{number}")
    if not callable(function):
        raise ProblemError(f"{NO_FUNCTION}: input_{number}")
    torch.manual_seed(number)
    made = function()
    if not isinstance(made, tuple | list) or len(made) != 2 or not isinstance(made[0], dict):
        raise ProblemError(f"{NO_INPUTS}: input_{number} returns no pair of sizes and values")
    sizes, values = made
    if not isinstance(values, tuple | list):
        raise ProblemError(f"{NO_INPUTS}: the values are a {type(values).__name__}")
    return {str(k): int(v) for k, v in sizes.items()}, [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous().numpy()
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).reshape(value.shape)
    if isinstance(value, bool | int | float):
        return value
    raise ProblemError(f"{NO_INPUTS}: a value is a {type(value).__name__}")


def _layout(values: Sequence[Any]) -> Layout:
    return tuple(
        (str(value.dtype), tuple(value.shape))
        if isinstance(value, np.ndarray)
        else (type(value).__name__, ())
        for value in values
    )


def _stored(given: Given, rung: str, seed: int, folder: Path) -> InputSpec:
    """The input, its values in a file that is named by their digest."""
    import torch

    from kernelassay.inputs import digest

    values = [_tensor(value) if isinstance(value, np.ndarray) else value for value in given.values]
    name = digest(values)[:16]
    path = folder / f"{name}.pt"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(values, path)
    sizes = tuple(sorted(given.sizes.items()))
    return named(InputSpec(f"{rung}/{name}", GENERATED, seed, f"{GIVEN}{path.resolve()}", sizes))


def _tensor(value: np.ndarray[Any, Any]) -> torch.Tensor:
    import torch

    return torch.from_numpy(value.copy())
