"""The inside of a worker process: it loads texts, runs them, and sends arrays back as bytes.

A text may do anything here. What it can spoil is its own answer, and its process.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import signal
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType, ModuleType
from typing import Any, Protocol

from kernelassay import cell
from kernelassay.errors import KernelassayError, UnsupportedError
from kernelassay.execute import wire
from kernelassay.execute.execution import RAISED, WRONG_OUTPUT
from kernelassay.execute.triton.options import Options
from kernelassay.kernel import Finding

_DETAIL = 2000
_AGAIN_SECONDS = 0.25
_MEMORY = ("can't allocate memory", "out of memory", "std::bad_alloc")


class StoppedError(BaseException):
    """The run ends here; no ``except Exception`` of a text is to go on after it."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


class UnfitError(BaseException):
    """The text needs what this device does not have or computes wrong."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended. ``lost`` tells that the process is of no more use."""

    outcome: str
    detail: str = ""
    output: dict[str, Any] | None = None
    data: bytes = b""
    unwritten: int = 0
    findings: tuple[Finding, ...] = ()
    changed: tuple[int, ...] = ()
    lost: bool = False


class Backend(Protocol):
    """What a device does around a run."""

    def around(self) -> Any:
        """A context in which texts are loaded and run."""

    def inputs(self, heads: Sequence[dict[str, Any]], blobs: Sequence[bytes]) -> list[Any]:
        """What ``run`` is called with."""

    def finish(self, found: Any) -> Ran:
        """Look at what ``run`` returned, at inputs and surroundings; once for each ``inputs``."""

    def failed(self, error: BaseException) -> Ran | None:
        """How a run ended that raised this, if the device has something to say of it."""

    def findings(self) -> tuple[Finding, ...]:
        """What was found so far in this run."""


