"""A protocol of the user's own: a TOML file of a few lines, or a Python file.

A Python file is loaded as a plug-in is: it runs with the rights of whoever names it.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from kernelassay.errors import UsageError, unknown_name
from kernelassay.oracle import AcceptanceRule, Form, Nonfinite
from kernelassay.protocols.protocol import Protocol, Unfit
from kernelassay.toml_file import at, read_toml, table, text

SUFFIXES = (".toml", ".py")
VIEWS = ("seen", "poisoned")
NARROW = ("float16", "bfloat16")
"""The dtypes that a rule of their own may be for: outputs narrower than float32."""
_RULE = ("tolerance", "relative", "form", "nonfinite", "matched_ratio")
_FIELDS = ("name", "what", "source", "inputs", "unfit", "view", "dtypes", *_RULE)
_CHOICES = {"form": get_args(Form), "nonfinite": get_args(Nonfinite)}


def is_file(name: str) -> bool:
    """Whether the name of a protocol is that of a file."""
    return name.endswith(SUFFIXES)


def read(path: Path) -> Protocol:
    """The protocol of a file. Raises :class:`UsageError` with what to do if it is none."""
    if not path.is_file():
        raise UsageError("no such protocol file", where=str(path), hint="or name a known protocol")
    return _python(path) if path.suffix == ".py" else _toml(path)


def _python(path: Path) -> Protocol:
    module = types.ModuleType("kernelassay_user_protocol")
    module.__file__ = str(path)
    try:
        exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"does not run: {type(error).__name__}: {error}",
            where=str(path),
            hint="a protocol file is Python source that defines PROTOCOL",
        ) from error
    found = getattr(module, "PROTOCOL", None)
    if not isinstance(found, Protocol):
        raise UsageError(
            "defines no PROTOCOL",
            where=str(path),
            hint="set PROTOCOL = kernelassay.protocols.Protocol(...)",
        )
    _require_sound(found, path)
    return found


def _toml(path: Path) -> Protocol:
    data = read_toml(path, _FIELDS, "tolerance = 1e-2")
    default = _rule(path, data, None)
    dtypes = _dtypes(path, data.get("dtypes", {}))
    protocol = _built(
        path,
        name=text(path, data, "name", path.stem),
        what=text(path, data, "what", ""),
        source=text(path, data, "source", str(path)),
        inputs=_inputs(path, data),
        default=default,
        rules={dtype: _rule(path, _dtypes(path, own), default) for dtype, own in dtypes.items()},
        view=text(path, data, "view", "seen"),
        unfit=text(path, data, "unfit", "needs"),
    )
    _require_sound(protocol, path)
    return protocol


def _built(path: Path, **fields: Any) -> Protocol:
    try:
        return Protocol(**fields)
    except UsageError as error:
        raise at(path, error) from None


def _inputs(path: Path, data: Mapping[str, Any]) -> tuple[str, ...]:
    found = data.get("inputs", [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise UsageError(
            "inputs is no list of ids", where=str(path), hint='inputs = ["official-*", "wide-s1"]'
        )
    return tuple(found)


def _rule(path: Path, data: Mapping[str, Any], base: AcceptanceRule | None) -> AcceptanceRule:
    """The rule that some fields give; what they leave out is as in ``base``."""
    for name in data if base is not None else ():
        if name not in _RULE:
            raise at(path, unknown_name("field of a dtype", name, _RULE))
    given = {name: data[name] for name in _RULE if name in data}
    for name in ("tolerance", "relative", "matched_ratio"):
        value = given.get(name, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(
                f"{name} is no number: {value!r}", where=str(path), hint=f"{name} = 1e-2"
            )
        if name in given:
            given[name] = float(value)
    if base is None and "tolerance" not in given:
        raise UsageError(
            "has no tolerance", where=str(path), hint="add a line like tolerance = 1e-2"
        )
    known = {name: getattr(base, name) for name in _RULE} if base is not None else {}
    return AcceptanceRule(**{**known, **given})


def _dtypes(path: Path, value: Any) -> Mapping[str, Any]:
    example = "write [dtypes.float16] and below it tolerance = 1e-2"
    return table(path, value, "dtypes", example)


def _require_sound(protocol: Protocol, path: Path) -> None:
    """Raises :class:`UsageError` for values that mean nothing; those that are unwise stand."""
    _require_types(protocol, path)
    for dtype in protocol.rules:
        if dtype not in NARROW:
            raise UsageError(
                f"a rule for outputs of {dtype!r} would never be used",
                where=str(path),
                hint=f"only {', '.join(NARROW)} may have one; the rule above serves all others",
            )
    if protocol.view not in VIEWS:
        raise at(path, unknown_name("view", protocol.view, VIEWS))
    if protocol.unfit not in get_args(Unfit):
        raise at(path, unknown_name("unfit", protocol.unfit, get_args(Unfit)))
    for rule in (protocol.default, *protocol.rules.values()):
        for name, choices in _CHOICES.items():
            if getattr(rule, name) not in choices:
                raise at(path, unknown_name(name, str(getattr(rule, name)), choices))
        numbers = (rule.tolerance, rule.relative or 0.0, rule.matched_ratio)
        if not all(number >= 0.0 for number in numbers):
            raise UsageError(
                f"a tolerance is negative or NaN: {rule.in_words()}",
                where=str(path),
                hint="write a number; 0 rejects all that is not equal to the last bit",
            )
        if not 0.0 <= rule.matched_ratio <= 1.0:
            raise UsageError(
                f"matched_ratio is {rule.matched_ratio:g}",
                where=str(path),
                hint="it is a share of the elements, from 0 to 1",
            )


def _require_types(protocol: Protocol, path: Path) -> None:
    """Raises :class:`UsageError` for values of another type, which Python lets a file give."""

    def are(kind: Any, *values: Any) -> bool:
        return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)

    inputs: Any = protocol.inputs
    texts = (protocol.name, protocol.what, protocol.source, protocol.draws)
    mapped = are(Mapping, protocol.rules)
    rules = (protocol.default, *(protocol.rules.values() if mapped else ()))
    numbers = [
        number
        for rule in rules
        if are(AcceptanceRule, rule)
        for number in (rule.tolerance, rule.relative, rule.matched_ratio)
        if number is not None
    ]
    asked = {
        "name, what, source and draws must be texts": are(str, *texts) and bool(protocol.name),
        "inputs must be a tuple of ids": are(list | tuple, inputs) and are(str, *inputs),
        "default must be an AcceptanceRule": are(AcceptanceRule, protocol.default),
        "rules must give an AcceptanceRule by dtype": mapped and are(AcceptanceRule, *rules),
        "tolerances and ratios must be numbers": are(int | float, *numbers),
    }
    for what, holds in asked.items():
        if not holds:
            raise UsageError(
                what, where=str(path), hint="docs/guide/your-own-protocol.md has an example"
            )
