"""Many mutants in one NVRTC program, each compiled as if it were alone.

Every source gets a namespace, for its helpers and types; ``extern "C"`` names ignore namespaces,
so its kernels are renamed by a macro; its own macros are undefined after it. Tags have one width
and a lone source gets the same wrapping, since the compiler orders helpers by mangled name.
``#line`` makes the log name the source and its own line.

What can leak from one source to another is module data (addresses within the module) and
functions whose address is taken (linked into every kernel). The rule: sources of an original that
has either are compiled alone. The check: the original itself stands last in each batch, where any
neighbour would shift it, and must have its lone digest, or the batch is redone one by one.

A kernel that several sources of a batch have in common is compiled once
(:mod:`kernelassay.compile.definitions`), with the last of them: so the original's, if it is there.

The same batches serve to identify mutants and to launch them: see :class:`Place`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelassay.compile.definitions import Definition, definitions
from kernelassay.compile.identity import Cubin, digest
from kernelassay.compile.lexing import DIRECTIVE, NAME, tokenize, unbalanced
from kernelassay.compile.nvrtc import PRELUDE, SYNTAX_ONLY, first_error
from kernelassay.compile.source import (
    KernelSignature,
    device_text,
    kernel_signatures,
    macros,
    split,
)
from kernelassay.compile.worker import Worker, WorkerDiedError

BATCH = 24
SMALL_BATCH = 12  # below, what every program costs outweighs the gain of another process
SYNTAX_BATCH = 256
_INCLUDE = re.compile(r"#\s*include\b")
_FRONT_END = re.compile(r"^m(\d{5})\((\d+)\): ((?:catastrophic )?error.*)$", re.MULTILINE)
_BACK_END = re.compile(r"^.*\berror\b.*?\w__ka(\d{5})\b.*$", re.MULTILINE)
_CANARY = 99_999
_DATA = frozenset({"__constant__", "printf", "assert"})


@dataclass(frozen=True, slots=True)
class Unit:
    """The device code of one source, ready to be put into a program."""

    key: str
    text: str
    includes: tuple[str, ...]
    signatures: tuple[KernelSignature, ...]
    macros: tuple[str, ...]
    balanced: bool
    takes_address: bool
    data: bool
    """Whether it looks as if its module had data; what shows in the module counts too."""
    definitions: tuple[Definition, ...] = ()
    """Its kernels, if there are several and another unit may have some of them in common."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of its kernels, each once."""
        return _names(self.signatures)

    def without(self, kernels: Collection[str]) -> str:
        """The text with the definitions of some kernels blanked."""
        text = self.text
        for definition in self.definitions:
            if definition.name in kernels:
                start, end = definition.start, definition.end
                blank = re.sub(r"[^\n]", " ", text[start:end])
                text = text[:start] + blank + text[end:]
        return text


def _names(signatures: Sequence[KernelSignature]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(signature.name for signature in signatures))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the kernels of a unit are: in ``cubin``, read from ``image``, by name a tag number."""

    image: bytes
    cubin: Cubin
    homes: Mapping[str, int]
    alone: bool

    def digest(self, part: Unit) -> str:
        """The digest of the unit's kernels."""
        return digest(self.cubin, self.functions(part))

    def functions(self, part: Unit) -> list[tuple[str, str]]:
        """The unit's kernels by their own name, and their names in the module."""
        return [(name, linked(name, self.homes[name])) for name in part.kernels]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a unit has no code. ``transient`` reasons depend on the machine."""

    error: str
    transient: bool = False


Compiled = Iterator[tuple[Unit, Place | Refusal]]


@dataclass(frozen=True, slots=True)
class Reference:
    """The original that stands last in each batch, and its lone digest."""

    unit: Unit
    digest: str


@dataclass(frozen=True, slots=True)
class Image:
    """The outcome for one unit: a digest, or the reason why there is none.

    ``lone`` tells that the module has data, or a function's address taken. ``transient`` outcomes
    (a time limit) depend on the machine and are not kept.
    """

    digest: str
    error: str = ""
    lone: bool = False
    transient: bool = False


def unit(key: str, source: str) -> Unit:
    """Prepare a source: its device text with the ``#include`` lines taken out."""
    text = device_text(source).rstrip()
    parts = split(source)
    # Blanking keeps bytes: characters of several bytes in the host function move what follows.
    same_places = parts.launch_end == len(parts.tokens) or source.isascii()
    tokens = parts.device_tokens if same_places else tokenize(text)
    includes = []
    for token in reversed(tokens):
        if token.kind == DIRECTIVE and _INCLUDE.match(token.text):
            includes.append(" ".join(token.text.split("//")[0].split()))
            text = text[: token.start] + " " * len(token.text) + text[token.end :]
    signatures = kernel_signatures(source)
    names = _names(signatures)
    return Unit(
        key=key,
        text=text,
        includes=tuple(reversed(includes)),
        signatures=signatures,
        macros=macros(source),
        balanced=unbalanced(tokens) is None,
        takes_address=_takes_address(tokens),
        data=any(token.text in _DATA for token in tokens),
        definitions=definitions(tokens, names) if len(names) > 1 else (),
    )


