"""Parts of parsed JSON, which are what they should be or raise ``TypeError``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading JSON raises that was damaged, or is of another form."""


def mapping(value: Any) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is no object")
    return value


def sequence(value: Any) -> Sequence[Any]:
    """An array."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is no array")
    return value


def text(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def whole(value: Any) -> int:
    """An integer."""
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is no integer")
    return value


def truth(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def number(value: Any) -> float:
    """A number, or the name of one that is not finite."""
    if value in ("inf", "-inf", "nan"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is no number")
    return float(value)
