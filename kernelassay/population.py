"""The kernels to run for one problem: originals, benign variants, mutants; identified, compiled.

These functions are pure text work and compilation; a campaign runs them in processes of their own
(:mod:`kernelassay.tasks`), so that lanes do not wait for one another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelassay.compile import classify
from kernelassay.errors import KernelassayError
from kernelassay.execute.bench import BENIGN, MUTANT, ORIGINAL, Candidate
from kernelassay.execute.cpu.build import BuildFailure, Image, build_images
from kernelassay.execute.cpu.toolchain import Compiler
from kernelassay.execute.worker import CallInfo
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.mutation import Edit, Mutation, Rule, apply, mutants, select
from kernelassay.mutation.benign import BENIGN as BENIGN_RULES


@dataclass(frozen=True, slots=True)
class Toolbox:
    """What turns sources into images: compiler, the executor's runtime, and cache."""

    compiler: Compiler
    runtime: Path
    cache: Path

    def build(self, sources: Mapping[str, str]) -> dict[str, Image | BuildFailure]:
        """Images (or failures) by key."""
        return build_images(sources, self.cache, self.compiler)


@dataclass(frozen=True, slots=True)
class CorrectKernels:
    """The kernels that must pass: one original per call, the benign variants that build, others.

    ``unbuilt`` holds (id, call, source, reason) of benign variants the executor cannot build.
    """

    originals: Mapping[str, Candidate]
    benign: tuple[Candidate, ...]
    unbuilt: tuple[tuple[str, str, str, str], ...]

    def records(self) -> list[dict[str, Any]]:
        """The benign variants as a plan stores them."""
        rows = [(c.id, c.call, c.source, "") for c in self.benign]
        keys = ("id", "call", "source", "unsupported")
        return [dict(zip(keys, row, strict=True)) for row in (*rows, *self.unbuilt)]


def mutated_style(call: CallInfo) -> str:
    """The style faults are injected into; the other one is a benign variant."""
    return OPTIMISED if OPTIMISED in call.sources else PLAIN


def correct_kernels(
    problem: str, calls: Sequence[CallInfo], tools: Toolbox, rewrites: bool = True
) -> CorrectKernels:
    """Compile the originals and their benign variants.

    Benign variants are the other styles, and with ``rewrites`` the benign rewrites of the mutated
    style. Raises :class:`KernelassayError` if an original does not build.
    """
    benign, unbuilt = _benign(problem, calls, tools, BENIGN_RULES if rewrites else ())
    return CorrectKernels(_originals(calls, tools), tuple(benign), tuple(unbuilt))


def candidates_of(
    plan: Mapping[str, Any], tools: Toolbox
) -> tuple[dict[str, Candidate], list[Candidate]]:
    """The originals by call, and the benign variants and distinct mutants, with their images."""
    sources = {call["id"]: call["sources"][call["style"]] for call in plan["calls"]}
    texts = {f"{ORIGINAL}/{call}": text for call, text in sources.items()}
    texts |= {b["id"]: b["source"] for b in plan["benign"] if not b["unsupported"]}
    distinct = [m for m in plan["mutants"] if m["status"] == "distinct" and not m["unsupported"]]
    texts |= {m["id"]: mutant_text(m, sources[m["call"]]) for m in distinct}
    images = tools.build(texts)
    failed = [key for key, image in images.items() if isinstance(image, BuildFailure)]
    if failed:
        raise RuntimeError(f"images that built during planning no longer build: {failed[:3]}")
    built = {key: image for key, image in images.items() if isinstance(image, Image)}
    originals = {
        call: Candidate(f"{ORIGINAL}/{call}", ORIGINAL, call, text, built[f"{ORIGINAL}/{call}"])
        for call, text in sources.items()
    }
    rest = [
        Candidate(record["id"], role, record["call"], texts[record["id"]], built[record["id"]])
        for role, records in ((BENIGN, plan["benign"]), (MUTANT, distinct))
        for record in records
        if record["id"] in built
    ]
    return originals, rest


def mutant_text(record: Mapping[str, Any], original: str) -> str:
    """A mutant's source, from its stored edits."""
    edits = tuple(Edit(start, end, text) for start, end, text in record["edits"])
    return apply(original, Mutation(edits))


def _originals(calls: Sequence[CallInfo], tools: Toolbox) -> dict[str, Candidate]:
    texts = {f"{ORIGINAL}/{c.id}": c.sources[mutated_style(c)] for c in calls}
    images = tools.build(texts)
    originals: dict[str, Candidate] = {}
    for call in calls:
        key = f"{ORIGINAL}/{call.id}"
        image = images[key]
        if isinstance(image, BuildFailure):
            what = image.unsupported or image.log[:500]
            raise KernelassayError(f"the correct kernel does not build: {what}", where=call.id)
        originals[call.id] = Candidate(key, ORIGINAL, call.id, texts[key], image)
    return originals


def _benign(
    problem: str, calls: Sequence[CallInfo], tools: Toolbox, rules: Sequence[Rule]
) -> tuple[list[Candidate], list[tuple[str, str, str, str]]]:
    texts: dict[str, tuple[str, str]] = {}
    for call in calls:
        style = mutated_style(call)
        source = call.sources[style]
        for other, text in sorted(call.sources.items()):
            if other != style:
                texts[f"benign/{call.id}/{other}"] = (call.id, text)
        found = mutants(source, problem=problem, call=call.id, style=style, rules=rules)
        for mutant in found.mutants:
            if mutant.twin_of is None:
                texts[f"benign/{call.id}/{mutant.rule}-{mutant.id}"] = (call.id, mutant.source)
    images = tools.build({key: text for key, (_, text) in texts.items()})
    built: list[Candidate] = []
    unbuilt: list[tuple[str, str, str, str]] = []
    for key, (call_id, text) in texts.items():
        image = images[key]
        if isinstance(image, BuildFailure):
            reason = image.unsupported or image.log[:500]
            unbuilt.append((key, call_id, text, reason))
        else:
            built.append(Candidate(key, BENIGN, call_id, text, image))
    return built, unbuilt


def mutant_records(
    problem: str, calls: Sequence[CallInfo], tools: Toolbox, rules: Sequence[str], backend: str
) -> list[dict[str, Any]]:
    """Generate, identify and compile the mutants of all calls; their records as a plan stores them.

    ``rules`` are rule ids, ``backend`` as in :func:`classify.classify`.
    """
    chosen = select(rules)
    records: list[dict[str, Any]] = []
    texts: dict[str, str] = {}
    for call in calls:
        style = mutated_style(call)
        source = call.sources[style]
        found = mutants(source, problem=problem, call=call.id, style=style, rules=chosen).mutants
        identities = classify.classify(
            source,
            [(m.id, m.source) for m in found],
            cache=tools.cache,
            backend=backend,
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
    images = tools.build(texts)
    for record in records:
        image = images.get(record["id"])
        if isinstance(image, BuildFailure):
            record["unsupported"] = image.unsupported or image.log[:500]
    return records
