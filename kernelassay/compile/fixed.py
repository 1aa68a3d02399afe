"""Device code that knows the arguments a problem fixes.

A convolution's stride, padding and groups are arguments of its kernel, so that one source serves
every shape; for one problem they are constants. A fault that only shows at another stride is
equivalent there, and the machine code tells so once the compiler knows the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernelassay.compile.lexing import NAME, matching, split_commas
from kernelassay.compile.source import SourceParts, kernel_signatures, split

_ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
_STEPS = frozenset({"++", "--"})


def with_fixed(source: str, fixed: Mapping[str, int]) -> str:
    """``source`` with an assumption per kernel parameter that ``launch`` always gives one value.

    ``fixed`` has values of ``launch`` parameters by name. Only an argument that is such a parameter
    as it stands counts, at every launch of the kernel. Lines stay where they are.
    """
    if not fixed:
        return source
    parts = split(source)
    signatures = {kernel.name: kernel for kernel in kernel_signatures(source)}
    edits: dict[int, str] = {}
    for name, facts in _facts(parts, fixed).items():
        if name not in signatures or facts is None:
            continue
        parameters = signatures[name].parameters
        known = [
            f"__builtin_assume({parameters[position][1]} == {int(value)});"
            for position, value in sorted(facts.items())
            if position < len(parameters) and "*" not in parameters[position][0]
        ]
        for place in _bodies(parts, name):
            edits[place] = " ".join(known)
    for place in sorted(edits, reverse=True):
        source = source[:place] + edits[place] + source[place:]
    return source


def _facts(parts: SourceParts, fixed: Mapping[str, int]) -> dict[str, dict[int, int] | None]:
    """Per launched kernel, the values of its arguments by position."""
    tokens = parts.body
    stable = {name: value for name, value in fixed.items() if not _changes(parts, name)}
    found: dict[str, dict[int, int] | None] = {}
    for index, token in enumerate(tokens):
        if token.text != ">>>" or index + 1 >= len(tokens) or tokens[index + 1].text != "(":
            continue
        close = matching(tokens, index + 1)
        kernel = _kernel_before(parts, index)
        if close is None or kernel is None:
            continue
        arguments = split_commas(tokens[index + 2 : close])
        facts = {
            position: stable[argument[0].text]
            for position, argument in enumerate(arguments)
            if len(argument) == 1 and argument[0].text in stable
        }
        earlier = found.setdefault(kernel, facts)
        if earlier is not None and earlier != facts:
            found[kernel] = dict(earlier.items() & facts.items())
    return found


def _kernel_before(parts: SourceParts, index: int) -> str | None:
    """The kernel whose launch's ``>>>`` is at ``index`` of the body."""
    for back in range(index - 1, 0, -1):
        if parts.body[back].text == "<<<":
            before = parts.body[back - 1]
            return before.text if before.kind == NAME else None
        if parts.body[back].text == ";":
            return None
    return None


def _changes(parts: SourceParts, name: str) -> bool:
    """Whether ``launch`` assigns ``name``, or might through an address."""
    body = parts.body
    for index, token in enumerate(body):
        if token.text != name:
            continue
        after = body[index + 1].text if index + 1 < len(body) else ""
        before = body[index - 1].text if index else ""
        if after in _ASSIGNMENTS or after in _STEPS or before in _STEPS or before == "&":
            return True
    return False


def _bodies(parts: SourceParts, kernel: str) -> Iterator[int]:
    """Text offsets just past the opening brace of the definitions of ``kernel``."""
    tokens = parts.device_tokens
    for index, token in enumerate(tokens):
        if token.text != kernel or index + 1 >= len(tokens) or tokens[index + 1].text != "(":
            continue
        close = matching(tokens, index + 1)
        if close is not None and close + 1 < len(tokens) and tokens[close + 1].text == "{":
            yield tokens[close + 1].start + 1
