"""The reference pages that are made from the code: ``python -m kernelassay.docs``.

A page is a pure function of the catalogue or of the command line, so that a test can tell a stale
one. Nothing on a page depends on the machine.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from kernelassay.cli import app
from kernelassay.mutation import FAMILIES, RULES, Rule, rules_of
from kernelassay.protocol_inputs import KINDS
from kernelassay.protocols import DEFAULT as DEFAULT_PROTOCOLS
from kernelassay.protocols import PROTOCOLS, Protocol
from kernelassay.styles import DEFAULT, STYLES

EXIT_CODES: Mapping[int, str] = {
    0: "done",
    1: "usage: an unknown name, a bad file, a missing compiler, a damaged or locked session",
    2: "a gate the user set was missed (`--fail-under`, `lint --strict`), `check` rejects, or the"
    " replay of a bundle differs",
    3: "a control misbehaved, or the replay of a cell or a check differs; no score or verdict is"
    " given",
    4: "nothing to test: no problem, mutant or input is left",
    70: "internal error: a defect of kernelassay",
    130: "interrupted; a run keeps its finished units, and the same command resumes it",
}

_NOTE = "<!-- Made by `python -m kernelassay.docs`; do not edit. -->\n"


def rules_page() -> str:
    """The catalogue: every rule with what it rewrites, the bug it stands for, and one example."""
    return "\n".join(_rules("Mutation rules", "kernel source", RULES)) + "\n"


def triton_rules_page() -> str:
    """The same of the rules for Triton kernels, and of the rewrites that are no faults."""
    from kernelassay.mutation.triton.catalogue import BENIGN

    lines = [*_rules("Mutation rules of Triton kernels", "module", rules_of("triton"))]
    lines += ["", "## Benign rewrites\n"]
    lines.append(f"{len(BENIGN)} rewrites after which a correct kernel is still correct: controls.")
    for rule in BENIGN:
        lines += _rule(rule)
    return "\n".join(lines) + "\n"


def _rules(title: str, source: str, rules: Sequence[Rule]) -> Iterator[str]:
    yield f"# {title}"
    yield _NOTE
    yield (
        f"{len(rules)} rules in {len(FAMILIES)} families. Each example is a test: the left side of"
        " the diff is the"
    )
    yield f"original {source}, the right side the first mutant the rule makes of it.\n"
    yield "| family | rules |"
    yield "| --- | ---: |"
    for family in FAMILIES:
        count = sum(rule.family == family for rule in rules)
        yield f"| [{family}](#{family}) | {count} |"
    for family in FAMILIES:
        yield ""
        yield f"## {family}"
        for rule in rules:
            if rule.family == family:
                yield from _rule(rule)


def _rule(rule: Rule) -> Iterator[str]:
    yield f"\n### {rule.id}\n"
    yield f"- family: {rule.family}"
    yield f"- rewrites: {_escape(rule.what)}"
    yield f"- stands for: {_escape(rule.bug)}\n"
    example = rule.examples[0]
    changed = difflib.unified_diff(
        example.before.splitlines(), example.after[0].splitlines(), n=1, lineterm=""
    )
    yield "```diff"
    yield from (line for line in changed if not line.startswith(("---", "+++", "@@")))
    yield "```"


def _escape(text: str) -> str:
    """Markdown's own characters outside code spans, so that they show as they are."""
    parts = text.split("`")
    return "`".join(
        part if index % 2 else re.sub(r"([<*_\[])", r"\\\1", part)
        for index, part in enumerate(parts)
    )


def styles_page() -> str:
    """Every style with its admission bound and the executors that run it."""
    lines = ["# Styles", _NOTE]
    lines += [
        "Ways to write one operation. `kernelassay run --style` chooses those that are mutated, by"
        f" default `{DEFAULT[0]}`;",
        "a call has those that its operation offers. The admission bound is the largest critical"
        " tolerance of the correct",
        "kernel against float64 on official inputs. Correct kernels of a *variant* style are benign"
        " variants of every run,",
        "others of the runs that choose them, 16-bit ones of none.\n",
        "| style | what it is | admission | executors | variant |",
        "| --- | --- | ---: | --- | --- |",
    ]
    for style in STYLES.values():
        variant = "yes" if style.variant else ""
        executors = ", ".join(style.executors)
        lines.append(
            f"| `{style.name}` | {style.what} | {style.admission:g} | {executors} | {variant} |"
        )
    return "\n".join(lines) + "\n"


