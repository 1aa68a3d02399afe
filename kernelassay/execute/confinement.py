"""What a candidate's process cannot do: each fence is asked for and reported, as systems differ.

Limits on memory, file sizes and processes hold everywhere. Namespaces of users and processes take
away what else runs here, and the network; Landlock takes away the files: only what Python, its
packages and compilers need can be read, only the scratch folder written. Neither needs privileges.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FILES = "files"
PROCESSES = "processes"
NETWORK = "network"

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 38, 36
_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = (
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1

# Rights of Landlock (linux/landlock.h): execute, read a file, read a folder; and those on files.
_READ = 0b1101
_FILE_RIGHTS = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15)
_RIGHTS_OF_ABI = {1: 13, 2: 14, 3: 15, 4: 15}
_SCOPES = 0b11  # abstract sockets, signals

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys")
_SHARED = ("shm", "mqueue")
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Limits:
    """What a candidate's process may take.

    ``memory_bytes`` beyond what it starts with, ``file_bytes`` per file, ``processes`` in all
    where users have namespaces of their own.
    """

    memory_bytes: int = 4 << 30
    file_bytes: int = 256 << 20
    processes: int = 128
    reserves_space: bool = False
    """Whether only private memory counts: CUDA reserves far more addresses than it uses."""


def libc() -> ctypes.CDLL:
    """The C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """End this process when its parent ends."""
    libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parents have ended."""
    libc().prctl(_PR_SET_CHILD_SUBREAPER, 1)


ALL_NAMESPACES = _CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC
"""Of users, processes, the network, and shared memory."""
NO_PROCESSES = ALL_NAMESPACES & ~_CLONE_NEWPID
NO_USERS = _CLONE_NEWNET | _CLONE_NEWIPC


@dataclass(frozen=True, slots=True)
class Fences:
    """Which fences to raise: ``namespaces`` by their flags, and of files, if ``files``.

    ``open`` are folders that stay writable beside the scratch folder.
    """

    namespaces: int = ALL_NAMESPACES
    files: bool = True
    open: tuple[str, ...] = ()


def unshare(namespaces: int = ALL_NAMESPACES) -> tuple[str, ...]:
    """Give the children of this process namespaces of their own; which fences that raised.

    The process must have one thread.
    """
    user, group = os.getuid(), os.getgid()
    if not namespaces or libc().unshare(namespaces) != 0:
        return ()
    raised = {PROCESSES: namespaces & _CLONE_NEWPID, NETWORK: namespaces & _CLONE_NEWNET}
    found = tuple(name for name, flag in raised.items() if flag)
    if not namespaces & _CLONE_NEWUSER:
        return found
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with suppress(OSError):
            Path("/proc/self", name).write_text(text)
    return found


def limit(limits: Limits) -> None:
    """Set the limits for this process and its children."""
    column, kind = (5, resource.RLIMIT_DATA) if limits.reserves_space else (0, resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[column])
    space = pages * resource.getpagesize() + limits.memory_bytes
    for what, value in (
        (kind, space),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (value, value))


def limit_processes(limits: Limits) -> None:
    """Bound the number of processes; only where the user's others do not count."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (limits.processes, limits.processes))


def confine_files(
    readable: Iterable[Path], writable: Sequence[Path], hidden: Sequence[Path]
) -> tuple[str, ...]:
    """Leave this process ``readable`` without ``hidden``, and ``writable``; the fence if it stands.

    It cannot be lifted, and children inherit it. Processes outside cannot be traced or signalled.
    """
    c = libc()
    c.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    abi = c.syscall(_CREATE_RULESET, None, 0, 1)
    if abi < 1:
        return ()
    rights = (1 << _RIGHTS_OF_ABI.get(abi, 16)) - 1
    words = [rights, 0, _SCOPES if abi >= 6 else 0][: 1 if abi < 4 else 2 if abi < 6 else 3]
    attributes = (ctypes.c_uint64 * len(words))(*words)
    ruleset = c.syscall(_CREATE_RULESET, attributes, ctypes.sizeof(attributes), 0)
    if ruleset < 0:
        return ()
    try:
        for path in _without(readable, hidden):
            _allow(c, ruleset, path, rights & _READ)
        for path in (*writable, *_devices()):
            _allow(c, ruleset, path, rights)
        return (FILES,) if c.syscall(_RESTRICT_SELF, ruleset, 0) == 0 else ()
    finally:
        os.close(ruleset)


def _devices() -> list[Path]:
    """What lies in /dev but shared memory: files there would outlive the candidate."""
    found = sorted(Path("/dev").iterdir())
    return [path for path in found if path.name not in _SHARED and not path.is_symlink()]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _allow(c: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not path.is_dir():
            rights &= _FILE_RIGHTS
        beneath = _Beneath(rights, parent)
        c.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(beneath), 0)
    finally:
        os.close(parent)


def _without(paths: Iterable[Path], hidden: Sequence[Path], depth: int = 0) -> Iterator[Path]:
    """``paths``, and in place of one that holds something hidden, what lies beside that."""
    for path in paths:
        if any(path == other or other in path.parents for other in hidden):
            continue
        if not any(path in other.parents for other in hidden):
            yield path
        elif depth < _DEEPEST * 4 and path.is_dir():
            yield from _without(sorted(path.iterdir()), hidden, depth + 1)


def python_folders() -> tuple[Path, ...]:
    """What Python, its packages, compilers and devices need to read, links resolved."""
    found = [sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), *_SYSTEM]
    found += [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    return tuple(dict.fromkeys(Path(name).resolve() for name in found))
