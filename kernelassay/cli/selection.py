"""Options shared by commands: which problems, which rules, and how to print."""

from __future__ import annotations

import fnmatch
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from kernelassay import __version__
from kernelassay.errors import NothingToTestError, UsageError, unknown_name
from kernelassay.problem import Problem

SCHEMA = 1

PIPED_WIDTH = 150


def console() -> Console:
    """A console on standard output; tables are not squeezed to 80 columns when it is a pipe."""
    plain = Console(highlight=False, markup=False)
    return plain if plain.is_terminal else Console(highlight=False, markup=False, width=PIPED_WIDTH)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document (stable, versioned)."
)

problem_jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="the number of cores",
    help="Problems tried at the same time, each in a worker process.",
)


def emit_json(kind: str, data: Any) -> None:
    """Print the JSON envelope: the schema of the data, its version, the tool, the data."""
    document = {
        "schema": f"kernelassay/{kind}",
        "schema_version": SCHEMA,
        "version": __version__,
        "data": data,
    }
    click.echo(json.dumps(document, indent=2, sort_keys=True))


style_option = click.option(
    "--style",
    "styles",
    multiple=True,
    metavar="NAME|all",
    help="Style of the kernels to mutate; may be repeated. Default: optimised.",
)


sample_option = click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="At most N mutants per problem, by the hashes of their ids: the same on every machine.",
)


@dataclass(frozen=True, slots=True)
class Selection:
    """What the user selected."""

    names: tuple[str, ...]
    kernelbench: Path | None
    level: int | None
    files: tuple[Path, ...]
    quick: bool = False
    kernel: Path | None = None

    def problems(self) -> tuple[Problem, ...]:
        """The selected problems, without executing their files.

        Raises :class:`UsageError` for an unknown name, :class:`NothingToTestError` if nothing
        matches.
        """
        chosen = self._chosen()
        return chosen if self.kernel is None else (self._with_kernel(chosen),)

    def _chosen(self) -> tuple[Problem, ...]:
        pool = self._pool()
        if not self.names:
            return pool
        chosen: list[Problem] = []
        for name in self.names:
            matching = [p for p in pool if _matches(p.id, name)]
            if not matching:
                if any(character in name for character in "*?["):
                    raise NothingToTestError(
                        f"no problem matches {name!r}", hint="list them: kernelassay problems"
                    )
                raise unknown_name("problem", name, (p.id for p in pool))
            chosen += [p for p in matching if p not in chosen]
        return tuple(chosen)

    def _with_kernel(self, pool: Sequence[Problem]) -> Problem:
        from kernelassay.user.kernel_file import read_kernel

        assert self.kernel is not None
        if len(pool) != 1:
            raise UsageError(
                "--kernel needs the one problem it computes",
                hint="name its file (--problem my_problem.py), or one problem of the suite",
            )
        return replace(pool[0], kernel=read_kernel(self.kernel))

    def _pool(self) -> tuple[Problem, ...]:
        from kernelassay.kernelbench import kernelbench_problems
        from kernelassay.problem import read_problem
        from kernelassay.suite import QUICK, suite_problems

        pool: list[Problem] = []
        if self.kernelbench is not None:
            pool += kernelbench_problems(self.kernelbench, self.level or 1)
        elif self.level is not None:
            raise UsageError("--level needs --kernelbench DIR")
        pool += [read_problem(path) for path in self.files]
        names = [problem.id for problem in pool]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise UsageError(
                f"two problem files have the id {repeated[0]!r}", hint="rename one of the files"
            )
        if not pool:
            pool += suite_problems()
            if self.quick and not self.names:
                pool = [p for p in pool if p.id in QUICK]
        return tuple(pool)


def _matches(identifier: str, pattern: str) -> bool:
    short = identifier.split("/", 1)[-1]
    return any(fnmatch.fnmatchcase(name, pattern) for name in (identifier, short))


def problem_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that make a :class:`Selection`."""
    for option in reversed(
        (
            click.argument("names", nargs=-1, metavar="[PROBLEM]..."),
            click.option(
                "--kernelbench",
                type=click.Path(exists=True, file_okay=False, path_type=Path),
                help="Read problems from a KernelBench checkout.",
            ),
            click.option("--level", type=click.IntRange(1, 4), help="KernelBench level."),
            click.option(
                "--problem",
                "files",
                multiple=True,
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="A problem file of your own (Model, get_inputs, get_init_inputs).",
            ),
        )
    ):
        function = option(function)
    return function


class NumberRange(click.FloatRange):
    """A range of numbers; NaN, which compares with no bound, is in none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number. Ends the command if it is not in the range."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail("NaN is no number", param, ctx)
        return number


def session_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The finished problems of sessions, and the tolerance that witnesses are counted at."""
    for option in reversed(
        (
            click.argument(
                "sessions",
                nargs=-1,
                required=True,
                type=click.Path(path_type=Path),
                metavar="SESSION...",
            ),
            click.option(
                "--tolerance",
                type=NumberRange(0.0, min_open=True),
                default=1e-2,
                show_default=True,
                help="Tolerance at which a witness counts.",
            ),
            click.option(
                "--partial", is_flag=True, help="Use the finished problems of an unfinished run."
            ),
        )
    ):
        function = option(function)
    return function


def protocol_option(help: str, **options: Any) -> Callable[[Any], Any]:
    """The option that names protocols for a command on sessions."""
    return click.option(
        "--protocol",
        "names",
        multiple=True,
        metavar="NAME|FILE",
        help=f"Protocol, by its name or a .toml or .py file of yours; {help}",
        **options,
    )


kernel_option = click.option(
    "--kernel",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Mutate this CUDA file of your own, which computes the one problem selected.",
)


def selected_rules(patterns: Sequence[str], language: str = "cuda") -> tuple[Any, ...]:
    """Mutation rules of a language by id, glob or family; all for an empty selection."""
    from kernelassay.mutation import rules_of, select

    rules = rules_of(language)
    return select(patterns, rules) if patterns else rules
