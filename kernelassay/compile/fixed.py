"""Device code that knows the arguments a problem fixes, and those it ties to one another.

A convolution's stride, padding and groups are arguments of its kernel, so that one source serves
every shape; for one problem they are constants. The product of square matrices has three extents
that are one size. A count of elements that holds a factor of four leaves no tail after groups of
four. A fault that only shows at another stride, where extents differ, or in the tail, is equivalent
there, and the machine code tells so once the compiler knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from kernelassay.compile.lexing import NAME, matching, split_commas
from kernelassay.compile.source import SourceParts, kernel_signatures, split

_ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
_STEPS = frozenset({"++", "--"})
# What a size keeps its value in, so that it has remainders and they are those of the argument.
_WHOLE = frozenset(
    {"const", "int", "long", "unsigned", "signed", "size_t", "ptrdiff_t"}
    | {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (32, 64)}
)


@dataclass(frozen=True, slots=True)
class Multiple:
    """A size, so never negative, that is a multiple of ``of``, a power of two."""

    of: int


Known = int | str | Multiple
Fixed = Mapping[str, Known]
"""By name of a ``launch`` parameter: its value, an earlier parameter it always equals, or what it
is a multiple of."""


Sizes = Mapping[str, int]
Scalars = Mapping[str, int | float]
Tried = Sequence[tuple[Sizes, Scalars]]
"""The free sizes of a problem and the scalars of a call that follow: first at the problem's own,
then at others, among them each size moved alone, where it can be."""


def ties(tried: Tried, given: Sequence[Scalars], known: Iterable[str]) -> dict[str, str]:
    """The parameters that are one size to the problem with an earlier one, by name.

    ``given`` has the scalars of a call on each input of the problem. What is equal on all inputs
    may be so by chance, two sizes being lowered to one floor, say; what also moves alike when a
    size moves alone, and does move, hangs on one and the same size. Names in ``known`` are left
    out.
    """
    left_out = set(known)
    courses: dict[str, tuple[int, ...]] = {}
    moved = [scalars for sizes, scalars in tried if len(_differing(tried[0][0], sizes)) == 1]
    for name in given[0] if given else ():
        values = tuple(scalars.get(name, 0.0) for scalars in (*given, *moved))
        whole = all(isinstance(v, int) and not isinstance(v, bool) for v in values)
        moves = any(scalars.get(name) != tried[0][1].get(name) for scalars in moved)
        if name not in left_out and whole and moves:
            courses[name] = tuple(int(v) for v in values)
    first: dict[tuple[int, ...], str] = {}
    found = {name: first.setdefault(values, name) for name, values in courses.items()}
    return {name: other for name, other in found.items() if name != other}


def _differing(own: Sizes, sizes: Sizes) -> set[str]:
    return {name for name in own if sizes[name] != own[name]}


def multiples(tried: Tried, given: Sequence[Scalars], known: Iterable[str]) -> dict[str, Multiple]:
    """The sizes that hold a power of two whatever the free sizes of the problem are, by name.

    A scalar counts if it is an integer times powers of the free sizes at all that was tried; where
    some size was never moved alone, nothing is known. An extent behind a pooling, say, is none:
    rounded down, it may be even wherever it was tried. ``given`` has the scalars on each input,
    among them those that no sizes of the problem made.
    """
    left_out = set(known)
    found: dict[str, Multiple] = {}
    for name in tried[0][1] if tried else ():
        course = [(sizes, scalars.get(name, 0.0)) for sizes, scalars in tried]
        if name in left_out or not all(type(value) is int and value > 0 for _, value in course):
            continue
        factor = _factor([(sizes, int(value)) for sizes, value in course])
        power = factor & -factor
        if power > 1 and all(scalars.get(name, 1) % power == 0 for scalars in given):
            found[name] = Multiple(power)
    return found


def _factor(course: Sequence[tuple[Sizes, int]]) -> int:
    """The integer c, if value = c * a**k * b**l ... everywhere, exponents being 0 to 2; else 0."""
    own, value = course[0]
    factor = Fraction(value)
    exponents: dict[str, int] = {}
    for name, size in own.items():
        alone = ((s, v) for s, v in course if _differing(own, s) == {name})
        moved, result = next(alone, (own, 0))
        growth, change = Fraction(moved[name], size), Fraction(result, value)
        exponent = next((k for k in range(3) if growth**k == change), None)
        if exponent is None:
            return 0
        exponents[name] = exponent
        factor /= size**exponent
    fits = all(v == factor * math.prod(s[n] ** k for n, k in exponents.items()) for s, v in course)
    return factor.numerator if fits and factor.denominator == 1 else 0


def with_fixed(source: str, fixed: Fixed) -> str:
    """``source`` with an assumption per kernel parameter that ``launch`` always gives one value.

    Only an argument that is a parameter of ``launch`` as it stands counts, at every launch of the
    kernel. Lines stay where they are.
    """
    if not fixed:
        return source
    parts = split(source)
    signatures = {kernel.name: kernel for kernel in kernel_signatures(source)}
    edits: dict[int, str] = {}
    for name, given in _given(parts, fixed).items():
        if name not in signatures:
            continue
        named = [
            (parameter, given[position], kind)
            for position, (kind, parameter) in enumerate(signatures[name].parameters)
            if position in given and "*" not in kind
        ]
        known = list(_assumptions(named, fixed))
        for place in _bodies(parts, name):
            edits[place] = " ".join(known)
    for place in sorted(edits, reverse=True):
        source = source[:place] + edits[place] + source[place:]
    return source


def _assumptions(named: Sequence[tuple[str, str, str]], fixed: Fixed) -> Iterator[str]:
    """What holds of kernel parameters: (name, ``launch`` parameter it is given, type).

    A tie is an assignment: the optimiser does not carry an assumed equality into every comparison.
    """
    first: dict[str, str] = {}
    for parameter, given, kind in named:
        if not isinstance(fixed.get(given), str) and _WHOLE.issuperset(kind.split()):
            first.setdefault(given, parameter)
    for parameter, given, kind in named:
        words = kind.split()
        value = fixed.get(given, given)
        if isinstance(value, int):
            yield f"__builtin_assume({parameter} == {int(value)});"
        elif not _WHOLE.issuperset(words):
            continue
        elif isinstance(value, Multiple):
            # Of a number that may be negative the optimiser does not see what a division drops.
            yield f"__builtin_assume({parameter} >= 0 && {parameter} % {value.of} == 0);"
        elif "const" not in words and (other := first.setdefault(value, parameter)) != parameter:
            yield f"{parameter} = {other};"


def _given(parts: SourceParts, fixed: Fixed) -> dict[str, dict[int, str]]:
    """Per launched kernel, the parameters of ``launch`` that it is given, by position."""
    tokens = parts.body
    tied = {other for other in fixed.values() if isinstance(other, str)}
    stable = {name for name in {*fixed, *tied} if not _changes(parts, name)}
    found: dict[str, dict[int, str]] = {}
    for index, token in enumerate(tokens):
        if token.text != ">>>" or index + 1 >= len(tokens) or tokens[index + 1].text != "(":
            continue
        close = matching(tokens, index + 1)
        kernel = _kernel_before(parts, index)
        if close is None or kernel is None:
            continue
        arguments = split_commas(tokens[index + 2 : close])
        given = {
            position: argument[0].text
            for position, argument in enumerate(arguments)
            if len(argument) == 1 and argument[0].text in stable
        }
        earlier = found.setdefault(kernel, given)
        found[kernel] = dict(earlier.items() & given.items())
    return found


def _kernel_before(parts: SourceParts, index: int) -> str | None:
    """The kernel whose launch's ``>>>`` is at ``index`` of the body."""
    for back in range(index - 1, 0, -1):
        if parts.body[back].text == "<<<":
            before = parts.body[back - 1]
            return before.text if before.kind == NAME else None
        if parts.body[back].text == ";":
            return None
    return None


def _changes(parts: SourceParts, name: str) -> bool:
    """Whether ``launch`` assigns ``name``, or might through an address."""
    body = parts.body
    for index, token in enumerate(body):
        if token.text != name:
            continue
        after = body[index + 1].text if index + 1 < len(body) else ""
        before = body[index - 1].text if index else ""
        if after in _ASSIGNMENTS or after in _STEPS or before in _STEPS or before == "&":
            return True
    return False


def _bodies(parts: SourceParts, kernel: str) -> Iterator[int]:
    """Text offsets just past the opening brace of the definitions of ``kernel``."""
    tokens = parts.device_tokens
    for index, token in enumerate(tokens):
        if token.text != kernel or index + 1 >= len(tokens) or tokens[index + 1].text != "(":
            continue
        close = matching(tokens, index + 1)
        if close is not None and close + 1 < len(tokens) and tokens[close + 1].text == "{":
            yield tokens[close + 1].start + 1
