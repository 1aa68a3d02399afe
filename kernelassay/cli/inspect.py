"""``problems``, ``rules``, ``mutants`` and ``doctor``: looking before running."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.syntax import Syntax
from rich.table import Table

from kernelassay.cli.selection import (
    Selection,
    console,
    emit_json,
    json_option,
    kernel_option,
    problem_options,
    sample_option,
    selected_rules,
    style_option,
)
from kernelassay.errors import unknown_name


@click.command()
@problem_options
@click.option(
    "--session", type=click.Path(path_type=Path), help="Show admission as this session found it."
)
@json_option
def problems(
    names: tuple[str, ...],
    kernelbench: Path | None,
    level: int | None,
    files: tuple[Path, ...],
    session: Path | None,
    as_json: bool,
) -> None:
    """List problems and their sizes, or a session's problems with their admission."""
    if session is not None:
        _session_problems(session, as_json)
        return
    found = Selection(names, kernelbench, level, files).problems()
    if as_json:
        emit_json(
            "problems",
            [
                {"id": p.id, "level": p.level, "origin": p.origin, "digest": p.digest}
                | {"sizes": {lever.name: lever.value for lever in p.levers}}
                for p in found
            ],
        )
        return
    table = Table("problem", "level", "sizes", title=f"{len(found)} problems")
    for p in found:
        table.add_row(p.id, str(p.level), ", ".join(f"{v.name}={v.value}" for v in p.levers))
    console().print(table)


def _session_problems(root: Path, as_json: bool) -> None:
    from kernelassay.session import Session

    plans = Session.open(root).plans()
    rows = [
        {
            **plan["problem"],
            "refused": plan["refused"],
            "calls": [call["template"] for call in plan["calls"]],
            "styles": [call["styles"] for call in plan["calls"]],
            "inputs": len(plan["inputs"]),
            "valid_inputs": sum(record["valid"] for record in plan["inputs"]),
            "mutants": len(plan["mutants"]),
            "distinct": sum(m["status"] == "distinct" for m in plan["mutants"]),
        }
        for plan in plans
    ]
    if as_json:
        emit_json("session-problems", rows)
        return
    table = Table(
        "problem", "kernels (styles)", "valid inputs", "distinct mutants", "not admitted because"
    )
    for row in rows:
        valid = f"{row['valid_inputs']} of {row['inputs']}"
        counts = f"{row['distinct']} of {row['mutants']}"
        kernels = zip(row["calls"], row["styles"], strict=True)
        named = ", ".join(f"{call} ({', '.join(styles) or '-'})" for call, styles in kernels)
        table.add_row(row["id"], named, valid, counts, row["refused"])
    console().print(table)


@click.command()
@click.argument("patterns", nargs=-1, metavar="[RULE|FAMILY|GLOB]...")
@click.option(
    "--session",
    "sessions",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Add what each rule did in a run; may be repeated, for the sessions of one campaign.",
)
@click.option("--partial", is_flag=True, help="Count the finished problems of an unfinished run.")
@json_option
def rules(
    patterns: tuple[str, ...], sessions: tuple[Path, ...], partial: bool, as_json: bool
) -> None:
    """List mutation rules; with --session, which fire and which yield witnessed mutants."""
    chosen = selected_rules(patterns)
    coverage = _coverage(sessions, partial) if sessions else {}
    if as_json:
        emit_json("rules", [_rule_record(rule, coverage) for rule in chosen])
        return
    out = console()
    columns = ["rule", "family", "rewrites", "stands for"]
    table = Table(*columns, title=f"{len(chosen)} rules")
    if coverage:
        table = Table("rule", "family", "generated", "distinct", "witnessed", "styles")
    for rule in chosen:
        if coverage:
            c = coverage[rule.id]
            counts = (str(c.generated), str(c.distinct), str(c.witnessed))
            table.add_row(rule.id, rule.family, *counts, ", ".join(c.styles))
        else:
            table.add_row(rule.id, rule.family, rule.what, rule.bug)
    out.print(table)
    if coverage:
        silent = [rule.id for rule in chosen if not coverage[rule.id].generated]
        unproven = [
            rule.id
            for rule in chosen
            if coverage[rule.id].generated and not coverage[rule.id].witnessed
        ]
        out.print(f"never fired ({len(silent)}): {', '.join(silent) or 'none'}")
        out.print(f"never witnessed ({len(unproven)}): {', '.join(unproven) or 'none'}")


def _coverage(roots: Sequence[Path], partial: bool) -> dict[str, Any]:
    from kernelassay.analysis.audit import rule_coverage
    from kernelassay.analysis.score import mutant_facts
    from kernelassay.joined import JoinedSessions
    from kernelassay.matrix import load
    from kernelassay.session import Session

    session = JoinedSessions([Session.open(root) for root in roots])
    facts = mutant_facts(load(session, partial=partial), (), 1e-2)
    return {c.rule: c for c in rule_coverage(session.finished_plans(), facts)}


