from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelassay.errors import UsageError
from kernelassay.illusion.cases import LAYOUTS, Case, drawn
from kernelassay.illusion.corpus import entries, entry, extras
from kernelassay.illusion.op import Op
from kernelassay.illusion.references import reference
from kernelassay.illusion.schema import Dims
from kernelassay.illusion.values import STRUCTURED
from kernelassay.oracle import AcceptanceRule, grade
from tests.illusion.interpreted import HAS_TRITON, Arrays, Call, arrays, run_here, run_interpreted

CONTROLS = tuple(op for op in entries() if op.fault is None)
FAULTY = tuple(op for op in entries() if op.fault is not None)
SMALL = 30_000  # elements of all tensors of a case

pytestmark = pytest.mark.xdist_group("corpus")


def names(ops: tuple[Op, ...]) -> list[str]:
    return [op.name for op in ops]


def cases(op: Op) -> list[Case]:
    """Both dtypes in every layout, on the largest small sizes and on drawn ones."""
    small = [s for s in op.schema.every() if op.schema.elements(dict(s)) <= SMALL]
    largest = max(small, key=lambda sizes: op.schema.elements(dict(sizes)))
    made = []
    for dtype in op.dtypes:
        for layout in LAYOUTS:
            i = len(made)
            seeded = drawn(
                op.schema, strategy="", index=i, master=11, dtypes=[dtype], values="uniform"
            )
            sizes = seeded.sizes if seeded.sizes in small else small[seeded.seed % len(small)]
            if layout in ("contiguous", "transposed"):
                sizes = largest
            values = STRUCTURED[i % len(STRUCTURED)]
            made.append(Case("", i, seeded.seed, dtype, layout, sizes, values))
    return made


def nonfinite_cases(op: Op) -> list[Case]:
    return [
        drawn(op.schema, strategy="", index=i, master=12, dtypes=[dtype], values="nan-injected")
        for i in range(60)
        for dtype in op.dtypes
    ]


def small_nonfinite_cases(op: Op) -> list[Case]:
    fit = (c for c in nonfinite_cases(op) if op.schema.elements(dict(c.sizes)) <= 3_000)
    return [case for case, _ in zip(fit, range(4), strict=False)]


def ones(sizes: dict[str, int], op: Op, dtype: str) -> Arrays:
    """Rows of 1 and -1, whose root mean square is 1."""
    x = np.ones(op.schema.shape("x", sizes), dtype)
    x[..., ::2] = -1
    return (x,)


