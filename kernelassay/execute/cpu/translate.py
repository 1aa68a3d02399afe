"""Device code to C++ for the shim: what a header cannot do, and what has no counterpart.

Rewritten are shared-memory declarations (each array is handed out by the runtime, so that its
bounds are known), ``extern "C"`` (mutants share a translation unit, each in a namespace of its own)
and accepted ``#include`` lines. The number of lines stays: diagnostics keep their line numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernelassay.compile.lexing import (
    DIRECTIVE,
    NAME,
    NUMBER,
    Token,
    join,
    matching,
    split_commas,
    tokenize,
)
from kernelassay.compile.source import device_text, kernel_signatures, macros

# Names of features the shim has no counterpart for, and what to call them.
_FEATURES = {
    **dict.fromkeys(("asm", "__asm__", "__asm"), "inline PTX (asm)"),
    **dict.fromkeys(("wmma", "nvcuda", "mma_sync"), "tensor-core fragments (wmma)"),
    **dict.fromkeys(
        (
            "grid_group",
            "this_grid",
            "multi_grid_group",
            "coalesced_group",
            "coalesced_threads",
            "labeled_partition",
            "binary_partition",
            "inclusive_scan",
            "exclusive_scan",
        ),
        "cooperative groups beyond block and tile ({name})",
    ),
    **dict.fromkeys(
        ("__pipeline_memcpy_async", "__pipeline_commit", "__pipeline_wait_prior", "cp_async"),
        "asynchronous copies (cp.async)",
    ),
    **dict.fromkeys(
        ("tex1D", "tex2D", "tex3D", "tex1Dfetch", "tex2DLod", "cudaTextureObject_t", "texture"),
        "textures",
    ),
    **dict.fromkeys(("surf2Dread", "surf2Dwrite", "cudaSurfaceObject_t"), "surfaces"),
    **dict.fromkeys(("__cluster_dims__", "cluster_group"), "thread-block clusters"),
    **dict.fromkeys(("cudaLaunchKernel", "cudaDeviceSynchronize"), "dynamic parallelism"),
    **dict.fromkeys(("malloc", "free", "new", "delete"), "allocation in device code"),
    **dict.fromkeys(("try", "throw", "catch"), "exceptions"),
    **dict.fromkeys(("std", "cuda", "thrust", "cub"), "a C++ library namespace ({name}::)"),
    "__activemask": "__activemask",
    "__match_all_sync": "__match_all_sync",
    "__managed__": "managed memory",
    "__cvta_generic_to_shared": "address-space conversion",
    "__isGlobal": "address-space queries",
    "__isShared": "address-space queries",
    "__syncthreads_barrier": "named barriers",
}
_NAMESPACES = frozenset({"std", "cuda", "thrust", "cub"})
CUDA_HEADERS = frozenset(
    {
        "cuda.h",
        "cuda_runtime.h",
        "cuda_fp16.h",
        "cuda_bf16.h",
        "cuda_fp8.h",
        "cooperative_groups.h",
        "cooperative_groups/reduce.h",
        "device_launch_parameters.h",
        "math_constants.h",
    }
)
_C_HEADER = re.compile(r"(?:math|stdint|float|limits|stddef|assert|stdio)\.h")
_CXX_HEADER = re.compile(r"c(?:math|stdint|float|limits|stddef|assert|stdio)")
_INCLUDE = re.compile(r'#\s*include\s*[<"]([^>"]+)[>"]')
_LOCAL_TYPES = frozenset(
    {
        *("const", "unsigned", "signed", "int", "long", "short", "char", "float", "double"),
        *("bool", "size_t", "half", "__half", "__half2", "__nv_bfloat16"),
        *("float2", "float3", "float4", "int2", "int3", "int4", "double2"),
    }
)
_STORAGE = frozenset({"extern", "static", "__shared__", "inline"})
_ALIGNMENT = frozenset({"__align__", "alignas", "__builtin_align__"})


def unsupported_construct(source: str) -> str | None:
    """The name of the first CUDA feature in ``source`` that the shim does not have, or None.

    Raises ``KernelSyntaxError`` if ``source`` has no host function ``launch``.
    """
    tokens = tokenize(device_text(source))
    return next(_unsupported(tokens), None)


def translate(source: str) -> str:
    """The device code of ``source`` as C++ for the shim, line for line."""
    text = device_text(source)
    tokens = tokenize(text)
    pieces: list[str] = []
    done = 0
    for start, end, replacement in _rewrites(tokens):
        lost = text.count("\n", start, end) - replacement.count("\n")
        pieces += [text[done:start], replacement, "\n" * lost]
        done = end
    return "".join([*pieces, text[done:]])


def namespaced(source: str, tag: str) -> tuple[str, tuple[str, ...]]:
    """``source`` inside ``namespace tag``, with an exported entry ``<tag>_<kernel>`` per kernel.

    The macros it defines are gone after it. Returns the text and the kernels' names.
    """
    names = tuple(signature.name for signature in kernel_signatures(source))
    defined = macros(source)
    exports = [f"CU_EXPORT({tag}_{name}, {tag}::{name})" for name in names]
    lines = [
        *(f'#pragma push_macro("{name}")' for name in defined),
        f"namespace {tag} {{",
        f'#line 1 "{tag}"',
        translate(source),
        f'#line 1 "{tag}_end"',
        "}",
        *(f'#pragma pop_macro("{name}")' for name in defined),
        *exports,
    ]
    return "\n".join(lines) + "\n", names


def _unsupported(tokens: Sequence[Token]) -> Iterator[str]:
    depth = 0
    statement = 0  # index of the first token of the current file-scope declaration
    for index, token in enumerate(tokens):
        if token.kind == DIRECTIVE:
            yield from _unsupported_directive(token.text)
            if depth == 0:
                statement = index + 1
            continue
        if token.text == "{":
            depth += 1
        elif token.text == "}":
            depth -= 1
        elif token.text == "<<<":
            yield "dynamic parallelism"
        elif token.kind == NAME:
            yield from _unsupported_name(tokens, index, depth, statement)
        if depth == 0 and token.text in ("}", ";"):
            yield from _mutable_variable(tokens[statement : index + 1])
            statement = index + 1


def _unsupported_name(
    tokens: Sequence[Token], index: int, depth: int, statement: int
) -> Iterator[str]:
    name = tokens[index].text
    following = tokens[index + 1].text if index + 1 < len(tokens) else ""
    if name in _FEATURES and not (name in _NAMESPACES and following != "::"):
        yield _FEATURES[name].format(name=name)
    elif name == "__shared__" and depth == 0 and "extern" not in _texts(tokens[statement:index]):
        yield "__shared__ at file scope"
    elif name == "__global__" and "template" in _texts(tokens[statement:index]):
        yield "a template as kernel"
    elif name == "__constant__" and depth == 0:
        declaration = [token.text for token in _until_semicolon(tokens, index)]
        if "=" not in declaration and "{" not in declaration:
            yield "a __constant__ variable without a value"


def _texts(tokens: Sequence[Token]) -> set[str]:
    return {token.text for token in tokens}


def _unsupported_directive(text: str) -> Iterator[str]:
    include = _INCLUDE.match(text)
    if include and not accepted_header(include.group(1)):
        yield f"#include <{include.group(1)}>"
    if re.match(r"#\s*define", text):
        words = {token.text for token in tokenize(text[1:])}
        if "__shared__" in words:
            yield "__shared__ inside a macro"
        for name in sorted(words & _FEATURES.keys() - _NAMESPACES):
            yield _FEATURES[name].format(name=name)


def accepted_header(name: str) -> bool:
    """Whether everything device code may use of a header is in the shim."""
    return (
        name in CUDA_HEADERS
        or _C_HEADER.fullmatch(name) is not None
        or _CXX_HEADER.fullmatch(name) is not None
    )


def _mutable_variable(statement: Sequence[Token]) -> Iterator[str]:
    """A file-scope ``__device__`` variable that is not const: it would outlive the run."""
    words = [token.text for token in statement]
    if "__device__" not in words or {"const", "constexpr", "__constant__", "("} & set(words):
        return
    if words[-1] == ";" and not {"struct", "class", "using", "typedef"} & set(words):
        yield "a __device__ variable that is not const"


def _rewrites(tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    """(start, end, replacement) in ascending order."""
    depth = 0
    skip_to = 0
    for index, token in enumerate(tokens):
        if index < skip_to:
            continue
        if token.kind == DIRECTIVE:
            if _INCLUDE.match(token.text):
                yield token.start, token.end, ""
            continue
        if token.text == "{":
            depth += 1
        elif token.text == "}":
            depth -= 1
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if depth and token.text in _LOCAL_TYPES and _starts_statement(tokens, index):
            statement = _until_semicolon(tokens, index)
            text = _local_array(statement)
            if text:
                yield token.start, statement[-1].end, text
                skip_to = index + len(statement)
        elif token.text == "extern" and following == '"C"':
            yield token.start, tokens[index + 1].end, ""
            skip_to = index + 2
        elif token.text == "__constant__":
            yield token.start, token.end, _constant_specifiers(tokens, index)
        elif token.text in _STORAGE or token.text in _ALIGNMENT:
            statement = _until_semicolon(tokens, index)
            if _declares_shared(statement):
                text = _shared_declaration(statement, depth)
                yield token.start, statement[-1].end, text
                skip_to = index + len(statement)


def _starts_statement(tokens: Sequence[Token], index: int) -> bool:
    before = tokens[index - 1] if index else None
    return before is not None and (before.kind == DIRECTIVE or before.text in (";", "{", "}"))


def _local_array(statement: Sequence[Token]) -> str:
    """A local array declaration with known bounds, or "" for anything else.

    Left alone are statements with several declarators.
    """
    head = 0
    while head < len(statement) and statement[head].text in _LOCAL_TYPES:
        head += 1
    if head + 1 >= len(statement) or statement[head].kind != NAME:
        return ""
    kind, name = join(statement[:head]), statement[head].text
    sizes: list[str] = []
    at = head + 1
    while at < len(statement) and statement[at].text == "[":
        close = matching(statement, at)
        if close is None or close == at + 1:
            return ""
        sizes.append(join(statement[at + 1 : close]))
        at = close + 1
    rest = statement[at:]
    if not sizes or not rest or rest[0].text not in ("=", ";", "{"):
        return ""
    for size in reversed(sizes):
        kind = f"cu_local_array<{kind}, ({size})>"
    return f"{kind} {name}{_wrapped_braces(rest, len(sizes))}"


def _wrapped_braces(initialiser: Sequence[Token], dimensions: int) -> str:
    """An array's initialiser for the wrapper, whose every dimension is a struct with one array."""
    depth = 0
    pieces = []
    for token in initialiser:
        text = token.text
        depth -= text == "}"
        pieces.append(text * 2 if text in ("{", "}") and depth < dimensions else text)
        depth += text == "{"
    return " ".join(pieces)


