"""What a checking protocol is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelassay.oracle import AcceptanceRule


@dataclass(frozen=True, slots=True)
class Protocol:
    """Inputs plus acceptance rule: what decides "correct".

    ``inputs`` names the input ids it draws, in the order it runs them. ``rules`` maps the dtype
    of the output to the acceptance rule; ``default`` serves the dtypes not listed. ``view`` is
    ``"seen"`` if unwritten memory looks like zero to the checker, ``"poisoned"`` if it poisons
    outputs first. No protocol sees sanitizer findings. Its verdict on a candidate that crashes or
    hangs is "rejected".
    """

    name: str
    what: str
    source: str
    inputs: tuple[str, ...]
    default: AcceptanceRule
    rules: Mapping[str, AcceptanceRule]
    view: str = "seen"

    def rule(self, dtype: str) -> AcceptanceRule:
        """The acceptance rule for an output dtype."""
        return self.rules.get(dtype, self.default)

    def rule_for(self, dtypes: Iterable[str]) -> AcceptanceRule:
        """The widest of the rules for outputs of these dtypes; the default for none."""
        rules = [self.rule(dtype) for dtype in dtypes]
        return max(rules, key=lambda rule: rule.tolerance, default=self.default)
