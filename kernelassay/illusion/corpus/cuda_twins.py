"""The corpus in CUDA: each entry's operator as a kernel file, with the same transcription errors.

A twin has its counterpart's schema, dtypes, tolerances and reference; a fault is another edit that
stands for the same mistake, and hides where that does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from kernelassay.errors import unknown_name
from kernelassay.illusion.corpus import entry
from kernelassay.illusion.op import Op

_COUNTERPARTS = {
    "softmax_padded": "softmax",
    "layernorm": "layernorm",
    "matmul_naive": "matmul",
    **{
        name: f"{name}_triton"
        for name in (
            "softmax",
            "gelu",
            "silu",
            "rmsnorm",
            "l2norm",
            "leaky_relu",
            "relu",
            "sigmoid",
            "tanh",
            "elu",
            "matmul",
            "attention",
            "flash_attention",
        )
    },
}
"""Kernel file -> the control of the corpus that computes the same."""

_EDITS = {
    "softmax_padded": ("padding = -INFINITY", "padding = 0.0f"),
    "softmax": ("float(row[lane]) : -INFINITY", "float(row[lane]) : 0.0f"),
    "gelu": ("0.5f * v *", "v *"),
    "silu": ("expf(-v)", "expf(-2.0f * v)"),
    "rmsnorm": ("sqrtf(squares / columns + 1e-5f)", "(squares / columns + 1e-5f)"),
    "l2norm": ("sqrtf(squares + 1e-12f)", "(squares + 1e-12f)"),
    "leaky_relu": ("0.01f * v", "0.1f * v"),
    "matmul": ("sum += left", "sum = left"),
    "attention": ("dot * scale", "dot"),
    "flash_attention": ("output[d] * alpha", "output[d]"),
}
"""Kernel file -> what its faulty twin has instead of what, for the counterpart's fault."""

_FOLDER = Path(__file__).parent / "cuda"
_FAULTY = {"softmax": "softmax_llm_buggy"}  # others are called after their control


def _control(name: str) -> Op:
    text = (_FOLDER / f"{name}.cu").read_text(encoding="utf-8")
    own = f"{name}_cuda"
    return replace(entry(_COUNTERPARTS[name]), name=own, language="cuda", text=text, control=own)


def _faulty(name: str) -> Op:
    control = _control(name)
    other = counterpart(f"{control.name}_buggy")
    assert other.fault is not None
    before, after = _EDITS[name]
    fault = replace(other.fault, before=before, after=after)
    return replace(
        other,
        name=f"{control.name}_buggy",
        language="cuda",
        text=fault.in_text(control.text),
        control=control.name,
        fault=fault,
    )


def counterpart(name: str) -> Op:
    """The entry of the corpus that a twin is the twin of.

    Raises ``UsageError`` for an unknown name.
    """
    stem, _, buggy = name.partition("_cuda")
    known = [f"{one}_cuda" for one in _COUNTERPARTS] + [f"{one}_cuda_buggy" for one in _EDITS]
    if name not in known:
        raise unknown_name("CUDA twin", name, known)
    control = _COUNTERPARTS[stem]
    return entry(_FAULTY.get(control, f"{control}{buggy}") if buggy else control)


@cache
def twins() -> tuple[Op, ...]:
    """All 26: 16 controls, then 10 faulty kernels, in the order of the corpus."""
    return tuple(map(_control, _COUNTERPARTS)) + tuple(map(_faulty, _EDITS))


def twin(name: str) -> Op:
    """A twin by name; an unknown one raises ``UsageError``."""
    known = {op.name: op for op in twins()}
    if name not in known:
        raise unknown_name("CUDA twin", name, known)
    return known[name]
