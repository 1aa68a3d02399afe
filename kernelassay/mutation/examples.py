"""Short complete kernel sources for the examples of rules."""

from __future__ import annotations


def kernel(
    body: str,
    params: str = "const float* x, float* y, int n",
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
