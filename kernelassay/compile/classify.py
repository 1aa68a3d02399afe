"""Which mutants are stillborn, equivalent, duplicates, or distinct.

The identity of a mutant has two parts: the digest of its machine code and the normalised text of
its host function. Both must be equal for two mutants to be one. Equal identities prove equal
behaviour for this architecture and compiler; unequal ones prove nothing.

Two backends: ``nvrtc`` (machine code for sm_90), and ``host`` where NVRTC is missing: the library
that the CPU executor's compiler makes of each mutant alone. The result names the backend.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernelassay.compile import nvrtc
from kernelassay.compile.batch import (
    BATCH,
    Image,
    Unit,
    compile_batch,
    compile_lone,
    stillborn_pass,
    unit,
)
from kernelassay.compile.cache import ImageCache, cache_key
from kernelassay.compile.fixed import Fixed, with_fixed
from kernelassay.compile.identity import SCHEME
from kernelassay.compile.launcher import parse_launcher
from kernelassay.compile.lexing import tokenize, unbalanced
from kernelassay.compile.source import device_key, host_text, line_of
from kernelassay.compile.worker import Worker
from kernelassay.errors import KernelSyntaxError, ToolchainError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from kernelassay.execute.cpu.build import BuildFailure

STILLBORN = "stillborn"
EQUIVALENT = "equivalent"
DUPLICATE = "duplicate"
DISTINCT = "distinct"
STATUSES = (STILLBORN, EQUIVALENT, DUPLICATE, DISTINCT)

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Identity:
    """The bucket of one mutant.

    ``status`` is :data:`STILLBORN`, :data:`EQUIVALENT`, :data:`DUPLICATE` or :data:`DISTINCT`.
    ``reason`` is the first compiler error of a stillborn mutant, why a distinct one could not be
    compared, else "". ``digest`` identifies
    machine code and host function together ("" when stillborn). ``twin`` is the id of the first
    mutant that a duplicate equals.
    """

    status: str
    reason: str
    digest: str
    twin: str | None


class Classification(Mapping[str, Identity]):
    """Identities by mutant id, in the order given, with the ``backend`` that decided them.

    ``backend`` is ``nvrtc`` or ``host``; ``compiler`` names version and options; ``digest`` is
    the original's.
    """

    def __init__(
        self, identities: Mapping[str, Identity], backend: str, compiler: str, digest: str
    ) -> None:
        self._identities = dict(identities)
        self.backend = backend
        self.compiler = compiler
        self.digest = digest

    def __getitem__(self, mutant: str) -> Identity:
        return self._identities[mutant]

    def __iter__(self) -> Iterator[str]:
        return iter(self._identities)

    def __len__(self) -> int:
        return len(self._identities)

    def counts(self) -> dict[str, int]:
        """Number of mutants per status, all four named; the sum is the number of mutants."""
        found = dict.fromkeys(STATUSES, 0)
        for identity in self._identities.values():
            found[identity.status] += 1
        return found


def classify(
    original: str,
    mutants: Sequence[tuple[str, str]],
    *,
    jobs: int = 1,
    cache: Path | None = None,
    progress: Progress | None = None,
    backend: str = "auto",
    fixed: Fixed | None = None,
) -> Classification:
    """Sort ``mutants``, pairs of id and text, into the four buckets.

    ``jobs`` compiler processes run at a time. ``cache`` is a folder for outcomes, kept by text,
    compiler version, options and scheme. ``progress`` is called with (done, total) device texts.
    ``backend`` is ``nvrtc``, ``host``, or ``auto`` for the first where it is available. ``fixed``
    has the ``launch`` parameters that are constants of the problem or tied to others; only NVRTC
    is told of them.

    Raises ``KernelSyntaxError`` or ``UnsupportedError`` if the *original* does not compile,
    ``ToolchainError`` if ``nvrtc`` is asked for and missing.
    """
    ids = [mutant for mutant, _ in mutants]
    if len(set(ids)) != len(ids):
        raise UsageError("mutant ids are not unique")
    chosen = _backend(backend)
    parse_launcher(original)
    broken = {mutant: reason for mutant, text in mutants if (reason := _host_error(text))}
    living = {mutant: text for mutant, text in mutants if mutant not in broken}
    device = _device_texts(original, living, (fixed or {}) if chosen == "nvrtc" else {})
    if chosen == "nvrtc":
        images = _Compilation(device.own, device.texts, max(1, jobs), cache, progress).images()
        compiler = f"NVRTC {nvrtc.version()} {' '.join(nvrtc.OPTIONS)}"
    else:
        images, compiler = _host_images(device.texts, cache, progress)
    if images[device.own].error:
        raise KernelSyntaxError(f"the original does not compile: {images[device.own].error}")
    digest = _joint(images[device.own], original)
    found = {mutant: images[key] for mutant, key in device.keys.items()}
    found |= {mutant: Image("", reason) for mutant, reason in broken.items()}
    return Classification(_decided(mutants, found, device.keys, digest), chosen, compiler, digest)


@dataclass(frozen=True, slots=True)
class _DeviceTexts:
    """What is compiled: distinct texts by key, the original's key, and each mutant's."""

    texts: Mapping[str, str]
    own: str
    keys: Mapping[str, str]


def _device_texts(original: str, mutants: Mapping[str, str], fixed: Fixed) -> _DeviceTexts:
    """The texts to compile, with what is ``fixed`` told; the original's is the first."""
    told = with_fixed(original, fixed)
    own = device_key(told)
    texts = {own: told}
    keys: dict[str, str] = {}
    for mutant, text in mutants.items():
        told = with_fixed(text, fixed)
        keys[mutant] = device_key(told)
        texts.setdefault(keys[mutant], told)
    return _DeviceTexts(texts, own, keys)


