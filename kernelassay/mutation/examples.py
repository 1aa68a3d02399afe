"""Short complete kernel sources, and the examples of rules made of them."""

from __future__ import annotations

from kernelassay.mutation.rule import Example

PARAMS = "const float* x, float* y, int n"
ROWS = "const float* x, float* y, int rows, int cols"
_INDEX = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"


def kernel(
    body: str,
    params: str = PARAMS,
    *,
    before: str = "",
    grid: str = "n",
    block: str = "32",
    shared: str = "",
) -> str:
    """A complete kernel source around ``body``: one kernel ``k`` and its ``launch``.

    ``before`` is text ahead of the kernel (macros, ``__device__`` functions); ``grid``, ``block``
    and ``shared`` are the launch configuration. ``launch`` has the same parameters as the kernel.
    """
    names = ", ".join(part.split()[-1].lstrip("*&") for part in params.split(","))
    config = ", ".join(part for part in (grid, block, shared) if part)
    head = f"{before}\n" if before else ""
    return (
        f'{head}extern "C" __global__ void k({params}) {{\n{body}\n}}\n\n'
        f"void launch({params}) {{\n    k<<<{config}>>>({names});\n}}\n"
    )


def example(before: str, *after: str, params: str = PARAMS, head: str = "") -> Example:
    """An example of kernels that differ in their body only; ``head`` is text ahead of them."""
    sources = (kernel(body, params, before=head) for body in after)
    return Example(kernel(before, params, before=head), tuple(sources))


def edited(body: str, old: str, new: str) -> Example:
    """An example whose rewrite puts ``new`` in place of the first ``old`` of a body."""
    return example(body, body.replace(old, new, 1))


def indexed(params: str, before: str, *after: str) -> Example:
    """An example of kernels whose threads have a number ``i`` in the grid."""
    return example(_INDEX + before, *(_INDEX + body for body in after), params=params)


def row_sum(term: str = "x[j]", value: str = "acc") -> str:
    """A body that sums a term of each element of a row (:data:`ROWS`) and stores a value."""
    return (
        "    float acc = 0.0f;\n"
        f"    for (int j = 0; j < cols; ++j) {{\n        acc += {term};\n    }}\n"
        f"    y[threadIdx.x] = {value};"
    )
