"""Which mutants are stillborn, equivalent, duplicates, or distinct.

The identity of a mutant has two parts: the digest of its machine code and the normalised text of
its host function. Both must be equal for two mutants to be one. Equal identities prove equal
behaviour for this architecture and compiler; unequal ones prove nothing.

Two backends: ``nvrtc`` (machine code for sm_90), and ``host`` where NVRTC is missing: the library
that the CPU executor's compiler makes of each mutant alone. The result names the backend.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from kernelassay.compile import nvrtc
from kernelassay.compile.batch import (
    Image,
    Place,
    Reference,
    Refusal,
    Unit,
    apart_as_whole,
    batch_size,
    batches,
    image_of,
    place_batch,
    place_lone,
    stillborn_pass,
    unit,
)
from kernelassay.compile.cache import ImageCache, cache_key
from kernelassay.compile.cubins import CubinStore
from kernelassay.compile.fixed import Fixed, with_fixed
from kernelassay.compile.identity import SCHEME
from kernelassay.compile.launcher import parse_launcher
from kernelassay.compile.lexing import tokenize, unbalanced
from kernelassay.compile.pool import SLOTS, WorkerPool
from kernelassay.compile.source import device_key, host_grammar, host_text, line_of
from kernelassay.compile.worker import Worker
from kernelassay.errors import (
    DeviceError,
    KernelSyntaxError,
    ToolchainError,
    UnsupportedError,
    UsageError,
)
from kernelassay.kernel import BuildFailure

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
    cubins: bool = False,
) -> Classification:
    """Sort ``mutants``, pairs of id and text, into the four buckets.

    ``jobs`` compiler processes run at a time. ``cache`` is a folder for outcomes, kept by text,
    compiler version, options and scheme. ``progress`` is called with (done, total) device texts.
    ``backend`` is ``nvrtc``, ``host``, or ``auto`` for the first where it is available. ``fixed``
    has the ``launch`` parameters that are constants of the problem or tied to others; only NVRTC
    is told of them. ``cubins`` asks to keep in ``cache`` what can be launched: the code of texts
    to which what is fixed adds nothing.

    Raises ``KernelSyntaxError`` or ``UnsupportedError`` if the *original* does not compile,
    ``DeviceError`` if the compiler was ended, ``ToolchainError`` if ``nvrtc`` is asked for and
    missing.
    """
    ids = [mutant for mutant, _ in mutants]
    if len(set(ids)) != len(ids):
        raise UsageError("mutant ids are not unique")
    chosen = _backend(backend)
    device = _device_texts(original, mutants, (fixed or {}) if chosen == "nvrtc" else {})
    if chosen == "nvrtc":
        keep = CubinStore(cache) if cubins and cache is not None else None
        images = _Compilation(device, jobs, cache, progress, keep).images()
        compiler = f"NVRTC {nvrtc.version()} {' '.join(nvrtc.OPTIONS)}"
    else:
        images, compiler = _host_images(device.texts, cache, progress)
    own = images[device.own]
    if own.transient:
        raise DeviceError(f"the compiler did not get done with the original: {own.error}")
    if own.error:
        raise KernelSyntaxError(f"the original does not compile: {own.error}")
    digest = cache_key(images[device.own].digest, host_text(original))
    return Classification(_decided(ids, images, device, digest), chosen, compiler, digest)


@dataclass(frozen=True, slots=True)
class _DeviceTexts:
    """What is compiled: distinct texts by key, and the original's key; ``plain`` ones are untold.

    By mutant: ``keys`` and ``hosts`` have the key and the normalised host function, ``broken`` has
    why the host function does not compile.
    """

    texts: Mapping[str, str]
    own: str
    plain: Set[str]
    keys: Mapping[str, str]
    hosts: Mapping[str, str]
    broken: Mapping[str, str]


def _device_texts(original: str, mutants: Sequence[tuple[str, str]], fixed: Fixed) -> _DeviceTexts:
    """The texts to compile, with what is ``fixed`` told; the original's is the first."""
    parse_launcher(original)
    fine = {host_grammar(original)}
    told = with_fixed(original, fixed)
    own = device_key(told)
    texts = {own: told}
    plain = {own} if told == original else set()
    keys: dict[str, str] = {}
    hosts: dict[str, str] = {}
    broken: dict[str, str] = {}
    for mutant, text in mutants:
        if reason := _host_error(text, fine):
            broken[mutant] = reason
            continue
        hosts[mutant] = host_text(text)
        told = with_fixed(text, fixed)
        keys[mutant] = device_key(told)
        texts.setdefault(keys[mutant], told)
        if told == text:
            plain.add(keys[mutant])
    return _DeviceTexts(texts, own, plain, keys, hosts, broken)


