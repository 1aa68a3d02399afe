"""A session: one directory that holds everything about one run, and survives any interruption.

Layout (a contract)::

    manifest.json               versions, machine, options, the plan's identity
    lock                        held by the run that writes
    plans/<problem>.json        substrate, admission, inputs with validity, mutants with identity
    cells/<problem>/<input>.parquet   one finished unit of work
    gate/<problem>.parquet      cells measured while planning; optional, outside the digest
    timings/<problem>/*.json    how long planning and units took; optional, outside the digest
    timings/stints/*.json       how long each run was at work, and in how many lanes; the same
    given/*.pt                  values of generated inputs that are data; optional
    images/                     cache of compiled code, and of inputs measured for plans to come;
                                may be deleted at any time
    mutants.parquet, inputs.parquet   the plans as tables, written when a run ends

Every file is written whole under another name and renamed, so what exists is complete. Resume
means: do what is missing. Two runs of one plan have the same :meth:`Session.digest`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernelassay.cell import SCHEMA
from kernelassay.errors import SessionError
from kernelassay.inputs import GIVEN
from kernelassay.timing import Stint

FORMAT = 2
MUTANT_FIELDS = {
    **dict.fromkeys(("id", "call", "style", "rule", "family"), pa.string()),
    "line": pa.int64(),
    **dict.fromkeys(("status", "reason", "twin", "unsupported"), pa.string()),
}
INPUT_FIELDS = {
    **dict.fromkeys(("id", "group", "digest"), pa.string()),
    "reference_error": pa.float64(),
    "benign_worst": pa.float64(),
    "valid": pa.bool_(),
    "reason": pa.string(),
}
SINCE = {"cells": "rows", "protocols": None, "scale": "own", "sample": None, "benign": None}
"""What a manifest means that was written before it told these fields."""

PROBLEMS, TRIALS = "problems", "illusion"
"""What a manifest's ``kind`` may be; without one it is :data:`PROBLEMS`."""
_HOLDS = {
    PROBLEMS: ("a kill matrix of problems", "kernelassay audit"),
    TRIALS: ("trials of the fuzz", "kernelassay illusion score"),
}

ANEW = "it is damaged or was edited: run again into a new directory"

VOLATILE = ("created", "machine", "seconds", "path")


