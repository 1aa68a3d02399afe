"""The device part of a user's file: what its kernels use, and nothing else, line for line.

Host code, unused macros and kernels, and the includes that device code does not need become
blanks; namespaces are flattened; a template kernel becomes the instances that are launched, each a
kernel of its own. Lines stay where they are, so that a diagnostic or a mutant names the line of
the user's file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelassay.compile.lexing import DIRECTIVE, NAME, Token, join, matching, tokenize
from kernelassay.compile.source import LAUNCH, split
from kernelassay.errors import KernelSyntaxError, UnsupportedError, UsageError, unknown_name
from kernelassay.execute.cpu.translate import CUDA_HEADERS, accepted_header
from kernelassay.user import items as kinds
from kernelassay.user.conditionals import decided
from kernelassay.user.header import template_arguments
from kernelassay.user.includes import Lines, assembled
from kernelassay.user.items import Item, Layout, angle_end, layout
from kernelassay.user.spelling import Edit, spelled_out
from kernelassay.user.templates import (
    Instance,
    instance_name,
    same_arguments,
    template_values,
)

_INCLUDED = re.compile(r"#\s*include\s*[<\"]([^>\"]+)[>\"]")


@dataclass(frozen=True, slots=True)
class Extract:
    """The device part, and what was left out of it: includes, and names of host functions."""

    text: str
    left_out_includes: tuple[str, ...]
    left_out_functions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A file with its project's headers, tokenised once; ``lines`` says where each came from."""

    text: str
    path: str
    lines: Lines
    tokens: tuple[Token, ...]
    layout: Layout

    @classmethod
    def read(cls, text: str, path: str) -> DeviceFile:
        """The items of ``text`` and of the headers beside it."""
        whole, lines = assembled(text, path)
        whole = decided(whole)
        tokens = tuple(tokenize(whole))
        return cls(whole, path, lines, tokens, layout(tokens, whole))

    def where(self, token: Token) -> str:
        """``path:line`` of a token."""
        path, line = self.lines[self.text.count("\n", 0, token.start)]
        return f"{path}:{line}"

    @property
    def has_launch(self) -> bool:
        """Whether the file has a host function ``launch`` of our form."""
        try:
            split(self.text)
        except KernelSyntaxError:
            return False
        return True

    def kernels(self) -> dict[str, Item]:
        """The kernels that have a body, by name; of a specialised one its general definition.

        Raises ``UnsupportedError`` for an overload.
        """
        found: dict[str, Item] = {}
        special: dict[str, Item] = {}
        for item in self.layout.items:
            if not item.kernel or self.tokens[item.last].text != "}":
                continue
            if self.specialised(item) is not None:
                special.setdefault(item.name, item)
            elif item.name in found:
                raise UnsupportedError(
                    f"the kernel {item.name!r} is defined twice (overloaded)",
                    where=self.where(self.tokens[item.first]),
                    hint="give each version a name of its own",
                )
            else:
                found[item.name] = item
        return special | found

    def specialised(self, item: Item) -> tuple[str, ...] | None:
        """The arguments that a definition after ``template <>`` is for; None for another one."""
        words = [token.text for token in self.tokens[item.first : item.last + 1]]
        if words[:3] != ["template", "<", ">"]:
            return None
        start = words.index(item.name) + 1
        close = angle_end(words, start) if words[start] == "<" else None
        if close is None:
            return None  # its arguments are deduced
        inside = self.tokens[item.first + start + 1 : item.first + close]
        return tuple(join(part) for part in template_arguments(list(inside)))

    def definition(self, instance: Instance) -> Item:
        """The definition that the compiler takes for an instance: a specialisation goes first."""
        general = self.kernels()[instance.kernel]
        aliases = _aliases(self)
        for item in self.layout.items:
            if not item.kernel or item.name != instance.kernel or item == general:
                continue
            arguments = self.specialised(item)
            if arguments is None or self.tokens[item.last].text != "}":
                continue
            where = self.where(self.tokens[item.first])
            if same_arguments(instance, arguments, aliases, where):
                return item
        arguments = self.specialised(general)
        where = self.where(self.tokens[general.first])
        if arguments is not None and not same_arguments(instance, arguments, aliases, where):
            raise UsageError(
                f"{instance.kernel} is defined for some template arguments only, not for"
                f" <{', '.join(instance.template or ())}>",
                where=where,
            )
        return general

    def kernel(self, name: str, where: str) -> Item:
        """The kernel called ``name``, used at ``where``."""
        known = self.kernels()
        if name not in known:
            error = unknown_name("kernel", name, known)
            raise UsageError(error.what, where=where, hint=error.hint)
        return known[name]

    def launch_instances(self) -> tuple[list[Instance], list[Edit]]:
        """The kernels that the file's own ``launch`` starts, and the edits that name instances."""
        parts = split(self.text)
        found: dict[tuple[str, tuple[str, ...] | None], Instance] = {}
        edits: list[Edit] = []
        tokens = parts.body
        known = self.kernels()
        for at, token in enumerate(tokens):
            following = tokens[at + 1].text if at + 1 < len(tokens) else ""
            if token.text not in known or following not in ("<", "<<<"):
                continue
            arguments, end = None, at
            if following == "<":
                words = [t.text for t in tokens]
                close = angle_end(words, at + 1)
                if close is None or words[close + 1] != "<<<":
                    continue
                arguments = tuple(join(p) for p in template_arguments(list(tokens[at + 2 : close])))
                end = close
            key = (token.text, arguments)
            if key not in found:
                found[key] = Instance(*key, instance_name(token.text, arguments, found.values()))
            edits.append((token.start, tokens[end].end, found[key].name))
        return list(found.values()), edits