def _takes_address(tokens: Sequence[tuple[str, str, int, int]]) -> bool:
    """Whether the name of a ``__device__`` function is used other than to call it."""
    words = [token[1] for token in tokens]
    functions = set()
    for index, word in enumerate(words):
        if word == "__device__":
            for ahead in range(index + 1, min(index + 12, len(words) - 1)):
                if words[ahead] in (";", "=", "{", "["):
                    break
                if words[ahead + 1] == "(" and tokens[ahead][0] == NAME:
                    functions.add(words[ahead])
                    break
    return any(
        word in functions and words[index + 1] not in ("(", "<")
        for index, word in enumerate(words[:-1])
    )


Tagged = Sequence[tuple[int, Unit]]


def program(units: Tagged, homes: Mapping[int, Mapping[str, int]] | None = None) -> str:
    """The program that holds ``units``, each under its tag number.

    ``homes`` tells with which unit each kernel of a unit is compiled; None: each with its own.
    """
    includes = dict.fromkeys(line for _, part in units for line in part.includes)
    lines = [*includes]
    for number, part in units:
        lines.append(PRELUDE)  # again each time: the source before may have undefined a part of it
        lines += [f"#define {name} {linked(name, number)}" for name in part.kernels]
        away = [name for name, home in (homes or {}).get(number, {}).items() if home != number]
        text = part.without(away)
        lines += [f"namespace ka{number:05d} {{", f'#line 1 "m{number:05d}"', text, "}"]
        lines += [f"#undef {name}" for name in (*part.kernels, *part.macros)]
    return "\n".join(lines) + "\n"


def kernel_homes(units: Tagged) -> dict[int, dict[str, int]]:
    """Which unit each kernel of a unit is compiled with: the last one that has it."""
    last: dict[str, int] = {}
    homes: dict[int, dict[str, int]] = {}
    for number, part in reversed(units):
        homes[number] = dict.fromkeys(part.kernels, number)
        homes[number] |= {d.name: last.setdefault(d.key, number) for d in part.definitions}
    return homes


def linked(kernel: str, number: int) -> str:
    """The name of a kernel inside a program."""
    return f"{kernel}__ka{number:05d}"


def stillborn_pass(worker: Worker, units: Sequence[Unit]) -> dict[str, Image]:
    """The units that the compiler's front end refuses, by key, found in a few quick programs.

    One bad unit can hide another, and the front end stops at 100 errors, so a chunk is repeated
    until it is clean. Unbalanced units would swallow their neighbours and go alone.
    """
    found: dict[str, Image] = {}
    for part in units:
        if not part.balanced:
            found.update(_check(worker, [part]))
    rest = [part for part in units if part.balanced]
    for start in range(0, len(rest), SYNTAX_BATCH):
        found.update(_check(worker, rest[start : start + SYNTAX_BATCH]))
    return found


def _check(worker: Worker, units: Sequence[Unit]) -> dict[str, Image]:
    found: dict[str, Image] = {}
    left = list(units)
    while left:
        try:
            made = worker.compile(
                program(list(enumerate(left))), (SYNTAX_ONLY,), _seconds(len(left))
            )
        except WorkerDiedError as death:
            if len(left) == 1:
                found[left[0].key] = Image("", death.reason, transient=death.transient)
                return found
            return found | _halves(worker, left)
        if made.ok:
            return found
        culprits = _front_end_errors(made.log)
        if not culprits and len(left) == 1:
            culprits = {0: first_error(made.log)}
        if not culprits:
            return found | _halves(worker, left)
        found.update({left[number].key: Image("", error) for number, error in culprits.items()})
        left = [part for number, part in enumerate(left) if number not in culprits]
    return found


def _halves(worker: Worker, units: Sequence[Unit]) -> dict[str, Image]:
    middle = len(units) // 2
    return _check(worker, units[:middle]) | _check(worker, units[middle:])


def place_lone(worker: Worker, part: Unit) -> Place | Refusal:
    """Compile one unit in a program of its own."""
    try:
        made = worker.compile(program([(0, part)]), (), _seconds(1))
    except WorkerDiedError as death:
        return Refusal(death.reason, death.transient)
    if not made.ok:
        errors = _front_end_errors(made.log) or _back_end_errors(made.log)
        return Refusal(errors.get(0, first_error(made.log)))
    return Place(made.image, Cubin(made.image), dict.fromkeys(part.kernels, 0), alone=True)


