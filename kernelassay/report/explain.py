"""What ``kernelassay explain`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from kernelassay.analysis.explain import (
    ACCEPTED,
    BEYOND,
    Explanation,
    Killer,
    ProtocolVerdict,
)
from kernelassay.analysis.mechanism import LOST, OPEN, REJECTED, UNTOLD
from kernelassay.analysis.verdicts import ROWS_HINT

WITNESSED = ("witnessed", "witnessed_by_stop")


def print_explanation(console: Console, result: Explanation) -> None:
    """The mutant, its diff, what each protocol makes of it, and what kills it."""
    for line in _head(result):
        console.print(line, soft_wrap=True)
    if console.is_terminal:
        console.print(Syntax(result.diff, "diff"))
    else:
        console.print(result.diff, soft_wrap=True, end="")
    for line in (*_place(result), *(f for v in result.protocols for f in _verdict(result, v))):
        console.print(line, soft_wrap=True)
    for name, missing in result.not_held.items():
        console.print(f"{name}: the session has no input {', '.join(missing)}", soft_wrap=True)
    if result.killers:
        console.print(_killers(result))
    for flag in result.flags:
        where = f"{flag.inputs} of {result.ran} inputs, first {flag.first}"
        console.print(f"finding {flag.kind} on {where}: {flag.detail}", soft_wrap=True)


def _head(result: Explanation) -> Iterator[str]:
    yield (
        f"mutant {result.id} of {result.problem}: call {result.call} ({result.template}),"
        f" style {result.style}, line {result.line}"
    )
    yield f"rule {result.rule} ({result.family}): {result.what or 'not in this catalogue'}"
    if result.bug:
        yield f"stands for: {result.bug}"


def _place(result: Explanation) -> Iterator[str]:
    """Its bucket, with the evidence."""
    bucket = result.bucket.replace("_", " ")
    if not result.valid:
        yield f"bucket: {bucket}; it was not run"
        if result.bucket == "equivalent":
            yield "same image as the original"
        if result.twin:
            yield f"same image as {result.twin}: explain that one"
        if result.reason:
            yield f"reason: {result.reason}"
    else:
        counts = f"{result.valid} valid inputs: {result.ran} ran"
        counts += f", {result.implied} implied" if result.implied else ""
        counts += f", {result.lost} lost" if result.lost else ""
        yield f"bucket: {bucket} at {result.tolerance:g}"
        yield f"{counts}; kill witnesses: {len(result.killers)} of the {result.ran} that ran"
        if result.bucket == OPEN:
            yield f"nothing measured proves it wrong, and not all was measured; {ROWS_HINT}"
        if result.bucket == "flagged_only":
            yield "no input proves its output wrong; only the sanitizer saw it"
    if result.duplicates:
        yield f"{len(result.duplicates)} duplicates of it: {', '.join(result.duplicates)}"


def _verdict(result: Explanation, verdict: ProtocolVerdict) -> Iterator[str]:
    yield f"{verdict.protocol} (tolerance {verdict.tolerance:g}): {_said(result, verdict)}"
    width = max(len(judged.input) for judged in verdict.inputs)
    for judged in verdict.inputs:
        detail = f": {judged.detail}" if judged.detail else ""
        yield f"  {judged.input:{width}}  margin {_number(judged.margin):>8}  {judged.how}{detail}"
    best = verdict.cheapest
    if best is not None:
        how = f"margin {_number(best.margin)}" if best.how == BEYOND else best.how
        costs = f"{best.elements} elements, {how}"
        yield f"  cheapest input to add: {best.input} ({costs}): {best.why}"
    elif verdict.verdict == ACCEPTED and result.bucket in WITNESSED:
        yield "  no input of the session that proves it wrong would make this rule reject it"


def _said(result: Explanation, verdict: ProtocolVerdict) -> str:
    proven = result.bucket in WITNESSED
    said = {
        REJECTED: f"{'detected' if proven else 'rejected, though not proven wrong'},"
        f" first on {verdict.first}",
        ACCEPTED: f"{'missed' if proven else 'accepted, and not proven wrong'}: {verdict.reason}",
        OPEN: "open: cells that decide it were not measured",
        LOST: "not scored: an infrastructure error cost a cell that decides it",
        UNTOLD: "not scored: what is kept of an output does not decide this rule",
    }[verdict.verdict]
    aside = "; not counted: it rejects this style's correct kernel, too"
    return said + (aside if verdict.set_aside else "")


def _killers(result: Explanation) -> Table:
    count = f"{len(result.killers)} of {result.ran}"
    table = Table(title=f"Inputs that kill it ({count} that ran)", title_justify="left")
    table.add_column("input", overflow="fold")
    table.add_column("group")
    seen = _margins(result)
    margins = (
        f"over {result.tolerance:g}",
        *(f"seen, over {tolerance:g}" for tolerance, _ in seen),
    )
    for column in ("elements", "float64 error", *margins):
        table.add_column(column, justify="right")
    for row, killer in enumerate(result.killers):
        table.add_row(
            killer.input,
            killer.group,
            str(killer.elements),
            _error(killer),
            *map(_number, (killer.margin, *(column[row] for _, column in seen))),
        )
    return table


def _margins(result: Explanation) -> list[tuple[float, tuple[float | None, ...]]]:
    """The tolerances of the protocols with the margins over them, each once."""
    columns = (
        (verdict.tolerance, tuple(k.margins[verdict.protocol] for k in result.killers))
        for verdict in result.protocols
    )
    return list(dict.fromkeys(columns))


def _error(killer: Killer) -> str:
    if killer.critical_tolerance is None:
        return killer.how
    error = f"{killer.critical_tolerance:.3g}"
    if killer.unwritten:
        return f"{error}, {killer.unwritten} unwritten"
    return error if killer.how == BEYOND else f"{error}, {killer.how}"


def _number(margin: float | None) -> str:
    return "-" if margin is None else f"{margin:.3g}"
