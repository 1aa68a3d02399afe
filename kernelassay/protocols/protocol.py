"""What a checking protocol is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelassay.oracle import AcceptanceRule


@dataclass(frozen=True, slots=True)
class Protocol:
    """Inputs plus acceptance rule: what decides "correct".

    ``inputs`` names the input ids it draws, in the order it runs them. ``rules`` maps the dtype
    of the output to the acceptance rule; ``default`` serves the dtypes not listed. ``view`` is
    ``"seen"`` if unwritten memory looks like zero to the checker, ``"poisoned"`` if it poisons
    outputs first. No protocol sees sanitizer findings. Its verdict on a candidate that crashes or
    hangs is "rejected". One that ``drops_unfit`` inputs goes without those on which the reference
    is not finite; others need all of theirs.
    """

    name: str
    what: str
    source: str
    inputs: tuple[str, ...]
    default: AcceptanceRule
    rules: Mapping[str, AcceptanceRule]
    view: str = "seen"
    drops_unfit: bool = False

    def inputs_in(self, plan: Mapping[str, Any]) -> tuple[str, ...]:
        """The inputs it judges by on a planned problem, in its order, whether planned or not."""
        if not self.drops_unfit:
            return self.inputs
        return tuple(name for name in self.inputs if name not in _not_finite(plan))

    def missing_in(self, plan: Mapping[str, Any]) -> tuple[str, ...]:
        """The inputs it needs and a planned problem does not have; all of them if none is left."""
        valid = {record["id"] for record in plan["inputs"] if record["valid"]}
        needed = self.inputs_in(plan)
        return tuple(name for name in needed if name not in valid) if needed else self.inputs

    def rule(self, dtype: str) -> AcceptanceRule:
        """The acceptance rule for an output dtype."""
        return self.rules.get(dtype, self.default)

    def rule_for(self, dtypes: Iterable[str]) -> AcceptanceRule:
        """The widest of the rules for outputs of these dtypes; the default for none."""
        rules = [self.rule(dtype) for dtype in dtypes]
        return max(rules, key=lambda rule: rule.tolerance, default=self.default)


def _not_finite(plan: Mapping[str, Any]) -> frozenset[str]:
    """The inputs that ran on the references and are not finite there."""
    return frozenset(
        record["id"]
        for record in plan["inputs"]
        if not record["valid"] and record["digest"] and record["reference_error"] is None
    )