def _decided(
    mutants: Sequence[str], images: Mapping[str, Image], device: _DeviceTexts, original: str
) -> dict[str, Identity]:
    """The bucket of every mutant by its image; ``original`` is the original's joint digest."""
    first: dict[str, str] = {}
    identities: dict[str, Identity] = {}
    for mutant in mutants:
        if mutant in device.broken:
            identities[mutant] = Identity(STILLBORN, device.broken[mutant], "", None)
            continue
        key, host = device.keys[mutant], device.hosts[mutant]
        image = images[key]
        if image.transient:
            # The compiler ran out of time or memory: that proves nothing, so the text decides.
            reason = f"no machine code to compare: {image.error}"
            digest = cache_key("text", key, host)
            identities[mutant] = Identity(DISTINCT, reason, digest, None)
            continue
        if image.error:
            identities[mutant] = Identity(STILLBORN, image.error, "", None)
            continue
        digest = cache_key(image.digest, host)
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


def _host_error(text: str, fine: set[tuple[object, ...]]) -> str:
    """Why the host function does not compile; "" when it does.

    Most mutants leave it as it is: what is ``fine`` is not parsed again, and more is noted there.
    """
    try:
        grammar = host_grammar(text)
        if grammar not in fine:
            parse_launcher(text)
            fine.add(grammar)
    except (KernelSyntaxError, UnsupportedError) as error:
        return f"{error.where}: error: {error.what}" if error.where else f"error: {error.what}"
    return ""


def _host_images(
    texts: Mapping[str, str], cache: Path | None, progress: Progress | None
) -> tuple[dict[str, Image], str]:
    """The host compiler's image of every device text by key, and the compiler's version."""
    from kernelassay.execute.cpu.build import image_bytes
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
                images[key] = Image("", _first_error(made), transient=made.transient)
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
        device: _DeviceTexts,
        jobs: int,
        cache: Path | None,
        progress: Progress | None,
        keep: CubinStore | None,
    ) -> None:
        self.device = device
        self.jobs = max(1, jobs)
        self.cache = ImageCache(cache / "images.sqlite" if cache is not None else None)
        self.progress = progress
        self.keep = keep
        self.pool = WorkerPool(jobs, cache / SLOTS if cache is not None else None)
        self.found: dict[str, Image] = {}
        salt = (nvrtc.version(), *nvrtc.OPTIONS, nvrtc.PRELUDE, str(SCHEME))
        self.keys = {key: cache_key(key, *salt) for key in device.texts}

    def images(self) -> dict[str, Image]:
        """The image of every device text, by its key."""
        self.found = self._known(list(self.device.texts))
        missing = [key for key in self.device.texts if key not in self.found]
        if missing:
            self._compile(missing)
        return self.found

    def _compile(self, missing: Sequence[str]) -> None:
        own = self.device.own
        original = unit(own, self.device.texts[own])
        if own not in self.found:
            self._note(self._kept([(original, self.pool.one(place_lone, original))]))
        if self.found[own].error:
            return
        reference = Reference(original, self.found[own].digest)
        units = [unit(key, self.device.texts[key]) for key in missing if key != own]
        stillborn = self.pool.one(stillborn_pass, units) if units else {}
        self._store(stillborn)
        self._note(stillborn)
        left = [part for part in units if part.key not in stillborn]
        lone = self.found[own].lone
        if original.definitions and not lone and not self.pool.one(apart_as_whole, reference):
            left = [replace(part, definitions=()) for part in left]
            reference = replace(reference, unit=replace(original, definitions=()))
        # By all texts, so that whoever has the same to do divides it the same way.
        size = batch_size(len(self.device.texts), self.jobs)

        def run(worker: Worker, batch: Sequence[Unit]) -> dict[str, Image]:
            known = self._known([part.key for part in batch])  # others are at the same
            unknown = [part for part in batch if part.key not in known]
            return known | self._kept(list(place_batch(worker, unknown, reference)))

        work = batches(left, size, lone=lone)
        for images in self.pool.run(run, work, lambda batch: self.keys[batch[0].key]):
            self._note(images)

    def _known(self, keys: Sequence[str]) -> dict[str, Image]:
        """The images that the cache has, by key of the text."""
        known = self.cache.load(self.keys[key] for key in keys)
        return {key: known[self.keys[key]] for key in keys if self.keys[key] in known}

    def _kept(self, made: Sequence[tuple[Unit, Place | Refusal]]) -> dict[str, Image]:
        """The images of what became of units, kept like the code that can be launched."""
        if self.keep is not None:
            self.keep.write(_launchable(made, self.device.plain))
        images = {part.key: image_of(part, outcome) for part, outcome in made}
        self._store(images)
        return images

    def _store(self, images: Mapping[str, Image]) -> None:
        self.cache.store({self.keys[key]: image for key, image in images.items()})

    def _note(self, images: Mapping[str, Image]) -> None:
        self.found.update(images)
        if self.progress is not None:
            self.progress(len(self.found), len(self.device.texts))


def _launchable(
    made: Iterable[tuple[Unit, Place | Refusal]], plain: Set[str]
) -> Iterator[tuple[Unit, Place | Refusal]]:
    for part, outcome in made:
        if part.key in plain and part.signatures and isinstance(outcome, Place):
            yield part, outcome
