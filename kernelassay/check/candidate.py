"""The inside of a candidate's process: it builds ``ModelNew``, runs it, and sends bytes.

The candidate can change anything here. So nothing here decides anything: what is said of an output
beside its bytes can only speak against it. Neither the problem nor a reference is ever in reach.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from kernelassay.check.processes import Job
from kernelassay.draws import drawing
from kernelassay.execute import confinement, wire
from kernelassay.execute.sandbox import redirect
from kernelassay.execute.supervision import close_all_but, end_descendants, watched

MODULE = "candidate"
_DETAIL = 500
_KEPT_BYTES = 64 << 20
_M_PERTURB = -6


def supervise(
    job: Job, requests: Connection, answers: Connection, output: Connection, control: Connection
) -> None:
    """Run a candidate in a child of this process until it ends or ``control`` closes.

    Ends with its exit code, or that of a shell for a signal; nothing it started is left.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    confinement.die_with_parent()
    confinement.adopt_orphans()
    fences = confinement.unshare(job.fences.namespaces)
    pid = os.fork()
    if pid == 0:
        _become_candidate(job, fences, requests.fileno(), answers.fileno(), output.fileno())
    for pipe in (requests, answers, output):
        pipe.close()
    code = watched(pid, control.fileno())
    end_descendants()
    os._exit(code if code >= 0 else 128 - code)


def _become_candidate(
    job: Job, fences: tuple[str, ...], requests: int, answers: int, output: int
) -> None:
    code = 1
    try:
        os.setsid()
        confinement.die_with_parent()
        redirect(output)
        region = mmap.mmap(job.region.number, job.region_bytes)
        close_all_but(requests, answers)
        fences = (*fences, *_confined(job, fences))
        server = _Server(job, region, requests, answers)
        server.answer({"ready": True, "fences": list(fences)})
        server.serve()
        code = 0
    except Exception as error:  # not the candidate's code, whose exceptions are answers
        print(f"{type(error).__name__}: {error}"[:_DETAIL], flush=True)
    finally:
        os._exit(code)


def _confined(job: Job, fences: Sequence[str]) -> tuple[str, ...]:
    folder = Path(job.folder)
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR"):
        os.environ[name] = job.folder
    os.environ["OMP_NUM_THREADS"] = "1"
    if job.device != "cpu":  # what all our processes start from hides devices
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.chdir(folder)
    tempfile.tempdir = None  # it may have been asked for before
    torch.set_num_threads(1)
    confinement.limit(job.limits)
    if confinement.PROCESSES in fences:
        confinement.limit_processes(job.limits)
    if not job.fences.files:
        return ()
    hidden = [Path(path) for path in job.hidden]
    writable = [folder, *map(Path, job.fences.open)]
    return confinement.confine_files(confinement.python_folders(), writable, hidden)


@dataclass(slots=True)
class _Instance:
    model: Any
    parameters: dict[str, torch.Tensor]
    kept: list[torch.Tensor] = field(default_factory=list)

    def keep(self, outputs: Sequence[torch.Tensor]) -> None:
        """Hold outputs, so that their memory is not handed out again; the oldest go first."""
        self.kept += outputs
        size = sum(one.numel() * one.element_size() for one in self.kept)
        while size > _KEPT_BYTES and len(self.kept) > 2 * len(outputs):
            oldest = self.kept.pop(0)
            size -= oldest.numel() * oldest.element_size()


