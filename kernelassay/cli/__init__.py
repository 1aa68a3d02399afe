"""The command line: one group, one module per theme.

Exit codes: 0 done; 1 usage; 2 a gate the user set was missed, `check` rejects, or a bundle's replay
differs; 3 a control misbehaved; 4 nothing to test; 70 internal error; 130 interrupted (finished
work is kept).
"""

from __future__ import annotations

import sys
import traceback

import click

from kernelassay import __version__
from kernelassay.cli import (
    admit,
    audit,
    check,
    compare,
    cost,
    explain,
    illusion,
    inspect,
    ladder,
    lint,
    replay,
    run,
    suite,
    tolerance,
)
from kernelassay.errors import KernelassayError

INTERNAL = 70
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="kernelassay")
def app() -> None:
    """Measure the correctness checkers of GPU-kernel benchmarks by mutation analysis."""


MODULES = (
    inspect,
    lint,
    admit,
    run,
    audit,
    compare,
    explain,
    suite,
    ladder,
    cost,
    tolerance,
    replay,
    check,
    illusion,
)
for module in MODULES:
    for command in module.COMMANDS:
        app.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(invoke(arguments))


def invoke(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        result = app.main(args=arguments, prog_name="kernelassay", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except KernelassayError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo(
            "interrupted; a run keeps its finished units, and the same command resumes it", err=True
        )
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return 1
    except BrokenPipeError:
        return 0
    except Exception:
        traceback.print_exc()
        click.echo("error: this is a defect of kernelassay; please report it", err=True)
        return INTERNAL
