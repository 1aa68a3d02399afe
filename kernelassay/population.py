"""The kernels to run for one problem: originals, benign variants, mutants; identified, compiled.

These functions are pure text work and compilation; a campaign runs them in processes of their own
(:mod:`kernelassay.tasks`), so that lanes do not wait for one another.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelassay.compile import classify
from kernelassay.errors import DeviceError, KernelassayError
from kernelassay.execute.bench import BENIGN, MUTANT, ORIGINAL, Candidate
from kernelassay.execute.messages import CallInfo
from kernelassay.execute.toolbox import Toolbox
from kernelassay.kernel import BuildFailure
from kernelassay.mutation import Rule, mutant_text, mutants, select
from kernelassay.mutation.benign import BENIGN as BENIGN_RULES
from kernelassay.styles import STYLES, benign, mutated


@dataclass(frozen=True, slots=True)
class CorrectKernels:
    """The kernels that must pass: an original per call and mutated style, and benign variants.

    ``originals`` are by id; ``unbuilt`` holds (id, call, style, source, reason) of benign variants
    the executor cannot build.
    """

    originals: Mapping[str, Candidate]
    benign: tuple[Candidate, ...]
    unbuilt: tuple[tuple[str, str, str, str, str], ...]

    def records(self) -> list[dict[str, Any]]:
        """The benign variants as a plan stores them."""
        rows = [(c.id, c.call, c.style, c.source, "") for c in self.benign]
        keys = ("id", "call", "style", "source", "unsupported")
        return [dict(zip(keys, row, strict=True)) for row in (*rows, *self.unbuilt)]


def original_id(call: str, style: str) -> str:
    """The candidate id of a call's correct kernel in one style."""
    return f"{ORIGINAL}/{call}/{style}"


def correct_kernels(
    problem: str,
    calls: Sequence[CallInfo],
    tools: Toolbox,
    styles: Sequence[str],
    rewrites: bool = True,
    sample: int | None = None,
) -> CorrectKernels:
    """Compile the originals and their benign variants, where ``styles`` are mutated.

    Benign variants are other styles, and with ``rewrites`` the benign rewrites of the mutated ones;
    of all of them at most ``sample`` are compiled (see :func:`sampled`).
    Raises :class:`KernelassayError` if an original does not build, :class:`DeviceError` if the
    compiler was ended.
    """
    rules = BENIGN_RULES if rewrites else ()
    texts = _variants(problem, calls, styles, rules)
    # The ids of other styles are alike in all problems; with the problem's they are drawn anew.
    chosen = sampled((f"{problem} {key}" for key in texts), sample)
    texts = {key: text for key, text in texts.items() if f"{problem} {key}" in chosen}
    benign, unbuilt = _built(texts, tools)
    return CorrectKernels(_originals(calls, tools, styles), tuple(benign), tuple(unbuilt))


def candidate_ids(plan: Mapping[str, Any]) -> list[str]:
    """What :func:`candidates_of` builds besides the originals: benign variants, then mutants."""
    benign = [b["id"] for b in plan["benign"] if not b["unsupported"]]
    return benign + [m["id"] for m in plan["mutants"] if _runs(m)]


def runs_of(plan: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, int]:
    """How many candidates, ``without`` some, are compared with each original, by its id."""
    records = [b for b in plan["benign"] if not b["unsupported"]]
    records += [m for m in plan["mutants"] if _runs(m)]
    wanted = (record for record in records if record["id"] not in without)
    return dict(Counter(original_id(record["call"], record["style"]) for record in wanted))


def candidates_of(
    plan: Mapping[str, Any], tools: Toolbox
) -> tuple[dict[str, Candidate], list[Candidate]]:
    """The originals by id, and the benign variants and distinct mutants, with their images.

    Raises :class:`DeviceError` if the compiler was ended.
    """
    sources = {
        (call["id"], style): call["sources"][style]
        for call in plan["calls"]
        for style in call["styles"]
    }
    texts = {original_id(*key): text for key, text in sources.items()}
    texts |= {b["id"]: b["source"] for b in plan["benign"] if not b["unsupported"]}
    distinct = [m for m in plan["mutants"] if _runs(m)]
    texts |= {m["id"]: mutant_text(m, sources[m["call"], m["style"]]) for m in distinct}
    images = tools.build(texts)
    failed = {k: image for k, image in images.items() if isinstance(image, BuildFailure)}
    for key, failure in failed.items():
        if failure.transient:
            raise DeviceError(f"what was built before was not again: {failure.log}", where=key)
    if failed:
        raise RuntimeError(f"images that built during planning no longer build: {[*failed][:3]}")
    built = {k: image for k, image in images.items() if not isinstance(image, BuildFailure)}

    def candidate(name: str, role: str, call: str, style: str) -> Candidate:
        return Candidate(name, role, call, style, texts[name], built[name])

    originals = {original_id(*key): candidate(original_id(*key), ORIGINAL, *key) for key in sources}
    rest = [
        candidate(record["id"], role, record["call"], record["style"])
        for role, records in ((BENIGN, plan["benign"]), (MUTANT, distinct))
        for record in records
        if record["id"] in built
    ]
    return originals, rest


def _runs(mutant: Mapping[str, Any]) -> bool:
    return mutant["status"] == "distinct" and not mutant["unsupported"]


