"""What the CUDA twins of the corpus are run on, here and on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.illusion.cases import Case, inputs
from kernelassay.illusion.corpus.cuda_twins import counterpart
from kernelassay.illusion.cuda_bench import CudaTwinBench
from kernelassay.illusion.op import Op
from kernelassay.illusion.references import reference
from kernelassay.oracle import AcceptanceRule, grade
from tests.illusion.interpreted import arrays
from tests.illusion.test_corpus import cases, hidden, small_nonfinite_cases

Arrays = tuple[NDArray[Any], ...]


def on_cases(op: Op) -> list[Arrays]:
    """Both dtypes, every layout, the largest small sizes and drawn ones; finite."""
    return [tuple(inputs(case, op.schema)) for case in cases(op)]


def on_nonfinite(op: Op) -> list[Arrays]:
    """A few small cases with NaN and infinities."""
    return [tuple(inputs(case, op.schema)) for case in small_nonfinite_cases(op)]


def where_hidden(op: Op) -> list[Arrays]:
    """What the counterpart's fault does not show on."""
    return [tuple(arrays(call)) for call in hidden(counterpart(op.name))]


def largest(op: Op, dtype: str, values: str = "uniform") -> Arrays:
    """Arrays of the largest sizes of the schema."""
    sizes = tuple((name, max(extents)) for name, extents in op.schema.dims.items())
    return tuple(inputs(Case("", 0, 3, dtype, "contiguous", sizes, values), op.schema))


def right(op: Op, bench: CudaTwinBench, given: Arrays) -> bool:
    """Whether a run is within tolerance; it must end, write every element, and leave its inputs."""
    found = bench.run(op.text, given)
    assert found.output is not None, f"{op.name} {found.outcome}: {found.detail}"
    expected = reference(op.reference)(*(a.astype(np.float64) for a in given))
    assert (found.output.shape, found.output.dtype) == (expected.shape, given[0].dtype)
    assert (found.unwritten, found.findings, found.changed) == (0, (), ())
    rule = AcceptanceRule(op.tolerance(str(given[0].dtype)), nonfinite="matched", relative=0.0)
    return rule.accepts(grade(found.output, expected.astype(found.output.dtype)))