def apart_as_whole(worker: Worker, reference: Reference) -> bool:
    """Whether each kernel of an original has the code without the others that it has with them."""
    part = reference.unit
    tagged = [(number, part) for number, _ in enumerate(part.kernels)]
    home = {name: number for number, name in enumerate(part.kernels)}
    try:
        made = worker.compile(program(tagged, dict.fromkeys(home.values(), home)), (), _seconds(1))
    except WorkerDiedError:
        return False
    if not made.ok:
        return False
    return Place(made.image, Cubin(made.image), home, alone=False).digest(part) == reference.digest


def place_batch(
    worker: Worker, units: Sequence[Unit], reference: Reference | None = None
) -> Compiled:
    """Compile units together; what the compiler refuses costs only itself.

    A module that has data, or in which the ``reference`` has another digest than alone, is not
    used: its units are compiled one by one.
    """
    if len(units) <= 1:
        yield from ((part, place_lone(worker, part)) for part in units)
        return
    tagged = [*enumerate(units)]
    if reference is not None:
        tagged.append((_CANARY, reference.unit))
    homes = kernel_homes(tagged)
    try:
        made = worker.compile(program(tagged, homes), (), _seconds(len(tagged)))
    except WorkerDiedError:
        yield from _place_halves(worker, units, reference)
        return
    if not made.ok:
        errors = _front_end_errors(made.log) or _back_end_errors(made.log)
        errors = {number: text for number, text in errors.items() if number < len(units)}
        if not errors:
            yield from _place_halves(worker, units, reference)
            return
        yield from ((units[number], Refusal(text)) for number, text in errors.items())
        rest = [part for number, part in enumerate(units) if number not in errors]
        yield from place_batch(worker, rest, reference)
        return
    cubin = Cubin(made.image)
    if cubin.module_data() or not _as_alone(made.image, cubin, reference):
        yield from ((part, place_lone(worker, part)) for part in units)
        return
    for number, part in enumerate(units):
        yield part, Place(made.image, cubin, homes[number], alone=False)


def _as_alone(image: bytes, cubin: Cubin, reference: Reference | None) -> bool:
    if reference is None:
        return True
    home = dict.fromkeys(reference.unit.kernels, _CANARY)
    canary = Place(image, cubin, home, alone=False)
    return canary.digest(reference.unit) == reference.digest


def _place_halves(worker: Worker, units: Sequence[Unit], reference: Reference | None) -> Compiled:
    middle = len(units) // 2
    yield from place_batch(worker, units[:middle], reference)
    yield from place_batch(worker, units[middle:], reference)


def image_of(part: Unit, made: Place | Refusal) -> Image:
    """The outcome for identity of what became of a unit."""
    if isinstance(made, Refusal):
        return Image("", made.error, transient=made.transient)
    data = made.alone and bool(made.cubin.module_data())
    return Image(made.digest(part), lone=data or part.takes_address)


def batch_size(count: int, jobs: int, limit: int = BATCH) -> int:
    """How many of ``count`` units to compile together, so that ``jobs`` workers have some."""
    return max(1, min(limit, max(SMALL_BATCH, -(-count // max(1, jobs)))))


def batches(units: Sequence[Unit], size: int, *, lone: bool = False) -> list[list[Unit]]:
    """Units to compile together, at most ``size``, then those that go alone: all if ``lone``.

    Units of one batch include the same headers: what a neighbour includes is seen by all.
    """
    found: list[list[Unit]] = []
    together = [] if lone else [part for part in units if joins(part)]
    for includes in dict.fromkeys(part.includes for part in together):
        group = [part for part in together if part.includes == includes]
        found += [group[start : start + size] for start in range(0, len(group), size)]
    return found + [[part] for part in units if lone or not joins(part)]


def joins(part: Unit) -> bool:
    """Whether a unit may share a program, as far as its text tells."""
    return part.balanced and not part.takes_address and not part.data


def _front_end_errors(log: str) -> dict[int, str]:
    """First error per tag number, as ``line N: error: ...``."""
    found: dict[int, str] = {}
    for number, line, text in _FRONT_END.findall(log):
        found.setdefault(int(number), f"line {line}: {text}")
    return found


def _back_end_errors(log: str) -> dict[int, str]:
    """First assembler error per tag number; such an error names the kernel."""
    found: dict[int, str] = {}
    for match in _BACK_END.finditer(log):
        text = re.sub(r"__ka\d{5}", "", match.group().strip())
        found.setdefault(int(match.group(1)), text)
    return found


def _seconds(count: int) -> float:
    """A time limit far above what ``count`` units take on a busy machine."""
    return 60.0 + 2.0 * count
