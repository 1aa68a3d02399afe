"""A user's kernel file, read: its device part, its ``launch``, and what each parameter is bound to.

Nothing is executed and no problem is needed; whether the bindings fit a problem is decided where
its tensors are known (:mod:`kernelassay.user.whole`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kernelassay.compile.launcher import parse_launcher
from kernelassay.errors import KernelassayError, KernelSyntaxError, UsageError
from kernelassay.user import launch_text
from kernelassay.user.extract import DeviceFile, Extract, extract
from kernelassay.user.header import Header, LaunchLine, Require, Tensor, read_header
from kernelassay.user.launch_text import Buffer, Quantity
from kernelassay.user.templates import Instance, instance_name

_NAMED = 6


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A kernel of the user's and how it is called.

    ``source`` is a kernel source like the op library's: device code plus one ``launch``.
    ``buffers`` and ``quantities`` bind the pointer and the other parameters of ``launch``.
    ``probe`` is a source whose ``launch`` computes the values of ``expressions`` (parameters of
    the user's own ``launch``) and then of ``requirements``, in order, as arguments of one launch;
    "" if there are none. ``skip`` holds globs over input ids, ``note`` says what was left out.
    """

    path: str
    text: str
    source: str
    buffers: tuple[Buffer, ...]
    quantities: tuple[Quantity, ...]
    probe: str
    probe_quantities: tuple[Quantity, ...]
    expressions: tuple[str, ...]
    requirements: tuple[tuple[str, int], ...]
    skip: tuple[str, ...]
    note: str

    @property
    def name(self) -> str:
        """The file's name, without its ending."""
        return Path(self.path).stem

    @property
    def digest(self) -> str:
        """SHA-256 over the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """The buffers that are outputs of the problem."""
        return tuple(b for b in self.buffers if b.is_output)


def read_kernel(path: Path | str) -> KernelFile:
    """Read a ``.cu`` file with a header (:mod:`kernelassay.user.header`).

    Raises:
        UsageError: the file cannot be read, or its header does not fit its kernels; the message
            names the parameter, its position, and where it is declared.
        UnsupportedError: a construct that has no counterpart, by name.
        KernelSyntaxError: the launch does not parse.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot be read: {error}", where=str(path), hint="name a readable UTF-8 .cu file"
        ) from error
    return kernel_of(text, str(path))


def kernel_of(text: str, path: str) -> KernelFile:
    """The same of a file's ``text``; ``path`` is where its own headers lie, and for messages."""
    header = read_header(text, path)
    file = DeviceFile.read(text, path)
    if header.launches and file.has_launch:
        raise UsageError(
            "the header has a launch, but the file defines a function `launch` itself",
            where=header.at(header.launches[0].line),
            hint="keep one of the two",
        )
    if file.has_launch:
        return _own_launch(file, header)
    return _made_launch(file, header)


def _made_launch(file: DeviceFile, header: Header) -> KernelFile:
    if not header.launches:
        known = ", ".join(file.kernels()) or "none"
        raise UsageError(
            "the header has no launch, and the file no host function `launch`",
            where=file.path,
            hint=f"write `// kernelassay: kernel<<<grid, block>>>(...)`; kernels here: {known}",
        )
    header = _flattened(header, file.layout.namespaces)
    instances: dict[tuple[str, tuple[str, ...] | None], Instance] = {}
    for line in header.launches:
        file.kernel(line.kernel, header.at(line.line))
        key = (line.kernel, line.template)
        if key not in instances:
            instances[key] = Instance(*key, instance_name(*key, instances.values()))
    device = extract(file, list(instances.values()), _names(header))
    names = {line.line: instances[(line.kernel, line.template)].name for line in header.launches}
    made = launch_text.make(file, header, device.text, names)
    return _finished(file, header, device, made)


