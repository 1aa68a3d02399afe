"""Rules of Triton kernels, short complete modules, and the examples made of them."""

from __future__ import annotations

from textwrap import indent

from kernelassay.mutation.rule import Example, Find, Rule

FLAT = "x_ptr, y_ptr, n, BLOCK: tl.constexpr"
ROWS = "x_ptr, y_ptr, n_rows, n_cols, ROWS: tl.constexpr, BLOCK: tl.constexpr"


def rule(id_: str, family: str, what: str, bug: str, find: Find, *examples: Example) -> Rule:
    """A rule of Triton kernels; its id gets the prefix ``triton-``."""
    return Rule(f"triton-{id_}", family, what, bug, find, examples, language="triton")


def module(body: str, params: str = FLAT, *, grid: str = "(4,)", host: str = "") -> str:
    """A complete module: one kernel ``k`` with this body, and the ``launch`` of it.

    ``launch`` has the kernel's parameters; ``host`` is what it does before the launch, ``grid``
    the launch's grid.
    """
    given = [part.strip() for part in params.split(",")]
    names = [part.partition(":")[0] for part in given]
    passed = (f"{n}={n}" if ":" in p else n for n, p in zip(names, given, strict=True))
    before = indent(f"{host}\n", "    ") if host else ""
    return (
        "import triton\nimport triton.language as tl\n\n\n"
        f"@triton.jit\ndef k({params}):\n{indent(body, '    ')}\n\n\n"
        f"def launch({', '.join(names)}):\n{before}    k[{grid}]({', '.join(passed)})\n"
    )


def flat(expression: str) -> str:
    """An elementwise kernel that stores this expression of the loaded ``x``."""
    return module(
        "offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "x = tl.load(x_ptr + offs, mask=offs < n)\n"
        f"y = {expression}\n"
        "tl.store(y_ptr + offs, y, mask=offs < n)"
    )


def stored(before: str, *after: str) -> Example:
    """An example of elementwise kernels that differ in what they compute."""
    return Example(flat(before), tuple(flat(text) for text in after))


def edited(text: str, *edits: tuple[str, str]) -> Example:
    """An example with one mutant an edit: the first ``old`` of the text becomes ``new``."""
    after = []
    for old, new in edits:
        if old not in text:
            raise ValueError(f"the example has no {old!r}")
        after.append(text.replace(old, new, 1))
    return Example(text, tuple(after))


def body(text: str, *edits: tuple[str, str], params: str = FLAT) -> Example:
    """The same of a kernel with this body."""
    return edited(module(text, params), *edits)


def launched(host: str, grid: str, *edits: tuple[str, str], params: str = FLAT) -> Example:
    """The same of the host code of a kernel that copies."""
    copy = (
        "offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)"
    )
    return edited(module(copy, params, grid=grid, host=host), *edits)


SUMMED = (
    "acc = tl.zeros((BLOCK,), dtype=tl.float32)\n"
    "for start in range(0, n, BLOCK):\n"
    "    offs = start + tl.arange(0, BLOCK)\n"
    "    acc += tl.load(x_ptr + offs, mask=offs < n, other=0.0)\n"
    "tl.store(y_ptr, tl.sum(acc, axis=0))"
)
"""A kernel that sums in a loop over tiles."""

SOFTMAX = (
    "m = float('-inf')\n"
    "s = 0.0\n"
    "for start in range(0, n, BLOCK):\n"
    "    offs = start + tl.arange(0, BLOCK)\n"
    "    x = tl.load(x_ptr + offs, mask=offs < n, other=-float('inf'))\n"
    "    top = tl.maximum(m, tl.max(x, axis=0))\n"
    "    s = s * tl.exp(m - top) + tl.sum(tl.exp(x - top), axis=0)\n"
    "    m = top\n"
    "tl.store(y_ptr, s)"
)
"""The online maximum and sum of exponentials of one row."""
