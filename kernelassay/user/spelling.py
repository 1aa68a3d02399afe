"""CUDA dialect that a C++ grammar or NVRTC does not take, put into words that both take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernelassay.compile.lexing import DIRECTIVE, NAME, Token

Edit = tuple[int, int, str]
_MACRO = re.compile(r"#\s*define\s+([A-Za-z_]\w*)(?![\w(])(.*)", re.DOTALL)
_SPECIFIERS = frozenset(
    {"__device__", "__host__", "__global__", "__forceinline__", "__noinline__", "__inline__",
     "inline", "static", "constexpr"}
)  # fmt: skip


def spelled_out(tokens: Sequence[Token]) -> list[Edit]:
    """Edits (start, end, new text) of a file; no line moves."""
    return [*_lambda_marks(tokens), *_specifiers(tokens)]


def _lambda_marks(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Drop the execution space of lambdas (``[] __device__ (T a)``), which device code implies.

    It is nvcc's extension: neither NVRTC by default nor a C++ grammar takes it.
    """
    after_capture = False
    for token in tokens:
        is_mark = token.text in ("__device__", "__host__")
        if after_capture and is_mark:
            yield token.start, token.end, " " * (token.end - token.start)
        after_capture = token.text == "]" or (after_capture and is_mark)


def _specifiers(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Spell out macros that stand for specifiers, which a C++ grammar takes for a type."""
    macros: dict[str, set[str]] = {}
    for token in tokens:
        if token.kind == DIRECTIVE and (match := _MACRO.match(token.text)):
            macros.setdefault(match[1], set()).add(" ".join(match[2].split()))
    for token in tokens:
        if token.kind == NAME and len(meaning := macros.get(token.text, set())) == 1:
            (words,) = meaning
            if words and set(words.split()) <= _SPECIFIERS:
                kernel = "__global__" in words.split()  # its linkage is C's, which static is not
                yield token.start, token.end, "__global__" if kernel else words