def _rule_record(rule: Any, coverage: dict[str, Any]) -> dict[str, Any]:
    record = {
        "id": rule.id,
        "family": rule.family,
        "language": "cuda",
        "what": rule.what,
        "bug": rule.bug,
        "examples": [{"before": e.before, "after": list(e.after)} for e in rule.examples],
    }
    if coverage:
        c = coverage[rule.id]
        record |= {"generated": c.generated, "distinct": c.distinct, "witnessed": c.witnessed}
        record["styles"] = list(c.styles)
    return record


@click.command()
@problem_options
@kernel_option
@click.option("--rules", "patterns", multiple=True, help="Rule id, glob or family.")
@sample_option
@style_option
@click.option("--show", metavar="ID", help="Print one mutant as a unified diff.")
@click.option("--source", is_flag=True, help="Print the kernel sources instead.")
@json_option
def mutants(
    names: tuple[str, ...],
    kernelbench: Path | None,
    level: int | None,
    files: tuple[Path, ...],
    kernel: Path | None,
    patterns: tuple[str, ...],
    sample: int | None,
    styles: tuple[str, ...],
    show: str | None,
    source: bool,
    as_json: bool,
) -> None:
    """List the mutants of problems, before any compilation."""
    from kernelassay.mutation import diff
    from kernelassay.mutation import mutants as generate
    from kernelassay.population import sampled
    from kernelassay.styles import STYLES, choose, mutated

    chosen = selected_rules(patterns)
    rows: list[dict[str, Any]] = []
    shown: list[str] = []
    wanted = choose(styles, executor="cuda")  # listing runs nothing
    for problem, calls in _substrates(Selection(names, kernelbench, level, files, kernel=kernel)):
        if source:
            kept = wanted if styles else tuple(STYLES)
            shown += [
                f"// {problem} {call.id} {style}\n{call.sources[style]}"
                for call in calls
                for style in mutated(call.sources, kept)
            ]
            continue
        listed: list[dict[str, Any]] = []
        for call, style in ((c, s) for c in calls for s in mutated(c.sources, wanted)):
            text = call.sources[style]
            found = generate(text, problem=problem, call=call.id, style=style, rules=chosen)
            for mutant in found.mutants:
                listed.append(
                    {
                        "id": mutant.id,
                        "problem": problem,
                        "call": call.id,
                        "style": style,
                        "rule": mutant.rule,
                        "family": mutant.family,
                        "line": mutant.line,
                    }
                )
                if mutant.id == show:
                    shown.append(diff(text, mutant.source, f"{mutant.rule} ({mutant.id})"))
        kept_ids = sampled((row["id"] for row in listed), sample)
        rows += [row for row in listed if row["id"] in kept_ids]
    if show is not None and not shown:
        raise unknown_name("mutant", show, (row["id"] for row in rows))
    _print_mutants(rows, shown, as_json)


def _print_mutants(rows: Sequence[dict[str, Any]], shown: Sequence[str], as_json: bool) -> None:
    if as_json:
        emit_json("mutants", {"diffs": list(shown)} if shown else list(rows))
        return
    out = console()
    if shown:
        for text in shown:
            if out.is_terminal:
                out.print(Syntax(text, "diff" if text.startswith("---") else "cuda"))
            else:
                click.echo(text)
        return
    columns = ("id", "problem", "call", "style", "line", "family", "rule")
    table = Table(*columns, title=f"{len(rows)} mutants")
    for row in rows:
        cells = (row[key] for key in columns)
        table.add_row(*(str(cell) for cell in cells))
    out.print(table)


def _substrates(selection: Selection) -> list[tuple[str, tuple[Any, ...]]]:
    """Trace and lower the selected problems in a worker."""
    from kernelassay.execute.toolbox import CpuToolbox
    from kernelassay.execute.worker import Worker
    from kernelassay.session import user_cache

    worker = Worker(CpuToolbox.at(user_cache()))
    try:
        return [(problem.id, worker.open(problem)) for problem in selection.problems()]
    finally:
        worker.close()


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check what this machine offers: compiler, CPU executor, NVRTC, torch, disk."""
    from kernelassay.doctor import examine

    checks = examine()
    if as_json:
        emit_json("doctor", [check.to_json() for check in checks])
    else:
        table = Table("check", "state", "detail")
        for check in checks:
            table.add_row(check.name, check.state, check.detail)
        console().print(table)
    if any(check.state == "missing" for check in checks):
        raise click.exceptions.Exit(1)


COMMANDS = (problems, rules, mutants, doctor)
