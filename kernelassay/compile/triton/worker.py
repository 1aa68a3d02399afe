"""Processes that record and compile Triton modules: torch and Triton are imported once in each.

Everything that touches a module's text or compiles it is done in a fork with limits, so neither
endless host code nor a crash of the compiler costs more than that one answer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kernelassay.compile.triton.calls import Call, TensorSpec
from kernelassay.compile.worker import Worker, WorkerDiedError, answer_all
from kernelassay.errors import DeviceError, LimitError, ProblemError, ToolchainError

MEMORY_BYTES = 8 << 30
_ASK_SECONDS = 24 * 3600.0  # the process keeps the limits itself
_ENVIRONMENT = {
    "TRITON_DISABLE_LINE_INFO": "1",
    "TRITON_ALWAYS_COMPILE": "1",
    "TRITON_DEFAULT_FP_FUSION": "1",
}
KEPT_VARIABLES = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
"""Of the environment variables that steer Triton, those that a worker follows."""


Row = tuple[str, list[int], list[int], str]
"""A :class:`CallRecord` on its way between processes."""
_WARM = "import torch\ndef run(x):\n    return torch.empty_like(x).zero_()\n"


@dataclass(frozen=True, slots=True)
class Lowering:
    """A combo's normalised TTIR and options; or ``error``, which is ``transient`` after a limit."""

    text: str
    options: str
    error: str = ""
    transient: bool = False


@dataclass(frozen=True, slots=True)
class CallRecord:
    """As :class:`kernelassay.compile.triton.recorder.Recorded`."""

    digest: str
    launches: tuple[int, ...]
    general: tuple[int, ...]
    raised: str


@dataclass(frozen=True, slots=True)
class ModuleRecord:
    """What a module's host code does.

    ``failed`` says why it does not load; ``lost`` why nothing is known of it: its host code passed
    a limit or ended the process, or does not do the same twice.
    """

    calls: tuple[CallRecord, ...] = ()
    failed: str = ""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """The digest of machine code; or ``error``, which is ``transient`` after a limit."""

    digest: str
    error: str = ""
    transient: bool = False


class TritonWorker(Worker):
    """One process that records and compiles."""

    SERVES: ClassVar[str] = "kernelassay.compile.triton.worker"

    def ask(self, request: Any, seconds: float) -> Any:
        """As :meth:`Worker.ask`. Raises :class:`DeviceError` if the process is lost.

        Texts are recorded and compiled in forks of it, so that is the doing of none.
        """
        try:
            return super().ask(request, seconds)
        except WorkerDiedError as death:
            raise DeviceError(
                f"a process that compiles was lost: {death.reason}",
                hint="run the same command again: what was compiled is kept",
            ) from death

    def record(
        self, text: str, calls: Sequence[Call], every: bool, seconds: float
    ) -> tuple[ModuleRecord, dict[int, Lowering]]:
        """A module's record and its lowered combos, by number.

        All combos with ``every``, else those of the first calls up to one that can be lowered.
        """
        answer = self.ask(("record", text, tuple(calls), every, seconds), _ASK_SECONDS)
        assert isinstance(answer, tuple)
        return answer

    def machine_code(self, text: str, options: str, seconds: float) -> Code:
        """The machine code of a lowered combo."""
        answer = self.ask(("compile", text, options, seconds), _ASK_SECONDS)
        assert isinstance(answer, Code)
        return answer


# ---- inside the process ------------------------------------------------------------------------


def serve(requests: int, answers: int) -> None:
    """The loop of a worker process; ends when the parent closes its side."""
    for name in [name for name in os.environ if name.startswith("TRITON_")]:
        if name not in KEPT_VARIABLES:
            del os.environ[name]
    os.environ.update(_ENVIRONMENT)
    answer_all(requests, answers, _greeting, _answer)


def _greeting() -> str:
    try:
        import torch
        import triton
        import triton.compiler.code_generator
        from triton.backends.nvidia.compiler import get_ptxas

        from kernelassay.compile.triton.lower import prepare
        from kernelassay.compile.triton.recorder import CAPABILITY, record

        tools = get_ptxas(CAPABILITY).version
        # What is imported or computed at first use, is before the first fork.
        torch.set_num_threads(1)
        prepare()
        record(_WARM, ((TensorSpec((2,), "float32"),),))
        return f"{triton.__version__} {tools}"
    except Exception as error:
        raise ToolchainError(
            f"Triton cannot be used: {error}", hint="install kernelassay[triton]"
        ) from error


