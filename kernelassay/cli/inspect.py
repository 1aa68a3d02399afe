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
    problem_options,
    sample_option,
    selected_rules,
    style_option,
)
from kernelassay.errors import KernelSyntaxError, UnsupportedError, UsageError, unknown_name


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
@click.option(
    "--language",
    type=click.Choice(("cuda", "triton")),
    default="cuda",
    show_default=True,
    help="Rules for kernels of this language.",
)
@json_option
def rules(
    patterns: tuple[str, ...],
    sessions: tuple[Path, ...],
    partial: bool,
    language: str,
    as_json: bool,
) -> None:
    """List mutation rules; with --session, which fire and which yield witnessed mutants."""
    if sessions and language != "cuda":
        raise UsageError(
            "--session counts what CUDA rules did",
            hint="leave out --language, or --session",
        )
    chosen = selected_rules(patterns, language)
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
        "language": rule.language,
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
@click.option(
    "--kernel",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Mutate this file of your own: CUDA, which computes the one problem selected, or a"
    " Python module with Triton kernels (.py), which needs no problem.",
)
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
    """List the mutants of problems, or of a Triton module, before any compilation."""
    from kernelassay.mutation import diff
    from kernelassay.mutation import mutants as generate
    from kernelassay.population import sampled

    selection = Selection(names, kernelbench, level, files, kernel=kernel)
    language = "cuda" if kernel is None or kernel.suffix != ".py" else "triton"
    chosen = selected_rules(patterns, language)
    rows: list[dict[str, Any]] = []
    shown: list[str] = []
    for problem, texts in _texts(selection, language, styles, source):
        if source:
            mark = "//" if language == "cuda" else "#"
            shown += [
                f"{' '.join((mark, problem, call, style)).strip()}\n{text}"
                for call, style, text in texts
            ]
            continue
        listed: list[dict[str, Any]] = []
        for call, style, text in texts:
            try:
                found = generate(
                    text, problem=problem, call=call, style=style, rules=chosen, language=language
                )
            except (KernelSyntaxError, UnsupportedError) as error:
                if kernel is None:
                    raise
                place = f"{kernel}: {error.where}" if error.where else str(kernel)
                raise type(error)(error.what, where=place, hint=error.hint) from error
            for mutant in found.mutants:
                listed.append(
                    {
                        "id": mutant.id,
                        "problem": problem,
                        "call": call,
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
    _print_mutants(rows, shown, as_json, "python" if language == "triton" else language)


def _print_mutants(
    rows: Sequence[dict[str, Any]], shown: Sequence[str], as_json: bool, lexer: str
) -> None:
    if as_json:
        emit_json("mutants", {"diffs": list(shown)} if shown else list(rows))
        return
    out = console()
    if shown:
        for text in shown:
            if out.is_terminal:
                out.print(Syntax(text, "diff" if text.startswith("---") else lexer))
            else:
                click.echo(text)
        return
    columns = ("id", "problem", "call", "style", "line", "family", "rule")
    table = Table(*columns, title=f"{len(rows)} mutants")
    for row in rows:
        cells = (row[key] for key in columns)
        table.add_row(*(str(cell) for cell in cells))
    out.print(table)


def _texts(
    selection: Selection, language: str, styles: tuple[str, ...], every_style: bool
) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """The kernel sources to mutate, by problem: the call, the style and the text of each.

    A Triton module is a problem of its own, named as its file, of one call.
    """
    if language == "triton":
        return [_module(selection, styles)]
    from kernelassay.styles import STYLES, choose, mutated

    wanted = choose(styles, executor="cuda")  # listing runs nothing
    kept = tuple(STYLES) if every_style and not styles else wanted
    return [
        (problem, [(c.id, s, c.sources[s]) for c in calls for s in mutated(c.sources, kept)])
        for problem, calls in _substrates(selection)
    ]


def _module(
    selection: Selection, styles: tuple[str, ...]
) -> tuple[str, list[tuple[str, str, str]]]:
    assert selection.kernel is not None
    if selection.names or selection.files or selection.kernelbench or styles:
        raise UsageError(
            "a Triton module stands for itself: it takes no problem and no style",
            hint=f"kernelassay mutants --kernel {selection.kernel}",
        )
    try:
        text = selection.kernel.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{selection.kernel} is no UTF-8 text", hint="save it as UTF-8") from error
    return selection.kernel.stem, [("", "", text)]


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