def extract(file: DeviceFile, instances: Sequence[Instance], extra_uses: Iterable[str]) -> Extract:
    """The device part of ``file`` that ``instances`` need; ``extra_uses`` are further names.

    A ``launch`` function of our form is kept if ``extra_uses`` holds its name.

    Raises:
        UsageError: template arguments do not fit a kernel's parameters.
        UnsupportedError: a template parameter is a pack or a template.
    """
    chosen = {instance: file.definition(instance) for instance in instances}
    wanted = {instance.kernel for instance in instances}
    kept = _reachable(file, {*chosen.values()}, {*extra_uses})
    edits: list[Edit] = []
    appended: list[str] = []
    dropped: list[Item] = []
    for item in file.layout.items:
        if item in chosen.values():
            own = [i for i in instances if chosen[i] == item]
            if _named_later(file, item, own[0]):
                edits.append(_blank(file, item.first, item.last))
            else:
                edits += _instantiate(file, item, own.pop(0))
            appended += [_copy(file, item, instance) for instance in own]
        elif item not in kept:
            edits.append(_blank(file, item.first, item.last))
            if not (item.kernel and item.name in wanted):
                dropped.append(item)
    edits += [_blank(file, at, at) for at in file.layout.wrappers if at < len(file.tokens)]
    edits += _unqualified(file, kept)
    edits += spelled_out(file.tokens)
    text = _applied(file.text, edits)
    includes = tuple(
        _INCLUDED.sub(r"\1", file.tokens[item.first].text)
        for item in dropped
        if item.kind == kinds.INCLUDE
    )
    includes = tuple(name for name in includes if not accepted_header(name))
    functions = tuple(item.name for item in dropped if item.kind == kinds.FUNCTION)
    return Extract("\n".join([text.rstrip(), *appended]) + "\n", includes, functions)


# ---- what the kernels use ---------------------------------------------------------------------


def _reachable(file: DeviceFile, kernels: set[Item], uses: set[str]) -> set[Item]:
    kept: set[Item] = set()
    pending = {kernel.name for kernel in kernels} | uses
    conditionals = [i for i in file.layout.items if i.kind == kinds.CONDITIONAL]
    for item in conditionals:
        kept.add(item)
        pending |= item.uses
    seen: set[str] = set()
    by_name: dict[str, list[Item]] = {}
    for item in file.layout.items:
        for name in item.defines:
            by_name.setdefault(name, []).append(item)
    pending.add("operator")
    while pending:
        name = pending.pop()
        seen.add(name)
        for item in by_name.get(name, ()):
            if item not in kept and _is_device(item, kernels, uses):
                kept.add(item)
                pending |= item.uses - seen
    unkept = {name for item in file.layout.items if item not in kept for name in item.defines}
    for item in file.layout.items:
        if item.kind == kinds.INCLUDE:
            match = _INCLUDED.match(file.tokens[item.first].text)
            if match and match[1] in CUDA_HEADERS:
                kept.add(item)
        else:
            asserts = item.kind == kinds.ASSERTION and not item.uses & unkept
            opens = item.kind == kinds.USING_NAMESPACE and "cooperative_groups" in item.uses
            if asserts or opens:
                kept.add(item)
    return kept


def _is_device(item: Item, kernels: set[Item], uses: set[str]) -> bool:
    if item.kind == kinds.FUNCTION:
        if item.kernel:
            return item in kernels
        return item.device or (item.name == LAUNCH and LAUNCH in uses)
    return item.kind in (kinds.DEFINE, kinds.TYPE) or (item.kind == kinds.VARIABLE and item.device)


# ---- edits ------------------------------------------------------------------------------------


