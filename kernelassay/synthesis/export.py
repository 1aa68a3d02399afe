"""Chosen suites as files that a benchmark reads, and a report of what each of their inputs is for.

``hidden``: ``level<L>/<number>_hidden.py``, as KernelBench-Verified finds hidden tests. It defines
``get_hidden_inputs()``, the list of arguments of each input, and runs the problem's file for its
``get_inputs()``, at ``../../KernelBench/level<L>/`` from itself.

``get-inputs``: text to append to a problem's file. Its ``get_inputs()`` then returns the inputs of
the suite in turn, one a call, which is one a trial of KernelBench's check.

``json``: the specs of the inputs, with all that they say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelassay import __version__
from kernelassay.analysis.plain import plain
from kernelassay.errors import NothingToTestError, UsageError
from kernelassay.input_values import parsed_transform
from kernelassay.inputs import InputSpec
from kernelassay.problem import Problem
from kernelassay.session import slug, write_whole
from kernelassay.synthesis.expressible import (
    GET_INPUTS,
    HIDDEN,
    JSON,
    conditions,
    number,
    objection,
    sizes,
)
from kernelassay.synthesis.pool import Pool
from kernelassay.synthesis.source import IMPORTS, code_for, indented
from kernelassay.synthesis.suites import Purpose, Suite

MARK = "Written by kernelassay"
"""Stands in the first lines of every exported file: only such files are written over."""
REPORT = "suite.md"
SCHEMA, SCHEMA_VERSION = "kernelassay/suite-inputs", 1

ProblemOf = Callable[[Mapping[str, Any]], Problem]
"""The problem of a plan, read again from its file."""


@dataclass(frozen=True, slots=True)
class Expressed:
    """An input that a file holds. ``without`` are conditions it was measured under and has not."""

    input: str
    without: str


@dataclass(frozen=True, slots=True)
class ExportedSuite:
    """The file of one problem's suite; ``left_out`` has the inputs it lacks, with the reason.

    ``detected`` counts the witnessed mutants that the inputs in the file detect. ``path`` is
    relative to the folder written to, and empty if no input can be expressed.
    """

    problem: str
    path: str
    inputs: tuple[Expressed, ...]
    detected: int
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Export:
    """What was written: the folder, the format, a file per problem, and the report beside them."""

    directory: str
    form: str
    report: str
    suites: tuple[ExportedSuite, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return plain(self)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An input of a suite on its way into a file."""

    purpose: Purpose
    spec: InputSpec
    shapes: Sequence[Sequence[int]]
    digest: str
    objection: str
    without: str

    @property
    def table(self) -> dict[str, Any]:
        """What ``standalone.made`` needs, but for the sizes of a scaled problem."""
        shapes = [list(shape) for shape in self.shapes]
        own = {"id": self.spec.id, "seed": self.spec.seed, "transform": self.spec.transform}
        return {**own, "shapes": shapes}


def export(
    pools: Sequence[Pool],
    suites: Sequence[Suite],
    form: str,
    directory: Path,
    problem_of: ProblemOf,
    *,
    device_drawn: bool = False,
) -> Export:
    """Write the suites of some pools into a folder, in one of ``expressible.FORMATS``.

    ``device_drawn`` is as for ``expressible.conditions``.
    Raises :class:`UsageError` for a file that is there and is none of these, before any is written,
    and for two problems that a format has one name for; :class:`SessionError` if the disk refuses;
    and :class:`NothingToTestError` if no input of any suite can be expressed.
    """
    files: dict[str, str] = {}
    written: list[ExportedSuite] = []
    sections: list[str] = []
    for pool, suite in zip(pools, suites, strict=True):
        problem = problem_of(pool.plan)
        entries = _entries(pool, suite, form, problem, device_drawn)
        kept = [entry for entry in entries if not entry.objection]
        path = _path(form, problem) if kept else ""
        if path in files:
            raise UsageError(
                f"{path} would be written for {problem.id}, and for a problem before it",
                hint="name a session with one of them alone",
            )
        if kept:
            files[path] = _WRITERS[form](problem, kept)
        columns = [pool.inputs.index(entry.spec.id) for entry in kept]
        detected = int(pool.detects[:, columns].any(axis=1).sum())
        written.append(
            ExportedSuite(
                problem=problem.id,
                path=path,
                inputs=tuple(Expressed(e.spec.id, e.without) for e in kept),
                detected=detected,
                left_out={e.spec.id: e.objection for e in entries if e.objection},
            )
        )
        sections.append(_section(written[-1], suite, entries))
    if not files:
        raise NothingToTestError(
            f"no input of any suite can be expressed as {form}",
            hint="choose among those that can: --expressible; or write JSON, which holds any",
        )
    files[REPORT] = "\n".join([f"# Inputs as {form}\n", f"{MARK} {__version__}.\n", *sections])
    _write(directory, files)
    return Export(str(directory), form, REPORT, tuple(written))


def _entries(
    pool: Pool, suite: Suite, form: str, problem: Problem, device_drawn: bool
) -> list[_Entry]:
    records = dict(zip(pool.inputs, pool.records, strict=True))
    found = []
    for purpose in suite.inputs:
        record = records[purpose.input]
        spec = InputSpec.from_json(record["spec"])
        why = objection(form, problem, spec)
        without = "" if form == JSON else conditions(spec, device_drawn=device_drawn)
        found.append(_Entry(purpose, spec, record["shapes"], record["digest"], why, without))
    return found


def _path(form: str, problem: Problem) -> str:
    if form == HIDDEN:
        return f"level{problem.level}/{number(problem)}_hidden.py"
    return f"{slug(problem.id)}{'_get_inputs.py' if form == GET_INPUTS else '.json'}"


