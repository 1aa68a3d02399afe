"""Terminal tables. Every share shows its count and its total."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from kernelassay.analysis.audit import OTHER_TOLERANCES, AuditResult
from kernelassay.analysis.mechanism import MECHANISMS, OPEN, Tally
from kernelassay.analysis.score import Buckets, ProtocolScore, Share
from kernelassay.protocols import V01

TAIL = 8


def percent(share: Share) -> str:
    """``83.1% (1248/1502)``."""
    if share.rate is None:
        return "- (0/0)"
    return f"{100 * share.rate:.1f}% ({share.count}/{share.total})"


def missed(share: Share) -> Share:
    """The complement of a detected share."""
    return Share(share.total - share.count, share.total)


def print_audit(console: Console, result: AuditResult) -> None:
    """All tables of an audit."""
    shapes = "official shapes" if result.official_shapes else "NOT the official shapes (shrunk)"
    if result.unfinished:
        console.print(f"PARTIAL: {len(result.unfinished)} problems are not finished and left out")
    implied = f" measured, {result.implied} implied" if result.implied else ""
    console.print(
        f"{result.problems} problems admitted, {len(result.refused)} not; {shapes};"
        f" {result.inputs} valid inputs, {result.cells} cells{implied};"
        f" identity by {result.manifest['identity']}"
    )
    for line in dict.fromkeys(map(_measured_on, (result.manifest, *result.joined))):
        console.print(line, markup=False)
    if result.sample.count < result.sample.total:
        console.print(
            f"sample of {result.sample.count} of {result.sample.total} generated mutants:"
            f" at most {result.manifest['sample']} per problem"
        )
    if result.manifest.get("kernelbench_commit"):
        commit = result.manifest["kernelbench_commit"]
        console.print(f"problems from a KernelBench checkout at {commit}")
    _accounts(console, result)
    _protocols(console, result)
    _common(console, result)
    _families(console, result)
    print_mechanisms(console, result)
    _styles(console, result)
    for score in result.scores:
        _problems(console, score)
    _notes(console, result)


def _measured_on(manifest: Mapping[str, Any]) -> str:
    facts = manifest["machine"]
    machines = Counter(
        f"{m['cpu']}, {m['cores']} cores, {m['system']}" for m in facts.get("nodes", [facts])
    )
    where = "; ".join(f"{n} nodes of {m}" if "nodes" in facts else m for m, n in machines.items())
    nvrtc = f" NVRTC {manifest['nvrtc']}," if manifest.get("nvrtc") else ""
    return (
        f"measured on {where}; torch {manifest['torch']},{nvrtc} {manifest['compiler']},"
        f" kernelassay {manifest['version']}"
    )


def _accounts(console: Console, result: AuditResult) -> None:
    title = f"Mutants; witnesses count at {result.tolerance:g}"
    table = Table(title=title, title_justify="left")
    for column in (
        "family",
        "generated",
        "stillborn",
        "equivalent",
        "duplicate",
        "distinct",
        "witnessed",
        "by crash or hang",
        "flagged only",
        "unobserved",
        "never infected",
        "unmeasured",
    ):
        table.add_column(column, justify="left" if column == "family" else "right")
    for family, account in result.account_by_family.items():
        table.add_row(family, *_account_cells(account))
    table.add_section()
    table.add_row("all", *_account_cells(result.account))
    console.print(table)
    for entry in result.denominators:
        account = entry.account
        if entry.tolerance is None:
            where = "at the tightest tolerance of each input that every correct kernel passes"
        else:
            where = f"at {entry.tolerance:g}"
        by_output = Share(account.witnessed, account.distinct)
        console.print(
            f"witnessed {where}: {percent(by_output)} of the distinct by output,"
            f" {account.witnessed_by_stop} more by a crash or a hang; the rest:"
            f" {account.flagged_only} flagged, {account.never_infected} never infected,"
            f" {account.unobserved - account.never_infected} infected within tolerance,"
            f" {account.unmeasured} unmeasured ({entry.valid_inputs} inputs valid there)"
        )

    if result.implied:
        unsettled = len(OTHER_TOLERANCES) - len(result.denominators)
        left = f"; implied cells leave {unsettled} other tolerances open" if unsettled else ""
        console.print(
            "measured lazily: a mutant that stopped was not tried further, so it is not"
            f" known whether its output is wrong, too{left}"
        )


def _account_cells(account: Buckets) -> tuple[str, ...]:
    a = account
    values = (
        a.generated,
        a.stillborn,
        a.equivalent,
        a.duplicate,
        a.distinct,
        a.witnessed,
        a.witnessed_by_stop,
        a.flagged_only,
        a.unobserved,
        a.never_infected,
        a.unmeasured,
    )
    return tuple(str(value) for value in values)


def _protocols(console: Console, result: AuditResult) -> None:
    table = Table(title="Protocols: detection and false rejection", title_justify="left")
    for column in (
        "protocol",
        "inputs",
        "detected",
        "missed",
        "90% band of missed (all problems)",
        "90% band at 10 problems",
        "correct kernels rejected",
    ):
        table.add_column(column)
    for score in result.scores:
        table.add_row(
            score.protocol,
            str(score.inputs),
            percent(score.detection),
            percent(missed(score.detection)),
            _band(score.band_full),
            _band(score.band_ten),
            percent(score.false_rejection),
        )
    console.print(table)


def _common(console: Console, result: AuditResult) -> None:
    """Protocols on the candidates that all are scored on; needless where these are the same."""
    common = result.common
    if common is None or not common.narrows(result.scores):
        return
    title = f"On one denominator: {common.problems} problems that all protocols are scored on"
    table = Table(title=title, title_justify="left")
    for column in ("protocol", "detected", "90% band of missed", "variants rejected", "originals"):
        table.add_column(column)
    for name, score in common.scores.items():
        table.add_row(
            name,
            percent(score.detection),
            _band(score.band),
            percent(score.false_rejection),
            percent(score.originals),
        )
    console.print(table)
    if common.left_out:
        console.print(
            f"not in it: {common.left_out} more witnessed mutants of these problems, which some"
            " protocol is not scored on"
        )


def _band(band: tuple[float, float] | None) -> str:
    return "-" if band is None else f"[{100 * band[0]:.1f}, {100 * band[1]:.1f}]%"


def _families(console: Console, result: AuditResult) -> None:
    table = Table(title="Detected share of witnessed mutants by family", title_justify="left")
    table.add_column("protocol")
    families = list(result.scores[0].by_family) if result.scores else []
    for family in families:
        table.add_column(family, justify="right")
    for score in result.scores:
        table.add_row(score.protocol, *(percent(score.by_family[name]) for name in families))
    console.print(table)


def print_mechanisms(console: Console, result: AuditResult) -> None:
    """Why survivors survive: under each protocol, then by family under the official check."""
    if not result.scores:
        return
    totals = {name: survival.all for name, survival in result.mechanisms.items()}
    console.print(_tallies("protocol", totals, "Why survivors survive"))
    official = V01.name if V01.name in totals else next(iter(totals))
    families = result.mechanisms[official].by_family
    console.print(_tallies("family", families, f"Why survivors of {official} survive"))


def _tallies(first: str, tallies: Mapping[str, Tally], title: str) -> Table:
    """A row per tally: its survivors, and the shares of them by mechanism."""
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    table.add_column("survivors", justify="right")
    opened = any(tally.open.count for tally in tallies.values())
    names = (*MECHANISMS, OPEN) if opened else MECHANISMS
    for name in names:
        table.add_column(name, justify="right")
    for label, tally in tallies.items():
        shares = (percent(tally.mechanisms[name]) for name in names)
        table.add_row(label, str(tally.survivors), *shares)
    return table


def _styles(console: Console, result: AuditResult) -> None:
    """Mutants by the style of the kernel they were made of; one style needs no table."""
    if len(result.account_by_style) < 2:
        return
    table = Table(title="Mutants by style of the kernel", title_justify="left")
    for column in ("style", "generated", "distinct", "witnessed"):
        table.add_column(column, justify="left" if column == "style" else "right")
    for score in result.scores:
        table.add_column(f"detected by {score.protocol}", justify="right")
    for style, account in result.account_by_style.items():
        proven = account.witnessed + account.witnessed_by_stop
        counts = (str(n) for n in (account.generated, account.distinct, proven))
        shares = (percent(s.by_style.get(style, Share(0, 0))) for s in result.scores)
        table.add_row(style, *counts, *shares)
    console.print(table)


def _left_out(score: ProtocolScore) -> Iterator[str]:
    """What a protocol does that its shares do not show."""
    name = score.protocol
    if score.originals.count:
        yield (
            f"{name} rejects {percent(score.originals)} of the correct kernels under mutation: of"
            " these it detects mutants whatever their fault, if it does so on a valid input"
        )
    if score.correct_left_out:
        yield (
            f"{name} may reject {score.correct_left_out} more correct kernels, which no share has:"
            " an infrastructure error cost a cell of theirs, or what is kept of an output does not"
            " decide its rule"
        )
    for control, count in score.wrong_accepted.items():
        yield f"{name} accepts {control} on {count} problems"
    if score.unfit_inputs:
        yield (
            f"{name} also judges correct kernels on {score.unfit_inputs} inputs that the validity"
            " gate refuses, and no mutants: what it detects on the others is a lower bound"
        )
    if score.unrun_inputs:
        yield f"{name} goes without {score.unrun_inputs} inputs that could not be run"
    if score.set_aside:
        yield (
            f"{name} rejects correct kernels of 16-bit styles; {score.set_aside} witnessed mutants"
            " of theirs are not scored by it"
        )
    if score.lost:
        yield (
            f"{score.lost} witnessed mutants are not scored by {name}: an infrastructure error cost"
            " a cell of theirs, or what is kept of an output does not decide its rule"
        )


def _problems(console: Console, score: ProtocolScore) -> None:
    shares = {name: missed(share) for name, share in score.by_problem.items() if share.total}
    rates = sorted(share.rate or 0.0 for share in shares.values())
    if not rates:
        return
    median = statistics.median(rates)
    table = Table(
        title=f"{score.protocol}: missed by problem; median {100 * median:.1f}%, tail",
        title_justify="left",
    )
    table.add_column("problem")
    table.add_column("missed", justify="right")
    worst = sorted(shares.items(), key=lambda item: (-(item[1].rate or 0.0), item[0]))
    for name, share in worst[:TAIL]:
        table.add_row(name, percent(share))
    console.print(table)


def _notes(console: Console, result: AuditResult) -> None:
    for score in result.scores:
        for line in _left_out(score):
            console.print(f"note: {line}")
    for protocol, found in result.vacuous.items():
        for problem, what in found.items():
            console.print(f"note: {problem}: {', '.join(what)} pass {protocol}")
    for name, problems in result.aside.items():
        first, why = next(iter(problems.items()))
        more = f", and {len(problems) - 1} more (--json lists them)" if len(problems) > 1 else ""
        console.print(
            f"note: {name} is scored on {result.problems - len(problems)} of {result.problems}"
            f" problems, not on {first}: {why}{more}",
            markup=False,
        )
    for name, where in result.not_scored.items():
        console.print(f"not scored: {name}: {where}", markup=False)
    for problem, reason in result.refused.items():
        console.print(f"not admitted: {problem}: {reason}", markup=False)
    for where, reason in result.styles_not_admitted.items():
        console.print(f"style not admitted: {where}: {reason}", markup=False)
    rejected = sum(len(reasons) for reasons in result.invalid_inputs.values())
    if rejected:
        console.print(f"inputs rejected by the validity gate: {rejected} (--json lists them)")
    console.print(
        f"dropped barriers flagged: {percent(result.dropped_barriers)};"
        f" findings on correct kernels: {percent(result.false_findings)} of their cells"
    )
    if result.findings:
        console.print(f"sanitizer findings, mutants by kind: {_counts(result.findings)}")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
