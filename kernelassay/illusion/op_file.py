"""An operator of the user's own: a TOML file of a few lines beside its kernel."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from kernelassay.errors import UsageError, unknown_name
from kernelassay.illusion.cases import DTYPES
from kernelassay.illusion.op import Language, Op
from kernelassay.illusion.reference import Reference
from kernelassay.illusion.schema import ELEMENTS, Schema
from kernelassay.toml_file import at, read_toml, table, text, texts

FIELDS = (
    *("name", "language", "kernel", "reference"),
    *("dims", "inputs", "output", "dtypes", "tolerances"),
)
NAME_LENGTH = 80
_DIMS = "write [dims] and below it lines like H = [1, 3, 256]"
_INPUTS = 'write [inputs] and below it lines like x = ["B", "H"]'
_TOLERANCES = "write [tolerances] and below it lines like float32 = 1e-5"


def read(path: Path) -> Op:
    """The operator of a file.

    ``kernel`` is a path relative to the file; so is a ``reference`` that ends in ``.py``, any other
    names a known one. ``name`` is by default the file's, ``language`` ``"triton"``, ``dtypes``
    float32 alone; tolerances that are left out are the fallbacks of
    :data:`~kernelassay.illusion.op.FALLBACK`. Neither the kernel nor the reference is run. Raises
    :class:`UsageError` that says which field is wrong, and how to write it.
    """
    data = read_toml(path, FIELDS, 'kernel = "softmax.py"')
    language: Language = _known(
        path, "language", text(path, data, "language", "triton"), get_args(Language)
    )
    reference = _reference(path, text(path, data, "reference"))
    name = text(path, data, "name", path.stem)
    _require_name(path, name)
    return Op(
        name=name,
        language=language,
        text=_source(path, text(path, data, "kernel"), "kernel"),
        schema=_schema(path, data),
        dtypes=_dtypes(path, data),
        tolerances=_tolerances(path, data),
        reference=reference.name,
        control=name,
        reference_text=reference.text,
    )


def _require_name(path: Path, name: str) -> None:
    """Names stand in tables and, without what a file system does not take, in file names."""
    hint = 'name = "softmax"'
    if not name:
        raise UsageError("name is empty", where=str(path), hint=hint)
    if len(name) > NAME_LENGTH or not name.isprintable():
        raise UsageError(
            f"name is no line of at most {NAME_LENGTH} characters: {name[:NAME_LENGTH]!r}",
            where=str(path),
            hint=hint,
        )


def _reference(path: Path, named: str) -> Reference:
    if named.endswith(".py"):
        return Reference(named, _source(path, named, "reference"))
    found = Reference(named)
    try:
        found.require_known()
    except UsageError as error:
        hint = f'{error.hint}; one of your own is a file: reference = "reference.py"'
        raise UsageError(error.what, where=str(path), hint=hint) from None
    return found


def _source(path: Path, named: str, field: str) -> str:
    source = path.parent / named
    try:
        return source.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(
            f"the {field} {named!r} cannot be read: {why}",
            where=str(path),
            hint=f"its path is relative to the TOML file: {source}",
        ) from error


def _schema(path: Path, data: Mapping[str, Any]) -> Schema:
    for name in ("dims", "inputs", "output"):
        if name not in data:
            raise UsageError(
                f"has no {name}",
                where=str(path),
                hint={"dims": _DIMS, "inputs": _INPUTS}.get(name, 'output = ["B", "H"]'),
            )
    dims = table(path, data["dims"], "dims", _DIMS)
    for name, sizes in dims.items():
        if not isinstance(sizes, list) or any(type(size) is not int for size in sizes):
            raise UsageError(
                f"dims.{name} is no list of integers: {sizes!r}", where=str(path), hint=_DIMS
            )
    inputs = table(path, data["inputs"], "inputs", _INPUTS)
    try:
        schema = Schema(
            dims={name: tuple(sizes) for name, sizes in dims.items()},
            inputs={
                name: texts(path, given, f"inputs.{name}", _INPUTS)
                for name, given in inputs.items()
            },
            output=texts(path, data["output"], "output", 'output = ["B", "H"]'),
        )
    except UsageError as error:
        raise error if error.where == str(path) else at(path, error) from None
    if schema.most_elements() > ELEMENTS:
        raise UsageError(
            f"the largest sizes give tensors of {schema.most_elements()} elements",
            where=str(path),
            hint=f"at most {ELEMENTS}, all tensors together; give smaller sizes in [dims]",
        )
    return schema


def _dtypes(path: Path, data: Mapping[str, Any]) -> tuple[str, ...]:
    example = 'dtypes = ["float32", "float16"]'
    found = texts(path, data.get("dtypes", ["float32"]), "dtypes", example)
    if not found or len(set(found)) < len(found):
        raise UsageError(
            f"dtypes is empty or names one twice: {list(found)}", where=str(path), hint=example
        )
    return tuple(_known(path, "dtype", dtype, DTYPES) for dtype in found)


def _tolerances(path: Path, data: Mapping[str, Any]) -> dict[str, float]:
    found = table(path, data.get("tolerances", {}), "tolerances", _TOLERANCES)
    for dtype, value in found.items():
        _known(path, "dtype", dtype, DTYPES)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0.0 <= value <= sys.float_info.max):
            raise UsageError(
                f"tolerances.{dtype} is no finite number of at least 0: {value!r:.40}",
                where=str(path),
                hint=_TOLERANCES,
            )
    return {dtype: float(value) for dtype, value in found.items()}


def _known(path: Path, kind: str, name: str, known: tuple[str, ...]) -> Any:
    if name not in known:
        error = unknown_name(kind, name, known)
        raise UsageError(error.what, where=str(path), hint=f"known: {', '.join(known)}")
    return name
