"""Results as plain data, for ``--json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any


def plain(result: Any) -> dict[str, Any]:
    """The fields of a result, a dataclass; shares carry their rate, NaN and infinity are null."""
    data = _plain(asdict(result))
    assert isinstance(data, dict)
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"count", "total"}:
            from kernelassay.analysis.score import Share  # loads torch

            return {**value, "rate": Share(value["count"], value["total"]).rate}
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
