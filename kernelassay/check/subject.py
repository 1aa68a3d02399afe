"""The judge's handle on a candidate's process."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kernelassay
from kernelassay.check.processes import Descriptor, Job, context, fences_for, run_candidate
from kernelassay.check.values import (
    Answer,
    Build,
    Expected,
    FailedError,
    Failure,
    Output,
    Prepared,
)
from kernelassay.execute import confinement, wire

OUTPUT_LIMIT = 16 << 20
"""Bytes a candidate may print."""
_PRINTED_KEPT = 2000
START_SECONDS = 60.0

FILLS = (0x7F, 0xFE)
"""What memory that is handed out holds in the first and in the second run of an input, in each
byte: about 3.4e38 and -1.7e38 in float32, NaN in float16."""

ALWAYS = (
    "own process",
    "limits on memory, time, files and output",
    "input bytes compared after each run, and guards around them",
    "parameters compared after each run",
    "memory of outputs compared with inputs, parameters and earlier outputs",
    "each input run twice, in memory with other contents",
    "same addresses for other inputs of one shape",
    "inputs from a seed that the candidate cannot know",
)
_FENCES = {
    confinement.FILES: "files closed: the problem cannot be read",
    confinement.PROCESSES: "process namespace: other processes are out of reach",
    confinement.NETWORK: "no network",
}


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long a candidate may take to import and be built, and for one run."""

    build: float = 300.0
    run: float = 30.0


