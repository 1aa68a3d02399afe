"""Image identity: a digest of the machine code of one source's kernels inside a cubin.

A cubin is an ELF64 file with one set of sections per kernel K. Two kernels have equal digests
exactly when everything the device executes or the driver reads at a launch is equal. What is left
out or normalised, and why:

* Section and symbol order, ``.debug_frame``, ``.nv.callgraph``, ``.nv.compat``, ``.note.*``: the
  module's bookkeeping and the tool's version (which belongs into a cache key).
* Symbol indices (in ``.nv.info`` and in the attributes PARAM_CBANK and EXTERNS): they depend on
  the kernel's neighbours. They become the symbol's offset in K's code, or its name.
* Names of symbols inside K's code: inlined and cloned helpers leave only those behind.
* The batch tag in a name: it is the position in the batch.

Module data (``__constant__``, ``__device__`` variables, printf formats) is addressed by its place
in the module, so a source that has any is identified from a module of its own. Its object names
stay, since a host may look them up.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from kernelassay.errors import ToolchainError

SCHEME = 1
"""Version of this scheme; a digest of another version does not compare."""

TAG = re.compile(r"ka\d{5}")
_MODULE_DATA = (".nv.constant3", ".nv.constant4", ".nv.global.init", ".nv.global")

_SHT_RELA, _SHT_NOBITS, _SHT_REL = 4, 8, 9
_STT_OBJECT, _STT_FUNC = 1, 2
_CONSTANT_BANKS = 32  # more than any architecture has
_STO_ENTRY = 0x10  # in st_other: the function is a kernel
_FORMAT_SIZED = 4  # an .nv.info entry with a length and a payload
_ATTRIBUTE_PARAM_CBANK, _ATTRIBUTE_EXTERNS = 0x0A, 0x0F

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_REL = struct.Struct("<QQ")


class Section(NamedTuple):
    """One section header; ``data`` is empty for a section without bytes in the file."""

    name: str
    type: int
    size: int
    align: int
    info: int
    data: bytes


class Symbol(NamedTuple):
    """One symbol-table entry; ``section`` is an index into the sections."""

    name: str
    type: int
    other: int
    section: int
    value: int
    size: int


class Cubin:
    """Sections, symbols and relocations of a cubin.

    Raises ``ToolchainError`` for bytes that are no little-endian ELF64 file.
    """

    def __init__(self, image: bytes) -> None:
        if image[:6] != b"\x7fELF\x02\x01" or len(image) < 64:
            raise ToolchainError("the compiler's image is no 64-bit little-endian ELF file")
        try:
            self._read(image)
        except (struct.error, ValueError, IndexError, OverflowError) as error:
            raise ToolchainError(f"the compiler's image is damaged: {error}") from error

    def _read(self, image: bytes) -> None:
        (offset,) = struct.unpack_from("<Q", image, 40)
        count, names = struct.unpack_from("<HH", image, 60)
        headers = [_SECTION.unpack_from(image, offset + 64 * index) for index in range(count)]
        if any(h[1] != _SHT_NOBITS and h[4] + h[5] > len(image) for h in headers):
            raise ValueError("a section ends past the end of the file")
        name_base = headers[names][4]
        self.sections = [
            Section(
                _text(image, name_base + header[0]),
                header[1],
                header[5],
                header[8],
                header[7],
                b"" if header[1] == _SHT_NOBITS else image[header[4] : header[4] + header[5]],
            )
            for header in headers
        ]
        self.index: dict[str, int] = {}
        for position, section in enumerate(self.sections):
            self.index.setdefault(section.name, position)
        self.symbols: list[Symbol] = []
        if ".symtab" in self.index:
            table = self.index[".symtab"]
            base = headers[headers[table][6]][4]
            for name, info, other, section_index, value, size in _SYMBOL.iter_unpack(
                self.sections[table].data
            ):
                self.symbols.append(
                    Symbol(_text(image, base + name), info & 15, other, section_index, value, size)
                )

    @cached_property
    def _relocating(self) -> dict[int, list[Section]]:
        """By section, those that hold its relocations."""
        found: dict[int, list[Section]] = {}
        for section in self.sections:
            if section.type in (_SHT_RELA, _SHT_REL):
                found.setdefault(section.info, []).append(section)
        return found

    @cached_property
    def resources(self) -> dict[int, list[tuple[int, Symbol, bytes]]]:
        """By section, what its functions need: (attribute, function, value)."""
        found: dict[int, list[tuple[int, Symbol, bytes]]] = {}
        if ".nv.info" not in self.index:
            return found
        for form, attribute, payload in _attributes(self.sections[self.index[".nv.info"]].data):
            if form != _FORMAT_SIZED or len(payload) < 8:
                continue
            (index,) = struct.unpack_from("<I", payload)
            symbol = self.symbols[index] if index < len(self.symbols) else None
            if symbol is not None and symbol.type == _STT_FUNC:
                found.setdefault(symbol.section, []).append((attribute, symbol, payload[4:]))
        return found

    def kernels(self) -> list[str]:
        """Names of the kernels, in symbol order."""
        return [s.name for s in self.symbols if s.type == _STT_FUNC and s.other & _STO_ENTRY]

    def relocations(self, target: int) -> tuple[tuple[int, int, str, int], ...]:
        """(offset, type, symbol name less tag, addend) of one section, sorted."""
        found = []
        for section in self._relocating.get(target, ()):
            entry = _RELA if section.type == _SHT_RELA else _REL
            for offset, info, *addend in entry.iter_unpack(section.data):
                name = untagged(self.symbols[info >> 32].name)
                found.append((offset, info & 0xFFFFFFFF, name, addend[0] if addend else 0))
        return tuple(sorted(found))

    def module_data(self) -> tuple[object, ...]:
        """All data the kernels share; () when there is none."""
        found: list[object] = []
        for name in _MODULE_DATA:
            if name not in self.index:
                continue
            at = self.index[name]
            section = self.sections[at]
            objects = sorted(
                (symbol.value, symbol.size, untagged(symbol.name))
                for symbol in self.symbols
                if symbol.type == _STT_OBJECT and symbol.section == at
            )
            found.append((name, section.size, section.data, self.relocations(at), tuple(objects)))
        return tuple(found)


def untagged(name: str) -> str:
    """A symbol name without the batch tag."""
    return TAG.sub("ka", name)


def digest(cubin: Cubin, kernels: Sequence[tuple[str, str]]) -> str:
    """One digest for all ``kernels`` of a source, given as (own name, name in the cubin).

    Module data is part of it, so the cubin of a source with module data must hold no other.
    """
    parts = [(own, _kernel_parts(cubin, linked)) for own, linked in sorted(kernels)]
    whole = repr((SCHEME, parts, cubin.module_data()))
    return hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


def _kernel_parts(cubin: Cubin, kernel: str) -> list[object]:
    code = cubin.index.get(f".text.{kernel}")
    if code is None:
        raise ToolchainError(f"the compiled image lacks the kernel {untagged(kernel)!r}")
    return [
        ("code", cubin.sections[code].data, cubin.relocations(code)),
        ("resources", *_resources(cubin, kernel, code)),
        ("launch", *_launch_attributes(cubin, kernel)),
        ("storage", *_storage(cubin, kernel)),
    ]


def _resources(cubin: Cubin, kernel: str, code: int) -> list[tuple[int, str, bytes]]:
    """Registers, frame and stack of the kernel and of the functions inside its code."""
    return sorted(
        (attribute, "kernel" if symbol.name == kernel else str(symbol.value), value)
        for attribute, symbol, value in cubin.resources.get(code, ())
    )


def _launch_attributes(cubin: Cubin, kernel: str) -> list[object]:
    """Parameter layout, launch bounds, barriers and exits: the kernel's own .nv.info."""
    section = cubin.index.get(f".nv.info.{kernel}")
    if section is None:
        return []
    found: list[object] = []
    for form, attribute, payload in _attributes(cubin.sections[section].data):
        if attribute == _ATTRIBUTE_PARAM_CBANK:
            found.append((form, attribute, payload[4:]))
        elif attribute == _ATTRIBUTE_EXTERNS:
            indices = struct.unpack(f"<{len(payload) // 4}I", payload)
            names = sorted(untagged(cubin.symbols[index].name) for index in indices)
            found.append((form, attribute, tuple(names)))
        else:
            found.append((form, attribute, payload))
    return found


def _storage(cubin: Cubin, kernel: str) -> list[object]:
    """Constant banks by content; shared and local memory by size."""
    found: list[object] = []
    for bank in range(_CONSTANT_BANKS):
        index = cubin.index.get(f".nv.constant{bank}.{kernel}")
        if index is not None:
            data = cubin.sections[index].data
            found.append(("constant", str(bank), data, cubin.relocations(index)))
    for kind in ("shared", "local"):
        index = cubin.index.get(f".nv.{kind}.{kernel}")
        if index is not None:
            section = cubin.sections[index]
            found.append((kind, section.size, section.align))
    return sorted(found, key=repr)


def _attributes(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(format, attribute, payload) of an .nv.info section."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, word = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _FORMAT_SIZED:
            yield form, attribute, data[at : at + word]
            at += word
        else:
            yield form, attribute, data[at - 2 : at]


def _text(image: bytes, at: int) -> str:
    return image[at : image.index(b"\0", at)].decode("latin1")
