"""Tolerances fitted to what correct kernels do, scored on the cases they saw and on others.

``published`` is the calibration of arXiv 2607.16228: per operator and dtype, 1.5 times the 95th
percentile (nearest rank) of the control's largest absolute error in its passing cases; a faulty
kernel is judged by its control's. It is fitted and scored on the same cases there. ``scaled`` is
ours: errors are measured in representable numbers at the magnitude of the case's output, times the
square root of the length of the reduction, which is how rounding errors of a sum grow; and no
tolerance is below one such number, for a result that is rounded to the dtype may lie one off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelassay.analysis.score import Share
from kernelassay.illusion.grids import Grid
from kernelassay.illusion.op import Op
from kernelassay.illusion.oracle import nearest_rank
from kernelassay.illusion.trials import CONTROL, FAULTY
from kernelassay.oracle import Bools
from kernelassay.synthesis.folds import half

QUANTILE = 0.95
FACTOR = 1.5

Floats = NDArray[np.float64]
Unit = Callable[[Grid, int], Floats]
"""What the errors of a kernel are measured in, by case."""


@dataclass(frozen=True, slots=True)
class Way:
    """A calibration: errors in ``unit`` s, and at least ``floor`` representable numbers."""

    name: str
    unit: Unit
    floor: float


def _absolute(grid: Grid, at: int) -> Floats:
    return np.ones(grid.columns["magnitude"].shape[1])


def _spacing(grid: Grid, at: int) -> Floats:
    """The distance of representable numbers at the magnitude of each case's reference."""
    epsilons = [float(np.finfo(d).eps) for d in grid.columns["dtype"][at]]
    return np.asarray(epsilons * grid.columns["magnitude"][at])


def _grown(grid: Grid, at: int) -> Floats:
    lengths = [reduction(grid.op, sizes) for sizes in grid.sizes]
    return np.asarray(_spacing(grid, at) * np.sqrt(lengths))


PUBLISHED = Way("published", _absolute, 0.0)
SCALED = Way("scaled", _grown, 1.0)
WAYS = (PUBLISHED, SCALED)
AS_THEY_STAND = "as they stand"
"""Names the outcome of no calibration: the operators' own tolerances."""


def reduction(op: Op, sizes: Mapping[str, int]) -> int:
    """How many terms an output element may sum: of a row, or of dimensions that the output lacks.

    An upper bound that the schema gives: an elementwise operator on rows of H counts H too.
    """
    first = next(iter(op.schema.inputs.values()))
    absent = {name for dims in op.schema.inputs.values() for name in dims} - {*op.schema.output}
    return max(sizes[first[-1]] if first else 1, math.prod(sizes[name] for name in absent))


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One operator and dtype: the tolerance it has, and the fitted one in its way's unit.

    ``fitted`` is ``None`` where the control's errors are all zero: then none is proposed.
    """

    operator: str
    dtype: str
    current: float
    fitted: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A calibration scored: failing cases of faulty kernels (recall) and of controls (false).

    With ``held_out`` each half of the cases is judged by tolerances fitted to the other half.
    """

    way: str
    held_out: bool
    recall: Share
    false: Share
    by_kernel: Mapping[str, Share]


def fitted(grids: Sequence[Grid], way: Way, part: str | None = None) -> list[Calibrated]:
    """The tolerance per control and dtype, from its finite cases (outside ``part``, if given)."""
    found = []
    for grid in grids:
        for at in grid.of(CONTROL):
            used = grid.finite & ~_in_part(grid, part)
            for dtype in dict.fromkeys(grid.columns["dtype"][at]):
                mine = used & (grid.columns["dtype"][at] == dtype)
                mine &= _within(grid, at)
                units = way.unit(grid, at)[mine]
                errors = grid.columns["rounded_max_abs"][at][mine]
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratios = np.where(errors == 0.0, 0.0, errors / units)
                top = FACTOR * nearest_rank(ratios, QUANTILE)
                current = grid.op.tolerance(dtype)
                found.append(Calibrated(grid.rows[at].name, dtype, current, top or None))
    return found


def scored(grids: Sequence[Grid], way: Way | None, *, held_out: bool) -> Outcome:
    """Recall and false alarms of a calibration; ``None`` leaves tolerances as they stand."""
    shares: dict[str, Share] = {}
    counts = {FAULTY: [0, 0], CONTROL: [0, 0]}
    for part in ("half 1", "half 2") if held_out else (None,):
        made = [] if way is None else fitted(grids, way, part)
        by_key = {(one.operator, one.dtype): one for one in made}
        for grid in grids:
            judged = grid.finite & (_in_part(grid, part) if part else True)
            for at in grid.of(CONTROL, FAULTY):
                fails = _fails(grid, at, way, by_key)[judged]
                row = grid.rows[at]
                old = shares.get(row.name, Share(0, 0))
                shares[row.name] = Share(old.count + int(fails.sum()), old.total + fails.size)
                counts[row.role][0] += int(fails.sum())
                counts[row.role][1] += fails.size
    return Outcome(
        way=AS_THEY_STAND if way is None else way.name,
        held_out=held_out,
        recall=Share(*counts[FAULTY]),
        false=Share(*counts[CONTROL]),
        by_kernel=shares,
    )


def _fails(
    grid: Grid, at: int, way: Way | None, tolerances: Mapping[tuple[str, str], Calibrated]
) -> Bools:
    """By the largest error alone, as published: no rule for non-finite elements."""
    errors = grid.columns["rounded_max_abs"][at]
    bounds = np.zeros(errors.shape)
    for dtype in dict.fromkeys(grid.columns["dtype"][at]):
        one = tolerances.get((grid.op.control, dtype))
        mine = grid.columns["dtype"][at] == dtype
        if way is None or one is None or one.fitted is None:
            bounds[mine] = grid.op.tolerance(dtype)
        else:
            least = way.floor * _spacing(grid, at)
            bounds[mine] = np.maximum(one.fitted * way.unit(grid, at), least)[mine]
    return np.asarray((grid.columns["failure"][at] != "") | ~(errors <= bounds))


def _within(grid: Grid, at: int) -> Bools:
    return np.asarray(grid.columns["rounded_max_abs"][at] <= grid.columns["tolerance"][at])


def _in_part(grid: Grid, part: str | None) -> Bools:
    """The cases in a half, by the hash of their ids; none for ``None``."""
    return np.array([half(name) == part for name in grid.columns["case"][0]], bool)