def _constant_specifiers(tokens: Sequence[Token], index: int) -> str:
    """``static const``, less what the declaration says itself; C++ takes neither twice."""
    start = index
    while start > 0 and tokens[start - 1].text not in (";", "}", "{"):
        start -= 1
    end = index
    while end < len(tokens) and tokens[end].text not in (";", "=", "{"):
        end += 1
    said = {token.text for token in tokens[start:end]}
    constant = "" if {"const", "constexpr"} & said else "const"
    return " ".join(filter(None, ("" if "static" in said else "static", constant)))


def _until_semicolon(tokens: Sequence[Token], index: int) -> Sequence[Token]:
    at = index
    while at < len(tokens) and tokens[at].text != ";":
        if tokens[at].text in ("{", "(", "["):
            close = matching(tokens, at)
            if close is None:
                break
            at = close
        at += 1
    return tokens[index : at + 1]


def _declares_shared(statement: Sequence[Token]) -> bool:
    """Whether ``__shared__`` is among the specifiers at the start of a statement."""
    for token in statement:
        if token.text == "__shared__":
            return True
        if token.kind not in (NAME, NUMBER) and token.text not in ("(", ")"):
            return False
    return False


def _shared_declaration(statement: Sequence[Token], depth: int) -> str:
    words = _without_specifiers(statement[:-1])
    dynamic = any(token.text == "extern" for token in statement)
    out = []
    type_text = ""
    for position, part in enumerate(split_commas(words)):
        bracket = _first_bracket(part)
        if bracket == 0:
            return join(statement)  # does not parse; let the compiler say so
        name = part[bracket - 1].text
        if position == 0:
            type_text = join(part[: bracket - 1])
            pointer = ""
        else:
            pointer = join(part[: bracket - 1])
        declared = type_text + pointer
        if dynamic:
            out.append(_dynamic_array(declared, name, part[bracket:], depth))
        else:
            out.append(_static_array(declared, name, join(part[bracket:])))
    return " ".join(out)


