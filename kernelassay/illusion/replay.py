"""Running a replay bundle again: inputs, output bytes and verdict must be the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kernelassay.execute.execution import Bench
from kernelassay.illusion.bundle import Bundle, about, plain
from kernelassay.illusion.trial import Trial
from kernelassay.oracle import output_digest


@dataclass(frozen=True, slots=True)
class Replayed:
    """A bundle and what came of it again.

    ``compared`` names what had to be equal of ``inputs``, ``bytes`` and ``verdict``, and
    ``differences`` what is not. ``trial`` is ``None`` if the inputs differ: nothing was run then.
    """

    bundle: Bundle
    device: str
    compared: tuple[str, ...]
    differences: tuple[str, ...]
    trial: Trial | None
    wrong: str

    @property
    def unchecked(self) -> str:
        """Why the output's bytes are not compared; "" if they are."""
        if "bytes" in self.compared:
            return ""
        if self.device != self.bundle.device:
            return f"it failed on {self.bundle.device} and runs on {self.device}"
        return "they may differ from one execution to the next"

    @property
    def moved(self) -> dict[str, tuple[str, str]]:
        """Versions, and the machine, that were others then: then and now."""
        now, then = about(), self.bundle.about
        return {
            name: (then.get(name, "none"), now.get(name, "none"))
            for name in sorted({*then, *now})
            if then.get(name, "none") != now.get(name, "none")
        }

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        bundle, trial = self.bundle, self.trial
        verdict = None if trial is None else _seen(trial, bundle)
        again = trial and {
            "outcome": trial.execution.outcome,
            "detail": trial.execution.detail or trial.judged.detail,
            "failure": trial.failure,
            "output_digest": trial.judged.output_digest,
            "verdict": verdict,
        }
        data = {
            "kernel": bundle.kernel,
            "language": bundle.language,
            "case": bundle.case.record(),
            "explicit": bundle.explicit,
            "device": self.device,
            "expected": asdict(bundle.expected),
            "again": again,
            "compared": list(self.compared),
            "differences": list(self.differences),
            "wrong": self.wrong,
            "moved": {name: list(pair) for name, pair in self.moved.items()},
        }
        made: dict[str, Any] = plain(data)
        return made

    def describe(self) -> str:
        """A few lines for a terminal."""
        bundle, trial, expected = self.bundle, self.trial, self.bundle.expected
        inputs = "stored elements, " if bundle.explicit else ""
        lines = [
            f"{bundle.kernel}  ({bundle.language} on {self.device})",
            f"case: {inputs}{bundle.case.in_words()}",
            f"then: {_said(expected.failure, expected.outcome)}"
            f"   output digest: {expected.output_digest or '-'}",
        ]
        if trial is None:
            lines.append("now: not run, since the inputs are not the same")
        else:
            lines.append(
                f"now:  {_said(trial.failure, trial.execution.outcome)}"
                f"   output digest: {trial.judged.output_digest or '-'}"
            )
        if self.wrong:
            lines.append(f"wrong: {self.wrong}")
        if self.unchecked:
            lines.append(f"the output's bytes are not compared: {self.unchecked}")
        lines += [f"{name}: {then} then, {now} now" for name, (then, now) in self.moved.items()]
        if self.differences:
            return "\n".join([*lines, f"replay: DIFFERS in {', '.join(self.differences)}"])
        return "\n".join([*lines, f"replay: the same {', '.join(self.compared)}"])


def replay(bundle: Bundle, bench: Bench, device: str | None = None) -> Replayed:
    """Execute a bundle's kernel on its inputs once more and judge it by the bundle's own rule.

    ``device`` is what ``bench`` runs on, by default the bundle's. On another device, and where the
    output was not deterministic, bytes may differ: then the verdict alone is compared, which is
    why the kernel fails and how its run ended.
    """
    used = device or bundle.device
    asserts_bytes = bundle.expected.deterministic and used == bundle.device
    compared = ("inputs", "bytes", "verdict") if asserts_bytes else ("inputs", "verdict")
    arrays = bundle.inputs()
    if output_digest(arrays) != bundle.inputs_digest:
        return Replayed(bundle, used, compared, ("inputs",), None, "")
    examiner, expected = bundle.examiner, bundle.expected
    trial = examiner.run(bench, bundle.case, arrays)
    same = {
        "inputs": True,
        "bytes": trial.judged.output_digest == expected.output_digest,
        "verdict": trial.kind == (expected.failure, expected.outcome),
    }
    differences = tuple(name for name in compared if not same[name])
    return Replayed(bundle, used, compared, differences, trial, examiner.wrong(trial))


def _seen(trial: Trial, bundle: Bundle) -> dict[str, Any] | None:
    verdict = bundle.rule.looks_at(trial.judged)
    return None if verdict is None else asdict(verdict)


def _said(failure: str, outcome: str) -> str:
    if not failure:
        return "passes"
    return f"fails by {failure}" + (f" ({outcome})" if failure == "outcome" else "")
