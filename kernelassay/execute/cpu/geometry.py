"""The launch geometry a device of compute capability 9.0 accepts."""

from __future__ import annotations

from kernelassay.kernel import Launch

MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
# Static plus dynamic. A real launch must opt in to more than 48 KiB of dynamic shared memory; here
# every launch is taken to have done so.
MAX_SHARED_BYTES = 227 * 1024


def launch_error(launch: Launch, arity: int) -> str | None:
    """Why no such device would accept ``launch`` of a kernel with ``arity`` parameters, or None."""
    where = f"{launch.kernel}<<<{launch.grid}, {launch.block}, {launch.shared_bytes}>>>"
    if len(launch.arguments) != arity:
        return f"{where}: {len(launch.arguments)} arguments for {arity} parameters"
    for what, sizes, limits in (
        ("grid", launch.grid, MAX_GRID),
        ("block", launch.block, MAX_BLOCK),
    ):
        for axis, size, limit in zip("xyz", sizes, limits, strict=True):
            if not 1 <= size <= limit:
                return f"{where}: {what}.{axis} = {size} is outside 1..{limit}"
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if threads > MAX_THREADS:
        return f"{where}: {threads} threads in a block, more than {MAX_THREADS}"
    if not 0 <= launch.shared_bytes <= MAX_SHARED_BYTES:
        return f"{where}: {launch.shared_bytes} bytes of shared memory, at most {MAX_SHARED_BYTES}"
    return None
