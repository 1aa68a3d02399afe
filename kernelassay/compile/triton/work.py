"""What is known of Triton module texts, kept on disk, and how to learn more of them."""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from kernelassay.compile.cache import Table, cache_key
from kernelassay.compile.pool import SLOTS, Pool
from kernelassay.compile.triton.calls import Call
from kernelassay.compile.triton.worker import (
    KEPT_VARIABLES,
    CallRecord,
    Code,
    Lowering,
    ModuleRecord,
    TritonWorker,
)
from kernelassay.errors import ToolchainError

SCHEME = 1
"""Version of what is compared and kept."""
Key = tuple[str, ...]
_NO_CODE = ("no code",)


def version() -> str:
    """What outcomes depend on beside texts and calls. Raises ``ToolchainError``."""
    try:
        releases = [f"{name} {metadata.version(name)}" for name in ("triton", "torch")]
    except metadata.PackageNotFoundError as error:
        raise ToolchainError(
            f"{error.name} is not installed", hint="install kernelassay[triton]"
        ) from error
    return " ".join([*releases, *(os.environ.get(name, "") for name in KEPT_VARIABLES)]).strip()


class Work:
    """What is known of the module texts, each by a key, and how to learn more."""

    def __init__(
        self,
        texts: Mapping[str, str],
        calls: Sequence[Call],
        jobs: int,
        cache: Path | None,
        seconds: float,
    ) -> None:
        self.version = version()
        self._texts = texts
        self._calls = tuple(calls)
        self._seconds = seconds
        self._pool = Pool(TritonWorker, jobs, cache / SLOTS if cache is not None else None)
        self._table = Table(cache / "triton.sqlite" if cache is not None else None)
        self._salt = (self.version, str(SCHEME))
        self._told = repr([[astuple(spec) for spec in call] for call in self._calls])
        self.records: dict[str, ModuleRecord] = {}
        self.notes: dict[str, str] = {}
        self._lowerings: dict[str, dict[int, Lowering]] = {}
        self._codes: dict[str, Code] = {}
        self._names: dict[tuple[str, int], str] = {}

    def record(self, texts: Iterable[str], every: bool = False) -> None:
        """Learn what modules do, and the TTIR of their first combos, or of ``every`` one."""
        names = {cache_key(text, self._told, str(every), *self._salt): text for text in texts}
        known = self._table.values(names)
        for name, value in known.items():
            self._note(names[name], *_record_of(value))
        ask = partial(self._ask_record, every)
        for name, record, made in self._pool.run(
            ask, [n for n in names.items() if n[0] not in known]
        ):
            self._note(names[name], record, made)
            if not record.lost and not any(lowering.transient for lowering in made.values()):
                self._table.keep({name: _record_value(record, made)})

    def _ask_record(
        self, every: bool, worker: TritonWorker, item: tuple[str, str]
    ) -> tuple[str, ModuleRecord, dict[int, Lowering]]:
        name, key = item
        return name, *worker.record(self._texts[key], self._calls, every, self._seconds)

    def _note(self, text: str, record: ModuleRecord, made: Mapping[int, Lowering]) -> None:
        before = self.records.setdefault(text, record)
        if before != record:
            again = record.lost or "its host code does not do the same twice"
            self.records[text] = ModuleRecord(lost=again)
        self._lowerings.setdefault(text, {}).update(made)

    def need(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Have the TTIR of combos, pairs of text and number."""
        self.record(
            dict.fromkeys(
                text
                for text, number in wanted
                if number not in self._lowerings[text] and not self.records[text].lost
            ),
            every=True,
        )

    def compile(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Have the machine code of combos whose TTIR there is."""
        missing: dict[str, Lowering] = {}
        for text, number in wanted:
            lowering = self.lowering(text, number)
            if not lowering.error:
                missing.setdefault(self._name(text, number), lowering)
        names = [name for name in missing if name not in self._codes]
        known = self._table.values(names)
        self._codes.update((name, Code(*value)) for name, value in known.items())
        ask = [(name, missing[name]) for name in names if name not in known]
        for name, code in self._pool.run(self._ask_code, ask):
            self._codes[name] = code
            if not code.transient:
                self._table.keep({name: [code.digest, code.error]})

    def _ask_code(self, worker: TritonWorker, item: tuple[str, Lowering]) -> tuple[str, Code]:
        name, lowering = item
        return name, worker.machine_code(lowering.text, lowering.options, self._seconds)

    def _name(self, text: str, number: int) -> str:
        """The key of a combo's TTIR and options."""
        if (text, number) not in self._names:
            lowering = self._lowerings[text][number]
            parts = (lowering.text, lowering.options, *self._salt)
            self._names[text, number] = cache_key(*parts)
        return self._names[text, number]

    def lowering(self, text: str, number: int) -> Lowering:
        """A combo's TTIR; :meth:`need` first."""
        lost = self.records[text].lost
        return Lowering("", "", lost, transient=True) if lost else self._lowerings[text][number]

    def text_key(self, text: str, number: int) -> Key:
        """Equal for combos whose TTIR tells that they are equal."""
        lowering = self.lowering(text, number)
        if lowering.error:
            return self._without(text, lowering.error, lowering.transient)
        return ("ttir", self._name(text, number))

    def key(self, text: str, number: int) -> Key:
        """Equal for combos that are equal; :meth:`compile` first."""
        lowering = self.lowering(text, number)
        if lowering.error:
            return self._without(text, lowering.error, lowering.transient)
        code = self._codes[self._name(text, number)]
        if code.error:
            return self._without(text, code.error, code.transient)
        return ("code", code.digest)

    def _without(self, text: str, error: str, transient: bool) -> Key:
        if not transient:
            return _NO_CODE  # one launch that raises is like another
        self.notes.setdefault(text, f"no machine code to compare: {error}")
        return ("text", text)

    def error(self, text: str, number: int) -> tuple[str, bool]:
        """Why a combo has no code, and whether a limit is why; "" if it has. Compile first."""
        lowering = self.lowering(text, number)
        if lowering.error:
            return lowering.error, lowering.transient
        code = self._codes[self._name(text, number)]
        return code.error, code.transient


def _record_value(record: ModuleRecord, made: Mapping[int, Lowering]) -> list[object]:
    """A record as the cache keeps it, TTIR compressed."""
    return [
        [[c.digest, c.launches, c.general, c.raised] for c in record.calls],
        record.failed,
        [[n, _packed(each.text), each.options, each.error] for n, each in made.items()],
    ]


def _record_of(value: list[Any]) -> tuple[ModuleRecord, dict[int, Lowering]]:
    calls, failed, made = value
    records = tuple(
        CallRecord(digest, tuple(launches), tuple(general), raised)
        for digest, launches, general, raised in calls
    )
    lowerings = {n: Lowering(_unpacked(text), options, error) for n, text, options, error in made}
    return ModuleRecord(records, failed), lowerings


def _packed(text: str) -> str:
    return base64.b85encode(zlib.compress(text.encode())).decode()


def _unpacked(text: str) -> str:
    return zlib.decompress(base64.b85decode(text)).decode()