def _applied(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with edits applied, insertions first; one inside an earlier, larger one goes."""
    out: list[str] = []
    at = 0
    for start, end, new in sorted(set(edits), key=lambda e: (e[0], e[1] > e[0], -e[1])):
        if start < at:
            continue
        out += [text[at:start], new]
        at = end
    return "".join([*out, text[at:]])


def blanked(text: str) -> str:
    """The line ends of ``text``."""
    return "\n" * text.count("\n")


def _blank(file: DeviceFile, first: int, last: int) -> Edit:
    start, end = file.tokens[first].start, file.tokens[last].end
    return start, end, blanked(file.text[start:end])


def _unqualified(file: DeviceFile, kept: set[Item]) -> Iterable[Edit]:
    """Drop ``name::`` of the file's own namespaces, and a leading ``::``."""
    for item in kept:
        for at in range(item.first, item.last):
            token, following = file.tokens[at], file.tokens[at + 1]
            if token.text in file.layout.namespaces and following.text == "::":
                yield token.start, following.end, ""


def _instantiate(file: DeviceFile, item: Item, instance: Instance) -> list[Edit]:
    """Edits that turn a kernel into one instance under its own name."""
    tokens = file.tokens
    edits: list[Edit] = []
    first = item.first
    values: dict[str, str] = {}
    prefix = ""
    if item.template:
        where = file.where(tokens[first])
        close = angle_end([t.text for t in tokens[: item.last + 1]], first + 1)
        if close is None:
            raise KernelSyntaxError("a template clause is not closed", where=where)
        if file.specialised(item) is None:
            values, prefix = template_values(tokens[first + 2 : close], instance, where)
        edits.append(_blank(file, first, close))
        first = close + 1
    elif instance.template is not None:
        raise UsageError(
            f"{instance.kernel} is no template, but launched with <{', '.join(instance.template)}>",
            where=file.where(tokens[first]),
        )
    values = {**_aliases(file), **values}
    brace = next(i for i in range(first, item.last) if tokens[i].text == "{")
    for at in range(first, brace):
        token = tokens[at]
        if token.text == instance.kernel and token.kind == NAME:
            if instance.name != instance.kernel:
                edits.append((token.start, token.end, instance.name))
            if tokens[at + 1].text == "<":
                end = angle_end([t.text for t in tokens[:brace]], at + 1) or at + 1
                edits.append(_blank(file, at + 1, end))
        elif token.kind == NAME and token.text in values:
            edits.append((token.start, token.end, values[token.text]))
    edits += _linkage(tokens[first:brace])
    if prefix:
        edits.append((tokens[brace].start, tokens[brace].end, "{ " + prefix))
    return edits


def _named_later(file: DeviceFile, kernel: Item, instance: Instance) -> bool:
    """Whether a template argument is defined after the kernel: the instance must follow it."""
    names = {token.text for text in instance.template or () for token in tokenize(text)}
    return any(i.first > kernel.last and i.defines & names for i in file.layout.items)


def _linkage(specifiers: Sequence[Token]) -> list[Edit]:
    """C linkage, so that an image's symbol is the kernel's name."""
    words = [token.text for token in specifiers]
    edits = [(t.start, t.end, "") for t in specifiers if t.text in ("static", "inline")]
    if '"C"' not in words:
        at = next(t.start for t in specifiers if t.text not in ("static", "inline"))
        edits.append((at, at, 'extern "C" '))
    return edits


def _copy(file: DeviceFile, item: Item, instance: Instance) -> str:
    """The text of a further instance of a kernel."""
    start, end = file.tokens[item.first].start, file.tokens[item.last].end
    edits = [*_instantiate(file, item, instance), *_unqualified(file, {item})]
    edits += [edit for edit in spelled_out(file.tokens) if start <= edit[0] < end]
    moved = [(a - start, b - start, new) for a, b, new in edits]
    return _applied(file.text[start:end], moved).strip()


def _aliases(file: DeviceFile) -> Mapping[str, str]:
    """Names for plain types (``using real = float;``), for the parameter lists of kernels.

    The host side must know the type of each parameter.
    """
    found: dict[str, str] = {}
    for item in file.layout.items:
        words = [t.text for t in file.tokens[item.first : item.last + 1] if t.kind != DIRECTIVE]
        if item.kind != kinds.TYPE or "{" in words or "(" in words:
            continue
        if words[0] == "using" and words[2:3] == ["="]:
            name, value = words[1], words[3:-1]
        elif words[0] == "typedef":
            name, value = words[-2], words[1:-2]
        else:
            continue
        meaning = " ".join(found.get(w, w) for w in value)
        if found.setdefault(name, meaning) != meaning:
            raise UnsupportedError(
                f"the type {name!r} is defined as {found[name]!r} and as {meaning!r}",
                where=file.where(file.tokens[item.first]),
                hint="define it once, or under a condition over macros of the file",
            )
    return found


def parameter_line(file: DeviceFile, kernel: str, position: int) -> str:
    """``path:line`` of parameter ``position`` (from 0) of a kernel."""
    item = file.kernels()[kernel]
    at = next(
        i for i in range(item.first, item.last)
        if file.tokens[i].text == kernel and file.tokens[i + 1].text in ("(", "<")
    )  # fmt: skip
    at = next(i for i in range(at, item.last) if file.tokens[i + 1].text == "(")
    close = matching(file.tokens, at + 1) or item.last
    depth = count = 0
    for index in range(at + 2, close):
        if count == position:
            return file.where(file.tokens[index])
        depth += {"(": 1, "[": 1, "<": 1, ")": -1, "]": -1, ">": -1}.get(file.tokens[index].text, 0)
        count += file.tokens[index].text == "," and depth == 0
    return file.where(file.tokens[at])
