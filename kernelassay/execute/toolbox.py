"""What an executor brings: how it compiles kernels, and the device side of a worker.

A toolbox is plain data, so that it travels to the processes that use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from kernelassay.execute.cpu.build import BuildFailure, Image, build_images, build_runtime
from kernelassay.execute.cpu.toolchain import Compiler, find_compiler
from kernelassay.problem import Problem

if TYPE_CHECKING:
    from kernelassay.execute.bench import ProblemBench
    from kernelassay.execute.messages import Measure
    from kernelassay.inputs import InputSpec


class AnyImage(Protocol):
    """Compiled device code of one source, of whatever executor: the kernels it holds."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Their names."""


class Workbench(Protocol):
    """The device side of a worker that has a problem open. It lives in the worker's process."""

    @property
    def bench(self) -> ProblemBench:
        """The traced problem and its calls."""

    def expect(self, specs: Sequence[InputSpec]) -> None:
        """Get ready for inputs that will be measured."""

    def measure(self, request: Measure) -> Iterator[Any]:
        """The replies to a request, as :class:`kernelassay.execute.messages.Measure` tells."""

    def close(self) -> None:
        """Give back what the device holds."""


class Toolbox(Protocol):
    """An executor's compiler and cache, and its device side."""

    @property
    def cache(self) -> Path:
        """The folder of compiled code."""

    @property
    def jobs(self) -> int:
        """How many compilers may tell the mutants of one problem apart at a time.

        All users of one cache together have no more than there are cores.
        """

    @property
    def cubins(self) -> bool:
        """Whether it runs cubins, so that those made to tell mutants apart are worth keeping."""

    @property
    def settings(self) -> tuple[str, ...]:
        """What a cell depends on besides the problem, the input and the kernels."""

    def build(self, sources: Mapping[str, str]) -> Mapping[str, AnyImage | BuildFailure]:
        """Images (or failures) by key."""

    def open(self, problem: Problem, beat: Callable[[], None]) -> Workbench:
        """Load, trace and lower a problem. EXECUTES it: call this in a worker only.

        The workbench calls ``beat`` every few seconds while it waits for others.
        """

    def on_device(self, index: int) -> Self:
        """The same for one of the machine's devices."""


@dataclass(frozen=True, slots=True)
class CpuToolbox:
    """The CPU executor: a C++ compiler, the runtime library, and the cache."""

    compiler: Compiler
    runtime: Path
    cache: Path
    jobs: int = 1

    @classmethod
    def at(cls, cache: Path) -> CpuToolbox:
        """With this machine's compiler. Raises ``ToolchainError`` if there is none that works."""
        compiler = find_compiler()
        return cls(compiler, build_runtime(compiler, cache), cache)

    @property
    def settings(self) -> tuple[str, ...]:
        """See :class:`Toolbox`."""
        return ("cpu", self.compiler.version)

    @property
    def cubins(self) -> bool:
        """See :class:`Toolbox`."""
        return False

    def build(self, sources: Mapping[str, str]) -> dict[str, Image | BuildFailure]:
        """See :class:`Toolbox`."""
        return build_images(sources, self.cache, self.compiler)

    def open(self, problem: Problem, beat: Callable[[], None]) -> Workbench:
        """See :class:`Toolbox`."""
        from kernelassay.execute.cpu.workbench import CpuWorkbench

        return CpuWorkbench(problem, self.runtime)

    def on_device(self, index: int) -> Self:
        """See :class:`Toolbox`; a CPU has none to choose."""
        return self
