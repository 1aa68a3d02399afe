"""A process that has imported what kernel texts need, and forks workers that run them.

Triton decides at its import whether kernels are interpreted, and CUDA does not survive a fork: so
this is a process of its own, with an environment of its own, that touches no device. Each worker is
a child of a supervisor, which ends it and what it started when its bench is done with it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from kernelassay.errors import DeviceError, ToolchainError
from kernelassay.execute import confinement, wire
from kernelassay.execute.bearing import bearable, cuda_starts
from kernelassay.execute.sandbox import redirect
from kernelassay.execute.supervision import close_all_but, end_descendants, watched
from kernelassay.execute.triton.options import Device, Options

START_SECONDS = 240.0
FILE_BYTES = 1 << 30
_LENGTH = 1 << 20

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_SCRATCH = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")


# ---- the bench's side ----------------------------------------------------------------------------


class Nursery:
    """A handle on such a process; one serves all benches of a device in this process."""

    def __init__(self, device: Device) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, device, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_environment(device),
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._socket = ours
        ours.settimeout(START_SECONDS)
        try:
            said = json.loads(ours.recv(_LENGTH) or b"null")
        except TimeoutError:
            said = {"error": f"not ready within {START_SECONDS:.0f} s"}
        except ValueError:
            said = None
        if said is None:
            assert self._process.stderr is not None
            self._process.kill()
            said = {"error": self._process.stderr.read()[-2000:].decode(errors="replace").strip()}
        if "error" in said:
            self.close()
            raise ToolchainError(
                said["error"],
                where=f"the {device} worker's process",
                hint="Triton kernels need the extra: pip install 'kernelassay[triton]'",
            )

    def close(self) -> None:
        """Let the process end; workers go on until their benches are closed."""
        self._socket.close()
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    @property
    def alive(self) -> bool:
        """Whether it can fork."""
        return self._process.poll() is None

    def fork(self, options: Options, folder: Path, descriptors: list[int]) -> None:
        """Start a worker that serves requests, answers, output and control descriptors."""
        job = json.dumps({"options": asdict(options), "folder": str(folder)}).encode()
        try:
            with self._lock:
                socket.send_fds(self._socket, [job], descriptors)
                if self._socket.recv(1) != b"+":
                    raise OSError("it ended")
        except OSError as error:
            raise DeviceError(
                f"no worker can be started: {error}", hint="run the command again"
            ) from None


_nurseries: dict[tuple[int, Device], Nursery] = {}
_making = threading.Lock()


def nursery(device: Device) -> Nursery:
    """This process's nursery for a device; another one after the last died.

    Raises :class:`ToolchainError` if what it needs does not import.
    """
    key = (os.getpid(), device)
    with _making:
        if key not in _nurseries or not _nurseries[key].alive:
            _nurseries[key] = Nursery(device)
        return _nurseries[key]


def _environment(device: Device) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    env |= dict.fromkeys(_THREADS, "1")
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    env["TRITON_DISABLE_LINE_INFO"] = "1"
    env["TRITON_DEFAULT_FP_FUSION"] = "1"  # what is the default up to 3.9, said aloud
    if device == "interpreter":
        env["TRITON_INTERPRET"] = "1"
    return env


# ---- the process itself --------------------------------------------------------------------------


def main(device: Device, descriptor: int) -> None:
    """Import, then fork a supervisor for each request until the bench's side is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the kernel
    requests = socket.socket(fileno=descriptor)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        _warm(device)
    except Exception as error:  # a broken package raises whatever it likes
        requests.sendall(json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]}).encode())
        return
    fences = _bearable(visible) if device == "cuda" else confinement.Fences()
    gc.freeze()
    requests.sendall(json.dumps({"ready": True}).encode())
    while True:
        job, descriptors, _, _ = socket.recv_fds(requests, _LENGTH, 4)
        if not job:
            return
        if os.fork() == 0:
            requests.close()
            _supervise(json.loads(job), fences, descriptors, visible)
        for one in descriptors:
            os.close(one)
        requests.sendall(b"+")


def _warm(device: Device) -> None:
    import kernelassay.execute.triton.serving

    if device == "numpy":
        return
    import kernelassay.execute.bare
    import kernelassay.execute.triton.tensors  # noqa: F401

    if device == "interpreter":
        from kernelassay.execute.triton.interpreter import self_test

        self_test()


def _bearable(visible: str | None) -> confinement.Fences:
    def starts() -> None:
        _show_devices(visible)
        cuda_starts()

    return bearable(starts)


def _show_devices(visible: str | None) -> None:
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # empty until here: nothing was to start CUDA
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible


def _supervise(
    job: dict[str, object],
    fences: confinement.Fences,
    descriptors: list[int],
    visible: str | None,
) -> NoReturn:
    """Run a worker until it ends or control closes; say how it ended when nothing is left of it."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        confinement.adopt_orphans()
        raised = confinement.unshare(fences.namespaces)
        pid = os.fork()
        if pid == 0:
            _work(job, fences, raised, descriptors, visible)
        *theirs, control = descriptors
        for one in theirs:
            os.close(one)
        code = watched(pid, control)
        end_descendants()
        os.write(control, json.dumps({"code": code}).encode())
    except (BrokenPipeError, ConnectionError):
        pass  # the bench is gone
    finally:
        os._exit(0)


def _work(
    job: dict[str, object],
    fences: confinement.Fences,
    raised: tuple[str, ...],
    descriptors: list[int],
    visible: str | None,
) -> NoReturn:
    try:
        os.setsid()
        confinement.die_with_parent()
        requests, answers, output, _ = descriptors
        redirect(output)
        close_all_but(requests, answers)
        options = Options(**job["options"])  # type: ignore[arg-type]
        _confine(options, Path(str(job["folder"])), fences, raised, visible)

        from kernelassay.execute.triton.serving import serve

        serve(options, requests, answers)
    except wire.ClosedError:
        pass
    finally:
        os._exit(0)


def _confine(
    options: Options,
    folder: Path,
    fences: confinement.Fences,
    raised: tuple[str, ...],
    visible: str | None,
) -> None:
    for name in _SCRATCH:
        os.environ[name] = str(folder)
    on_gpu = options.device == "cuda"
    if on_gpu:
        _show_devices(options.gpu or visible)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.chdir(folder)
    tempfile.tempdir = None  # it may have been asked for before
    limits = confinement.Limits(options.memory_bytes, FILE_BYTES, reserves_space=on_gpu)
    confinement.limit(limits)
    if confinement.PROCESSES in raised:
        confinement.limit_processes(limits)
    if fences.files:
        packages = [Path(path).resolve() for path in sys.path if path]
        readable = (*confinement.python_folders(), *packages)
        confinement.confine_files(readable, [folder, *map(Path, fences.open)], [])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))  # type: ignore[arg-type]
