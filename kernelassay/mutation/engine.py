"""From a kernel source and rules to mutants, in one order on every machine."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelassay.errors import UnsupportedError, UsageError
from kernelassay.mutation.language import parse, rules_of
from kernelassay.mutation.rule import Edit, Mutation, Rule, Tree


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutated kernel source.

    ``id`` is a hash of the substrate's name, the rule and the edits: stable across machines.
    ``source`` is the mutated text, ``line`` the 1-based line of the first edit in the original.
    ``twin_of`` is the id of an earlier mutant of the same source with the same text, or ``""``.
    """

    id: str
    problem: str
    call: str
    style: str
    rule: str
    family: str
    edits: tuple[Edit, ...]
    source: str
    line: int
    twin_of: str = ""


@dataclass(frozen=True, slots=True)
class MutantSet:
    """All mutants of one source: rule by rule, then site by site."""

    mutants: tuple[Mutant, ...]


def apply(source: str, mutation: Mutation) -> str:
    """The source with the edits made; every byte outside them stays.

    Raises ``ValueError`` for edits that overlap, are out of order or reach past the text: a
    defect of the rule that made them.
    """
    data = source.encode()
    parts: list[bytes] = []
    position = 0
    for edit in mutation.edits:
        if not position <= edit.start <= edit.end <= len(data):
            raise ValueError(f"edits overlap or are out of order: {mutation.edits}")
        parts += [data[position : edit.start], edit.text.encode()]
        position = edit.end
    parts.append(data[position:])
    return b"".join(parts).decode()


def mutant_text(record: Mapping[str, Any], original: str) -> str:
    """A mutant's source, from its stored edits."""
    edits = tuple(Edit(start, end, text) for start, end, text in record["edits"])
    return apply(original, Mutation(edits))


def mutant_id(problem: str, call: str, style: str, rule: str, edits: Sequence[Edit]) -> str:
    """Twelve hex digits of BLAKE2b over what identifies a mutant."""
    key = [problem, call, style, rule, [[e.start, e.end, e.text] for e in edits]]
    return hashlib.blake2b(json.dumps(key).encode(), digest_size=6).hexdigest()


def mutants(
    source: str,
    *,
    problem: str,
    call: str,
    style: str,
    rules: Sequence[Rule] | None = None,
    language: str = "cuda",
) -> MutantSet:
    """Every mutant of ``source`` by ``rules`` (None: the language's catalogue, in its order).

    Edits that change nothing are dropped, as is the second of two equal mutations of one rule.
    A text that an earlier mutant has already is kept and names that mutant in ``twin_of``, so
    that it can be counted as a duplicate. Raises
    :class:`~kernelassay.errors.KernelSyntaxError` for a source that does not parse,
    :class:`~kernelassay.errors.UnsupportedError` naming a rule that fails on it, and
    :class:`~kernelassay.errors.UsageError` for a rule of another language.
    """
    chosen = rules_of(language) if rules is None else rules
    for rule in chosen:
        if rule.language != language:
            raise UsageError(
                f"the rule {rule.id} is for {rule.language} kernels, this one is {language}",
                hint=f"see the rules by `kernelassay rules --language {language}`",
            )
    tree = parse(source, language)
    first: dict[str, str] = {}
    found: list[Mutant] = []
    for rule in chosen:
        seen: set[Mutation] = set()
        for mutation in _found(rule, tree, f"{problem} {call}".strip()):
            text = apply(source, mutation)
            if text == source or mutation in seen:
                continue
            seen.add(mutation)
            identity = mutant_id(problem, call, style, rule.id, mutation.edits)
            twin = first.setdefault(text, identity)
            found.append(
                Mutant(
                    id=identity,
                    problem=problem,
                    call=call,
                    style=style,
                    rule=rule.id,
                    family=rule.family,
                    edits=mutation.edits,
                    source=text,
                    line=tree.data.count(b"\n", 0, mutation.edits[0].start) + 1,
                    twin_of="" if twin == identity else twin,
                )
            )
    return MutantSet(tuple(found))


def _found(rule: Rule, tree: Tree, where: str) -> tuple[Mutation, ...]:
    """The mutations of one rule; a rule that fails is named, and costs one problem, not a run."""
    try:
        return tuple(rule.find(tree))
    except Exception as error:
        raise UnsupportedError(
            f"the rule {rule.id} fails on this kernel: {type(error).__name__}: {error}",
            where=where,
            hint="this is a defect of the rule; leave it out with --rules until it is fixed",
        ) from error


def diff(original: str, mutated: str, name: str) -> str:
    """The unified diff from the original source to a mutant's, which the diff calls ``name``."""
    lines = difflib.unified_diff(
        original.splitlines(keepends=True),
        mutated.splitlines(keepends=True),
        fromfile="original",
        tofile=name,
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)
