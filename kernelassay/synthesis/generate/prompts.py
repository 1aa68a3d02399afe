"""What a model is asked, rung by rung: each prompt has all of the one below, and more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelassay.mutation import RULES
from kernelassay.mutation.rule import FAMILIES
from kernelassay.synthesis.generate.geometry import edges
from kernelassay.synthesis.generate.target import Survivor, Target

NAIVE, TAXONOMY, WHITE_BOX = 1, 2, 3

DIFFS = 40
DIFF_LINES = 30
BUGS = 6
SIZES = 12

_TASK = """\
A CUDA kernel is meant to compute what this PyTorch module computes. A checker calls it correct if
torch.allclose(output, reference, atol={tolerance:g}, rtol={tolerance:g}) holds on its test inputs.
Write {count} test inputs that reveal wrong kernels which ordinary random inputs do not reveal.

```python
{source}
```
"""

_FORM = """\
Answer with one Python code block that defines the functions input_1 to input_{count}, without
parameters. Each returns a pair: a dict of the module-level sizes that it changes ({sizes}; {{}}
changes none), and the list of values that get_inputs() returns at these sizes: tensors of the same
number, shapes and dtypes, as torch tensors or NumPy arrays. Seed what you draw. Keep the amount of
work near the module's own. No files, no network, no processes. A correct kernel, which rounds in
another order, must pass every input with room to spare, or the input counts for nothing.
"""

_PLAYBOOK = {
    "arithmetic": "dense values of both signs, no symmetry, sums that nearly cancel",
    "indexing": "another value at every position; sizes that differ from one another",
    "semantic": "ties, zeros, all-negative rows, values where piecewise functions change or"
    " exponentials saturate",
    "boundary": "sizes one past, one below and one vector past a multiple of a tile; single"
    " elements; sizes so large that a grid-stride loop goes round again",
    "synchronization": "several blocks and warps with much different values in each",
    "precision": "values past 65504, offsets of 1000 with little spread, terms of opposite sign"
    " near the ceiling",
}


def prompt(
    target: Target, rung: int, count: int, seed: int, survivors: Sequence[Survivor] = ()
) -> str:
    """The prompt of a rung for one problem. ``survivors`` are told from rung 3 on alone."""
    parts = [
        _TASK.format(tolerance=target.tolerance, count=count, source=target.problem.source.strip())
    ]
    if rung >= TAXONOMY:
        parts += [*_families(), _limits(target), _geometry(target)]
    if rung >= WHITE_BOX:
        parts += _diffs(survivors)
    sizes = ", ".join(f"{lever.name} = {lever.value}" for lever in target.problem.sizes)
    parts.append(_FORM.format(count=count, sizes=sizes or "there are none"))
    parts.append(f"Variation {seed}.")
    return "\n".join(parts)


def _families() -> Iterator[str]:
    yield "Faults come in families. For each: bugs that occur, and what shows them."
    for family in FAMILIES:
        bugs = [rule.bug for rule in RULES if rule.family == family][:BUGS]
        yield f"- {family}: {'; '.join(bugs)}. Use {_PLAYBOOK[family]}."


def _limits(target: Target) -> str:
    found = (f"{kind} values times {scale:.3g}" for kind, scale in target.ceilings.items())
    told = ", ".join(found) or "none was found"
    return f"\nThe ceiling: up to here correct kernels pass (variance 1, dense): {told}.\n"


def _geometry(target: Target) -> str:
    ladder = edges(kernel.source for kernel in target.kernels).ladder
    return f"Extents next to the edges of the kernel: {', '.join(map(str, ladder[:SIZES]))}.\n"


def _diffs(survivors: Sequence[Survivor]) -> Iterator[str]:
    yield "These wrong kernels pass the checker now. Each is told with why it passes."
    for survivor in survivors[:DIFFS]:
        lines = survivor.diff.splitlines()[:DIFF_LINES]
        yield "\n".join((f"\n{survivor.mechanism}:", "```diff", *lines, "```"))
    yield ""
