"""A case: all that fixes one call of an operator, and the arrays that it stands for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kernelassay.errors import UsageError, unknown_name
from kernelassay.illusion.rng import Generator, derive
from kernelassay.illusion.schema import Dims, Schema
from kernelassay.illusion.values import values

Layout = Literal["contiguous", "padded", "stepped", "transposed"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
STRIDED = LAYOUTS[1:]
DTYPES = ("float32", "float16")

_PAD = 3  # elements between rows of a padded layout: no vector width divides it
_STEP = 2


@dataclass(frozen=True, slots=True)
class Case:
    """One draw. ``seed`` and the fields give the inputs byte for byte, on every machine.

    ``strategy`` and ``index`` say who drew it; ``layout`` is that of every input: rows with gaps
    between them (``padded``), every second element of a buffer (``stepped``), or the last two
    dimensions swapped in memory (``transposed``; a vector is stepped).
    """

    strategy: str
    index: int
    seed: int
    dtype: str
    layout: Layout
    sizes: Dims
    values: str

    @property
    def id(self) -> str:
        """Twelve hex digits over everything that the inputs depend on."""
        key = json.dumps([self.seed, self.dtype, self.layout, self.sizes, self.values])
        return hashlib.blake2b(key.encode(), digest_size=6).hexdigest()

    def record(self) -> dict[str, Any]:
        """As plain values for JSON; :func:`case` reads it back."""
        return {**asdict(self), "sizes": dict(self.sizes)}

    def in_words(self) -> str:
        """The case as one line of text."""
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes)
        return f"{sizes} {self.dtype} {self.layout} {self.values}, seed {self.seed}"


def case(record: Mapping[str, Any], where: str = "case") -> Case:
    """A case from its record. Raises :class:`UsageError` for a record that is none."""
    try:
        made = Case(
            strategy=str(record["strategy"]),
            index=int(record["index"]),
            seed=int(record["seed"]),
            dtype=str(record["dtype"]),
            layout=record["layout"],
            sizes=tuple((str(name), int(size)) for name, size in dict(record["sizes"]).items()),
            values=str(record["values"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"is no case: {type(error).__name__}: {error}",
            where=where,
            hint="a case has strategy, index, seed, dtype, layout, sizes and values",
        ) from error
    values(made.values)
    for kind, name, known in (("layout", made.layout, LAYOUTS), ("dtype", made.dtype, DTYPES)):
        if name not in known:
            raise unknown_name(kind, name, known)
    return made


def require_fits(one: Case, schema: Schema, where: str) -> None:
    """Raise :class:`UsageError` unless a case gives exactly the schema's dimensions a size."""
    if [name for name, _ in one.sizes] != list(schema.dims):
        raise UsageError(
            f"the case has the dimensions {', '.join(dict(one.sizes))}, "
            f"the operator {', '.join(schema.dims)}",
            where=where,
            hint="the case belongs to another operator",
        )
    if any(size < 1 for _, size in one.sizes):
        raise UsageError("a size is less than 1", where=where, hint="use sizes from the schema")


def drawn(
    schema: Schema,
    *,
    strategy: str,
    index: int,
    master: int,
    dtypes: Sequence[str],
    values: str,
) -> Case:
    """The ``index``-th case of a master seed, each part from a seed of its own, as published.

    Dtype, layout and each size are uniform; half of the layouts are strided.
    """
    seed = derive(master, f"iter_{index}")
    shape = derive(seed, "shape")
    layout = Generator(derive(seed, "layout"))
    strided = layout.choice((False, True))
    return Case(
        strategy=strategy,
        index=index,
        seed=seed,
        dtype=Generator(derive(seed, "dtype")).choice(tuple(dtypes)),
        layout=layout.choice(STRIDED) if strided else "contiguous",
        sizes=tuple(
            (name, Generator(derive(shape, name)).choice(sizes))
            for name, sizes in schema.dims.items()
        ),
        values=values,
    )


def inputs(one: Case, schema: Schema) -> list[NDArray[Any]]:
    """The arrays of a case, in the schema's order; those of strided layouts are views.

    Raises :class:`UsageError` for a case of another schema.
    """
    require_fits(one, schema, "case")
    sizes = dict(one.sizes)
    dtype = np.dtype(one.dtype)
    draw = values(one.values).draw
    made = []
    for position, name in enumerate(schema.inputs):
        seed = derive(derive(one.seed, "data"), f"input_{position}")
        with np.errstate(over="ignore"):
            elements = draw(seed, schema.shape(name, sizes), dtype, position).astype(dtype)
        made.append(laid_out(elements, one.layout))
    return made


def laid_out(array: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """The same elements as a view of a buffer in a layout; gaps of the buffer hold NaN."""
    if layout == "contiguous" or array.ndim == 0:
        return np.array(array, order="C")  # ascontiguousarray gives a scalar a dimension
    if layout == "transposed" and array.ndim >= 2:
        return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    *rows, width = array.shape
    if layout == "padded":
        buffer = np.full((*rows, width + _PAD), np.nan, array.dtype)
        view = buffer[..., :width]
    else:
        buffer = np.full((*rows, width * _STEP), np.nan, array.dtype)
        view = buffer[..., ::_STEP]
    view[...] = array
    return view