def units(sizes: dict[str, int], op: Op, dtype: str) -> Arrays:
    """Rows of norm 1: one element is."""
    x = np.zeros(op.schema.shape("x", sizes), dtype)
    x[..., sizes["H"] // 2] = 1
    return (x,)


def saturated(sizes: dict[str, int], op: Op, dtype: str) -> Arrays:
    """One key takes all, with and without the scale."""
    q, k, v = (np.zeros(op.schema.shape(t, sizes), dtype) for t in "qkv")
    q[:], k[1], v[:] = 5, 5, np.arange(len(v))[:, None]
    return q, k, v


def falling(sizes: dict[str, int], op: Op, dtype: str) -> Arrays:
    """Scores fall from key to key: the first tile of keys has the maximum."""
    q, k, v = (np.ones(op.schema.shape(t, sizes), dtype) for t in "qkv")
    k[:] = -np.arange(len(k))[:, None] / len(k)
    v[:] = np.arange(len(v))[:, None] % 7
    return q, k, v


HIDES: dict[str, list[tuple[dict[str, int], Any, str]]] = {
    "softmax_llm_buggy": [({"B": 2, "S": 7, "H": 256}, "uniform", "float32")],
    "softmax_triton_buggy": [({"B": 2, "S": 7, "H": 256}, "uniform", "float32")],
    # At float32's tolerance of 1e-4 only within 2e-4 of 0.
    "gelu_triton_buggy": [({"B": 2, "S": 7, "H": 256}, "near-zero", "float16")],
    "silu_triton_buggy": [({"B": 2, "S": 7, "H": 256}, "near-zero", "float32")],
    "rmsnorm_triton_buggy": [({"B": 2, "S": 7, "H": 256}, ones, "float32")],
    "l2norm_triton_buggy": [({"B": 2, "S": 7, "H": 3}, units, "float32")],
    "leaky_relu_triton_buggy": [({"B": 2, "S": 7, "H": 256}, "opposed", "float32")],
    "matmul_triton_buggy": [({"M": 64, "K": 1, "N": 64}, "uniform", "float32")],
    "attention_triton_buggy": [
        ({"M": 8, "N": 1, "D": 64}, "uniform", "float32"),
        ({"M": 8, "N": 256, "D": 64}, saturated, "float32"),
    ],
    "flash_attention_triton_buggy": [
        ({"M": 8, "N": 16, "D": 64}, "uniform", "float32"),
        ({"M": 8, "N": 256, "D": 64}, falling, "float32"),
    ],
}


def hidden(op: Op) -> list[Call]:
    made: list[Call] = []
    for sizes, values, dtype in HIDES[op.name]:
        dims: Dims = tuple((name, sizes[name]) for name in op.schema.dims)
        made.append(
            (op.name, Case("", 0, 5, dtype, "contiguous", dims, values))
            if isinstance(values, str)
            else (op.name, values(sizes, op, dtype))
        )
    return made


def calls(op: Op) -> list[Call]:
    return [
        *((op.name, case) for case in cases(op)),
        *((op.name, case) for case in small_nonfinite_cases(op)),
        *(hidden(op) if op.fault else ()),
    ]


Outputs = dict[str, list[NDArray[Any]]]


@pytest.fixture(scope="module")
def outputs() -> Outputs:
    """What every kernel gives for :func:`calls`; those of Triton all in one process."""
    found: Outputs = {}
    for language, run in (("numpy", run_here), ("triton", run_interpreted)):
        ops = [op for op in (*entries(), *extras()) if op.language == language]
        if language == "triton" and not HAS_TRITON:
            continue
        done = iter(run([call for op in ops for call in calls(op)]))
        found |= {op.name: [next(done) for _ in calls(op)] for op in ops}
    return found


def accepted(op: Op, outputs: Outputs) -> list[bool]:
    """For each of :func:`calls`, whether the output is right within the operator's tolerance."""
    if op.name not in outputs:
        pytest.skip("triton cannot be imported")
    verdicts = []
    for call, output in zip(calls(op), outputs[op.name], strict=True):
        given = arrays(call)
        expected = reference(op.reference)(*(a.astype(np.float64) for a in given))
        assert output.shape == expected.shape
        assert output.dtype == given[0].dtype
        rule = AcceptanceRule(op.tolerance(str(output.dtype)), nonfinite="matched", relative=0.0)
        verdicts.append(rule.accepts(grade(output, expected.astype(output.dtype))))
    return verdicts


def test_there_are_16_controls_and_then_10_faulty_kernels_under_26_names() -> None:
    assert entries() == CONTROLS + FAULTY
    assert (len(CONTROLS), len(FAULTY)) == (16, 10)
    assert len({op.name for op in (*entries(), *extras())}) == 26 + len(extras())
    assert [op.name for op in entries() if op.language == "numpy"] == [
        "softmax",
        "layernorm",
        "matmul",
        "softmax_llm_buggy",
    ]


@pytest.mark.parametrize("op", (*CONTROLS, *extras()), ids=names((*CONTROLS, *extras())))
def test_a_control_is_its_own_twin_and_is_found_by_its_name(op: Op) -> None:
    assert op.control == op.name
    assert entry(op.name) == op


@pytest.mark.parametrize("op", FAULTY, ids=names(FAULTY))
def test_a_faulty_text_is_its_controls_but_for_the_documented_span_of_one_line(op: Op) -> None:
    control = entry(op.control)
    assert control.fault is None
    assert op.fault is not None
    head, _, tail = control.text.partition(op.fault.before)
    assert op.text == head + op.fault.after + tail
    lines = zip(control.text.splitlines(), op.text.splitlines(), strict=True)
    assert sum(before != after for before, after in lines) == 1


@pytest.mark.parametrize("op", FAULTY, ids=names(FAULTY))
def test_a_faulty_kernel_is_judged_as_its_control_is_on_sizes_of_its_control(op: Op) -> None:
    control = entry(op.control)
    assert (op.reference, op.tolerances, op.dtypes) == (
        control.reference,
        control.tolerances,
        control.dtypes,
    )
    assert set(op.schema.every()) <= set(control.schema.every())


def test_an_unknown_name_is_an_error_that_offers_a_near_one() -> None:
    with pytest.raises(UsageError, match="softmax_triton"):
        entry("softmax_tritn")


@pytest.mark.parametrize("op", (*CONTROLS, *extras()), ids=names((*CONTROLS, *extras())))
def test_a_control_is_right_in_every_dtype_layout_and_kind_of_values(
    op: Op, outputs: Outputs
) -> None:
    verdicts = accepted(op, outputs)
    wrong = [call for call, right in zip(calls(op), verdicts, strict=True) if not right]
    assert not wrong
    assert any(np.isnan(output).any() for output in outputs[op.name])


@pytest.mark.parametrize("op", FAULTY, ids=names(FAULTY))
def test_a_faulty_kernel_is_wrong_on_a_finite_case_of_its_schema(op: Op, outputs: Outputs) -> None:
    assert not all(accepted(op, outputs)[: len(cases(op))])


@pytest.mark.parametrize("op", FAULTY, ids=names(FAULTY))
def test_a_faulty_kernel_is_right_where_its_fault_is_said_to_hide(op: Op, outputs: Outputs) -> None:
    assert all(accepted(op, outputs)[-len(hidden(op)) :])


def test_every_fault_is_tried_where_it_hides() -> None:
    assert list(HIDES) == names(FAULTY)
