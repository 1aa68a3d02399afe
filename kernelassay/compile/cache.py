"""Compiler outcomes kept on disk, shared between processes and sessions."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from kernelassay.compile.batch import Image
from kernelassay.errors import SessionError

_BUSY_SECONDS = 60.0
_CHUNK = 500


def cache_key(*parts: str) -> str:
    """One key for text, compiler version, options and scheme; unambiguous in its parts."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=20).hexdigest()


class Table:
    """A table from key to a JSON value, first write wins; every write is one transaction.

    ``path`` is the database file, made with its folder; None keeps nothing. Raises
    :class:`SessionError` where the file cannot be used.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._execute("CREATE TABLE IF NOT EXISTS image (key TEXT PRIMARY KEY, value TEXT)")

    def values(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of the known ones among ``keys``."""
        if self._path is None:
            return {}
        wanted = list(keys)
        found: dict[str, Any] = {}
        for start in range(0, len(wanted), _CHUNK):
            chunk = wanted[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            rows = self._execute(f"SELECT key, value FROM image WHERE key IN ({marks})", chunk)
            found.update((key, json.loads(value)) for key, value in rows)
        return found

    def keep(self, values: Mapping[str, Any]) -> None:
        """Keep ``values``."""
        if self._path is None or not values:
            return
        rows = [(key, json.dumps(value)) for key, value in values.items()]
        try:
            with closing(self._connect()) as connection, connection:
                connection.executemany("INSERT OR IGNORE INTO image VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _execute(self, sql: str, values: Iterable[str] = ()) -> list[tuple[str, str]]:
        try:
            with closing(self._connect()) as connection, connection:
                return connection.execute(sql, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _connect(self) -> sqlite3.Connection:
        assert self._path is not None
        return sqlite3.connect(self._path, timeout=_BUSY_SECONDS)

    def _failure(self, error: sqlite3.Error) -> SessionError:
        return SessionError(
            f"the image cache cannot be used: {error}",
            where=str(self._path),
            hint="delete the file (it only saves time) or name another folder",
        )


class ImageCache(Table):
    """A table from key to :class:`Image`."""

    def load(self, keys: Iterable[str]) -> dict[str, Image]:
        """The known ones among ``keys``."""
        return {key: Image(*value) for key, value in self.values(keys).items()}

    def store(self, images: Mapping[str, Image]) -> None:
        """Keep ``images``, except transient ones."""
        self.keep(
            {
                key: [image.digest, image.error, image.lone]
                for key, image in images.items()
                if not image.transient
            }
        )
