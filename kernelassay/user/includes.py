"""A user's file with the headers of their own project put in the place of their ``#include``."""

from __future__ import annotations

import re
from pathlib import Path

_QUOTED = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
Lines = tuple[tuple[str, int], ...]


def assembled(text: str, path: str) -> tuple[str, Lines]:
    """``text`` with quoted includes that exist, each once, and where each line comes from.

    A header is looked for beside the file that includes it. What is not found stays as it is.
    """
    out: list[str] = []
    lines: list[tuple[str, int]] = []
    _put(text, path, out, lines, {Path(path).resolve()})
    return "\n".join(out) + "\n", tuple(lines)


def _put(
    text: str, path: str, out: list[str], lines: list[tuple[str, int]], seen: set[Path]
) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        match = _QUOTED.match(line)
        header = Path(path).parent / match[1] if match else None
        if header is None or not header.is_file():
            # Each header is put in once, whatever it says.
            out.append("" if line.strip() == "#pragma once" else line)
            lines.append((path, number))
        elif header.resolve() not in seen:
            seen.add(header.resolve())
            body = header.read_text(encoding="utf-8", errors="replace")
            _put(body, str(header), out, lines, seen)
        else:
            out.append("")
            lines.append((path, number))
