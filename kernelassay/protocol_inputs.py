"""Inputs that a checker draws for itself, planned only when a run asks for its protocol.

Their ids are the same for every problem, so that a protocol can name them. Sizes follow from the
problem: those that a checker asks for and the problem accepts; others stay. Nothing here looks at
what the gate thinks of an input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelassay.input_shapes import Verdict, fitting
from kernelassay.inputs import PROTOCOL, InputSpec, verified_inputs
from kernelassay.problem import Lever, Problem

Trial = Callable[[Mapping[str, int]], Verdict]
"""Tells whether a problem accepts some sizes."""

Sizes = Callable[[int, Sequence[Lever]], Mapping[str, int]]
"""The sizes that a checker asks for in its k-th test."""

SEED = 42


@dataclass(frozen=True, slots=True)
class Kind:
    """How a checker draws: inputs at a problem's own sizes, and the sizes it asks for, if any."""

    what: str
    specs: tuple[InputSpec, ...]
    sizes: Sizes | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its inputs, in order."""
        return tuple(spec.id for spec in self.specs)


def _drawn(name: str, count: int, transform: str = "official") -> tuple[InputSpec, ...]:
    return tuple(InputSpec(f"{name}-{k}", PROTOCOL, SEED + k, transform) for k in range(count))


# Of the published candidates of matrix products, of batches, of rows and of the last dimension.
_PRODUCT = {"M": (1, 2, 7, 128), "K": (1, 3, 16, 127, 256), "N": (1, 2, 15, 64)}
_BATCHES, _ROWS, _LAST = (1, 2, 8), (1, 7, 128), (1, 3, 256, 1025)
SCHEMA_CASES = 8

_SAMPLE_SIZES = (5, 1, 10, 20, 5, 10)
_TEST_SIZES = (32, 33, 64, 127, 128)


def _schema_sizes(case: int, levers: Sequence[Lever]) -> dict[str, int]:
    """One candidate for each size, independently; sizes of one name are one size."""
    product = _PRODUCT.keys() <= {lever.name.upper() for lever in levers}

    def candidates(lever: Lever) -> Sequence[int]:
        if product and lever.name.upper() in _PRODUCT:
            return _PRODUCT[lever.name.upper()]
        if lever.is_batch:
            return _BATCHES
        return _LAST if lever == levers[-1] else _ROWS

    def chosen(lever: Lever) -> int:
        name = hashlib.blake2b(f"schema:{case}:{lever.name}".encode(), digest_size=8).digest()
        among = candidates(lever)
        return among[int.from_bytes(name, "little") % len(among)]

    return {lever.name: chosen(lever) for lever in levers}


def _equal(sizes: Sequence[int]) -> Sizes:
    return lambda case, levers: {lever.name: sizes[case] for lever in levers}


def _samples() -> Iterator[InputSpec]:
    for case, size in enumerate(_SAMPLE_SIZES):
        strided = size in _SAMPLE_SIZES[:case]  # the second time, not contiguous
        layout = "strided" if strided else "contiguous"
        yield InputSpec(f"opinfo-{case}", PROTOCOL, SEED + case, "uniform-9", layout=layout)


KINDS: Mapping[str, Kind] = {
    "verified": Kind("the first official input times 3, 0.01 and -1", verified_inputs()),
    "log-uniform": Kind(
        "magnitudes log-uniform from 1e-3 to 1e3, either sign, at the problem's own sizes",
        _drawn("log-uniform", 3, transform="log-uniform"),
    ),
    "schema": Kind(
        "uniform in [-10, 10), at sizes drawn from short lists that straddle powers of two",
        _drawn("schema", SCHEMA_CASES, transform="uniform-10"),
        _schema_sizes,
    ),
    "robust": Kind(
        "the problem's own draws, each with a fresh initialisation of the parameters",
        tuple(
            InputSpec(f"robust-{k}", PROTOCOL, SEED + k, parameters=f"seeded:{SEED + k}")
            for k in range(5)
        ),
    ),
    "opinfo": Kind(
        "uniform in [-9, 9), at sizes 5, 1, 10 and 20, then 5 and 10 again, not contiguous",
        tuple(_samples()),
        _equal(_SAMPLE_SIZES),
    ),
    "small-tests": Kind(
        "the problem's own draws at sizes 32, 33, 64, 127 and 128, another seed each",
        _drawn("small-tests", len(_TEST_SIZES)),
        _equal(_TEST_SIZES),
    ),
}


def drawn_inputs(
    problem: Problem, kinds: Iterable[str], trial: Trial, frozen: Collection[str] = ()
) -> tuple[InputSpec, ...]:
    """The inputs of some kinds for a problem, those without sizes of their own first.

    ``trial`` tells whether sizes fit; those named in ``frozen`` must not move.
    """
    levers = [lever for lever in problem.sizes if lever.name not in frozen]
    found: list[InputSpec] = []
    for name in kinds:
        kind = KINDS[name]
        for case, spec in enumerate(kind.specs):
            if kind.sizes is None or not levers:
                found.append(spec)
            else:
                moved = fitting(problem, levers, kind.sizes(case, levers), trial)
                found.append(sized(spec, moved))
    return tuple(found)


def sized(spec: InputSpec, moved: Mapping[str, int]) -> InputSpec:
    """An input at other sizes."""
    return replace(spec, overrides=tuple(sorted(moved.items())))


def has_sizes(spec: InputSpec) -> bool:
    """Whether an input is of a kind whose checker asks for sizes of its own."""
    kinds = (kind for kind in KINDS.values() if spec.id in kind.ids)
    return any(kind.sizes is not None for kind in kinds)
