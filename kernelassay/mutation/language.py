"""The languages of kernel sources: how a text is parsed, and which rules there are.

What a language needs is imported when it is asked for: libcst, which only Triton's trees are made
with, is no dependency of the others.
"""

from __future__ import annotations

from importlib.util import find_spec

from kernelassay.errors import KernelSyntaxError, ToolchainError, unknown_name
from kernelassay.mutation.rule import Rule, Tree

LANGUAGES = ("cuda", "triton")


def parse(source: str, language: str) -> Tree:
    """The tree of a source.

    Raises :class:`~kernelassay.errors.KernelSyntaxError` for a text that does not parse,
    :class:`~kernelassay.errors.UnsupportedError` for one without a kernel of the language, and
    what :func:`rules_of` raises.
    """
    if language == "triton":
        _need_libcst()
        from kernelassay.mutation.triton.tree import TritonTree

        try:
            return TritonTree(source)
        except RecursionError as error:
            raise KernelSyntaxError(
                "the module's expressions are too deep",
                hint="name parts of the longest ones; a sum of hundreds of terms is deep, too",
            ) from error
    _known(language)
    from kernelassay.mutation.tree import KernelTree

    return KernelTree(source)


def rules_of(language: str) -> tuple[Rule, ...]:
    """The catalogue of a language, in its fixed order.

    Raises :class:`~kernelassay.errors.UsageError` for an unknown language and
    :class:`~kernelassay.errors.ToolchainError` where its parser is not installed.
    """
    if language == "triton":
        _need_libcst()
        from kernelassay.mutation.triton.catalogue import RULES

        return RULES
    _known(language)
    from kernelassay.mutation import catalogue

    return catalogue.RULES


def _known(language: str) -> None:
    if language not in LANGUAGES:
        raise unknown_name("language", language, LANGUAGES)


def _need_libcst() -> None:
    if find_spec("libcst") is None:
        raise ToolchainError(
            "Triton sources are parsed with libcst, which is not installed",
            hint="install the extra: pip install 'kernelassay[triton]'",
        )