def _decided(
    mutants: Sequence[tuple[str, str]],
    images: Mapping[str, Image],
    keys: Mapping[str, str],
    original: str,
) -> dict[str, Identity]:
    """The bucket of every mutant by its image; ``original`` is the original's joint digest."""
    first: dict[str, str] = {}
    identities: dict[str, Identity] = {}
    for mutant, text in mutants:
        image = images[mutant]
        if image.transient:
            # The compiler ran out of time or memory: that proves nothing, so the text decides.
            identities[mutant] = _by_text(image.error, keys[mutant], text)
            continue
        if image.error:
            identities[mutant] = Identity(STILLBORN, image.error, "", None)
            continue
        digest = _joint(image, text)
        if digest == original:
            identities[mutant] = Identity(EQUIVALENT, "", digest, None)
        elif (twin := first.setdefault(digest, mutant)) != mutant:
            identities[mutant] = Identity(DUPLICATE, "", digest, twin)
        else:
            identities[mutant] = Identity(DISTINCT, "", digest, None)
    return identities


def _backend(asked: str) -> str:
    if asked not in ("auto", "nvrtc", "host"):
        raise UsageError(f"unknown backend {asked!r}", hint="use auto, nvrtc or host")
    if asked == "host":
        return asked
    reason = nvrtc.unavailable_reason()
    if not reason:
        return "nvrtc"
    if asked == "nvrtc":
        raise ToolchainError(reason, hint="install kernelassay[nvrtc], or use the host backend")
    return "host"


def _host_error(text: str) -> str:
    """Why the host function does not compile; "" when it does."""
    try:
        parse_launcher(text)
    except (KernelSyntaxError, UnsupportedError) as error:
        return f"{error.where}: error: {error.what}" if error.where else f"error: {error.what}"
    return ""


def _by_text(reason: str, device: str, text: str) -> Identity:
    digest = cache_key("text", device, host_text(text))
    return Identity(DISTINCT, f"no machine code to compare: {reason}", digest, None)


def _joint(image: Image, text: str) -> str:
    return cache_key(image.digest, host_text(text))


