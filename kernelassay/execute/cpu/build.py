"""Images: kernel sources compiled for the CPU executor, in batches, cached on disk.

A batch is one translation unit: the shim is parsed once and every mutant has a namespace of its
own. When a batch does not compile, the mutants its diagnostics name are compiled alone and the rest
again together, so one bad mutant costs its batch one more compilation.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelassay.errors import KernelSyntaxError, ToolchainError, UnsupportedError
from kernelassay.execute.cpu.toolchain import Compiler, Outcome, run_commands
from kernelassay.execute.cpu.translate import namespaced, unsupported_construct
from kernelassay.kernel import BuildFailure

_HERE = Path(__file__).parent
_SHIM = _HERE / "shim"
_RUNTIME = _HERE / "runtime"
_LOG_LIMIT = 4000  # characters of a compiler's output that are kept
_FULL_DISK = "No space left on device"


@dataclass(frozen=True, slots=True)
class Image:
    """Compiled device code of one source: kernel ``k`` is symbol ``<tag>_k`` of ``library``."""

    library: Path
    tag: str
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Unit:
    """One source on its way into a batch."""

    digest: str
    text: str
    tag: str
    kernels: tuple[str, ...]


def build_runtime(compiler: Compiler, cache_dir: Path, *defines: str) -> Path:
    """The runtime library, built once per content, compiler version and ``defines``.

    ``-DKA_UCONTEXT`` selects the portable context switch. Raises ``ToolchainError`` with the
    compiler's output.
    """
    digest = _hash(_tree_digest(_RUNTIME), compiler.version, compiler.kind, *defines)
    library = cache_dir / f"runtime-{digest[:20]}.so"
    if library.exists():
        return library
    cache_dir.mkdir(parents=True, exist_ok=True)
    sources = sorted(_RUNTIME.glob("*.cpp"))
    with tempfile.TemporaryDirectory(dir=cache_dir) as scratch:
        fresh = Path(scratch) / library.name
        outcome = run_commands((compiler.runtime_command(sources, fresh, *defines),), timeout_s=300)
        if not outcome.ok:
            raise ToolchainError(
                f"the CPU runtime does not compile:\n{outcome.log[:_LOG_LIMIT]}",
                where=" ".join(compiler.command),
                hint="g++ 9 or clang++ 11 and newer are expected to work",
            )
        fresh.replace(library)
    return library


def build_original(source: str, cache_dir: Path, compiler: Compiler, *, where: str = "") -> Image:
    """The image of a source that must build.

    Raises ``UnsupportedError`` naming the feature, or ``KernelSyntaxError`` with the compiler's
    output.
    """
    image = build_images({where: source}, cache_dir, compiler)[where]
    if isinstance(image, Image):
        return image
    if image.unsupported:
        raise UnsupportedError(
            f"the CPU executor does not have {image.unsupported}",
            where=where,
            hint="run this kernel with the cuda executor",
        )
    raise KernelSyntaxError(f"the kernel does not compile:\n{image.log}", where=where)


def build_images(
    sources: Mapping[str, str],
    cache_dir: Path,
    compiler: Compiler,
    *,
    checked: bool = True,
    batch: int = 16,
) -> dict[str, Image | BuildFailure]:
    """An image or a failure for each of ``sources`` (key -> ``.cu`` text with its ``launch``).

    Only ``checked`` images see findings; others are for timing. Results are cached in
    ``cache_dir``; several processes may share it.
    """
    cache = _Cache(cache_dir, compiler, checked)
    results: dict[str, Image | BuildFailure] = {}
    missing: dict[str, list[str]] = {}  # digest -> keys of equal sources
    for key, source in sources.items():
        digest = cache.digest(source)
        known = cache.read(digest)
        if known is not None:
            results[key] = known
        else:
            missing.setdefault(digest, []).append(key)
    units: list[_Unit] = []
    built: dict[str, Image | BuildFailure] = {}
    for digest, keys in missing.items():
        prepared = _prepare(digest, sources[keys[0]])
        if isinstance(prepared, _Unit):
            units.append(prepared)
        else:
            built[digest] = prepared
    for start in range(0, len(units), batch):
        built.update(_build(cache, units[start : start + batch]))
    for digest, keys in missing.items():
        results.update(dict.fromkeys(keys, built[digest]))
    return {key: results[key] for key in sources}


def image_bytes(source: str, compiler: Compiler) -> bytes | BuildFailure:
    """The library that ``source`` alone compiles to, always under one name, without checks.

    Equal bytes mean equal code for this machine. Nothing is cached.
    """
    prepared = _prepare("0" * 40, source)
    if isinstance(prepared, BuildFailure):
        return prepared
    with tempfile.TemporaryDirectory() as scratch:
        unit = Path(scratch) / "unit.cpp"
        unit.write_text(f'#include "shim.h"\n{prepared.text}')
        library = Path(scratch) / "unit.so"
        outcome = run_commands(compiler.image_commands(unit, library, _SHIM, checked=False))
        return library.read_bytes() if outcome.ok else _failure(outcome)


def _failure(outcome: Outcome) -> BuildFailure:
    return BuildFailure(outcome.log[:_LOG_LIMIT], transient=not outcome.final)


def _prepare(digest: str, source: str) -> _Unit | BuildFailure:
    try:
        feature = unsupported_construct(source)
        if feature:
            return BuildFailure("", unsupported=feature)
        tag = f"k{digest[:20]}"
        text, kernels = namespaced(source, tag)
    except KernelSyntaxError as error:
        return BuildFailure(str(error))
    if not kernels:
        return BuildFailure("the source has no __global__ function")
    return _Unit(digest, text, tag, kernels)


def _build(cache: _Cache, units: Sequence[_Unit]) -> dict[str, Image | BuildFailure]:
    """Compile ``units`` together; on failure, split."""
    if not units:
        return {}
    outcome, library = cache.compile(units)
    if library is not None:
        images = {unit.digest: Image(library, unit.tag, unit.kernels) for unit in units}
        for digest, image in images.items():
            cache.write(digest, image)
        return dict(images)
    if _FULL_DISK in outcome.log:
        raise ToolchainError(
            "the disk is full, so the compiler cannot write; nothing finished was lost",
            where=str(cache.directory),
            hint="free some space and start the run again with the same command",
        )
    if len(units) == 1:
        failure = _failure(outcome)
        if not failure.transient:
            cache.write(units[0].digest, failure)
        return {units[0].digest: failure}
    named = set(re.findall(r"^(k[0-9a-f]{20})(?:_end)?:\d", outcome.log, re.MULTILINE))
    suspects = [unit for unit in units if unit.tag in named]
    rest = [unit for unit in units if unit.tag not in named]
    if not suspects or not rest:
        half = len(units) // 2
        return {**_build(cache, units[:half]), **_build(cache, units[half:])}
    results = _build(cache, rest)
    for unit in suspects:
        results.update(_build(cache, [unit]))
    return results


class _Cache:
    """Images on disk: one JSON per source, one library per batch, each written whole."""

    def __init__(self, directory: Path, compiler: Compiler, checked: bool) -> None:
        self.directory = directory / "cpu-images"
        self._compiler = compiler
        self._checked = checked
        self._key = _hash(
            _tree_digest(_SHIM),
            _tree_digest(_HERE, "translate.py"),
            compiler.kind,
            compiler.version,
            *compiler.image_flags(checked=checked),
        )

    def digest(self, source: str) -> str:
        return _hash(self._key, source)

    def read(self, digest: str) -> Image | BuildFailure | None:
        try:
            record: dict[str, Any] = json.loads(self._record(digest).read_text())
        except (OSError, ValueError):
            return None
        if "log" in record:
            return BuildFailure(record["log"], record["unsupported"])
        library = self.directory / record["library"]
        if not library.exists():
            return None
        return Image(library, record["tag"], tuple(record["kernels"]))

    def write(self, digest: str, result: Image | BuildFailure) -> None:
        if isinstance(result, Image):
            record: dict[str, Any] = {
                "library": result.library.name,
                "tag": result.tag,
                "kernels": result.kernels,
            }
        else:
            record = {"log": result.log, "unsupported": result.unsupported}
        # Named apart from every other writer's: lanes of one process share the cache too.
        with tempfile.NamedTemporaryFile("w", dir=self.directory, delete=False) as fresh:
            fresh.write(json.dumps(record))
        Path(fresh.name).replace(self._record(digest))

    def compile(self, units: Sequence[_Unit]) -> tuple[Outcome, Path | None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        library = self.directory / f"{_hash(*(unit.digest for unit in units))[:24]}.so"
        with tempfile.TemporaryDirectory(dir=self.directory) as scratch:
            source = Path(scratch) / "batch.cpp"
            source.write_text('#include "shim.h"\n' + "".join(unit.text for unit in units))
            fresh = Path(scratch) / library.name
            commands = self._compiler.image_commands(source, fresh, _SHIM, checked=self._checked)
            outcome = run_commands(commands)
            if not outcome.ok:
                return outcome, None
            fresh.replace(library)
        return outcome, library

    def _record(self, digest: str) -> Path:
        return self.directory / f"{digest[:40]}.json"


def _hash(*parts: str) -> str:
    state = hashlib.sha256()
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()


@lru_cache
def _tree_digest(directory: Path, pattern: str = "*") -> str:
    files = sorted(path for path in directory.glob(pattern) if path.is_file())
    return _hash(*(part for path in files for part in (path.name, path.read_text())))
