"""What a checking protocol is."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kernelassay.errors import UsageError
from kernelassay.oracle import AcceptanceRule
from kernelassay.session import judging_correct

Unfit = Literal["needs", "drops", "runs"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """Inputs plus acceptance rule: what decides "correct".

    ``inputs`` names the input ids it draws, in the order it runs them; a glob stands for the valid
    inputs of a problem that it matches. ``rules`` maps the dtype of the output to the acceptance
    rule; ``default`` serves the dtypes not listed. ``view`` is ``"seen"`` if unwritten memory looks
    like zero to the checker, ``"poisoned"`` if it poisons outputs first. No protocol sees sanitizer
    findings. Its verdict on a candidate that crashes or hangs is "rejected".

    ``unfit`` tells what it does about inputs that the validity gate refuses. It ``"needs"`` all of
    its inputs valid; it ``"drops"`` those on which the reference is not finite, as its own checker
    does, and needs the others; or it ``"runs"`` on them, being drawn without regard to validity:
    then correct kernels are judged on them, too, and mutants on the valid ones alone. ``draws``
    names the kind of inputs (:mod:`kernelassay.protocol_inputs`) that a run draws when asked for.
    Raises :class:`UsageError` if it has no inputs.
    """

    name: str
    what: str
    source: str
    inputs: tuple[str, ...]
    default: AcceptanceRule
    rules: Mapping[str, AcceptanceRule]
    view: str = "seen"
    unfit: Unfit = "needs"
    draws: str = ""

    def __post_init__(self) -> None:
        if not self.inputs:
            raise UsageError(
                "has no inputs, so it judges nothing",
                where=f"protocol {self.name}",
                hint="name input ids or globs; `inputs.parquet` of a session lists its inputs",
            )

    def inputs_in(self, plan: Mapping[str, Any]) -> tuple[str, ...]:
        """The inputs it judges by on a planned problem, in its order, whether planned or not."""
        valid = [record["id"] for record in plan["inputs"] if record["valid"]]
        named = _expanded(self.inputs, valid)
        if self.unfit == "drops":
            return tuple(name for name in named if name not in _not_finite(plan))
        if self.unfit == "runs":
            return tuple(name for name in named if name not in _refused(plan))
        return named

    def unfit_in(self, plan: Mapping[str, Any]) -> tuple[str, ...]:
        """Inputs that the gate refused and correct kernels are judged on all the same."""
        if self.unfit != "runs":
            return ()
        run = [record["id"] for record in judging_correct(plan)]
        return tuple(name for name in _expanded(self.inputs, run) if name in run)

    def unrun_in(self, plan: Mapping[str, Any]) -> tuple[str, ...]:
        """Planned inputs that it would run on, but on which correct kernels could not be run."""
        if self.unfit != "runs":
            return ()
        judges = {record["id"] for record in judging_correct(plan)}
        return tuple(n for n in self.inputs if n in _refused(plan) and n not in judges)

    def missing_in(self, plan: Mapping[str, Any]) -> tuple[str, ...]:
        """The inputs it needs and a planned problem does not have; all of them if none is left."""
        valid = {record["id"] for record in plan["inputs"] if record["valid"]}
        needed = self.inputs_in(plan)
        if not needed:
            return () if self.unfit_in(plan) else self.inputs
        return tuple(name for name in needed if name not in valid)

    def rule(self, dtype: str) -> AcceptanceRule:
        """The acceptance rule for an output dtype."""
        return self.rules.get(dtype, self.default)

    def rule_for(self, dtypes: Iterable[str]) -> AcceptanceRule:
        """The widest of the rules for outputs of these dtypes; the default for none."""
        rules = [self.rule(dtype) for dtype in dtypes]
        return max(rules, key=lambda rule: rule.tolerance, default=self.default)

    def rule_in(self, plan: Mapping[str, Any]) -> AcceptanceRule:
        """The rule for the outputs of a planned problem, which tells the narrow ones."""
        return self.rule_for(plan.get("narrow_outputs", ()))


def is_glob(name: str) -> bool:
    """Whether an input's name is a pattern."""
    return any(character in name for character in "*?[")


def _expanded(names: Iterable[str], among: Sequence[str]) -> tuple[str, ...]:
    """Each name once; for a glob those that it matches, in their order."""
    found: dict[str, None] = {}
    for name in names:
        matching = [one for one in among if fnmatch.fnmatchcase(one, name)]
        found |= dict.fromkeys(matching if is_glob(name) else [name])
    return tuple(found)


def _refused(plan: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(record["id"] for record in plan["inputs"] if not record["valid"])


def _not_finite(plan: Mapping[str, Any]) -> frozenset[str]:
    """The inputs that ran on the references and are not finite there."""
    return frozenset(
        record["id"]
        for record in plan["inputs"]
        if not record["valid"] and record["digest"] and record["reference_error"] is None
    )