class Timer:
    """Raises in the main thread when a run has taken its time, again until it is heard."""

    def __init__(self, seconds: float, tell: Callable[[dict[str, Any]], None]) -> None:
        self._seconds = seconds
        self._tell = tell
        self._paused = False
        signal.signal(signal.SIGALRM, self._expired)

    def _expired(self, number: int, frame: FrameType | None) -> None:
        raise StoppedError(cell.TIMEOUT, f"did not end within {self._seconds:g} s")

    @contextmanager
    def limit(self) -> Iterator[None]:
        """Within, the limit holds."""
        signal.setitimer(signal.ITIMER_REAL, self._seconds, _AGAIN_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within, the compiler works: that time does not count, which the bench is told."""
        if self._paused:
            yield
            return
        left, again = signal.setitimer(signal.ITIMER_REAL, 0)
        self._paused = True
        self._tell({"compiling": True})
        try:
            yield
        finally:
            self._tell({"compiling": False})
            self._paused = False
            if again:
                signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), again)


class Texts:
    """Loaded texts; those used longest ago give way."""

    def __init__(self, count: int, forget: Callable[[ModuleType], None]) -> None:
        self._count = count
        self._forget = forget
        self._loaded: OrderedDict[str, ModuleType] = OrderedDict()

    def function(self, text: str) -> Any:
        """The function ``run`` of a text. Raises what the text raises, and ``NameError``."""
        module = self._loaded.get(text)
        if module is None:
            module = self._load(text)
        self._loaded.move_to_end(text)
        function = getattr(module, "run", None)
        if not callable(function):
            raise NameError("the text defines no function run(*inputs)")
        return function

    def _load(self, text: str) -> ModuleType:
        # Triton reads a kernel's source by its file name; the same text has the same one, as that
        # may get into what is cached on disk.
        name = f"kernel_{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
        file = f"<{name}>"
        module = ModuleType(name)
        module.__file__ = file
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        sys.modules[name] = module
        try:
            exec(compile(text, file, "exec"), module.__dict__)
        except BaseException:
            self._drop(module)
            raise
        self._loaded[text] = module
        if len(self._loaded) > self._count:
            _, oldest = self._loaded.popitem(last=False)
            self._drop(oldest)
        return module

    def _drop(self, module: ModuleType) -> None:
        sys.modules.pop(module.__name__, None)
        linecache.cache.pop(str(module.__file__), None)
        self._forget(module)


def serve(options: Options, requests: int, answers: int) -> None:
    """The main loop of a worker. Raises :class:`wire.ClosedError` when its bench is gone."""
    own = os.getpid()
    source = wire.Source(requests)
    timer = Timer(options.seconds, lambda head: wire.send(answers, wire.pack(head)))
    try:
        backend, forget = _backend(options, timer)
    except KernelassayError as error:
        wire.send(answers, wire.pack({"failed": str(error)}))
        return
    texts = Texts(options.texts, forget)
    wire.send(answers, wire.pack({"ready": True}))
    while True:
        head = source.head()
        text = source.bytes(head["text"]).decode(errors="surrogatepass")
        blobs = [source.bytes(one["nbytes"]) for one in head["inputs"]]
        try:
            ran = _run(backend, texts, timer, text, head["inputs"], blobs)
            answer = _answer(ran)
        except (UnfitError, UnsupportedError) as error:
            ran = Ran("")
            answer = {"unsupported": error.what, "hint": error.hint}
        if os.getpid() != own:
            os._exit(0)  # the text forked, and its child came here too
        frame = wire.pack({"number": head["number"], **answer}, [ran.data])
        wire.send(answers, frame)
        if ran.lost:
            return


def _backend(options: Options, timer: Timer) -> tuple[Backend, Callable[[ModuleType], None]]:
    if options.device == "numpy":
        from kernelassay.execute.triton.arrays import Arrays

        return Arrays(), lambda module: None
    if options.device == "interpreter":
        from kernelassay.execute.triton.interpreter import Interpreter

        interpreter = Interpreter(options)
        return interpreter, interpreter.forget
    from kernelassay.execute.triton.device import Gpu

    return Gpu(options, timer), lambda module: None


def _run(
    backend: Backend,
    texts: Texts,
    timer: Timer,
    text: str,
    heads: Sequence[dict[str, Any]],
    blobs: Sequence[bytes],
) -> Ran:
    try:
        inputs = backend.inputs(heads, blobs)
        with timer.limit(), backend.around():
            found = texts.function(text)(*inputs)
            del inputs
            return backend.finish(found)
    except UnfitError:
        raise
    except BaseException as error:
        ran = backend.failed(error) or _failure(error)
        # A text may still hold the memory that ran out, and was stopped at any place.
        lost = ran.lost or ran.outcome in (cell.OUT_OF_MEMORY, cell.TIMEOUT)
        return replace(ran, findings=backend.findings(), lost=lost)


def _failure(error: BaseException) -> Ran:
    if isinstance(error, StoppedError):
        return Ran(error.outcome, error.detail)
    if isinstance(error, SystemExit):
        return Ran(RAISED, f"ends the process with exit({error.code})")
    for cause in causes(error):
        in_words = isinstance(cause, RuntimeError) and any(w in said(cause) for w in _MEMORY)
        if isinstance(cause, MemoryError) or in_words:
            return Ran(cell.OUT_OF_MEMORY, said(cause))
    return Ran(RAISED, _described(error))


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def said(error: BaseException) -> str:
    """An error's message; foreign code may have written its ``__str__``."""
    try:
        return str(error)[:_DETAIL]
    except BaseException:
        return "(its message cannot be read)"


def _described(error: BaseException) -> str:
    root = error
    while type(root).__name__ == "InterpreterError" and root.__cause__ is not None:
        root = root.__cause__
    frames = [f for f in traceback.extract_tb(root.__traceback__) if f.filename.startswith("<ker")]
    where = f" (line {frames[-1].lineno} of the text)" if frames else ""
    return f"{type(root).__name__}: {said(root)}"[: _DETAIL - len(where)] + where


def wrong_output(what: str) -> Ran:
    """The end of a run that returned something else than one array or tensor."""
    return Ran(WRONG_OUTPUT, what)


def several(found: Any, kind: str) -> str:
    """What a text returned in place of one ``kind``, in words."""
    if isinstance(found, tuple | list):
        return f"returns {len(found)} outputs in a {type(found).__name__}, not one {kind}"
    return f"returns a {type(found).__name__}, not one {kind}"


def array_head(dtype: str, shape: Sequence[int]) -> dict[str, Any]:
    """What a receiver needs to know of a contiguous array beside its bytes."""
    return {"dtype": dtype, "shape": [int(extent) for extent in shape]}


def _answer(ran: Ran) -> dict[str, Any]:
    return {
        "outcome": ran.outcome,
        "detail": ran.detail[:_DETAIL],
        "output": ran.output,
        "unwritten": ran.unwritten,
        "findings": [[f.kind, f.count, f.detail[:_DETAIL]] for f in ran.findings[:64]],
        "changed": list(ran.changed),
        "last": ran.lost,
    }