def _flattened(header: Header, namespaces: Iterable[str]) -> Header:
    """``header`` without the file's namespaces in launches, as the device code is without them."""
    names = "|".join(map(re.escape, namespaces))
    if not names:
        return header

    def bare(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(re.sub(rf"\b(?:{names})\s*::\s*", "", text) for text in texts)

    def flat(line: LaunchLine) -> LaunchLine:
        template = None if line.template is None else bare(line.template)
        geometry, arguments = bare(line.geometry), bare(line.arguments)
        return replace(line, template=template, geometry=geometry, arguments=arguments)

    statements = tuple(flat(s) if isinstance(s, LaunchLine) else s for s in header.statements)
    return replace(header, statements=statements)


def _own_launch(file: DeviceFile, header: Header) -> KernelFile:
    instances, edits = file.launch_instances()
    if edits:
        text = file.text
        for start, end, name in sorted(edits, reverse=True):
            text = text[:start] + name + text[end:]
        launch = DeviceFile.read(text, file.path)
    else:
        launch = file
    device = extract(file, instances, {"launch"})
    if edits:
        device = _with_launch(device, launch)
    made = launch_text.bind_own(file, header, device.text)
    return _finished(file, header, device, made)


def _with_launch(device: Extract, edited: DeviceFile) -> Extract:
    """``device`` with its ``launch`` replaced by the edited one's, which names instances."""
    from kernelassay.compile.source import split

    old, new = split(device.text), split(edited.text)
    start, end = old.tokens[old.launch_start].start, old.tokens[old.launch_end - 1].end
    fresh = edited.text[new.tokens[new.launch_start].start : new.tokens[new.launch_end - 1].end]
    text = device.text[:start] + fresh + device.text[end:]
    return Extract(text, device.left_out_includes, device.left_out_functions)


def _finished(
    file: DeviceFile, header: Header, device: Extract, made: launch_text.Bound
) -> KernelFile:
    for source in filter(None, (made.source, made.probe)):
        try:
            parse_launcher(source)
        except KernelassayError as error:
            raise KernelSyntaxError(
                f"the launch cannot be evaluated: {error.what}",
                where=file.path,
                hint=error.hint or "write sizes and geometry as C expressions over bound names",
            ) from error
    _require_outputs(header, made)
    return KernelFile(
        path=file.path,
        text=file.text,
        source=made.source,
        buffers=made.buffers,
        quantities=made.quantities,
        probe=made.probe,
        probe_quantities=made.probe_quantities,
        expressions=made.expressions,
        requirements=tuple((s.shown, s.line) for s in header.statements if isinstance(s, Require)),
        skip=header.skip,
        note=_note(device),
    )


def _require_outputs(header: Header, made: launch_text.Bound) -> None:
    used = {buffer.parameter for buffer in made.buffers}
    for tensor in header.tensors:
        if tensor.reference.startswith("out") and tensor.name not in used:
            raise UsageError(
                f"{tensor.name!r} is bound to {tensor.reference}, but no launch takes it",
                where=header.at(tensor.line),
            )
    if not any(buffer.is_output for buffer in made.buffers):
        raise UsageError(
            "no parameter is bound to the output",
            where=header.path,
            hint="write `// kernelassay: y = out` for the buffer the kernel writes",
        )


def _names(header: Header) -> set[str]:
    """Every name in the header's expressions: macros and constants among them are kept."""
    from kernelassay.compile.lexing import NAME, tokenize

    texts: list[str] = []
    for statement in header.statements:
        if isinstance(statement, LaunchLine):
            texts += [*statement.geometry, *statement.arguments, *(statement.template or ())]
        elif not isinstance(statement, Tensor):
            texts += [getattr(statement, name, "") for name in ("text", "count", "type", "nbytes")]
    return {token.text for text in texts for token in tokenize(text) if token.kind == NAME}


def _note(device: Extract) -> str:
    parts = []
    for kind, names in (
        ("includes", device.left_out_includes),
        ("functions", device.left_out_functions),
    ):
        unique = list(dict.fromkeys(names))
        if unique:
            more = f" and {len(unique) - _NAMED} more" if len(unique) > _NAMED else ""
            parts.append(f"{kind} {', '.join(unique[:_NAMED])}{more}")
    return f"left out as host code: {'; '.join(parts)}" if parts else ""
