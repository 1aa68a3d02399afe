"""The corpus: correct kernels, and faulty ones that differ from them by one documented edit.

The 26 entries, their formulas, schemas, dtypes and tolerances are those of "The Correctness
Illusion" (arXiv 2606.20128); the texts are ours. Unlike the originals they compute in float32
whatever the dtype, and take tiles that keep the number of programs low. :func:`extras` are
controls of our own, for constructs of Triton that the published ones lack.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kernelassay.errors import unknown_name
from kernelassay.illusion.op import Fault, Language, Op
from kernelassay.illusion.schema import Schema

_BOTH = ("float32", "float16")
_LOOSE = {"float32": 1e-4, "float16": 5e-2}
_SOFTMAX = {"float32": 1e-5, "float16": 2e-2}
_RELU = {"float32": 1e-5, "float16": 1e-3}
_ATTENTION = {"float32": 1e-3, "float16": 5e-2}
_MATMUL = {"float32": 5e-2}

_ANY_H = (1, 3, 256, 1025)
_PADDED_H = (3, 256, 1025)
_NORM_H = (2, 3, 256, 1025)


def _rows(h: tuple[int, ...], s: tuple[int, ...] = (1, 7, 128)) -> Schema:
    return Schema({"B": (1, 2, 8), "S": s, "H": h}, {"x": ("B", "S", "H")}, ("B", "S", "H"))


def _product(m: tuple[int, ...], k: tuple[int, ...], n: tuple[int, ...]) -> Schema:
    return Schema({"M": m, "K": k, "N": n}, {"a": ("M", "K"), "b": ("K", "N")}, ("M", "N"))


def _heads(n: tuple[int, ...]) -> Schema:
    dims = {"M": (1, 2, 8), "N": n, "D": (8, 16, 64)}
    return Schema(dims, {"q": ("M", "D"), "k": ("N", "D"), "v": ("N", "D")}, ("M", "D"))


def _control(
    name: str,
    schema: Schema,
    tolerances: dict[str, float],
    *,
    reference: str = "",
    dtypes: tuple[str, ...] = _BOTH,
) -> Op:
    operator = name.removesuffix("_triton")
    language: Language = "numpy" if operator == name else "triton"
    text = (Path(__file__).parent / language / f"{name}.py").read_text(encoding="utf-8")
    return Op(name, language, text, schema, dtypes, tolerances, reference or operator, name)


def _faulty(control: Op, fault: Fault, *, name: str = "", schema: Schema | None = None) -> Op:
    return Op(
        name=name or f"{control.name}_buggy",
        language=control.language,
        text=fault.in_text(control.text),
        schema=schema or control.schema,
        dtypes=control.dtypes,
        tolerances=control.tolerances,
        reference=control.reference,
        control=control.name,
        fault=fault,
    )


@cache
def _controls() -> tuple[Op, ...]:
    elementwise = _rows(_ANY_H)
    norm = _rows(_NORM_H)
    return (
        _control("softmax", elementwise, _SOFTMAX),
        _control("layernorm", norm, _LOOSE),
        _control(
            "matmul",
            _product((1, 2, 7, 128), (1, 3, 16, 127, 256), (1, 2, 15, 64)),
            _MATMUL,
            dtypes=("float32",),
        ),
        _control("softmax_triton", elementwise, _SOFTMAX),
        _control("gelu_triton", elementwise, _LOOSE),
        _control("silu_triton", elementwise, _LOOSE),
        _control("rmsnorm_triton", norm, _LOOSE),
        _control("l2norm_triton", norm, _LOOSE),
        _control("leaky_relu_triton", elementwise, _RELU),
        _control("relu_triton", elementwise, _RELU),
        _control("sigmoid_triton", elementwise, _LOOSE),
        _control("tanh_triton", elementwise, _LOOSE),
        _control("elu_triton", elementwise, _LOOSE),
        _control(
            "matmul_triton",
            _product((1, 2, 7, 64), (1, 3, 16, 64), (1, 2, 15, 64)),
            _MATMUL,
            dtypes=("float32",),
        ),
        _control("attention_triton", _heads((1, 3, 16, 256)), _ATTENTION),
        _control(
            "flash_attention_triton",
            _heads((1, 3, 16, 64, 128, 256)),
            _ATTENTION,
            reference="attention",
        ),
    )


@cache
def _faults() -> tuple[Op, ...]:
    control = {op.name: op for op in _controls()}
    return (
        _faulty(
            control["softmax"],
            Fault("-np.inf", "0.0", "rows are padded with 0, which counts", "H a multiple of 128"),
            name="softmax_llm_buggy",
            schema=_rows(_PADDED_H),
        ),
        _faulty(
            control["softmax_triton"],
            Fault(
                'other=-float("inf")',
                "other=0.0",
                "lanes past the row are loaded as 0, which counts",
                "H a power of two",
            ),
            schema=_rows(_PADDED_H),
        ),
        _faulty(
            control["gelu_triton"],
            Fault("0.5 * x", "x", "the leading factor 0.5 is dropped", "x close to 0"),
        ),
        _faulty(
            control["silu_triton"],
            Fault("tl.exp(-x)", "tl.exp(-2.0 * x)", "the gate is sigmoid(2x)", "x close to 0"),
        ),
        _faulty(
            control["rmsnorm_triton"],
            Fault(
                "tl.sqrt(mean_square + 1e-5)",
                "(mean_square + 1e-5)",
                "divided by the mean square, not by its root",
                "rows whose root mean square is about 1",
            ),
        ),
        _faulty(
            control["l2norm_triton"],
            Fault(
                "tl.sqrt(square_sum + 1e-12)",
                "(square_sum + 1e-12)",
                "divided by the sum of squares, not by its root",
                "rows whose norm is about 1",
            ),
        ),
        _faulty(
            control["leaky_relu_triton"],
            Fault("0.01 * x", "0.1 * x", "the slope is 0.1, not 0.01", "no x below 0"),
        ),
        _faulty(
            control["matmul_triton"],
            Fault("acc +=", "acc =", "only the last term of the sum is kept", "K = 1"),
        ),
        _faulty(
            control["attention_triton"],
            Fault(
                " * scale",
                "",
                "scores are not divided by the root of D",
                "N = 1, or scores so far apart that one key takes all",
            ),
        ),
        _faulty(
            control["flash_attention_triton"],
            Fault(
                "acc * alpha[:, None]",
                "acc",
                "the sum of values is not rescaled when the maximum rises; the normaliser is",
                "N at most 32, or no later tile of keys raises the maximum",
            ),
        ),
    )


@cache
def entries() -> tuple[Op, ...]:
    """The published 26: 16 controls, then 10 faulty kernels, in the order of the paper's table."""
    return _controls() + _faults()


