"""What the package declares to need is what it imports."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

import kernelassay

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Modules that are not called as their distribution is.
MODULES = {"cuda-bindings": "cuda"}


def modules_of(requirements: list[str]) -> set[str]:
    names = [re.match(r"[\w.-]+", requirement)[0] for requirement in requirements]
    return {MODULES.get(name, name.replace("-", "_")) for name in names}


def imported() -> set[str]:
    found = set()
    for path in Path(kernelassay.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module)
    return {name.partition(".")[0] for name in found}


@pytest.mark.parametrize("module", sorted(modules_of(PROJECT["dependencies"])))
def test_every_dependency_is_imported_by_the_package(module):
    assert module in imported()


def test_every_module_that_the_package_imports_is_declared():
    declared = modules_of(PROJECT["dependencies"])
    for requirements in PROJECT["optional-dependencies"].values():
        declared |= modules_of(requirements)
    assert imported() - {"kernelassay"} - sys.stdlib_module_names <= declared


@pytest.mark.xdist_group("one group")
def test_tests_of_one_group_are_told_to_be_one(request):
    """Else each process makes what they share, and starts the cluster, without a word."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("tests are not handed out by group")
    assert request.node.nodeid.endswith("@one group")