def _answer(request: tuple[Any, ...]) -> Any:
    kind, *arguments = request
    return _recorded(*arguments) if kind == "record" else _compiled(*arguments)


def _limited(function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    from kernelassay.execute.sandbox import run_limited

    with tempfile.TemporaryDirectory(prefix="kernelassay-triton-") as folder:
        return run_limited(
            _in_folder,
            (folder, function, arguments),
            seconds=seconds,
            memory_bytes=MEMORY_BYTES,
            where="triton",
        )


def _in_folder(folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    os.environ["TRITON_CACHE_DIR"] = folder
    tempfile.tempdir = folder
    return function(*arguments)


def _recorded(
    text: str, calls: tuple[Call, ...], every: bool, seconds: float
) -> tuple[ModuleRecord, dict[int, Lowering]]:
    """See :meth:`TritonWorker.record`."""
    try:
        return _read(*_limited(_record, text, calls, every, seconds=seconds))
    except ProblemError:
        pass  # the host code, or the compiler: the host code alone tells
    try:
        record, _ = _read(*_limited(_record, text, calls, (), seconds=seconds))
    except ProblemError as error:
        return ModuleRecord(lost=f"the host code does not end well: {error.what}"), {}
    numbers = sorted({n for call in record.calls for n in (*call.launches, *call.general)})
    return record, {n: _lowered_alone(text, calls, n, seconds) for n in numbers}


def _lowered_alone(text: str, calls: tuple[Call, ...], number: int, seconds: float) -> Lowering:
    try:
        _, lowerings = _read(*_limited(_record, text, calls, (number,), seconds=seconds))
        return lowerings[number]
    except LimitError as error:
        return Lowering("", "", error.what, transient=True)
    except ProblemError as error:
        return Lowering("", "", f"error: compiler crash ({error.what})")


def _compiled(text: str, options: str, seconds: float) -> Code:
    """See :meth:`TritonWorker.machine_code`; a crash counts once it repeats."""
    from kernelassay.compile.triton.lower import machine_code

    for again in (True, False):
        try:
            return Code(*_limited(_with_folder, machine_code, text, options, seconds=seconds))
        except LimitError as error:
            return Code("", error.what, transient=True)
        except ProblemError as error:
            if not again:
                return Code("", f"error: compiler crash ({error.what})")
    raise AssertionError


# ---- inside a fork -----------------------------------------------------------------------------


def _with_folder(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments, os.environ["TRITON_CACHE_DIR"])


def _record(
    text: str, calls: tuple[Call, ...], wanted: bool | tuple[int, ...]
) -> tuple[str, list[Row], dict[int, tuple[str, str, str]]]:
    """Why the module does not load, its calls, and combos lowered: builtin values only.

    ``wanted`` is True for all combos, False for those up to a call that can be lowered.
    """
    from kernelassay.compile.triton.lower import lowered
    from kernelassay.compile.triton.recorder import LoadError, record

    try:
        recording = record(text, calls)
    except LoadError as error:
        return str(error), [], {}
    rows = [(call.digest, call.launches, call.general, call.raised) for call in recording.calls]
    made: dict[int, tuple[str, str, str]] = {}
    if wanted is True:
        wanted = tuple(range(len(recording.combos)))
    if wanted is not False:
        return "", rows, {number: lowered(recording.combos[number]) for number in wanted}
    for call in recording.calls:
        for number in call.launches:
            if number not in made:
                made[number] = lowered(recording.combos[number])
        if not any(made[number][2] for number in call.launches):
            break
    return "", rows, made


def _read(
    failed: str,
    rows: Sequence[Row],
    made: dict[int, tuple[str, str, str]],
) -> tuple[ModuleRecord, dict[int, Lowering]]:
    calls = tuple(
        CallRecord(digest, tuple(launches), tuple(general), raised)
        for digest, launches, general, raised in rows
    )
    return ModuleRecord(calls, failed), {n: Lowering(*parts) for n, parts in made.items()}
