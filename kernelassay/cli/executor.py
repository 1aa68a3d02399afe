"""Options that say where kernels run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from kernelassay.errors import UsageError

if TYPE_CHECKING:
    from kernelassay.execute.cuda.options import CudaOptions


def executor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--executor``, ``--draw``, ``--tf32`` and ``--devices``."""
    options = (
        click.option(
            "--executor",
            type=click.Choice(["cpu", "cuda"]),
            default="cpu",
            show_default=True,
            help="Where kernels run. On a GPU, problems that are not ours keep their official sizes"
            " for the inputs of published checkers, unless they are shrunk.",
        ),
        click.option(
            "--draw",
            type=click.Choice(["cpu", "device"]),
            show_default="device",
            help="With --executor cuda: where inputs of official size are drawn; KernelBench does"
            " so on the CPU.",
        ),
        click.option(
            "--tf32",
            is_flag=True,
            help="With --executor cuda: let references use TF32 in cuDNN, as KernelBench does.",
        ),
        click.option(
            "--devices",
            metavar="N,N,...",
            help="With --executor cuda: the numbers of the GPUs to use; by default all.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Place:
    """Where kernels run: with ``cuda`` on the GPUs numbered ``devices``, else on the CPU."""

    cuda: CudaOptions | None = None
    devices: tuple[int, ...] = ()

    @property
    def lanes(self) -> int:
        """How many lanes a run has unless told."""
        from kernelassay.executors import LANES_PER_DEVICE

        return LANES_PER_DEVICE * len(self.devices) if self.devices else os.cpu_count() or 1

    def sharing(self, official: bool, jobs: int | None) -> Place:
        """The same for ``jobs`` lanes in all; ``official`` as in :class:`CudaOptions`."""
        if self.cuda is None:
            return self
        lanes = -(-(jobs or self.lanes) // len(self.devices))
        return replace(self, cuda=replace(self.cuda, official=official, lanes=lanes))


def chosen_executor(executor: str, draw: str | None, tf32: bool, devices: str | None) -> Place:
    """The place that the options name.

    Raises :class:`UsageError` for options that do not fit, ``ToolchainError`` without a GPU.
    """
    given = {"--draw": draw, "--tf32": tf32, "--devices": devices}
    if executor == "cpu":
        strange = [name for name, value in given.items() if value]
        if strange:
            raise UsageError(
                f"{', '.join(strange)}: of no meaning on the CPU", hint="add --executor cuda"
            )
        return Place()
    from kernelassay.execute.cuda.options import CudaOptions

    return Place(CudaOptions(draw=draw or "device", tf32=tf32), _numbers(devices))


def _numbers(asked: str | None) -> tuple[int, ...]:
    from kernelassay.execute.cuda import toolbox

    names = toolbox.devices()
    present = len(names)
    if len(set(names)) > 1:
        raise UsageError(
            f"this machine has GPUs of several kinds ({', '.join(names)})",
            hint="show those of one kind alone: CUDA_VISIBLE_DEVICES",
        )
    if asked is None:
        return tuple(range(present))
    parts = [part.strip() for part in asked.split(",")]
    if not all(part.isdecimal() and int(part) < present for part in parts):
        raise UsageError(
            f"--devices {asked!r} does not name GPUs of this machine",
            hint=f"numbers from 0 to {present - 1}, separated by commas",
        )
    return tuple(dict.fromkeys(int(part) for part in parts))
