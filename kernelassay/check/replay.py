"""A check as a file that is enough to run it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelassay import __version__
from kernelassay.check.checker import Checker
from kernelassay.check.options import Candidate, CheckOptions
from kernelassay.check.subject import Seconds
from kernelassay.check.verdict import Verdict
from kernelassay.errors import UsageError
from kernelassay.execute.confinement import Limits
from kernelassay.inputs import InputSpec
from kernelassay.problem import Problem

if TYPE_CHECKING:
    from kernelassay.user.kernel_file import KernelFile

SCHEMA, SCHEMA_VERSION = "kernelassay/check-replay", 1


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is judged, how, and what came of it before, if this is a replay."""

    candidate: Candidate
    problem: Problem
    options: CheckOptions
    essence: dict[str, Any] | None = None

    @classmethod
    def of(cls, path: Path, problem: Problem, options: CheckOptions) -> Recorded:
        """A check to be run for the first time. Raises :class:`UsageError`."""
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"cannot be read: {error}", where=str(path), hint="name a readable UTF-8 file"
            ) from error
        return cls(Candidate(str(path), source, _kernel(path)), problem, options)


def _kernel(path: Path) -> KernelFile | None:
    if path.suffix != ".cu":
        return None
    from kernelassay.user.kernel_file import read_kernel

    return read_kernel(path)


def judge(recorded: Recorded, progress: Callable[[str], None] = lambda step: None) -> Verdict:
    """Run the check."""
    with Checker(recorded.problem, recorded.options, progress) as checker:
        progress("running the candidate")
        return checker.check(recorded.candidate)


def differences(recorded: Recorded, verdict: Verdict) -> tuple[str, ...]:
    """In what a verdict differs from the one before; nothing for a first one."""
    before = recorded.essence
    if before is None:
        return ()
    now = json.loads(json.dumps(verdict.essence()))
    return tuple(sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k)))


def write(path: Path, recorded: Recorded, verdict: Verdict) -> None:
    """Store a check and its verdict. Raises :class:`UsageError` if the file cannot be written."""
    from kernelassay.plan import problem_record

    options = asdict(recorded.options)
    given = recorded.options.given
    options["given"] = None if given is None else [spec.to_json() for spec in given]
    rejection = verdict.rejection
    smallest = rejection.smallest if rejection else None
    data = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "version": __version__,
        "candidate": {
            "name": recorded.candidate.name,
            "digest": recorded.candidate.digest,
            "source": recorded.candidate.source,
        },
        "problem": problem_record(recorded.problem),
        "options": options,
        "verdict": verdict.essence(),
        "input": rejection.input.to_json() if rejection and rejection.input else None,
        "smallest": smallest.spec.to_json() if smallest else None,
    }
    try:
        path.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot be written: {error}", where=str(path)) from error


def read(path: Path, kernelbench: Path | None = None) -> Recorded:
    """A stored check. Raises :class:`UsageError` for a file of another form.

    The problem is read again from where it came from, and must be unchanged.
    """
    from kernelassay.replay import find_problem

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA or data["schema_version"] != SCHEMA_VERSION:
            raise UsageError(
                f"is no {SCHEMA} of version {SCHEMA_VERSION}",
                where=str(path),
                hint="write one: kernelassay check ... --replay-file FILE",
            )
        options = dict(data["options"])
        given = options["given"]
        options["given"] = None if given is None else tuple(map(InputSpec.from_json, given))
        options["limits"] = Limits(**options["limits"])
        options["seconds"] = Seconds(**options["seconds"])
        candidate = _candidate(data["candidate"])
        made, essence = {"problem": dict(data["problem"])}, dict(data["verdict"])
        if options["device"] not in ("cpu", "cuda"):
            raise ValueError(f"there is no device {options['device']!r}")
        chosen = replace(CheckOptions(), **options)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"is no replay file: {type(error).__name__}: {error}", where=str(path)
        ) from error
    return Recorded(candidate, find_problem(made, kernelbench), chosen, essence)


def _candidate(record: Mapping[str, Any]) -> Candidate:
    """A ``ModelNew`` file from the record itself; a CUDA file, which may include others, anew."""
    name, source = record["name"], record["source"]
    if not (isinstance(name, str) and isinstance(source, str)):
        raise TypeError("the candidate's name and source are no texts")
    candidate = Candidate(name, source)
    path = Path(candidate.name)
    if path.suffix != ".cu":
        return candidate
    again = Candidate(candidate.name, path.read_text(encoding="utf-8"), _kernel(path))
    if again.digest != record["digest"]:
        raise UsageError("changed since the check", where=candidate.name)
    return again
