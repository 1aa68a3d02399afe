"""Problems at other sizes than their own: what ``--set`` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelassay.errors import UsageError
from kernelassay.problem import Problem

Setting = tuple[tuple[str, int], ...]
"""Names of sizes with their values; empty for a problem as it is."""


def parse_settings(settings: Sequence[str]) -> list[Setting]:
    """``SIZE=N[,SIZE=N]...`` options, one setting each; without any, the problem as it is."""
    return [_parse(setting) for setting in settings] or [()]


def _parse(setting: str) -> Setting:
    pairs = [part.partition("=") for part in setting.split(",")]
    if not all(name and value.isdigit() for name, _, value in pairs):
        raise UsageError(f"--set {setting!r} is not of the form SIZE=N or SIZE=N,SIZE=N")
    return tuple((name, int(value)) for name, _, value in pairs)


def resized(problem: Problem, setting: Setting) -> Problem:
    """The problem at other sizes. Raises :class:`UsageError` for a size that it does not have."""
    known = {lever.name for lever in problem.levers}
    for name, _ in setting:
        if name not in known:
            raise UsageError(
                f"{problem.id} has no size {name!r}",
                hint=f"it has {', '.join(sorted(known)) or 'none'}",
            )
    merged = {**dict(problem.shrunk), **dict(setting)}
    return replace(problem, shrunk=tuple(merged.items()))
