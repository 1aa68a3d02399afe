"""Take from this process what it needs no more to compute: files, sockets, other processes.

For code that nobody has read. A filter in the kernel (seccomp) lets through the system calls of a
process that computes and reads files, and answers all others with "not permitted"; there is no way
back. What code may still do is read what the user may read: nothing of that leaves, but as the
result.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterator

from kernelassay.errors import UnsupportedError

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_ARCH_X86_64 = 0xC000003E
_LD, _JEQ, _JGT, _AND, _RET = 0x20, 0x15, 0x25, 0x54, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NOT_PERMITTED = 0x00050000 | 1
_NR, _ARCH, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000

# Of <asm/unistd_64.h>: read write close fstat lseek mmap mprotect munmap brk rt_sigaction
# rt_sigprocmask rt_sigreturn pread64 readv writev sched_yield mremap madvise nanosleep getpid
# exit getuid getgid geteuid getegid getppid sigaltstack gettid futex sched_getaffinity getdents64
# clock_gettime clock_getres clock_nanosleep exit_group set_robust_list newfstatat getrandom rseq
# stat lstat poll select access uname getcwd readlink getrlimit getrusage sysinfo times statx
# membarrier restart_syscall gettimeofday time readlinkat faccessat faccessat2
_ALLOWED = (
    *(0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 20, 21, 23, 24, 25, 28, 35),
    *(39, 60, 63, 79, 89, 96, 97, 98, 99, 100, 102, 104, 107, 108, 110, 131, 186, 201, 202, 204),
    *(217, 219, 228, 229, 230, 231, 262, 267, 269, 273, 318, 324, 332, 334, 439),
)
_OPEN, _OPENAT, _FCNTL = 2, 257, 72
_WRITES = 0o3 | 0o100 | 0o1000 | 0o2000 | 0o20000000  # access mode, create, truncate, append, tmp
_READS_FLAGS = 3  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL; others name processes to be signalled


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def isolate(keep: int) -> None:
    """Close all files but standard ones and ``keep``, then filter system calls, for good.

    Raises ``UnsupportedError`` where that cannot be done.
    """
    if platform.machine() != "x86_64":
        raise UnsupportedError(
            f"code that nobody has read is isolated on x86-64 only, this is {platform.machine()}",
            hint="use a rung that needs no model: r0, taxonomy, search",
        )
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
    code = b"".join(_instructions())
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0
    )
    if failed:
        raise UnsupportedError(
            f"code that nobody has read cannot be isolated: {os.strerror(ctypes.get_errno())}",
            hint="seccomp must be allowed where this runs; the other rungs need no model",
        )


def _instructions() -> Iterator[bytes]:
    """A BPF program: instructions are code, jump if true, jump if false, and an operand."""

    def one(code: int, operand: int, true: int = 0, false: int = 0) -> bytes:
        return struct.pack("HBBI", code, true, false, operand)

    yield one(_LD, _ARCH)
    yield one(_JEQ, _ARCH_X86_64, 1, 0)
    yield one(_RET, _KILL)
    yield one(_LD, _NR)
    yield one(_JGT, _X32 - 1, 0, 1)
    yield one(_RET, _NOT_PERMITTED)
    for call, argument in ((_OPEN, 1), (_OPENAT, 2)):
        yield one(_JEQ, call, 0, 5)
        yield one(_LD, _ARGUMENTS + 8 * argument)
        yield one(_AND, _WRITES)
        yield one(_JEQ, 0, 0, 1)
        yield one(_RET, _ALLOW)
        yield one(_RET, _NOT_PERMITTED)
    yield one(_JEQ, _FCNTL, 0, 4)
    yield one(_LD, _ARGUMENTS + 8)
    yield one(_JGT, _READS_FLAGS, 1, 0)
    yield one(_RET, _ALLOW)
    yield one(_RET, _NOT_PERMITTED)
    for call in _ALLOWED:
        yield one(_JEQ, call, 0, 1)
        yield one(_RET, _ALLOW)
    yield one(_RET, _NOT_PERMITTED)


__all__ = ["isolate"]