class FailureError(Exception):
    """What a candidate did instead of its work; ``kind`` is a reason of a verdict."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(detail)
        self.kind = kind


class _Server:
    """Answers requests. What it calls is bound before any code of the candidate runs."""

    def __init__(self, job: Job, region: mmap.mmap, requests: int, answers: int) -> None:
        self._job = job
        self._region = region
        self._source = wire.Source(requests)
        self._answers = answers
        self._class: Any = None
        self._instances: dict[str, _Instance] = {}
        self._buffers: dict[tuple[int, int], torch.Tensor] = {}
        self._perturb = getattr(confinement.libc(), "mallopt", None)

    def answer(self, head: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        wire.send(self._answers, wire.pack(head, blobs))

    def serve(self) -> None:
        while True:
            try:
                head = self._source.head()
                blobs = [self._source.bytes(t["nbytes"]) for t in head.get("blobs", ())]
            except wire.ClosedError:
                return
            number = head["number"]
            try:
                found, outputs = getattr(self, f"_{head['do']}")(head, blobs)
                self.answer({"number": number, **found}, outputs)
            except FailureError as failure:
                self.answer({"number": number, "failed": failure.kind, "detail": str(failure)})

    # ---- requests ------------------------------------------------------------------------------

    def _load(self, head: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], list]:
        path = Path(self._job.folder, f"{MODULE}.py")
        path.write_text(self._job.source)
        with _blamed("does-not-import"):
            spec = importlib.util.spec_from_file_location(MODULE, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[MODULE] = module
            spec.loader.exec_module(module)
        self._class = getattr(module, self._job.entry, None)
        if not callable(self._class):
            raise FailureError("does-not-import", f"defines no class {self._job.entry}")
        return {"loaded": True}, []

    def _build(self, head: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], list]:
        tensors = [_tensor(t, b) for t, b in zip(head["blobs"], blobs, strict=True)]
        init = wire.decode(head["init"], tensors)
        state = wire.decode(head["state"], tensors)
        with torch.no_grad():
            torch.manual_seed(head["seed"])
            with _blamed("does-not-build"):
                model = self._class(*init)
                if state is not None:
                    _load_state(model, state)
                if self._job.device != "cpu":
                    model = model.to(self._job.device)
            named = getattr(model, "named_parameters", None)
            with _blamed("does-not-build"):
                found = dict(named()) if callable(named) else {}
                parameters = {
                    name: value.detach().clone() for name, value in found.items() if _is_made(value)
                }
        self._instances[head["instance"]] = _Instance(model, parameters)
        return {"built": True}, []

    def _forget(self, head: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], list]:
        self._instances.pop(head["instance"], None)
        return {"forgotten": True}, []

    def _run(self, head: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], list]:
        instance = self._instances[head["instance"]]
        tensors = [self._input(t) for t in head["tensors"]]
        arguments = wire.decode(head["inputs"], tensors)
        self._disturb(head["fill"], head["sizes"])
        torch.manual_seed(head["seed"])
        with torch.no_grad(), drawing(head["seed"]) if head["draws"] else nullcontext():
            with _blamed("raises"):
                found = instance.model(*arguments)
            if self._job.device != "cpu":
                with _blamed("raises"):
                    # What other streams still do is not part of the result.
                    torch.cuda.current_stream().synchronize()
        heads, data = [], []
        with torch.no_grad(), _blamed("no-values"):
            outputs = _outputs(found)
            if len(outputs) != len(head["sizes"]):
                wanted = f"returns {len(outputs)} tensors, not {len(head['sizes'])}"
                raise FailureError("wrong-count", wanted)
            notes = _sharing(outputs, tensors, instance)
            instance.keep(outputs)
            for output in outputs:
                heads.append(
                    {
                        "dtype": str(output.dtype).removeprefix("torch."),
                        "shape": list(output.shape),
                        "device": output.device.type,
                    }
                )
                data.append(output)
            self._hand_back(head["tensors"])
            # Of outputs that are not what is expected, the heads say it all.
            fits = [d.numel() * d.element_size() for d in data] == head["sizes"]
            held = [_bytes(d) for d in data if fits]
        if self._job.device != "cpu":
            with _blamed("raises"):
                torch.cuda.synchronize()
        return {"outputs": heads, "notes": notes}, held

    # ---- memory --------------------------------------------------------------------------------

    def _input(self, head: dict[str, Any]) -> torch.Tensor:
        dtype = getattr(torch, head["dtype"])
        count = head["nbytes"] // dtype.itemsize
        flat = torch.frombuffer(self._region, dtype=dtype, count=count, offset=head["offset"])
        if self._job.device != "cpu":
            place = (head["offset"], head["nbytes"])
            if place not in self._buffers or self._buffers[place].dtype != dtype:
                self._buffers[place] = torch.empty(count, dtype=dtype, device=self._job.device)
            flat = self._buffers[place].copy_(flat)
        return flat.as_strided(head["shape"], head["strides"])

    def _hand_back(self, heads: Sequence[dict[str, Any]]) -> None:
        """Put what now lies in device buffers where the judge sees it."""
        for head in heads if self._job.device != "cpu" else ():
            flat = self._buffers[head["offset"], head["nbytes"]].cpu()
            end = head["offset"] + head["nbytes"]
            self._region[head["offset"] : end] = _bytes(flat)

    def _disturb(self, fill: int, sizes: Sequence[int]) -> None:
        """See to it that memory which is handed out holds ``fill`` in each byte."""
        if self._perturb is not None:
            self._perturb(_M_PERTURB, fill ^ 0xFF)
        if self._job.device != "cpu":
            blocks = [
                torch.full((size,), fill, dtype=torch.uint8, device=self._job.device)
                for size in (*sizes, *sizes)
            ]
            del blocks


class _blamed:  # noqa: N801 - a context manager
    """Turn whatever the candidate raises into a failure of one ``kind``."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, FailureError):
            return
        if isinstance(error, MemoryError) or "can't allocate memory" in _said(error):
            raise FailureError("out-of-memory", _said(error)) from None
        raise FailureError(self._kind, f"{kind.__name__}: {_said(error)}"[:_DETAIL]) from None


