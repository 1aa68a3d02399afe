"""C types, literals and function names for the dtypes of a graph."""

from __future__ import annotations

import math

from kernelassay.errors import UnsupportedError

# A bool tensor is read as bytes: any bit pattern is then a defined value, as on a device.
C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int64": "long long",
    "int32": "int",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "unsigned char",
}
FLOATING = ("float32", "float64")


def c_type(dtype: str) -> str:
    """The C element type of a buffer of ``dtype``.

    Raises:
        UnsupportedError: the kernels do not handle this dtype.
    """
    try:
        return C_TYPES[dtype]
    except KeyError:
        raise UnsupportedError(f"dtype {dtype}") from None


def value_type(dtype: str) -> str:
    """The C type of a temporary that holds one value of ``dtype``."""
    return "bool" if dtype == "bool" else c_type(dtype)


def literal(value: float | int | bool, dtype: str) -> str:
    """``value`` as a C constant of ``dtype``."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype not in FLOATING:
        return str(int(value))
    number = float(value)
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    return repr(number) + ("f" if dtype == "float32" else "")


def function(name: str, dtype: str) -> str:
    """The C math function ``name`` for ``dtype``: ``exp`` is ``expf`` for float32."""
    return name + ("f" if dtype == "float32" else "")
