"""Reading a replay bundle: every way in which a file is none is an error of its own."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from kernelassay.errors import UsageError, unknown_name
from kernelassay.illusion.benches import DEVICES, require_runs
from kernelassay.illusion.bundle import (
    KIND,
    VERSION,
    Bundle,
    Expected,
    content_digest,
)
from kernelassay.illusion.cases import Case, case, require_fits
from kernelassay.illusion.op import Language, text_digest
from kernelassay.illusion.oracle import FAILURES, Rule
from kernelassay.illusion.oracle import Reference as Comparison
from kernelassay.illusion.record import mapping, number, text, truth, whole
from kernelassay.illusion.reference import Reference
from kernelassay.illusion.schema import ELEMENTS, Schema
from kernelassay.oracle import LADDER, Nonfinite, Verdict

_HINT = "write it again, by the command that wrote it"


def parsed(path: Path) -> dict[str, Any]:
    """The JSON object of a file. Raises :class:`UsageError` if it holds none."""
    where = str(path)
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"cannot be read: {error.strerror}", where=where, hint="name a readable file"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"is no JSON: {error}", where=where, hint=_HINT) from error
    if not isinstance(found, dict):
        raise _foreign(where, f"its content is {type(found).__name__}")
    return found


def read(path: Path) -> Bundle:
    """The bundle of a file. Raises :class:`UsageError` that says what is wrong with it."""
    return bundle(parsed(path), str(path))


def bundle(data: Mapping[str, Any], where: str) -> Bundle:
    """A bundle from its parsed content. Raises :class:`UsageError`."""
    if data.get("kernelassay") != KIND:
        kind = data.get("schema", data.get("kernelassay"))
        raise _foreign(where, f"it says {kind!r}" if kind else "it does not say what it is")
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise UsageError(
            f"is a replay bundle of version {data.get('version')!r}, not {VERSION}",
            where=where,
            hint="use the kernelassay that wrote it",
        )
    _require_unchanged(data, where)
    try:
        return _bundle(data, where)
    except UsageError as error:
        raise UsageError(error.what, where=_below(where, error.where), hint=error.hint) from None
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"lacks a part, or one has another form: {type(error).__name__}: {error}",
            where=where,
            hint=_HINT,
        ) from error


def _require_unchanged(data: Mapping[str, Any], where: str) -> None:
    kernel = data.get("kernel")
    text = kernel.get("text") if isinstance(kernel, dict) else None
    if isinstance(text, str) and data["kernel"].get("digest") != text_digest(text):
        raise UsageError(
            "the kernel's text is not the one that failed: its digest differs",
            where=where,
            hint="undo the change of the text; another kernel needs a bundle of its own",
        )
    try:
        digest = content_digest(data)
    except ValueError:  # a number that is not finite
        digest = ""
    if data.get("digest") != digest:
        raise UsageError(
            "its content is not what was written: its digest differs",
            where=where,
            hint="the file was changed or damaged; " + _HINT,
        )


def _foreign(where: str, what: str) -> UsageError:
    return UsageError(
        f"is no replay bundle: {what}",
        where=where,
        hint=f'a bundle is a JSON object with "kernelassay": "{KIND}"',
    )


def _below(where: str, place: str) -> str:
    return f"{where}: {place}" if place else where


def _bundle(data: Mapping[str, Any], where: str) -> Bundle:
    kernel, given = mapping(data["kernel"]), mapping(data["inputs"])
    language: Language = _one_of("language", kernel["language"], get_args(Language))
    device = _one_of("device", data["device"], DEVICES)
    require_runs(language, device)
    reference = mapping(data["reference"])
    own = reference["text"]
    computes = Reference(text(reference["name"]), None if own is None else text(own))
    computes.require_known()
    schema = _schema(mapping(data["schema"]))
    one = case(_case_record(mapping(data["case"])))
    require_fits(one, schema, "case")
    if schema.elements(dict(one.sizes)) > ELEMENTS:
        raise UsageError(f"has more than {ELEMENTS} elements", where="case", hint=_HINT)
    rule = mapping(data["rule"])
    return Bundle(
        kernel=text(kernel["name"]),
        language=language,
        text=text(kernel["text"]),
        reference=computes,
        schema=schema,
        case=one,
        rule=_rule(rule),
        tolerance=number(rule["tolerance"]),
        device=device,
        inputs_digest=text(given["digest"]),
        elements=_elements(given, schema, one),
        explicit=truth(given["explicit"]),
        expected=_expected(mapping(data["expected"])),
        about={text(k): text(v) for k, v in mapping(data["about"]).items()},
    )


def _schema(record: Mapping[str, Any]) -> Schema:
    return Schema(
        dims={text(name): tuple(map(whole, sizes)) for name, sizes in record["dims"]},
        inputs={text(name): tuple(map(text, dims)) for name, dims in record["inputs"]},
        output=tuple(map(text, record["output"])),
    )


def _case_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record, its numbers and texts being such; ``case`` would convert them."""
    sizes = {text(name): whole(size) for name, size in record["sizes"]}
    numbers = {name: whole(record[name]) for name in ("index", "seed")}
    texts = {name: text(record[name]) for name in ("strategy", "dtype", "layout", "values")}
    return {**numbers, **texts, "sizes": sizes}


def _rule(record: Mapping[str, Any]) -> Rule:
    return Rule(
        nonfinite=_one_of("treatment of non-finites", record["nonfinite"], get_args(Nonfinite)),
        reference=_one_of("reference of a rule", record["reference"], get_args(Comparison)),
        scale=number(record["scale"]),
    )


def _elements(record: Mapping[str, Any], schema: Schema, one: Case) -> tuple[bytes, ...] | None:
    stored = record["elements"]
    if stored is None:
        if record["explicit"]:
            raise UsageError("explicit inputs without elements", where="inputs", hint=_HINT)
        return None
    made = tuple(base64.b64decode(text(part), validate=True) for part in stored)
    width, sizes = {"float32": 4, "float16": 2}[one.dtype], dict(one.sizes)
    wanted = [width * math.prod(schema.shape(name, sizes)) for name in schema.inputs]
    if [len(data) for data in made] != wanted:
        raise UsageError(
            f"elements of {[len(data) for data in made]} bytes, not {wanted}",
            where="inputs",
            hint="the elements belong to another case",
        )
    return made


def _expected(record: Mapping[str, Any]) -> Expected:
    verdict = record["verdict"]
    return Expected(
        outcome=text(record["outcome"]),
        failure=_one_of("failure", record["failure"], FAILURES),
        output_digest=text(record["output_digest"]),
        verdict=None if verdict is None else _verdict(mapping(verdict)),
        deterministic=truth(record["deterministic"]),
    )


def _verdict(record: Mapping[str, Any]) -> Verdict:
    values: dict[str, Any] = {}
    for field in fields(Verdict):
        value = record[field.name]
        if field.name == "past":
            values[field.name] = tuple(map(whole, value))
            if len(value) != len(LADDER):
                raise ValueError(f"past has {len(value)} counts, not {len(LADDER)}")
        elif field.name.endswith("_matches"):
            values[field.name] = truth(value)
        elif field.name.startswith(("critical", "max")):
            values[field.name] = number(value)
        else:
            values[field.name] = whole(value)
    return Verdict(**values)


def _one_of(kind: str, value: Any, known: Any) -> Any:
    if text(value) not in known:
        raise unknown_name(kind, value, known)
    return value
