"""Cubins on disk: one file per batch, one record per device code, each written whole.

The key is the device code up to layout, the compiler's version, its options and the scheme, so
mutants of the host function share the original's cubin. Several processes may share the folder.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelassay.compile import nvrtc
from kernelassay.compile.batch import Place, Refusal, Unit
from kernelassay.compile.cache import cache_key
from kernelassay.errors import ToolchainError
from kernelassay.kernel import BuildFailure

SCHEME = 1
"""Version of the records and of the names inside a module."""
LOG_LIMIT = 4000


@dataclass(frozen=True, slots=True)
class CubinImage:
    """Compiled device code of one source, somewhere in the module at ``path``.

    ``functions`` pairs each kernel's name in the source with its name in the module;
    ``parameters`` pairs it with the type texts of its parameters, as
    :class:`~kernelassay.compile.source.KernelSignature` has them.
    """

    path: Path
    functions: tuple[tuple[str, str], ...]
    parameters: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels in the source."""
        return tuple(name for name, _ in self.functions)


class CubinStore:
    """What was built, by device code (:func:`kernelassay.compile.source.device_key`)."""

    def __init__(self, cache_dir: Path) -> None:
        self.directory = cache_dir / "cuda-images"
        self._salt = (nvrtc.version(), *nvrtc.OPTIONS, nvrtc.PRELUDE, "cubin", str(SCHEME))

    def read(self, key: str) -> CubinImage | BuildFailure | None:
        """What is known of a device code; None if it was not built, or its cubin is gone."""
        try:
            record: dict[str, Any] = json.loads(self._record(key).read_text())
        except (OSError, ValueError):
            return None
        if "log" in record:
            return BuildFailure(record["log"])
        path = self.directory / record["cubin"]
        if not path.exists():
            return None
        return CubinImage(
            path,
            tuple((name, linked) for name, linked in record["functions"]),
            tuple((name, tuple(types)) for name, types in record["parameters"]),
        )

    def write(
        self, made: Iterable[tuple[Unit, Place | Refusal]]
    ) -> dict[str, CubinImage | BuildFailure]:
        """Keep what became of units, except what is transient; the results by unit key."""
        paths: dict[bytes, Path] = {}
        results: dict[str, CubinImage | BuildFailure] = {}
        for part, outcome in made:
            if isinstance(outcome, Refusal):
                log = outcome.error[:LOG_LIMIT]
                failure = BuildFailure(log, transient=outcome.transient)
                results[part.key] = failure
                if not outcome.transient:
                    self._keep(part.key, {"log": failure.log})
                continue
            if outcome.image not in paths:
                name = hashlib.blake2b(outcome.image, digest_size=16).hexdigest()
                paths[outcome.image] = self.directory / f"{name}.cubin"
                self._write_whole(paths[outcome.image], outcome.image)
            image = CubinImage(
                paths[outcome.image],
                tuple(outcome.functions(part)),
                tuple((s.name, tuple(kind for kind, _ in s.parameters)) for s in part.signatures),
            )
            results[part.key] = image
            record = {"functions": image.functions, "parameters": image.parameters}
            self._keep(part.key, {"cubin": image.path.name, **record})
        return results

    def _keep(self, key: str, record: Mapping[str, Any]) -> None:
        self._write_whole(self._record(key), json.dumps(record).encode())

    def _record(self, key: str) -> Path:
        return self.directory / f"{cache_key(key, *self._salt)}.json"

    def _write_whole(self, path: Path, data: bytes) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # Named apart from every other writer's: threads and processes share the folder.
            with tempfile.NamedTemporaryFile(dir=self.directory, delete=False) as fresh:
                fresh.write(data)
            Path(fresh.name).replace(path)
        except OSError as error:
            raise ToolchainError(
                f"a cubin cannot be kept: {error.strerror}",
                where=str(self.directory),
                hint="free some space and start the run again with the same command",
            ) from error
