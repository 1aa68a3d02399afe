"""Images: kernel sources compiled to cubins for the CUDA executor, in batches, cached on disk.

Nothing here needs a GPU or a driver. A kernel whose module has data (``__constant__`` tables,
``__device__`` variables) has a module of its own, so that no mutant sees another's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelassay.compile.batch import (
    BATCH,
    Unit,
    batch_size,
    batches,
    place_batch,
    unit,
)
from kernelassay.compile.cubins import CubinImage, CubinStore
from kernelassay.compile.pool import SLOTS, WorkerPool
from kernelassay.compile.source import device_key
from kernelassay.compile.worker import Worker
from kernelassay.errors import KernelSyntaxError
from kernelassay.kernel import BuildFailure


def build_cubins(
    sources: Mapping[str, str], cache_dir: Path, *, jobs: int = 1, batch: int = BATCH
) -> dict[str, CubinImage | BuildFailure]:
    """An image or a failure for each of ``sources`` (key -> ``.cu`` text with its ``launch``).

    At most ``jobs`` compilers work at a time, on up to ``batch`` sources each, and no more in all
    processes that share ``cache_dir`` than there are cores. Results are cached there. Raises
    ``ToolchainError`` if NVRTC is missing or the folder cannot be written.
    """
    store = CubinStore(cache_dir)
    results: dict[str, CubinImage | BuildFailure] = {}
    missing: dict[str, list[str]] = {}  # device key -> keys of sources that have it
    for key, source in sources.items():
        try:
            device = device_key(source)
        except KernelSyntaxError as error:
            results[key] = BuildFailure(str(error))
            continue
        if device in missing:
            missing[device].append(key)
        elif (known := store.read(device)) is not None:
            results[key] = known
        else:
            missing[device] = [key]
    units = [unit(device, sources[keys[0]]) for device, keys in missing.items()]
    built: dict[str, CubinImage | BuildFailure] = {
        part.key: BuildFailure("the source has no __global__ function")
        for part in units
        if not part.signatures
    }
    wanted = [part for part in units if part.signatures]
    size = batch_size(len(wanted), jobs, batch)
    pool = WorkerPool(jobs, cache_dir / SLOTS)

    def build(worker: Worker, units: Sequence[Unit]) -> dict[str, CubinImage | BuildFailure]:
        read = {part.key: store.read(part.key) for part in units}  # others are at the same
        known = {key: image for key, image in read.items() if image is not None}
        unknown = [part for part in units if part.key not in known]
        return known | store.write(place_batch(worker, unknown))

    for images in pool.run(build, batches(wanted, size), lambda units: f"cubin {units[0].key}"):
        built.update(images)
    for device, keys in missing.items():
        results.update(dict.fromkeys(keys, built[device]))
    return {key: results[key] for key in sources}