def _originals(
    calls: Sequence[CallInfo], tools: Toolbox, styles: Sequence[str]
) -> dict[str, Candidate]:
    wanted = [(c, style) for c in calls for style in mutated(c.sources, styles)]
    texts = {original_id(call.id, style): call.sources[style] for call, style in wanted}
    images = tools.build(texts)
    originals: dict[str, Candidate] = {}
    for call, style in wanted:
        key = original_id(call.id, style)
        image = images[key]
        if isinstance(image, BuildFailure):
            what = image.unsupported or image.log[:500]
            kind = DeviceError if image.transient else KernelassayError
            raise kind(f"the correct kernel does not build: {what}", where=key)
        originals[key] = Candidate(key, ORIGINAL, call.id, style, texts[key], image)
    return originals


def _variants(
    problem: str, calls: Sequence[CallInfo], styles: Sequence[str], rules: Sequence[Rule]
) -> dict[str, tuple[str, str, str]]:
    """All benign variants by id: call, style of the original to compare with, and source."""
    texts: dict[str, tuple[str, str, str]] = {}
    for call in calls:
        chosen = mutated(call.sources, styles)
        for style in benign(call.sources, styles) if chosen else ():
            # Against the leading style: it is the same operation, written in another way.
            texts[f"benign/{call.id}/{style}"] = (call.id, chosen[0], call.sources[style])
        for style in chosen:
            if STYLES[style].relaxed:
                continue
            source = call.sources[style]
            found = mutants(source, problem=problem, call=call.id, style=style, rules=rules)
            for mutant in found.mutants:
                if not mutant.twin_of:
                    key = f"benign/{call.id}/{mutant.rule}-{mutant.id}"
                    texts[key] = (call.id, style, mutant.source)
    return texts


def _built(
    texts: Mapping[str, tuple[str, str, str]], tools: Toolbox
) -> tuple[list[Candidate], list[tuple[str, str, str, str, str]]]:
    images = tools.build({key: text for key, (_, _, text) in texts.items()})
    built: list[Candidate] = []
    unbuilt: list[tuple[str, str, str, str, str]] = []
    for key, (call_id, style, text) in texts.items():
        image = images[key]
        if isinstance(image, BuildFailure):
            reason = image.unsupported or image.log[:500]
            unbuilt.append((key, call_id, style, text, reason))
        else:
            built.append(Candidate(key, BENIGN, call_id, style, text, image))
    return built, unbuilt


def mutant_records(
    problem: str,
    calls: Sequence[tuple[CallInfo, Sequence[str]]],
    tools: Toolbox,
    rules: Sequence[str],
    backend: str,
    sample: int | None = None,
) -> tuple[list[dict[str, Any]], int]:
    """Generate, identify and compile the mutants of calls in the styles named beside them.

    Returns their records as a plan stores them, and how many were generated: with ``sample``, only
    so many are identified and compiled (see :func:`sampled`). ``rules`` are rule ids, ``backend``
    as in :func:`classify.classify`. Equivalence and duplication are told within one style.
    """
    records, texts, generated = _identified(
        problem, calls, tools.cache, rules, backend, sample, tools.jobs, tools.cubins
    )
    images = tools.build(texts)
    for record in records:
        image = images.get(record["id"])
        if isinstance(image, BuildFailure):
            record["unsupported"] = image.unsupported or image.log[:500]
    return records, generated


def sampled(ids: Iterable[str], size: int | None) -> frozenset[str]:
    """The ``size`` of ``ids`` with the smallest hashes: uniform, and the same on every machine.

    A smaller sample is part of a larger one. None means all.
    """
    return frozenset(
        sorted(ids, key=lambda name: (hashlib.sha256(name.encode()).digest(), name))[:size]
    )


def census(
    problem: str,
    calls: Sequence[tuple[CallInfo, Sequence[str]]],
    cache: Path,
    rules: Sequence[str],
    backend: str,
    sample: int | None = None,
) -> dict[tuple[str, str, str, str], int]:
    """How many mutants there are, by style, family, rule and status; nothing is built to run.

    The parameters are those of :func:`mutant_records`.
    """
    records, _, _ = _identified(problem, calls, cache, rules, backend, sample)
    return dict(Counter((r["style"], r["family"], r["rule"], r["status"]) for r in records))


def _identified(
    problem: str,
    calls: Sequence[tuple[CallInfo, Sequence[str]]],
    cache: Path,
    rules: Sequence[str],
    backend: str,
    sample: int | None,
    jobs: int = 1,
    cubins: bool = False,
) -> tuple[list[dict[str, Any]], dict[str, str], int]:
    """The records of the mutants, the texts of the distinct ones by id, and how many there were."""
    chosen = select(rules)
    records: list[dict[str, Any]] = []
    texts: dict[str, str] = {}
    pairs = [(call, style) for call, styles in calls for style in styles]
    every = [
        mutants(c.sources[style], problem=problem, call=c.id, style=style, rules=chosen).mutants
        for c, style in pairs
    ]
    ids = [mutant.id for found in every for mutant in found]
    wanted = sampled(ids, sample)
    for (call, style), generated in zip(pairs, every, strict=True):
        source = call.sources[style]
        found = [mutant for mutant in generated if mutant.id in wanted]
        identities = classify.classify(
            source,
            [(m.id, m.source) for m in found],
            jobs=jobs,
            cache=cache,
            backend=backend,
            fixed=call.fixed,
            cubins=cubins,
        )
        for mutant in found:
            identity = identities[mutant.id]
            record: dict[str, Any] = {
                "id": mutant.id,
                "call": call.id,
                "style": style,
                "rule": mutant.rule,
                "family": mutant.family,
                "line": mutant.line,
                "edits": [list(asdict(edit).values()) for edit in mutant.edits],
                "status": identity.status,
                "reason": identity.reason,
                "twin": identity.twin,
                "image": identity.digest,
                "unsupported": "",
            }
            records.append(record)
            if identity.status == "distinct":
                texts[mutant.id] = mutant.source
    return records, texts, len(ids)