def _said(error: BaseException) -> str:
    try:
        return str(error)[:_DETAIL]
    except BaseException:
        return "(its message cannot be read)"


def _tensor(head: dict[str, Any], blob: bytes) -> torch.Tensor:
    dtype = getattr(torch, head["dtype"])
    if not blob:
        return torch.empty(head["shape"], dtype=dtype)
    flat = torch.frombuffer(bytearray(blob), dtype=dtype)
    return flat.as_strided(head["shape"], head["strides"])


def _load_state(model: Any, state: dict[str, torch.Tensor]) -> None:
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if own != {name: tuple(value.shape) for name, value in state.items()}:
        raise FailureError("other-parameters", f"has the state {sorted(own)[:20]}")
    model.load_state_dict(state)


def _outputs(found: Any) -> list[torch.Tensor]:
    values = [found] if isinstance(found, torch.Tensor) else found
    if not isinstance(values, list | tuple) or not values:
        raise FailureError("no-tensor", f"returns a {type(found).__name__}")
    for value in values:
        if not isinstance(value, torch.Tensor):
            raise FailureError("no-tensor", f"returns a {type(value).__name__} among its outputs")
        if value.layout != torch.strided or value.is_meta:
            raise FailureError("no-values", f"returns a tensor of {value.layout}, {value.device}")
    return [value.detach() for value in values]


def _bytes(tensor: torch.Tensor) -> bytes:
    held = tensor.cpu().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(held.data_ptr(), held.numel() * held.element_size())


def _sharing(
    outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], instance: _Instance
) -> list[str]:
    """What outputs share memory with, and whether parameters changed."""
    model = instance.model
    parameters = dict(model.named_parameters()) if isinstance(model, torch.nn.Module) else {}
    buffers = list(model.buffers()) if isinstance(model, torch.nn.Module) else []
    groups = {
        "shares-input": list(inputs),
        "shares-parameter": [p.detach() for p in (*parameters.values(), *buffers) if _is_made(p)],
        "shares-earlier-output": instance.kept,
    }
    try:
        notes = [
            kind
            for kind, others in groups.items()
            if any(overlap(output, other) for output in outputs for other in others)
        ]
        for name, before in instance.parameters.items():
            now = parameters.get(name)
            if now is None or now.shape != before.shape or not _same(now.detach(), before):
                notes.append(f"changes-parameter:{name}")
                break
    except RuntimeError as error:
        raise FailureError("no-values", _said(error)) from None
    return notes


def _is_made(value: torch.Tensor) -> bool:
    """Whether a parameter has memory already: a lazy one gets it in the first forward."""
    return not torch.nn.parameter.is_lazy(value)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and _bytes(a) == _bytes(b)


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the spans of two tensors' memory meet."""
    if a.numel() == 0 or b.numel() == 0 or a.device != b.device:
        return False
    (a_start, a_end), (b_start, b_end) = _span(a), _span(b)
    return a_start < b_end and b_start < a_end


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    length = 1 + sum((extent - 1) * stride for extent, stride in strides)
    start = tensor.data_ptr()
    return start, start + length * tensor.element_size()
