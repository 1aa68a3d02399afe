"""Cheats and correct kernels with a known verdict: what a checker must reject, and what accept.

Each is one file in ``wrong`` or ``right``; what it does, the problem it claims to compute, and for
a cheat the defence that catches it, stand at its head. Its name is its stable id.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelassay.errors import UsageError

WRONG, RIGHT = "wrong", "right"


@dataclass(frozen=True, slots=True)
class Entry:
    """One file. ``defence`` is "" for a correct kernel, ``needs`` a device that it must have."""

    id: str
    path: Path
    what: str
    problem: str
    defence: str
    needs: str

    @property
    def is_cheat(self) -> bool:
        """Whether it must be rejected."""
        return self.path.parent.name == WRONG


@cache
def corpus() -> tuple[Entry, ...]:
    """All entries: cheats, then correct kernels, by id. Raises ``UsageError`` for a bad head."""
    root = Path(__file__).parent
    paths = (p for kind in (WRONG, RIGHT) for p in sorted((root / kind).iterdir()))
    return tuple(_entry(path) for path in paths if path.suffix in (".py", ".cu"))


def _entry(path: Path) -> Entry:
    text = path.read_text(encoding="utf-8")
    head = _comment(text) if path.suffix == ".cu" else ast.get_docstring(ast.parse(text)) or ""
    fields = dict(re.findall(r"^(problem|caught by|needs): (.+)$", head, re.MULTILINE))
    cheat = path.parent.name == WRONG
    if "problem" not in fields or ("caught by" in fields) != cheat:
        raise UsageError("does not say its problem and what catches it", where=str(path))
    return Entry(
        path.stem,
        path,
        head.partition("\n")[0],
        fields["problem"],
        fields.get("caught by", ""),
        fields.get("needs", ""),
    )


def _comment(text: str) -> str:
    return "\n".join(re.findall(r"^// (?!kernelassay:)(.*)$", text, re.MULTILINE))
