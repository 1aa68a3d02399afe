"""The styles of a kernel: ways to write the same operation, each a source of its own.

A call offers the styles its lowering registered; a run chooses which of them it mutates. Correct
kernels of the others may serve as benign variants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelassay.errors import UsageError, unknown_name
from kernelassay.gate import ADMISSION_BOUND
from kernelassay.kernel import OPTIMISED, PLAIN

ALL = "all"
FUSED, FUSED_PLAIN = "fused", "fused_plain"
DEFAULT = (OPTIMISED,)

NARROW_BOUND = 1e-2
"""Admission bound of styles that keep operands in 16 bits: the loosest tolerance scored."""


@dataclass(frozen=True, slots=True)
class Style:
    """One style.

    ``admission`` bounds the distance of its correct kernel from float64 on official inputs. A style
    with a wider bound than the gate's is *relaxed*: it is no benign variant, its correct kernel
    says nothing about an input's validity except for its own mutants, and a call on which it
    strays further goes without it. ``executors`` names those that can run it. ``variant`` tells
    whether its correct kernel is a benign variant of every run, chosen or not.
    """

    name: str
    what: str
    admission: float = ADMISSION_BOUND
    executors: tuple[str, ...] = ("cpu", "cuda")
    variant: bool = False

    @property
    def relaxed(self) -> bool:
        """Whether its correct kernel may stray further than others."""
        return self.admission > ADMISSION_BOUND


_LISTED = (
    Style(OPTIMISED, "tiles in shared memory, warp shuffles, float4 loads", variant=True),
    Style(PLAIN, "one thread per output element or row", variant=True),
    Style("online", "one pass for a softmax's maximum and sum", variant=True),
    Style("double_buffered", "two tiles in turn: one is read while the other is filled"),
    Style("vectorised", "float4 loads and stores, with a guarded tail"),
    Style("half", "operands stored in half precision, float sums", admission=NARROW_BOUND),
    Style("bfloat16", "operands stored in bfloat16, float sums", admission=NARROW_BOUND),
    Style(
        "tensor_core",
        "half operands and float sums in tensor-core fragments",
        admission=NARROW_BOUND,
        executors=("cuda",),
    ),
    Style("implicit_gemm", "a convolution as a tiled matrix product over patches never stored"),
    Style("flash", "attention over tiles of keys with a running maximum and sum"),
    Style(FUSED, "the elementwise operations after a kernel applied to what it stores"),
    Style(FUSED_PLAIN, "the same on one thread per output element or row", variant=True),
    Style("single_pass", "one pass for both statistics of a norm, or of a softmax by columns"),
    Style("split", "blocks share a reduction; the last one done combines their partial results"),
    Style("tree", "a tree in shared memory over any number of partial results"),
    Style("atomic", "blocks fold their results by atomics that are exact in any order"),
    Style("compensated", "running sums that keep what rounding loses (Kahan)"),
    Style("wide", "sums in double"),
)

STYLES: Mapping[str, Style] = {style.name: style for style in _LISTED}
"""Every style by name. The first of a call's mutated styles is its leading one."""


def choose(names: Sequence[str], executor: str = "cpu") -> tuple[str, ...]:
    """The styles that ``names`` ask for, in the order of :data:`STYLES`; none asks for the default.

    ``"all"`` asks for every style that ``executor`` runs. Raises :class:`UsageError` for an unknown
    name and for one that the executor does not run.
    """
    if not names:
        return DEFAULT
    for name in names:
        if name != ALL and name not in STYLES:
            raise unknown_name("style", name, (*STYLES, ALL))
        if name != ALL and executor not in STYLES[name].executors:
            raise UsageError(
                f"the style {name} needs another executor: {', '.join(STYLES[name].executors)}",
                hint=f"this run uses the {executor} executor; `kernelassay mutants --style {name}`"
                " lists its mutants",
            )
    return tuple(
        style.name
        for style in _LISTED
        if style.name in names or (ALL in names and executor in style.executors)
    )


def mutated(available: Collection[str], chosen: Iterable[str]) -> tuple[str, ...]:
    """The styles of a call that a run mutates, the leading one first; may be empty."""
    return tuple(style for style in chosen if style in available)


def benign(available: Collection[str], chosen: Sequence[str]) -> tuple[str, ...]:
    """The styles of a call that are benign variants of its leading style."""
    leading = mutated(available, chosen)[:1]
    return tuple(
        style.name
        for style in _LISTED
        if style.name in available
        and style.name not in leading
        and (style.variant or style.name in chosen)
        and not style.relaxed
    )
