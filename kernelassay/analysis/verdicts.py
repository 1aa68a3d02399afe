"""What protocols make of candidates: verdicts from cells, and what controls must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.errors import ControlError, SessionError
from kernelassay.gate import VALIDITY_TOLERANCE
from kernelassay.matrix import ProblemMatrix
from kernelassay.protocols import Protocol
from kernelassay.styles import STYLES

ROWS_HINT = "measure whole rows, in a new session: `kernelassay run --cells rows`"


def anywhere(cells: NDArray[Any]) -> NDArray[np.bool_]:
    """Per candidate, whether the property holds on any input."""
    return np.asarray(cells.any(axis=1))


def rejects(matrix: ProblemMatrix, protocol: Protocol) -> NDArray[np.bool_]:
    """Which candidates a protocol rejects, by row of the matrix.

    Raises :class:`SessionError` if its inputs are missing, or if the cells that were not measured
    leave a verdict open.
    """
    columns = matrix.positions(protocol)
    rejected = anywhere(matrix.rejected_by(protocol)[:, columns])
    undecided = np.flatnonzero(anywhere(matrix.implied[:, columns]) & ~rejected)
    if undecided.size:
        raise SessionError(
            f"{protocol.name} is undecided on {undecided.size} mutants"
            f" ({matrix.candidates[undecided[0]]} ...): the session was measured lazily, for other"
            " protocols",
            where=matrix.problem,
            hint=ROWS_HINT,
        )
    return rejected


def verdicts(matrix: ProblemMatrix, protocol: Protocol) -> NDArray[np.bool_]:
    """:func:`rejects`, of correct kernels also on the unfit inputs that the protocol runs on."""
    return rejects(matrix, protocol) | _beyond(matrix, protocol, ProblemMatrix.rejected_by)


def undecided(matrix: ProblemMatrix, protocol: Protocol) -> frozenset[str]:
    """The candidates that a protocol may reject: a cell was lost, or does not tell."""
    unknown = anywhere(matrix.open_to(protocol)[:, matrix.positions(protocol)])
    unknown |= _beyond(matrix, protocol, ProblemMatrix.open_to)
    rows = np.flatnonzero(unknown & ~verdicts(matrix, protocol))
    return frozenset(matrix.candidates[row] for row in rows)


def _beyond(
    matrix: ProblemMatrix,
    protocol: Protocol,
    cells: Callable[[ProblemMatrix, Protocol], NDArray[np.bool_]],
) -> NDArray[np.bool_]:
    """By row, whether cells on the unfit inputs that a protocol runs on have a property."""
    found = np.zeros(len(matrix.candidates), dtype=bool)
    unfit = protocol.unfit_in(matrix.plan)
    if unfit and matrix.beyond is not None:
        columns = [matrix.beyond.inputs.index(name) for name in unfit]
        having = anywhere(cells(matrix.beyond, protocol)[:, columns])
        for name, row in matrix.beyond.index.items():
            if name in matrix.index:
                found[matrix.index[name]] = having[row]
    return found


def rejected_originals(
    matrices: Sequence[ProblemMatrix], protocol: Protocol
) -> set[tuple[str, str, str]]:
    """The (problem, call, style) whose correct kernel a protocol rejects on valid inputs."""
    found = set()
    for matrix in matrices:
        rejected = anywhere(matrix.rejected_by(protocol)[:, matrix.positions(protocol)])
        for call in matrix.plan["calls"]:
            for style in call["styles"]:
                if rejected[matrix.index[f"{ORIGINAL}{call['id']}/{style}"]]:
                    found.add((matrix.problem, str(call["id"]), str(style)))
    return found


def rejected_relaxed(
    matrices: Sequence[ProblemMatrix], protocol: Protocol
) -> set[tuple[str, str, str]]:
    """Those of :func:`rejected_originals` that are of a relaxed style."""
    return {key for key in rejected_originals(matrices, protocol) if _is_relaxed(key[2])}


def check_controls(matrix: ProblemMatrix) -> None:
    """Raises :class:`ControlError` if a correct kernel is proven wrong, or a wrong output is not.

    That is a fault of the cells. What a protocol makes of right ones is told with its score.
    """
    proven = matrix.witnessing(VALIDITY_TOLERANCE)
    for name in exact_originals(matrix):
        if proven[matrix.index[name]].any():
            raise ControlError(
                f"the correct kernel {name} strays from the exact reference",
                where=matrix.problem,
                hint="the substrate is wrong; no score is given",
            )
    for name in WRONG:
        if name in matrix.index and not proven[matrix.index[name]].all():
            raise ControlError(
                f"the wrong output {name} does not stray from the exact reference",
                where=matrix.problem,
                hint="no fault can be proven here; no score is given",
            )


WRONG = ("control/nan", "control/forced-failure")
"""Controls that are wrong on every input."""
ORIGINAL = "original/"


def exact_originals(matrix: ProblemMatrix) -> list[str]:
    """The correct kernels under mutation that are held to no relaxed bound."""
    return [
        f"{ORIGINAL}{call['id']}/{style}"
        for call in matrix.plan["calls"]
        for style in call["styles"]
        if not _is_relaxed(style)
    ]


def _is_relaxed(style: str) -> bool:
    return STYLES[style].relaxed


def wrong_accepted(matrices: Sequence[ProblemMatrix], protocol: Protocol) -> dict[str, int]:
    """On how many problems a protocol accepts each wrong output."""
    found: Counter[str] = Counter()
    for matrix in matrices:
        rejected = rejects(matrix, protocol)
        found.update(n for n in WRONG if n in matrix.index and not rejected[matrix.index[n]])
    return dict(found)
