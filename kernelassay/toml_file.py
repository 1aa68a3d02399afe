"""Reading TOML files that users write: every mistake is an error with its place."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kernelassay.errors import UsageError, unknown_name


def read_toml(path: Path, fields: Collection[str], example: str) -> dict[str, Any]:
    """The top-level table of a file. Raises :class:`UsageError` if it is none, or has others."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise UsageError(
            f"is no TOML: {error}", where=str(path), hint=f"write lines like {example}"
        ) from error
    for name in data:
        if name not in fields:
            raise at(path, unknown_name("field", name, fields))
    return data


def text(path: Path, data: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A field that is a text. Raises :class:`UsageError`."""
    value = data.get(name, default)
    if value is None:
        raise UsageError(f"has no {name}", where=str(path), hint=f'add a line like {name} = "..."')
    if not isinstance(value, str):
        raise UsageError(f"{name} is no text: {value!r}", where=str(path), hint=f'{name} = "..."')
    return value


def texts(path: Path, value: Any, name: str, example: str) -> tuple[str, ...]:
    """A list of texts. Raises :class:`UsageError`."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{name} is no list of texts: {value!r}", where=str(path), hint=example)
    return tuple(value)


def table(path: Path, value: Any, name: str, example: str) -> Mapping[str, Any]:
    """A table. Raises :class:`UsageError`."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} is no table: {value!r}", where=str(path), hint=example)
    return value


def at(path: Path, error: UsageError) -> UsageError:
    """The error with the file in front of its place."""
    where = f"{path}: {error.where}" if error.where else str(path)
    return UsageError(error.what, where=where, hint=error.hint)