@dataclass(slots=True)
class Subject:
    """A candidate in its process. Close it; nothing the candidate started is left then.

    ``region_bytes`` bounds what the tensors of one input take. Raises :class:`FailedError` from
    every method that asks it for something.
    """

    source: str
    entry: str
    region_bytes: int
    hidden: tuple[Path, ...] = ()
    limits: confinement.Limits = field(default_factory=confinement.Limits)
    seconds: Seconds = field(default_factory=Seconds)
    device: str = "cpu"
    fences: tuple[str, ...] = field(default=(), init=False)
    _folder: str = field(default="", init=False)
    _region: mmap.mmap | None = field(default=None, init=False)
    _process: Any = field(default=None, init=False)
    _pipes: list[Any] = field(default_factory=list, init=False)
    _requests: int = field(default=-1, init=False)
    _source: Any = field(default=None, init=False)
    _number: int = field(default=0, init=False)
    _printed: int = field(default=0, init=False)
    _last: bytes = field(default=b"", init=False)
    _built: set[str] = field(default_factory=set, init=False)

    @property
    def defences(self) -> tuple[str, ...]:
        """What is active around the candidate."""
        return (*ALWAYS, *(text for name, text in _FENCES.items() if name in self.fences))

    @property
    def missing(self) -> tuple[str, ...]:
        """What would be, on a machine that has it."""
        return tuple(text for name, text in _FENCES.items() if name not in self.fences)

    @property
    def gone(self) -> bool:
        """Whether its process has ended."""
        return self._process is None

    def start(self) -> None:
        """Start the process and import the candidate."""
        self._folder = tempfile.mkdtemp(prefix="kernelassay-check-")
        memory = _sealed_memory(self.region_bytes)
        self._region = mmap.mmap(memory, self.region_bytes)
        hidden = (*self.hidden, Path(kernelassay.__file__).parent)
        job = Job(
            self.source,
            self.entry,
            self._folder,
            Descriptor(memory),
            self.region_bytes,
            tuple(str(one.resolve()) for one in hidden),
            self.limits,
            self.device,
            fences_for(self.device),
        )
        try:
            self._launch(job)
        finally:
            os.close(memory)
        head = self._next(START_SECONDS)
        self.fences = tuple(head.get("fences", ()))
        self._ask({"do": "load"}, self.seconds.build)

    def build(self, how: Build) -> None:
        """Make an instance, once."""
        if how.key in self._built:
            return
        tensors: list[wire.Held] = []
        init = wire.encode(list(how.init), tensors)
        state = wire.encode(how.state, tensors)
        heads = [held.head(0) for held in tensors]
        request = {
            "do": "build",
            "instance": how.key,
            "seed": how.seed,
            "init": init,
            "state": state,
            "blobs": heads,
        }
        self._ask(request, self.seconds.build, [held.data for held in tensors])
        self._built.add(how.key)

    def forget(self, key: str) -> None:
        """Let go of an instance."""
        if key in self._built:
            self._built.discard(key)
            self._ask({"do": "forget", "instance": key}, self.seconds.run)

    def run(self, prepared: Prepared, number: int, instance: str | None = None) -> Answer:
        """Run an instance, by default the input's own, on an input.

        The memory that is handed out holds :data:`FILLS` of the run's ``number``.
        """
        expected = prepared.expected
        tensors: list[wire.Held] = []
        encoded = wire.encode(list(prepared.inputs), tensors)
        offsets, end = wire.placed(tensors)
        assert self._region is not None and end <= self.region_bytes
        laid = bytearray([wire.GUARD]) * end
        for held, offset in zip(tensors, offsets, strict=True):
            laid[offset : offset + len(held.data)] = held.data
        self._region[:end] = bytes(laid)
        request = {
            "do": "run",
            "instance": instance or prepared.build.key,
            "inputs": encoded,
            "tensors": [h.head(o) for h, o in zip(tensors, offsets, strict=True)],
            "seed": own_seed(prepared, number),
            "draws": prepared.draws,
            "fill": FILLS[number - 1],
            "sizes": [one.nbytes for one in expected],
        }
        head = self._ask(request, self.seconds.run)
        answer = self._outputs(head, expected, time.monotonic() + self.seconds.run)
        if self._region[:end] != laid:
            changed = "changes-input"
            return Answer(answer.outputs, (changed, *answer.notes))
        return answer

    def close(self) -> None:
        """End the process and what it started, and remove its folder."""
        self._end()
        if self._region is not None:
            self._region.close()
            self._region = None
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- the process ---------------------------------------------------------------------------

    def _launch(self, job: Job) -> None:
        request_out, request_in = context().Pipe(duplex=False)
        answer_out, answer_in = context().Pipe(duplex=False)
        printed_out, printed_in = context().Pipe(duplex=False)
        control_out, control_in = context().Pipe(duplex=False)
        theirs = (request_out, answer_in, printed_in, control_out)
        process = context().Process(target=run_candidate, args=(job, *theirs), daemon=False)
        process.start()
        self._process = process
        for pipe in theirs:
            pipe.close()
        self._pipes = [request_in, answer_out, printed_out, control_in]
        self._requests = request_in.fileno()
        self._source = wire.Source(answer_out.fileno(), (printed_out.fileno(),), self._hears)

    def _end(self) -> int | None:
        """Close the pipes, which ends the process; its exit code."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        for pipe in self._pipes:
            pipe.close()
        process.join(10)
        if process.exitcode is None:
            process.kill()
            process.join()
        code: int | None = process.exitcode
        return code

    def _hears(self, data: bytes) -> None:
        self._printed += len(data)
        self._last = (self._last + data)[-_PRINTED_KEPT:]
        if self._printed > OUTPUT_LIMIT:
            raise FailedError(Failure("prints", f"more than {OUTPUT_LIMIT >> 20} MB"), fatal=True)

    # ---- the protocol --------------------------------------------------------------------------

    def _ask(
        self, request: dict[str, Any], seconds: float, blobs: Sequence[bytes] = ()
    ) -> dict[str, Any]:
        if self._process is None:
            raise FailedError(Failure("ends", "its process is gone"), fatal=True)
        self._number += 1
        frame = wire.pack({"number": self._number, **request}, blobs)
        try:
            wire.send(self._requests, frame)
        except wire.ClosedError:
            raise self._died() from None
        head = self._next(seconds)
        if head.get("number") != self._number:
            raise self._lost(Failure("breaks-protocol", "answers what it was not asked"))
        if "failed" in head:
            said = _printable(str(head.get("detail", "")))
            reason = str(head["failed"])
            reason = reason if reason in _SAID else "breaks-protocol"
            raise FailedError(Failure(reason, said), fatal=False)
        return head

    def _next(self, seconds: float) -> dict[str, Any]:
        try:
            head: dict[str, Any] = self._source.head(time.monotonic() + seconds)
            return head
        except wire.SilentError:
            raise self._lost(Failure("hangs", f"gave no answer within {seconds:g} s")) from None
        except wire.BrokenFrameError as error:
            raise self._lost(Failure("breaks-protocol", _printable(str(error)))) from None
        except wire.ClosedError:
            raise self._died() from None
        except FailedError:
            self._end()
            raise

    def _outputs(
        self, head: dict[str, Any], expected: Sequence[Expected], deadline: float
    ) -> Answer:
        """Read as many bytes as are expected, and no more, whatever the head says."""
        try:
            said = [(str(o["dtype"]), tuple(map(int, o["shape"])), str(o["device"]))
                    for o in head["outputs"]]  # fmt: skip
            notes = tuple(_printable(str(note)) for note in list(head["notes"])[:8])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self._lost(Failure("breaks-protocol", "an answer without outputs")) from None
        if len(said) != len(expected):
            detail = f"returns {len(said)} tensors, not {len(expected)}"
            raise self._lost(Failure("wrong-count", detail))
        for index, ((dtype, shape, device), right) in enumerate(zip(said, expected, strict=True)):
            what = f"output {index} "
            if shape != right.shape:
                detail = f"{what}has the shape {list(shape)[:8]}, not {list(right.shape)}"
                raise self._lost(Failure("wrong-shape", detail))
            if dtype != right.dtype:
                detail = f"{what}is {_printable(dtype)}, not {right.dtype}"
                raise self._lost(Failure("wrong-dtype", detail))
            if device != self.device:
                detail = f"{what}lies on {_printable(device)}, not on {self.device}"
                raise self._lost(Failure("wrong-device", detail))
        try:
            outputs = tuple(
                Output(o.dtype, o.shape, self._source.bytes(o.nbytes, deadline)) for o in expected
            )
        except wire.SilentError:
            raise self._lost(Failure("hangs", "did not send its outputs in time")) from None
        except wire.ClosedError:
            raise self._died() from None
        return Answer(outputs, notes)

    def _lost(self, failure: Failure) -> FailedError:
        """The process is ended: what it would send next cannot be told apart any more."""
        self._end()
        return FailedError(failure, fatal=True)

    def _died(self) -> FailedError:
        process = self._process
        if process is not None:
            process.join(5)
        code = self._end()
        if code is not None and code > 128:
            number = code - 128
            names = {s.value: s.name for s in signal.Signals}
            detail = f"was ended by {names.get(number, f'signal {number}')}"
        else:
            detail = f"exited with {code}"
        last = _printable(self._last.decode(errors="replace").strip().rpartition("\n")[2])
        said = f"; its last output was: {last}" if last else ""
        return FailedError(Failure("ends", f"its process {detail}{said}"), fatal=True)


_SAID = frozenset(
    {
        "does-not-import", "does-not-build", "raises", "out-of-memory", "no-tensor", "no-values",
        "other-parameters", "wrong-count",
    }
)  # fmt: skip


def own_seed(prepared: Prepared, number: int) -> int:
    """The seed for what a candidate draws itself.

    Where the reference draws too, it is the reference's. Elsewhere it tells nothing: with an
    input's own seed a candidate could draw the input again, and know that it is being judged.
    """
    if prepared.draws:
        return prepared.spec.seed
    name = f"{prepared.spec.seed}/{prepared.spec.id}/{number}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")


def _sealed_memory(size: int) -> int:
    """Shared memory that nobody can shrink: reading it would end the judge."""
    memory = os.memfd_create("inputs", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(memory, size)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    return memory


def _printable(text: str) -> str:
    """Text of a candidate as one line that no terminal acts on."""
    return "".join(c if c.isprintable() else " " for c in text[:300]).strip()
