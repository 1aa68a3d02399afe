"""The text of exported modules: the code that makes inputs, copied out of this package.

An exported module needs torch alone, so it holds the transforms that its inputs use. They are not
written a second time: the definitions are cut out of ``input_values``, with all that they use.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from kernelassay import input_values
from kernelassay.input_values import entries_of
from kernelassay.synthesis import standalone

_TABLE = "_ALL"
"""The table of all transforms, of which a module gets the entries that it uses."""

IMPORTS = (
    "import math",
    "import re",
    "from collections.abc import Callable, Sequence",
    "from dataclasses import dataclass",
    "from typing import Any",
    "",
    "import torch",
)


@dataclass(frozen=True, slots=True)
class _Part:
    """A top-level definition: its text, the comment above it included, and the names it uses."""

    text: str
    uses: frozenset[str]


def code_for(transforms: Iterable[str]) -> str:
    """The function ``made`` and all that it needs for some transforms, without imports.

    Definitions stand in the order of their files. Names are as in ``input_values.named_transform``.
    """
    values, here = _parts(input_values), _parts(standalone)
    table = _table(frozenset(entry for name in transforms for entry in entries_of(name)))
    values = {**values, _TABLE: table}
    wanted: set[str] = set()
    left = ["made"]
    while left:
        name = left.pop()
        part = here.get(name) or values.get(name)
        if name not in wanted and part is not None:
            wanted.add(name)
            left += sorted(part.uses)
    texts = [part.text for name, part in (*values.items(), *here.items()) if name in wanted]
    return "\n\n\n".join(texts) + "\n"


@cache
def _parts(module: ModuleType) -> dict[str, _Part]:
    """The definitions of a module by name, in their order."""
    text = inspect.getsource(module)
    lines = text.splitlines()
    found: dict[str, _Part] = {}
    for node in ast.parse(text).body:
        for name in _defined(node):
            found[name] = _Part(_text(node, lines), _names(node))
    return found


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _text(node: ast.stmt, lines: list[str]) -> str:
    decorators = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(one.lineno for one in decorators)]) - 1
    while start and lines[start - 1].startswith("#") and not lines[start - 1].startswith("# --"):
        start -= 1
    return "\n".join(lines[start : node.end_lineno])


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def _table(transforms: frozenset[str]) -> _Part:
    """The table of transforms with some of its entries."""
    text = inspect.getsource(input_values)
    (table,) = (node for node in ast.parse(text).body if _TABLE in _defined(node))
    assert isinstance(table, ast.Assign) and isinstance(table.value, ast.Tuple)
    kept = [entry for entry in table.value.elts if _entry_name(entry) in transforms]
    assert len(kept) == len(transforms), transforms
    segments = [ast.get_source_segment(text, entry) or "" for entry in kept]
    body = "".join(f"    {segment},\n" for segment in segments)
    uses = frozenset[str]().union(*map(_names, kept))
    return _Part(f"{_TABLE} = (\n{body})", uses)


def _entry_name(entry: ast.expr) -> str:
    assert isinstance(entry, ast.Call) and isinstance(entry.args[0], ast.Constant)
    return str(entry.args[0].value)


def indented(text: str) -> str:
    """Code as the body of a function."""
    return textwrap.indent(text, "    ")