@cache
def extras() -> tuple[Op, ...]:
    """Controls of our own, schemas and tolerances too.

    They have ``tl.dot``, atomics, a prefix sum, a barrier between threads that exchange through
    global memory, and inputs of different ranks. A tolerance for float16 is no less than the
    distance of its numbers at the largest outputs that inputs within 10 have.
    """
    rows = _rows(_ANY_H, (1, 7, 16))
    means = Schema(rows.dims, rows.inputs, ("B", "S"))
    affine = Schema(
        {**rows.dims, "H": _NORM_H},
        {"x": ("B", "S", "H"), "weight": ("H",), "bias": ("H",)},
        ("B", "S", "H"),
    )
    return (
        _control(
            "matmul_dot_triton",
            _product((1, 2, 7, 64, 100), (1, 3, 16, 33, 64), (1, 2, 15, 64, 100)),
            {**_MATMUL, "float16": 4.0},
            reference="matmul",
        ),
        _control("row_mean_atomic_triton", means, _LOOSE, reference="row_mean"),
        _control("running_mean_triton", rows, _LOOSE),
        _control("running_max_exchange_triton", rows, _RELU, reference="running_max"),
        _control("layernorm_affine_triton", affine, {"float32": 1e-3, "float16": 0.25}),
    )


def entry(name: str) -> Op:
    """An entry or an extra by name; an unknown name raises ``UsageError``."""
    known = {op.name: op for op in (*entries(), *extras())}
    if name not in known:
        raise unknown_name("kernel of the corpus", name, known)
    return known[name]