def protocols_page() -> str:
    """Every known protocol with its inputs and its rule, and what else its checker does."""
    lines = ["# Protocols", _NOTE]
    lines += [
        f"{len(PROTOCOLS)} checkers, re-implemented from what is published of them, each with its"
        " flaws. A run decides and an audit",
        f"scores {', '.join(f'`{p.name}`' for p in DEFAULT_PROTOCOLS)}, unless asked for others by"
        " `--protocol NAME` or",
        "`--protocol all`. Those that draw inputs of their own can be scored on sessions of runs"
        " that were asked for them, the",
        "others on every session that has their inputs. What they draw proves faults, too: of a"
        " session that was asked for more",
        "protocols more mutants may be witnessed, and the shares of all protocols are of those. A"
        " protocol of your own is a file:",
        "[guide](../guide/your-own-protocol.md).\n",
        "| protocol | what | source |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{p.name}` | {_row(p.what)} | {p.source} |" for p in PROTOCOLS]
    for protocol in PROTOCOLS:
        lines += ["", f"## {protocol.name}", "", *_protocol(protocol)]
    return "\n".join(lines) + "\n"


def _protocol(protocol: Protocol) -> Iterator[str]:
    yield f"- inputs: {', '.join(f'`{name}`' for name in protocol.inputs)}"
    if protocol.draws:
        yield f"- draws: {KINDS[protocol.draws].what}"
    for dtype, rule in (("", protocol.default), *protocol.rules.items()):
        name = f"rule for {dtype} outputs" if dtype else "rule"
        yield f"- {name}: {_escape(rule.in_words())}"
    yield f"- inputs that the validity gate refuses: {_UNFIT[protocol.unfit]}"


_UNFIT = {
    "needs": "none may be among its inputs",
    "drops": "it goes without those on which the reference is not finite",
    "runs": "it judges correct kernels on them, too, but no mutants",
}


def _row(text: str) -> str:
    return _escape(text).replace("|", "\\|")


def cli_page() -> str:
    """Every command with its usage, what it does, and its options."""
    lines = ["# Command line", _NOTE]
    lines.append("Every command that prints a result takes `--json` (see [json.md](json.md)).")
    lines += ["", "| exit code | meaning |", "| ---: | --- |"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    for name, command in commands():
        lines += ["", f"## kernelassay {name}", ""]
        lines += ["```", " ".join(["kernelassay", name, *_usage(command)]), "```", ""]
        lines += [re.sub(r"\s*\n\s*", " ", part) + "\n" for part in _help(command).split("\n\n")]
        options = [one for one in command.params if isinstance(one, click.Option)]
        if options:
            lines += ["| option | meaning |", "| --- | --- |"]
            lines += [f"| {_names(option)} | {_cell(option)} |" for option in options]
    return "\n".join(lines) + "\n"


def commands(group: click.Group = app, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command by its name, those of groups after the group."""
    for name, command in sorted(group.commands.items()):
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")


def _help(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "")


def _usage(command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        yield "COMMAND"
        return
    yield "[OPTIONS]"
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            yield parameter.metavar or (parameter.name or "").upper()


def _names(option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.metavar or _value(option.type)}"
    return ", ".join(f"`{name}{value}`" for name in option.opts)


def _value(kind: click.ParamType) -> str:
    if isinstance(kind, click.Choice):
        return "{" + ",".join(str(choice) for choice in kind.choices) + "}"
    if isinstance(kind, click.Path):
        return "PATH" if kind.file_okay and kind.dir_okay else "FILE" if kind.file_okay else "DIR"
    return {"integer range": "N", "float": "NUMBER"}.get(kind.name, kind.name.upper())


def _cell(option: click.Option) -> str:
    text = (option.help or "").replace("|", "\\|")
    if isinstance(option.show_default, str):
        return f"{text} Default: {option.show_default}."
    return f"{text} Default: `{option.default}`." if option.show_default else text


PAGES: Mapping[str, Callable[[], str]] = {
    "rules.md": rules_page,
    "triton-rules.md": triton_rules_page,
    "styles.md": styles_page,
    "protocols.md": protocols_page,
    "cli.md": cli_page,
}


def write_pages(folder: Path) -> None:
    """Write all generated pages into ``folder``."""
    for name, page in PAGES.items():
        (folder / name).write_text(page())


if __name__ == "__main__":
    write_pages(Path(__file__).parent.parent / "docs" / "reference")