def _host_images(
    texts: Mapping[str, str], cache: Path | None, progress: Progress | None
) -> tuple[dict[str, Image], str]:
    """The host compiler's image of every device text by key, and the compiler's version."""
    from kernelassay.execute.cpu.build import BuildFailure, image_bytes
    from kernelassay.execute.cpu.toolchain import find_compiler

    compiler = find_compiler()
    store = ImageCache(cache / "images.sqlite" if cache is not None else None)
    keys = {key: cache_key(key, "host", compiler.version) for key in texts}
    known = store.load(keys.values())
    images: dict[str, Image] = {}
    for key, text in texts.items():
        if keys[key] in known:
            images[key] = known[keys[key]]
        else:
            stray = unbalanced(tokenize(text))
            made = image_bytes(text, compiler) if stray is None else BuildFailure("")
            if isinstance(made, bytes):
                images[key] = Image(hashlib.blake2b(made, digest_size=16).hexdigest())
            elif stray is not None:
                line = line_of(text, stray.start)
                images[key] = Image("", f"line {line}: error: {stray.text!r} has no partner")
            else:
                images[key] = Image("", _first_error(made))
            store.store({keys[key]: images[key]})
        if progress is not None:
            progress(len(images), len(texts))
    return images, compiler.version


def _first_error(failure: BuildFailure) -> str:
    if failure.unsupported:
        return f"error: the CPU executor does not have {failure.unsupported}"
    lines = failure.log.splitlines() or ["error: it does not compile"]
    return next((line for line in lines if "error" in line), lines[0])


class _Compilation:
    """One run over the distinct device texts of an original and its mutants."""

    def __init__(
        self,
        original: str,
        texts: Mapping[str, str],
        jobs: int,
        cache: Path | None,
        progress: Progress | None,
    ) -> None:
        self.original = original
        self.texts = texts
        self.jobs = jobs
        self.cache = ImageCache(cache / "images.sqlite" if cache is not None else None)
        self.progress = progress
        self.workers: list[Worker] = []
        self.local = threading.local()
        self.found: dict[str, Image] = {}
        salt = (nvrtc.version(), *nvrtc.OPTIONS, nvrtc.PRELUDE, str(SCHEME))
        self.keys = {key: cache_key(key, *salt) for key in texts}

    def images(self) -> dict[str, Image]:
        """The image of every device text, by its key."""
        known = self.cache.load(self.keys.values())
        self.found = {key: known[kept] for key, kept in self.keys.items() if kept in known}
        missing = [key for key in self.texts if key not in self.found]
        if missing:
            try:
                self._compile(missing)
            finally:
                for worker in self.workers:
                    worker.close()
        return self.found

    def _compile(self, missing: Sequence[str]) -> None:
        original = unit(self.original, self.texts[self.original])
        if self.original not in self.found:
            self._add({self.original: compile_lone(self._worker(), original)})
        reference = self.found[self.original]
        if reference.error:
            return
        units = [unit(key, self.texts[key]) for key in missing if key != self.original]
        stillborn = stillborn_pass(self._worker(), units)
        self._add(stillborn)
        left = [part for part in units if part.key not in stillborn]
        alone = [part for part in left if reference.lone or part.takes_address]
        together = [part for part in left if not (reference.lone or part.takes_address)]
        size = max(1, min(BATCH, -(-len(together) // self.jobs)))
        batches = [together[start : start + size] for start in range(0, len(together), size)]
        batches += [[part] for part in alone]

        def run(batch: Sequence[Unit]) -> dict[str, Image]:
            made = compile_batch(self._worker(), batch, original, reference.digest)
            return {part.key: image for part, image in made}

        if self.jobs == 1:
            for batch in batches:
                self._add(run(batch))
            return
        with ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(run, batch) for batch in batches]
            try:
                for future in as_completed(futures):
                    self._add(future.result())
            except BaseException:
                for future in futures:
                    future.cancel()
                for worker in self.workers:
                    worker.stop()
                raise

    def _add(self, images: Mapping[str, Image]) -> None:
        self.found.update(images)
        self.cache.store({self.keys[key]: image for key, image in images.items()})
        if self.progress is not None:
            self.progress(len(self.found), len(self.texts))

    def _worker(self) -> Worker:
        """The worker of the current thread."""
        if not hasattr(self.local, "worker"):
            self.local.worker = Worker()
            self.workers.append(self.local.worker)
        worker: Worker = self.local.worker
        return worker