def slug(name: str) -> str:
    """A file name for a problem or input id; distinct ids give distinct names."""
    safe = re.sub(r"[^A-Za-z0-9._=-]+", "+", name)
    if safe == name:
        return safe
    return f"{safe}.{hashlib.blake2b(name.encode(), digest_size=3).hexdigest()}"


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` so that ``path`` either holds all of it or is untouched."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _disk_error(path.parent, error) from error
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise _disk_error(path, error) from error


def user_cache() -> Path:
    """The per-user cache for what belongs to no session; ``KERNELASSAY_CACHE`` overrides."""
    configured = os.environ.get("KERNELASSAY_CACHE")
    if configured:
        return Path(configured)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kernelassay"


class Session:
    """Access to one session directory. Use :meth:`create` to write and :meth:`open` to read."""

    def __init__(self, root: Path, manifest: dict[str, Any], lock: IO[str] | None) -> None:
        self.root = root
        self.manifest = manifest
        self._lock = lock

    @classmethod
    def create(cls, root: Path, manifest: Mapping[str, Any]) -> Session:
        """Start a session, or take up an interrupted one with the same plan.

        Raises :class:`SessionError` if another run holds it, if it is of another version, or if
        its plan differs from ``manifest``.
        """
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _disk_error(root, error) from error
        path = root / "manifest.json"
        if not path.exists() and any(p.name not in ("lock", "images") for p in root.iterdir()):
            raise SessionError(
                "the directory is not empty and holds no manifest.json",
                where=str(root),
                hint="name a new directory for the session",
            )
        lock = _acquire(root / "lock")
        wanted = {"format": FORMAT, **SINCE, **manifest}
        if path.exists():
            try:
                session = cls._read(root)
                _require_same_plan(root, session.manifest, wanted)
            except SessionError:
                lock.close()
                raise
            session._lock = lock
            return session
        write_whole(path, _json(wanted))
        return cls(root, wanted, lock)

    @classmethod
    def open(cls, root: Path, kind: str = PROBLEMS) -> Session:
        """Open for reading.

        Raises :class:`SessionError` if it is none, of another version, or of another ``kind``.
        """
        session = cls._read(root)
        found = str(session.manifest.get("kind", PROBLEMS))
        if found != kind:
            holds, reader = _HOLDS.get(found, (f"what this version does not know ({found!r})", ""))
            raise SessionError(
                f"holds {holds}, not {_HOLDS[kind][0]}",
                where=str(root),
                hint=f"`{reader}` reads it" if reader else "use the version that wrote it",
            )
        return session

    @classmethod
    def _read(cls, root: Path) -> Session:
        path = root / "manifest.json"
        try:
            manifest = json.loads(path.read_text())
        except FileNotFoundError:
            raise SessionError(
                "not a session directory (no manifest.json)",
                where=str(root),
                hint="`kernelassay run` makes one; so does `kernelassay illusion run`",
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise SessionError(
                f"manifest.json is unreadable: {error}", where=str(root), hint=ANEW
            ) from error
        if not isinstance(manifest, dict):
            raise SessionError("manifest.json holds no object", where=str(root), hint=ANEW)
        if manifest.get("format") != FORMAT:
            raise SessionError(
                f"session format {manifest.get('format')!r}, this version reads {FORMAT}",
                where=str(root),
                hint="run again into a new directory, or use the version that wrote it",
            )
        return cls(root, {**SINCE, **manifest}, None)

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def name(self) -> str:
        """Its directory."""
        return str(self.root)

    @property
    def problems(self) -> frozenset[str]:
        """The ids of the selected problems. Raises :class:`SessionError` if none are named."""
        return frozenset(self._digests())

    def digest_of(self, problem: str) -> str:
        """The digest of a selected problem's text."""
        return str(self._digests()[problem])

    def _digests(self) -> dict[str, str]:
        found = self.manifest.get("problems")
        if not isinstance(found, dict):
            raise SessionError(
                "manifest.json does not name the selected problems",
                where=str(self.root),
                hint=ANEW,
            )
        return found

    @property
    def images(self) -> Path:
        """The cache of compiled code."""
        return self.root / "images"

    @property
    def given(self) -> Path:
        """The values of inputs that are no recipe, but data of somebody's."""
        return self.root / "given"

    def plan_path(self, problem: str) -> Path:
        """Where a problem's plan is kept."""
        return self.root / "plans" / f"{slug(problem)}.json"

    def cell_path(self, problem: str, input_id: str) -> Path:
        """Where the cells of one unit of work are kept."""
        return self.root / "cells" / slug(problem) / f"{slug(input_id)}.parquet"

    def write_plan(self, problem: str, plan: Mapping[str, Any]) -> None:
        """Store one problem's plan."""
        root = self.root.resolve()

        def within(path: Path) -> Path:
            return path.relative_to(root) if path.is_relative_to(root) else path

        write_whole(self.plan_path(problem), _json(_given_moved(plan, within)))

    def read_plan(self, problem: str) -> dict[str, Any] | None:
        """One problem's plan, or ``None`` if it has not been made."""
        path = self.plan_path(problem)
        return self._located(self._plan_file(path)) if path.exists() else None

    def plans(self) -> list[dict[str, Any]]:
        """All plans, by problem id."""
        return [self._located(plan) for plan in self._stored_plans()]

    def _stored_plans(self) -> list[dict[str, Any]]:
        names = sorted((self.root / "plans").glob("*.json"))
        plans = [self._plan_file(path) for path in names]
        return sorted(plans, key=lambda plan: plan["problem"]["id"])

    def _located(self, plan: dict[str, Any]) -> dict[str, Any]:
        """A stored plan with the files of the session where it lies now."""
        return _given_moved(plan, lambda path: self.root.resolve() / path)

    def _plan_file(self, path: Path) -> dict[str, Any]:
        try:
            plan: dict[str, Any] = json.loads(path.read_text())
            _ = plan["problem"]["id"], plan["refused"], plan["inputs"], plan["mutants"]
        except (ValueError, KeyError, TypeError) as error:
            raise SessionError(
                f"damaged plan: {error}", where=str(path), hint="delete this file and run again"
            ) from error
        return plan

    def write_cells(self, problem: str, input_id: str, cells: pa.Table) -> None:
        """Store one finished unit of work."""
        write_table(self.cell_path(problem, input_id), cells)

    def has_cells(self, problem: str, input_id: str) -> bool:
        """Whether that unit is finished and intact; a damaged file is moved aside."""
        path = self.cell_path(problem, input_id)
        if not path.exists():
            return False
        try:
            pq.ParquetFile(path).close()
        except (OSError, pa.ArrowException):
            path.rename(path.with_suffix(".damaged"))
            return False
        return True

    def read_cells(self, problem: str, input_id: str) -> pa.Table:
        """The cells of one unit of work."""
        path = self.cell_path(problem, input_id)
        try:
            # One small file: neither threads nor the machinery for many files pays.
            with pq.ParquetFile(path) as file:
                return file.read(use_threads=False)
        except FileNotFoundError:
            raise SessionError(
                f"no cells for input {input_id!r} of {problem}",
                where=str(path),
                hint="the run is unfinished: start it again with the same command to complete it",
            ) from None
        except (OSError, pa.ArrowException) as error:
            raise SessionError(
                f"damaged cell file: {error}",
                where=str(path),
                hint="start the run again with the same command; it redoes this unit alone",
            ) from error

    def write_gate(self, problem: str, cells: pa.Table) -> None:
        """Store the cells, on all inputs, that planning a problem has measured."""
        write_table(self._gate_path(problem), cells)

    def read_gate(self, problem: str) -> pa.Table | None:
        """What :meth:`write_gate` stored, or ``None``; a damaged file is moved aside."""
        path = self._gate_path(problem)
        try:
            found = pq.read_table(path)
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException):
            found = None
        if found is None or found.schema.names != SCHEMA.names:
            path.rename(path.with_suffix(".damaged"))
            return None
        return found

    def _gate_path(self, problem: str) -> Path:
        return self.root / "gate" / f"{slug(problem)}.parquet"

    def write_timing(self, problem: str, name: str, timing: Mapping[str, Any]) -> None:
        """Store how long a unit took, by its input's id, or the planning (``timing.PLAN``)."""
        write_whole(self._timing_path(problem, name), _json(timing))

    def read_timing(self, problem: str, name: str) -> dict[str, Any] | None:
        """What :meth:`write_timing` stored, or ``None``: a session may come without."""
        path = self._timing_path(problem, name)
        return _timing_file(path) if path.exists() else None

    def _timing_path(self, problem: str, name: str) -> Path:
        return self.root / "timings" / slug(problem) / f"{slug(name)}.json"

    def write_stint(self, stint: Stint) -> None:
        """Store how long a run has been at work so far."""
        path = self.root / "timings" / "stints" / f"{stint.started:.3f}.json"
        write_whole(path, _json(stint.to_json()))

    def stints(self) -> list[Stint]:
        """The runs that made the session; none where none was noted."""
        found = []
        for path in (self.root / "timings" / "stints").glob("*.json"):
            stored = _timing_file(path)
            try:
                found.append(Stint.from_json(stored))
            except (KeyError, TypeError, ValueError) as error:
                raise _damaged_timing(path, error) from error
        return sorted(found, key=lambda stint: stint.started)

    def finished_plans(self) -> list[dict[str, Any]]:
        """The plans whose problem is refused, or has all its cells."""
        return [
            plan
            for plan in self.plans()
            if plan["refused"]
            or all(
                self.cell_path(plan["problem"]["id"], spec["id"]).exists()
                for spec in inputs_of(plan)
            )
        ]

    def unfinished(self) -> list[str]:
        """The selected problems that are not planned yet or lack cells."""
        done = {plan["problem"]["id"] for plan in self.finished_plans()}
        return sorted(self.problems - done)

    def write_tables(self) -> None:
        """Write mutants and inputs of all plans as two tables, for readers of the session."""
        plans = self.plans()
        for name, fields in (("mutants", MUTANT_FIELDS), ("inputs", INPUT_FIELDS)):
            rows = [
                {"problem": plan["problem"]["id"], **{field: row[field] for field in fields}}
                for plan in plans
                for row in plan[name]
            ]
            schema = pa.schema([("problem", pa.string()), *fields.items()])
            write_table(self.root / f"{name}.parquet", pa.Table.from_pylist(rows, schema))

    def digest(self) -> str:
        """A hash over plans and cells; times, paths and machine facts are left out.

        So are the cells of mutants whose output differed between two runs of one input on a GPU: it
        depends on which thread came first there, and nothing of it would be the same again.
        """
        state = hashlib.sha256()
        for plan in self._stored_plans():
            # The text of a refusal may hold a path of the machine.
            state.update(_json(_stable({**plan, "refused": bool(plan["refused"])})))
            if plan["refused"]:
                continue
            measured = (*inputs_of(plan), *judging_correct(plan))
            tables = [self.read_cells(plan["problem"]["id"], s["id"]) for s in measured]
            unsteady = self._unsteady(tables)
            for cells in tables:
                for row in cells.sort_by("candidate").to_pylist():
                    if row["candidate"] not in unsteady:
                        state.update(_json(row))
        return state.hexdigest()

    def unsteady(self, plan: Mapping[str, Any]) -> frozenset[str]:
        """The candidates of a planned problem that were seen to differ between two runs on a GPU.

        What was not seen can still be so: the same two runs may agree another time.
        """
        problem = plan["problem"]["id"]
        names = [spec["id"] for spec in inputs_of(plan)]
        done = [name for name in names if self.cell_path(problem, name).exists()]
        return self._unsteady(self.read_cells(problem, name) for name in done)

    def _unsteady(self, tables: Iterable[pa.Table]) -> frozenset[str]:
        if self.manifest.get("executor") != "cuda":
            return frozenset()
        return frozenset(
            row["candidate"]
            for cells in tables
            for row in cells.select(["candidate", "findings"]).to_pylist()
            if any(finding["kind"] == "order-dependent" for finding in row["findings"])
        )


def _given_moved(plan: Mapping[str, Any], change: Callable[[Path], Path]) -> dict[str, Any]:
    """A plan with the files that inputs hold their values in elsewhere."""

    def moved(record: dict[str, Any]) -> dict[str, Any]:
        transform = record.get("spec", {}).get("transform", "")
        if not transform.startswith(GIVEN):
            return record
        path = change(Path(transform.removeprefix(GIVEN)))
        return {**record, "spec": {**record["spec"], "transform": f"{GIVEN}{path}"}}

    return {**plan, "inputs": [moved(record) for record in plan["inputs"]]}


def _timing_file(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise _damaged_timing(path, error) from error
    return found


def _damaged_timing(path: Path, error: Exception) -> SessionError:
    return SessionError(
        f"damaged timing: {error!r}",
        where=str(path),
        hint="delete this file: no result depends on it",
    )


def write_table(path: Path, data: pa.Table) -> None:
    """Write a Parquet file whole."""
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink, compression="zstd")
    write_whole(path, sink.getvalue().to_pybytes())


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _stable(v) for k, v in value.items() if k not in VOLATILE}
    return [_stable(v) for v in value] if isinstance(value, list) else value


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _acquire(path: Path) -> IO[str]:
    try:
        handle = path.open("a+")
    except OSError as error:
        raise _disk_error(path, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise SessionError(
            "another run is writing to this session",
            where=str(path.parent),
            hint="wait for it, or name another directory with --session",
        ) from error
    return handle


def _require_same_plan(root: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    differing = [
        key
        for key in sorted(set(found) | set(wanted))
        if key not in VOLATILE and found.get(key) != wanted.get(key)
    ]
    if differing:
        raise SessionError(
            f"the session was started with another plan (differs in: {', '.join(differing)})",
            where=str(root),
            hint="repeat the options of the first run to resume it, or name a new directory",
        )


def _disk_error(path: Path, error: OSError) -> SessionError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SessionError(
            "the disk is full; nothing finished was lost",
            where=str(path),
            hint="free some space and start the run again with the same command",
        )
    return SessionError(
        f"cannot write: {error.strerror}", where=str(path), hint="name a place that can be written"
    )


def inputs_of(plan: Mapping[str, Any], *, valid_only: bool = True) -> Iterable[dict[str, Any]]:
    """The input records of a plan."""
    return (spec for spec in plan["inputs"] if spec["valid"] or not valid_only)


def judging_correct(plan: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """The records of inputs that are not valid and have cells of correct kernels all the same."""
    return (spec for spec in plan["inputs"] if not spec["valid"] and spec.get("judges"))


def first_input(plan: Mapping[str, Any]) -> str:
    """The id of the input on which candidates run in another order of threads, too."""
    return str(next(iter(inputs_of(plan)))["id"])
