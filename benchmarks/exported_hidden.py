"""Exported hidden tests, loaded by a real checkout of KernelBench-Verified.

Usage: python benchmarks/exported_hidden.py CHECKOUT FOLDER [SESSION...]

FOLDER is what `kernelassay suite SESSION --export FOLDER --format hidden` wrote. Every module is
loaded by the checkout's own loader (`load_hidden_inputs` of its src/eval.py), and every input run
through the reference by its own validation (scripts/generate_hidden_inputs.py). With SESSION the
bytes of each input are held against what was measured. The checkout is not written to: its
KernelBench folder is linked beside a copy of FOLDER. It EXECUTES code of the checkout.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from columns import NONE, table

from kernelassay.inputs import digest
from kernelassay.session import Session

LOADER = "load_hidden_inputs"


def loader(checkout: Path) -> Callable[[str], list[Any] | None]:
    """The function of the checkout that loads hidden tests, without what its module imports."""
    path = checkout / "src" / "eval.py"
    tree = ast.parse(path.read_text())
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == LOADER]
    assert tree.body, f"{path} has no {LOADER}"
    names: dict[str, Any] = {"torch": torch, "os": os}
    exec(compile(tree, str(path), "exec"), names)
    return names[LOADER]


def validation(checkout: Path) -> Callable[[str, str], tuple[int, int, list[str]]]:
    """The function of the checkout that runs hidden tests through the reference."""
    path = checkout / "scripts" / "generate_hidden_inputs.py"
    spec = importlib.util.spec_from_file_location("hidden_validation", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.validate_hidden_inputs


def measured(sessions: list[Path]) -> dict[tuple[str, str], str]:
    """The digest of each measured input, by the file name of its problem and its id."""
    return {
        (Path(plan["problem"]["path"]).name, record["id"]): record["digest"]
        for root in sessions
        for plan in Session.open(root).plans()
        for record in plan["inputs"]
    }


def ids(path: Path) -> list[str]:
    """The ids of the inputs of an exported module."""
    names = {"__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), names)
    inputs: Any = names["_INPUTS"]
    return [one["id"] for one in inputs]


@contextlib.contextmanager
def placed(checkout: Path, folder: Path) -> Iterator[Path]:
    """A temporary folder with a copy of ``folder`` beside the checkout's problems."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "KernelBench").symlink_to((checkout / "KernelBench").resolve())
        shutil.copytree(folder, root / "hidden_tests")
        yield root


def row(
    path: Path,
    checkout: Path,
    load: Callable[[str], list[Any] | None],
    validate: Callable[[str, str], tuple[int, int, list[str]]],
    digests: Mapping[tuple[str, str], str],
) -> tuple[str, ...]:
    """One module: inputs loaded, valid for the reference, and equal to what was measured."""
    number = path.name.partition("_")[0]
    (problem,) = (checkout / "KernelBench" / path.parent.name).glob(f"{number}_*.py")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        inputs = load(str(path))
        valid, _, errors = validate(str(problem), str(path))
    if inputs is None:
        return (problem.stem, "0", "0", "0", said.getvalue().strip() or "not loaded")
    wanted = [digests.get((problem.name, name)) for name in ids(path)]
    same = sum(digest(one) == know for one, know in zip(inputs, wanted, strict=True))
    counted = str(same) if any(wanted) else NONE
    return (problem.stem, str(len(inputs)), str(valid), counted, "; ".join(errors))


def main() -> None:
    """Print one line per exported module; end with 1 if one does not load, or is not valid."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    checkout, folder, *sessions = map(Path, sys.argv[1:])
    load, validate, digests = loader(checkout), validation(checkout), measured(sessions)
    with placed(checkout, folder) as root:
        paths = sorted((root / "hidden_tests").glob("level*/*_hidden.py"))
        rows = [row(path, checkout, load, validate, digests) for path in paths]
    columns = ("problem", "inputs", "valid", "bytes as measured", "errors")
    print("\n".join(table(columns, rows)))
    total = [sum(int(cells[at]) for cells in rows) for at in (1, 2)]
    print(f"{len(rows)} modules, {total[0]} inputs loaded, {total[1]} valid for the reference")
    counted = [int(cells[3]) for cells in rows if cells[3] != NONE]
    if not rows or total[0] != total[1] or (sessions and sum(counted) != total[0]):
        sys.exit(1)


if __name__ == "__main__":
    main()
