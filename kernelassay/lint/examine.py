"""The checks on one problem. EXECUTES problem code: in a worker only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from kernelassay.errors import LimitError, ProblemError, UnsupportedError
from kernelassay.lint.alarm import Alarm, OutOfTime
from kernelassay.lint.bench import Bench
from kernelassay.lint.distance import Distance, count_underflown, distance, value_range
from kernelassay.lint.finding import Finding, Number, Options, Report, Severity, Skipped
from kernelassay.lint.identity import IdentityMode
from kernelassay.lint.influence import Influence, spread
from kernelassay.problem import Problem, load
from kernelassay.protocols import CURRENT, V01

ALARM_SHARE = 0.8
"""At this share of the time limit the check under way is broken off, and the findings handed in."""


def examine(problem: Problem, options: Options, note: str = "") -> Report:
    """Lint one problem at its (perhaps shrunk) sizes.

    Raises ``MemoryError`` or ``LimitError`` when not even one forward pass stays within the limits.
    """
    report = Report(problem.id, problem.digest, shrunk=problem.shrunk, note=note)
    alarm = Alarm(ALARM_SHARE * options.seconds)
    kind = "not-loadable"
    try:
        with alarm.armed():
            bench = Bench(load(problem), options.device)
            kind = "reference-raises"
            output = bench.output(bench.first)
    except ProblemError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            return replace(report, unjudged=f"a module is missing: {error.__cause__}")
        return replace(report, findings=(Finding(kind, "fatal", str(error)),))
    except UnsupportedError as error:  # several outputs, an empty one, complex numbers
        return replace(report, findings=(Finding("unfit-output", "fatal", error.what),))
    except OutOfTime:
        what = f"one forward pass did not end within {ALARM_SHARE * options.seconds:g} s"
        raise LimitError(what, where=problem.id) from None
    except MemoryError:
        raise
    except Exception as error:  # a module that cannot be moved, cast or given its own state
        return replace(report, unjudged=_first_line(error))
    examination = _Examination(bench, output, alarm)
    examination.run()
    seen = examination.inputs or examination.findings
    return replace(
        report,
        unjudged="" if seen else f"not one input was judged: {examination.skipped[0].reason}",
        findings=tuple(examination.findings),
        skipped=tuple(examination.skipped),
        inputs=examination.inputs,
    )


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


@dataclass(slots=True)
class _Tally:
    """What the official inputs showed together."""

    count: int = 0
    nan: int = 0
    inf: int = 0
    underflown: int = 0
    shortcuts: dict[str, float] = field(default_factory=dict)
    precision: list[Distance] = field(default_factory=list)

    def add_shortcut(self, name: str, candidate: torch.Tensor, output: torch.Tensor) -> None:
        critical = distance(candidate.expand_as(output), output).critical
        self.shortcuts[name] = max(self.shortcuts.get(name, 0.0), critical)


@dataclass(slots=True)
class _Examination:
    bench: Bench
    output: torch.Tensor
    alarm: Alarm
    tally: _Tally = field(default_factory=_Tally)
    exact: torch.Tensor | None = None
    inputs: int = 0
    is_random: bool = False
    ignores_inputs: bool = False
    findings: list[Finding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def tolerances(self) -> tuple[float, ...]:
        """The tolerances for this output of the official checks, largest first."""
        dtype = str(self.output.dtype).removeprefix("torch.")
        return tuple(sorted({p.rule(dtype).tolerance for p in (V01, CURRENT)}, reverse=True))

    def run(self) -> None:
        if not self.output.numel() or self.output.is_complex():
            what = "empty" if not self.output.numel() else f"of dtype {self.output.dtype}"
            self._find("unfit-output", "fatal", f"the output is {what}")
            return
        self._attempt("float64 reference", self._exact_output)
        for name, check in (
            ("unfit-output", self._whole_numbers),
            ("the first official input", partial(self._judge, 0)),
            ("random-output", self._randomness),
            ("constant-output of inputs", self._input_influence),
            ("the other official inputs", self._other_inputs),
            ("constant-output of parameters", self._parameter_influence),
            ("identity-parameter", self._identities),
        ):
            self._attempt(name, check)
        # Also after an interruption: what the inputs before it showed counts.
        if not self.inputs:
            return
        self._report_nonfinite(self.tally)
        self._report_shortcuts(self.tally)
        if self.is_random:
            self._skip("imprecise-reference", "the output is random")
        else:
            self._report_precision(self.tally)

    # ---- bookkeeping ---------------------------------------------------------------------------

    def _attempt(self, name: str, check: Callable[[], None]) -> None:
        if self.alarm.rung:
            self._skip(name, "no time was left")
            return
        try:
            with self.alarm.armed():
                check()
        except OutOfTime:
            self._skip(name, "broken off: no time was left")
        except ProblemError as error:
            self._skip(name, error.what)
        except MemoryError:
            self._skip(name, "it does not fit into memory")
        except Exception as error:  # an output of a layout or dtype that torch cannot compare
            self._skip(name, _first_line(error))

    def _skip(self, check: str, reason: str) -> None:
        self.skipped.append(Skipped(check, reason))

    def _find(self, kind: str, severity: Severity, what: str, **numbers: Number) -> None:
        self.findings.append(Finding(kind, severity, what, numbers))

    def _severity(self, affected: Sequence[float]) -> Severity:
        return "fatal" if len(affected) == len(self.tolerances) else "weak"

    # ---- the checks ----------------------------------------------------------------------------

    def _exact_output(self) -> None:
        self.exact = self.bench.output(self.bench.first, torch.float64)

    def _whole_numbers(self) -> None:
        """Of integers, allclose accepts neighbours once they are large."""
        if self.output.is_floating_point():
            return
        size = self.output.to(torch.float64).abs()
        blind = [int((t * (1.0 + size) >= 1.0).sum()) for t in self.tolerances]
        shown = ", ".join(f"{n} at {t:g}" for n, t in zip(blind, self.tolerances, strict=True))
        self._find(
            "unfit-output",
            "weak",
            f"the output is {self.output.dtype}; elements whose neighbour passes: {shown}",
            elements=size.numel(),
            **{f"off_by_one_passes_at_{t:g}": n for n, t in zip(blind, self.tolerances)},  # noqa: B905
        )

    def _randomness(self) -> None:
        bench = self.bench
        model = bench.module()
        other = self._apart(bench.call(model, bench.first, seed=1))
        if other.largest > 0.0:
            self._report_randomness(other, self._apart(bench.output(bench.first)))
            return
        second = self._apart(bench.call(model, bench.first))
        affected = [t for t in self.tolerances if second.critical > t]
        if affected:
            self._find(
                "stateful-output",
                "weak",
                f"a second call differs at {second.past[-1]} of {second.count} elements, by up to"
                f" {second.largest:.3g}",
                **_numbers(second),
            )

    def _report_randomness(self, other: Distance, again: Distance) -> None:
        affected = [t for t in self.tolerances if other.critical > t]
        # A sum by atomics differs from run to run by rounding, whatever the random state.
        if again.largest > 0.0 and not affected:
            return
        self.is_random = True
        cause = "another random state" if again.largest == 0.0 else "a mere repetition"
        self._find(
            "random-output",
            self._severity(affected),
            f"{cause} moves {other.past[-1]} of {other.count} elements past"
            f" {self.tolerances[-1]:g}, by up to {other.largest:.3g}",
            **_numbers(other),
        )

    def _apart(self, output: torch.Tensor) -> Distance:
        if output.shape != self.output.shape:
            inf, count = float("inf"), self.output.numel()
            return Distance(inf, inf, (count,) * len(self.tolerances), count)
        return distance(output, self.output, self.tolerances, equal_nan=True)

    def _input_influence(self) -> None:
        variation = spread(self.output, self.exact)
        influence = Influence(self.bench, self.output, self.exact)
        other = self.bench.draw(1)
        tried, ignored = 0, []
        for index, value in enumerate(self.bench.first):
            if not isinstance(value, torch.Tensor) or value.shape != other[index].shape:
                continue
            if torch.equal(value, other[index]):
                self._find("fixed-input", "weak", f"input {index} is the same at every seed")
                continue
            inputs = [*self.bench.first]
            inputs[index] = other[index]
            tried += 1
            change = influence.of_inputs(inputs)
            if change.is_noise:
                ignored.append((index, change))
        self.ignores_inputs = bool(ignored) and len(ignored) == tried
        for index, change in ignored:
            self._find(
                "constant-output",
                "fatal" if self.ignores_inputs else "weak",
                f"another draw of input {index} changes the output by {_amount(change)}",
                input=index,
                **_variation_numbers(change),
            )
        if self.output.numel() > 1 and variation.is_noise:
            least, most = value_range(self.output)
            self._find(
                "constant-output",
                "fatal" if self.ignores_inputs else "weak",
                f"all {self.output.numel()} elements are {(least + most) / 2:.6g}; they differ by"
                f" {_amount(variation)}",
                value=(least + most) / 2,
                elements=self.output.numel(),
                **_variation_numbers(variation),
            )

    def _other_inputs(self) -> None:
        for index in range(1, len(self.bench.seeds)):
            self._judge(index)

    def _judge(self, index: int) -> None:
        inputs = self.bench.draw(index) if index else self.bench.first
        output = self.bench.output(inputs) if index else self.output
        if self.exact is not None and not self.is_random and output.is_floating_point():
            exact = self.bench.output(inputs, torch.float64) if index else self.exact
            self.tally.precision.append(distance(output, exact, self.tolerances, equal_nan=True))
            self.tally.underflown += count_underflown(output, exact)
        _count(self.tally, output)
        if output.shape == self.output.shape:
            self._shortcuts(self.tally, inputs, output, index)
        self.inputs += 1

    def _shortcuts(
        self,
        tally: _Tally,
        inputs: Sequence[Any],
        output: torch.Tensor,
        index: int,
    ) -> None:
        constant = torch.tensor(self._middle(), dtype=torch.float64, device=output.device)
        tally.add_shortcut("zeros", torch.zeros_like(constant), output)
        tally.add_shortcut("constant", constant, output)
        if index:
            tally.add_shortcut("replay", self.output, output)
        for position, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and value.shape == output.shape:
                tally.add_shortcut(f"copy {position}", value, output)

    def _middle(self) -> float:
        """The constant nearest to the first output."""
        least, most = value_range(self.output)
        return (least + most) / 2

    def _report_nonfinite(self, tally: _Tally) -> None:
        if tally.nan or tally.inf:
            # allclose accepts no NaN, but equal infinities.
            fatal = tally.nan or tally.inf == tally.count
            self._find(
                "nonfinite-reference",
                "fatal" if fatal else "weak",
                f"{tally.nan} NaN and {tally.inf} infinite of {tally.count} elements",
                nan=tally.nan,
                inf=tally.inf,
                elements=tally.count,
            )

    def _report_shortcuts(self, tally: _Tally) -> None:
        texts = {
            "zeros": ("zeros-pass", "an output of zeros"),
            "constant": ("constant-passes", f"the constant {self._middle():.6g} everywhere"),
            "replay": ("replay-passes", "the output for the first official input"),
        }
        simpler = 0  # tolerances at which a simpler output passes
        for name in sorted(tally.shortcuts, key=[*texts, *tally.shortcuts].index):
            critical = tally.shortcuts[name]
            passed = [t for t in self.tolerances if critical <= t]
            implied = name in texts and len(passed) <= simpler
            if not passed or implied or (name == "replay" and self.ignores_inputs):
                continue
            simpler = max(simpler, len(passed))
            kind, text = texts.get(
                name, ("copy-passes", f"a {name.replace('copy', 'copy of input')}")
            )
            numbers: dict[str, Number] = {"critical_tolerance": critical}
            if name.startswith("copy"):
                numbers["input"] = int(name.split()[1])
            self._find(
                kind,
                self._severity(passed),
                f"{text} passes at {_listed(passed)} (critical tolerance {critical:.3g})",
                **numbers,
            )

    def _report_precision(self, tally: _Tally) -> None:
        if not tally.precision:
            return
        critical = max(d.critical for d in tally.precision)
        affected = [t for t in self.tolerances if critical > t]
        if affected:
            past = [sum(d.past[i] for d in tally.precision) for i in range(len(self.tolerances))]
            largest = max(d.largest for d in tally.precision)
            shown = ", ".join(f"{n} past {t:g}" for n, t in zip(past, self.tolerances))  # noqa: B905
            self._find(
                "imprecise-reference",
                self._severity(affected),
                f"of {tally.count} elements, {shown}; off by up to {largest:.3g} (critical"
                f" tolerance {critical:.3g})",
                critical_tolerance=critical,
                largest=largest,
                elements=tally.count,
                **{f"past_{t:g}": n for n, t in zip(past, self.tolerances)},  # noqa: B905
            )
        if 2 * tally.underflown >= tally.count:
            self._find(
                "underflow",
                "fatal" if tally.underflown == tally.count else "weak",
                f"{tally.underflown} of {tally.count} elements underflow in float32",
                underflown=tally.underflown,
                elements=tally.count,
            )

    def _parameter_influence(self) -> None:
        if self.ignores_inputs and spread(self.output, self.exact).is_noise:
            return  # a constant throughout: that is said already
        influence = Influence(self.bench, self.output, self.exact)
        for name in influence.suspects():
            change = influence.of_parameter(name)
            if change.is_noise:
                self._find(
                    "constant-output",
                    "weak",
                    f"other values of {name} change the output by {_amount(change)}",
                    parameter=name,
                    **_variation_numbers(change),
                )

    def _identities(self) -> None:
        known = {f.numbers.get("parameter") for f in self.findings if f.kind == "constant-output"}
        model = self.bench.module()
        mode = IdentityMode(model)
        self.bench.call(model, self.bench.first, mode=mode)
        for name, value in mode.invisible.items():
            if name not in known:
                self._find(
                    "identity-parameter",
                    "weak",
                    f"{name} is {value:g} throughout; leaving it out changes no bit",
                    parameter=name,
                    value=value,
                )


def _count(tally: _Tally, output: torch.Tensor) -> None:
    tally.count += output.numel()
    if output.is_floating_point():
        tally.nan += int(torch.isnan(output).sum())
        tally.inf += int(torch.isinf(output).sum())


def _numbers(apart: Distance) -> dict[str, Number]:
    return {
        "critical_tolerance": apart.critical,
        "largest": apart.largest,
        "past": apart.past[-1],
        "elements": apart.count,
    }


def _variation_numbers(variation: Any) -> dict[str, Number]:
    numbers: dict[str, Number] = {"variation_float32": variation.single}
    if variation.exact is not None:
        numbers["variation_float64"] = variation.exact
    return numbers


def _amount(variation: Any) -> str:
    if variation.single == 0.0:
        return "nothing"
    return f"rounding only ({variation.single:.2g} in float32, {variation.exact:.2g} in float64)"


def _listed(tolerances: Sequence[float]) -> str:
    return " and ".join(f"{t:g}" for t in tolerances)