def _write(directory: Path, files: Mapping[str, str]) -> None:
    for name in files:
        path = directory / name
        if path.exists() and not _ours(path):
            raise UsageError(
                f"{name} is there, and was not written by this command",
                where=str(directory),
                hint="move it away, or name another folder",
            )
    for name, text in files.items():
        write_whole(directory / name, text.encode())


def _ours(path: Path) -> bool:
    return path.is_file() and MARK in path.read_text(errors="replace")[:500]


# ---- Python ------------------------------------------------------------------------------------


def _table(problem: Problem, entries: Iterable[_Entry]) -> str:
    """The inputs as a Python list, each with a comment that says what it is for."""
    lines = ["_INPUTS = ["]
    for entry in entries:
        own = {**entry.table, "sizes": dict(sizes(problem, entry.spec))}
        lines += [f"    # {line}" for line in _purpose(entry)]
        lines += [f"    {own!r},"]
    return "\n".join([*lines, "]"])


def _purpose(entry: _Entry) -> list[str]:
    """What an input is for, in lines of plain text."""
    transform = parsed_transform(entry.spec.transform)
    what = transform.what if transform else ""
    rules = Counter(found.rule for found in entry.purpose.alone)
    alone = ", ".join(f"{rule} {count}" for rule, count in sorted(rules.items()))
    lines = [f"{entry.spec.id}: {what or entry.spec.transform}; detects {entry.purpose.detects}"]
    if alone:
        lines.append(f"alone detects {len(entry.purpose.alone)}: {alone}")
    if entry.without:
        lines.append(f"measured under {entry.without}, which this file cannot ask for")
    return lines


def _transforms(entries: Iterable[_Entry]) -> list[str]:
    return sorted({entry.spec.transform for entry in entries})


def _hidden(problem: Problem, entries: Sequence[_Entry]) -> str:
    file = Path(problem.path).name
    return "\n".join(
        [
            f'"""Hidden tests of problem {number(problem)}: {len(entries)} inputs.',
            "",
            f"{MARK} {__version__}. Each input is what the problem's own get_inputs() draws at a",
            "seed, transformed; the same bytes on every machine with the same torch version.",
            '"""',
            "",
            "import os",
            *IMPORTS,
            "",
            "_PROBLEM = os.path.join(",
            "    os.path.dirname(os.path.abspath(__file__)),",
            f"    *{('..', '..', 'KernelBench', f'level{problem.level}', file)!r},",
            ")",
            _table(problem, entries),
            "",
            "",
            code_for(_transforms(entries)),
            "",
            "def get_hidden_inputs():",
            '    """The arguments of each input: a list of lists."""',
            '    names = {"__name__": "hidden_problem", "__file__": _PROBLEM}',
            '    with open(_PROBLEM, encoding="utf-8") as file:',
            '        exec(compile(file.read(), _PROBLEM, "exec"), names)',
            '    return [made(names["get_inputs"], one) for one in _INPUTS]',
            "",
        ]
    )


def _get_inputs(problem: Problem, entries: Sequence[_Entry]) -> str:
    body = [
        "import itertools",
        *IMPORTS,
        "",
        _table(problem, entries),
        "",
        code_for(_transforms(entries)),
        "turn = itertools.cycle(_INPUTS)",
        "return lambda: made(get_inputs, next(turn))",
    ]
    return "\n".join(
        [
            "",
            "",
            f"# {MARK} {__version__}: append this text to the file of {problem.id}. Each call of",
            f"# get_inputs() then returns the next of {len(entries)} inputs, whatever the seed; ask"
            " for as many",
            "# trials. What the file's own get_inputs() draws is what they are made of.",
            "def _inputs_in_turn(get_inputs):",
            indented("\n".join(body)),
            "",
            "",
            "get_inputs = _inputs_in_turn(get_inputs)",
            "",
        ]
    )


# ---- JSON and the report -----------------------------------------------------------------------


def _json(problem: Problem, entries: Sequence[_Entry]) -> str:
    data = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "note": f"{MARK} {__version__}",
        "problem": {
            "id": problem.id,
            "digest": problem.digest,
            "shrunk": dict(problem.shrunk),
        },
        "inputs": [
            {
                "spec": entry.spec.to_json(),
                "shapes": [list(shape) for shape in entry.shapes],
                "digest": entry.digest,
                "detects": entry.purpose.detects,
                "alone": [one.mutant for one in entry.purpose.alone],
            }
            for entry in entries
        ],
    }
    return json.dumps(data, indent=2) + "\n"


def _section(written: ExportedSuite, suite: Suite, entries: Sequence[_Entry]) -> str:
    """One problem of the report: each input, and every mutant that it alone detects."""
    where = f"`{written.path}`" if written.path else "no file"
    lines = [
        f"## {written.problem}\n",
        f"{where}: {len(written.inputs)} of {len(entries)} inputs chosen; they detect"
        f" {written.detected} of {suite.detected.total} witnessed mutants, the suite"
        f" {suite.detected.count}.\n",
    ]
    for entry in entries:
        lines.append(f"- **{entry.spec.id}**: detects {entry.purpose.detects}")
        if entry.objection:
            lines[-1] += f". LEFT OUT: {entry.objection}"
        elif entry.without:
            lines[-1] += f"; measured under {entry.without}, which the format cannot ask for"
        lines += [f"  - alone: `{one.mutant}` {one.rule}: {one.bug}" for one in entry.purpose.alone]
    return "\n".join([*lines, ""])


_WRITERS: Mapping[str, Callable[[Problem, Sequence[_Entry]], str]] = {
    HIDDEN: _hidden,
    GET_INPUTS: _get_inputs,
    JSON: _json,
}
