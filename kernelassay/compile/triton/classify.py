"""Which mutants of a Triton module are stillborn, equivalent, duplicates, or distinct.

Two modules are one if, on all representative calls, their host code does the same to tensors (see
:mod:`kernelassay.compile.triton.recorder`) and each launch has the same machine code for sm_90:
the code that it runs, and the general one, which other calls may have in common with it. Code is
compared launch by launch, and only between modules that nothing has told apart so far: by its
normalised TTIR first, by machine code where that differs. So most mutants are compiled once.

Equal means equal on these calls, for this architecture and version of Triton; unequal proves
nothing. A module is stillborn if no representative call gets past all its launches because some
code does not compile. One whose ``run`` raises on a call, ends its process or passes a limit is
distinct, and a duplicate only of an equal text.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernelassay.compile.cache import cache_key
from kernelassay.compile.classify import (
    DISTINCT,
    DUPLICATE,
    EQUIVALENT,
    STILLBORN,
    Classification,
    Identity,
)
from kernelassay.compile.triton.calls import Call
from kernelassay.compile.triton.work import Key, Work
from kernelassay.errors import (
    DeviceError,
    KernelSyntaxError,
    UnsupportedError,
    UsageError,
)

SECONDS = 120.0
BACKEND = "triton"


def classify(
    original: str,
    mutants: Sequence[tuple[str, str]],
    calls: Sequence[Call],
    *,
    jobs: int = 1,
    cache: Path | None = None,
    seconds: float = SECONDS,
) -> Classification:
    """Sort ``mutants``, pairs of id and module text, into the four buckets.

    ``calls`` are the representative calls of ``run``. ``jobs`` processes work at a time, each step
    in one for at most ``seconds``. ``cache`` is a folder for outcomes, kept by text, calls and
    versions. ``digest`` of the result's identities names a class of equal modules, by the text of
    its first member.

    Raises ``KernelSyntaxError`` if the *original* does not load, launches nothing or does not
    compile, ``UnsupportedError`` if its host code cannot be recorded, ``DeviceError`` if a limit
    ended its compilation, ``ToolchainError`` if Triton is missing.
    """
    ids = [mutant for mutant, _ in mutants]
    if len(set(ids)) != len(ids):
        raise UsageError("mutant ids are not unique")
    if not calls:
        raise UsageError("there is no representative call", hint="give at least one")
    # The largest first: where a size is 1, much of a kernel is folded away, and faults with it.
    calls = sorted(calls, key=_elements, reverse=True)
    try:
        own = text_key(original)
    except SyntaxError as error:
        raise KernelSyntaxError(f"the original does not parse: {_syntax(error)}") from error
    broken: dict[str, str] = {}
    keys: dict[str, str] = {}
    texts = {own: original}
    for mutant, text in mutants:
        try:
            keys[mutant] = text_key(text)
        except SyntaxError as error:
            broken[mutant] = _syntax(error)
            continue
        texts.setdefault(keys[mutant], text)
    work = Work(texts, calls, jobs, cache, seconds)
    work.record(texts)
    _check_original(work, own, calls)
    dead = _stillborn(work, [key for key in texts if key != own])
    classes = _classes(work, [key for key in texts if key not in dead])
    _check_code(work, own)
    return _decided(ids, keys, broken | _by_mutant(keys, dead), work, classes, own)


def text_key(text: str) -> str:
    """One key for module texts that differ in comments and layout only. Raises ``SyntaxError``."""
    try:
        return cache_key(ast.dump(ast.parse(text)))
    except (ValueError, RecursionError, MemoryError) as error:  # a null byte; nested too deeply
        raise SyntaxError(str(error)) from error


def _elements(call: Call) -> int:
    return sum(math.prod(spec.shape) for spec in call)


def _syntax(error: SyntaxError) -> str:
    return f"line {error.lineno or 1}: error: {error.msg}"


def _by_mutant(keys: Mapping[str, str], dead: Mapping[str, str]) -> dict[str, str]:
    return {mutant: dead[key] for mutant, key in keys.items() if key in dead}


def _check_original(work: Work, own: str, calls: Sequence[Call]) -> None:
    """Raise unless the original can be recorded and compiled on every call."""
    record = work.records[own]
    if record.failed:
        raise KernelSyntaxError(f"the original does not compile: {record.failed}")
    if record.lost:
        raise UnsupportedError(f"the original cannot be recorded: {record.lost}")
    for call, told in zip(record.calls, calls, strict=True):
        if call.raised:
            shapes = ", ".join(f"{spec.dtype}{list(spec.shape)}" for spec in told)
            raise UnsupportedError(
                f"the original raises on the representative call ({shapes}): {call.raised}",
                hint="host code may use shapes, strides and dtypes of tensors, but no values",
            )
    if not any(call.launches for call in record.calls):
        raise KernelSyntaxError("the original launches no kernel on any representative call")
    work.record([own], every=True)
    if work.records[own].lost:
        raise UnsupportedError(f"the original cannot be recorded: {work.records[own].lost}")
    work.compile((own, number) for number in record.calls[0].launches)
    _check_code(work, own)


def _check_code(work: Work, own: str) -> None:
    """Raise if code that the original runs is known not to compile."""
    for call in work.records[own].calls:
        for number in call.launches:
            error, transient = work.error(own, number)
            if transient:
                raise DeviceError(f"the compiler did not get done with the original: {error}")
            if error:
                raise KernelSyntaxError(f"the original does not compile: {error}")


def _stillborn(work: Work, texts: Sequence[str]) -> dict[str, str]:
    """The texts of which no call can be done for want of code, with the first reason."""
    dead = {text: work.records[text].failed for text in texts if work.records[text].failed}
    first: dict[str, str] = {}
    at = {t: 0 for t in texts if t not in dead and not work.records[t].lost}
    while at:
        wanted = [(t, n) for t, i in at.items() for n in work.records[t].calls[i].launches]
        work.need(wanted)
        work.compile(wanted)
        following: dict[str, int] = {}
        for text, index in at.items():
            record = work.records[text]
            if record.lost:
                continue
            errors = [work.error(text, n) for n in record.calls[index].launches]
            reason = next((error for error, transient in errors if error and not transient), "")
            if not reason:
                continue
            first.setdefault(text, reason)
            if index + 1 < len(record.calls):
                following[text] = index + 1
            else:
                dead[text] = first[text]
        at = following
    for text, reason in first.items():
        if text not in dead:
            work.notes.setdefault(text, f"does not compile for every call: {reason}")
    return dead


def _classes(work: Work, texts: Sequence[str]) -> dict[str, str]:
    """The first of its class, in the order given, for every text."""
    groups: dict[Key, list[str]] = {}
    for text in texts:
        groups.setdefault(_host_key(work, text), []).append(text)
    launches = {
        text: [
            *(n for call in work.records[text].calls for n in call.launches),
            *(n for call in work.records[text].calls for n in call.general),
        ]
        for text in texts
    }
    first: dict[str, str] = {}
    # The code before a group's position is equal in all its members.
    active = [(0, group) for group in groups.values()]
    while active:
        compared: list[tuple[int, list[tuple[str, int]]]] = []
        for before, group in active:
            position = _next(launches, group, before)
            if position is None:
                first |= dict.fromkeys(group, group[0])
            else:
                compared.append((position, [(text, launches[text][position]) for text in group]))
        active = [
            (position + 1, part)
            for (position, _), parts in zip(
                compared, _split(work, [pairs for _, pairs in compared]), strict=True
            )
            for part in parts
        ]
    return first


def _split(work: Work, groups: Sequence[Sequence[tuple[str, int]]]) -> Iterator[list[list[str]]]:
    """The parts of every group of texts, each with one of its combos, that have the same code."""
    work.need(pair for pairs in groups for pair in pairs)
    unlike = [len({work.text_key(*pair) for pair in pairs}) > 1 for pairs in groups]
    work.compile(
        pair for pairs, differ in zip(groups, unlike, strict=True) if differ for pair in pairs
    )
    for pairs, differ in zip(groups, unlike, strict=True):
        parts: dict[Key, list[str]] = {}
        for text, number in pairs:
            key = work.key(text, number) if differ else ()
            parts.setdefault(key, []).append(text)
        yield list(parts.values())


def _host_key(work: Work, text: str) -> Key:
    """Equal for texts whose host code is equal on every call; notes why one stands alone."""
    record = work.records[text]
    raised = [call.raised for call in record.calls if call.raised]
    if raised:
        which = f"{len(raised)} of {len(record.calls)} calls"
        work.notes[text] = f"run raises on {which}: {raised[0]}"
    if record.lost:
        work.notes[text] = record.lost
    if record.lost or raised:
        return ("text", text)
    return ("host", *(call.digest for call in record.calls))


def _next(launches: Mapping[str, Sequence[int]], group: Sequence[str], position: int) -> int | None:
    """The next launch at which the members of a group may differ; None if there is none."""
    if len(group) == 1:
        return None
    seen = {tuple(launches[text][at] for text in group) for at in range(position)}
    for at in range(position, len(launches[group[0]])):
        if tuple(launches[text][at] for text in group) not in seen:
            return at
    return None


def _decided(
    mutants: Sequence[str],
    keys: Mapping[str, str],
    broken: Mapping[str, str],
    work: Work,
    classes: Mapping[str, str],
    own: str,
) -> Classification:
    """The bucket of every mutant; ``broken`` has the reasons of stillborn ones."""
    first: dict[str, str] = {}
    identities: dict[str, Identity] = {}
    for mutant in mutants:
        if mutant in broken:
            identities[mutant] = Identity(STILLBORN, broken[mutant], "", None)
            continue
        member = classes[keys[mutant]]
        if member == own:
            identities[mutant] = Identity(EQUIVALENT, "", own, None)
        elif (twin := first.setdefault(member, mutant)) != mutant:
            identities[mutant] = Identity(DUPLICATE, "", member, twin)
        else:
            reason = work.notes.get(keys[mutant], "")
            identities[mutant] = Identity(DISTINCT, reason, member, None)
    found = Classification(identities, BACKEND, f"Triton on {work.version}", own)
    assert sum(found.counts().values()) == len(mutants)
    return found
