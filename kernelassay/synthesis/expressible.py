"""What a benchmark's format can express of an input, told from its spec and the problem's text.

A module in a benchmark's format calls the problem's own ``get_inputs()`` and changes what it
returns. Sizes it can change as far as they are names that ``get_inputs()`` alone reads: all else of
the problem, its model too, is the benchmark's. Parameters and memory layouts are out of its reach.
Conditions of a run (thread order, surroundings) are no part of any input: they are named, since
what was measured under them may not show under others.
"""

from __future__ import annotations

import re
import symtable
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kernelassay.inputs import CHECKERS, GIVEN, InputSpec
from kernelassay.problem import Problem
from kernelassay.synthesis.pool import Barred

HIDDEN, GET_INPUTS, JSON = "hidden", "get-inputs", "json"
FORMATS = (HIDDEN, GET_INPUTS, JSON)

INEXPRESSIBLE = "cannot express it"
DRAWS = "get_inputs"
USUAL = InputSpec("", "", 0)


def objection(form: str, problem: Problem, spec: InputSpec) -> str:
    """Why a format cannot express an input of a problem; empty if it can.

    ``form`` is one of :data:`FORMATS`. JSON holds any spec.
    """
    if form == JSON:
        return ""
    if form == HIDDEN and not number(problem):
        return (
            "the benchmark finds hidden tests by level and number, and the problem's file"
            f" ({Path(problem.path).name}, level {problem.level}) has none"
        )
    if spec.transform.startswith(GIVEN):
        return "its tensors lie in a file of their own"
    if spec.parameters != USUAL.parameters:
        return f"parameters are {spec.parameters}, and the benchmark builds the model itself"
    if spec.layout != USUAL.layout:
        return f"the layout is {spec.layout}, which a copy to the device need not keep"
    built_in = sorted(sizes(problem, spec).keys() - free_names(problem.source))
    if built_in:
        return f"built-in sizes: {', '.join(built_in)}: more than {DRAWS}() alone reads them"
    return ""


def bar(form: str, problem_of: Callable[[Mapping[str, Any]], Problem]) -> Barred:
    """Keeps out of a pool what a format cannot express; ``problem_of`` finds a plan's problem."""
    found: dict[str, Problem] = {}

    def barred(plan: Mapping[str, Any], record: Mapping[str, Any]) -> str:
        name = plan["problem"]["id"]
        if name not in found:
            found[name] = problem_of(plan)
        why = objection(form, found[name], InputSpec.from_json(record["spec"]))
        return f"{form} {INEXPRESSIBLE}: {why}" if why else ""

    return barred


def conditions(spec: InputSpec, *, device_drawn: bool = False) -> str:
    """The conditions that an input was measured under and no format has; may be empty.

    ``device_drawn`` tells that a run drew on its device what checkers draw at a problem's own
    sizes: a format draws on the CPU, the same distribution in another stream.
    """
    told = {"thread order": (spec.order, USUAL.order)}
    told["surroundings"] = (spec.surroundings, USUAL.surroundings)
    found = [f"{name} {value}" for name, (value, usual) in told.items() if value != usual]
    if device_drawn and spec.group in CHECKERS and not spec.overrides:
        found.append("draws of the device")
    return ", ".join(found)


def sizes(problem: Problem, spec: InputSpec) -> Mapping[str, int]:
    """The sizes that an input has and the problem's file does not."""
    return dict(sorted({**dict(problem.shrunk), **dict(spec.overrides)}.items()))


def number(problem: Problem) -> str:
    """The number that the name of a problem's file begins with; empty without one or a level."""
    found = re.match(r"(\d+)_", Path(problem.path).name)
    return found[1] if found and problem.level else ""


@cache
def free_names(source: str) -> frozenset[str]:
    """The module-level names of a problem that its ``get_inputs()`` alone reads, and none sets.

    Their values may be set in the module before it is called: the same is drawn as with the values
    in the text.
    """
    module = symtable.symtable(source, "problem", "exec")
    own = module.get_symbols()
    assigned = {one.get_name() for one in own if one.is_assigned() and not one.is_namespace()}
    # What a function's defaults read, the module reads.
    read = {one.get_name() for one in own if one.is_referenced()}
    for scope in module.get_children():
        read |= _touched(scope, drawing=scope.get_name() == DRAWS)
    return frozenset(assigned - read)


def _touched(scope: symtable.SymbolTable, *, drawing: bool) -> set[str]:
    """The names of the module that a scope and those within read, or set.

    Inside the function that draws, reading is what sizes are for.
    """
    found = set()
    for symbol in scope.get_symbols():
        # A class may read the module's name and then bind it anew.
        shared = symbol.is_global() or scope.get_type() == "class"
        if shared and (symbol.is_assigned() or (symbol.is_referenced() and not drawing)):
            found.add(symbol.get_name())
    return found.union(*(_touched(inner, drawing=drawing) for inner in scope.get_children()))