def _first_bracket(declarator: Sequence[Token]) -> int:
    """Index of the first ``[`` outside braces (of a struct defined in place), else the length."""
    index = 0
    while index < len(declarator) and declarator[index].text != "[":
        close = matching(declarator, index) if declarator[index].text == "{" else None
        index = (index if close is None else close) + 1
    return min(index, len(declarator))


def _static_array(type_text: str, name: str, dimensions: str) -> str:
    kind, key = f"cu_type_{name}", f"cu_key_{name}"
    return (
        f"typedef {type_text} {kind}{dimensions}; static char {key}; {kind}& {name} = "
        f'*({kind}*)cu_shared_array(&{key}, sizeof({kind}), "{name}");'
    )


def _dynamic_array(type_text: str, name: str, brackets: Sequence[Token], depth: int) -> str:
    close = matching(brackets, 0) if brackets else None
    rest = join(brackets[close + 1 :]) if close is not None else ""
    scope = "static " if depth == 0 else ""
    if rest:
        return f"{scope}{type_text} (*{name}){rest} = ({type_text} (*){rest})cu_dyn_smem();"
    return f"{scope}{type_text}* const {name} = ({type_text}*)cu_dyn_smem();"


def _without_specifiers(tokens: Sequence[Token]) -> list[Token]:
    """The tokens without storage classes and alignment (every shared array is page-aligned)."""
    out: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.text in _ALIGNMENT and index + 1 < len(tokens):
            close = matching(tokens, index + 1) if tokens[index + 1].text == "(" else None
            index = (close if close is not None else index) + 1
        else:
            if token.text not in _STORAGE:
                out.append(token)
            index += 1
    return out
