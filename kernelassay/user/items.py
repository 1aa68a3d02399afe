"""A CUDA file as a list of file-scope items: what each defines, and whether it is device code.

Works on tokens and never fails: what it cannot name is an item that defines nothing. Namespaces
and ``extern "C"`` blocks are entered; their braces are recorded, so that they can be blanked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelassay.compile.lexing import DIRECTIVE, NAME, Token, matching

DIRECTIVE_ITEM, INCLUDE, DEFINE, CONDITIONAL = "directive", "include", "define", "conditional"
FUNCTION, TYPE, VARIABLE, USING_NAMESPACE, ASSERTION, OTHER = (
    "function", "type", "variable", "using namespace", "static_assert", "other",
)  # fmt: skip

_DEFINE = re.compile(r"#\s*define\s+([A-Za-z_]\w*)")
_NAME_IN_TEXT = re.compile(r"[A-Za-z_]\w*")
_ATTRIBUTES = frozenset(
    {"__launch_bounds__", "__attribute__", "__align__", "alignas", "__cluster_dims__",
     "__maxnreg__", "__block_size__", "decltype", "noexcept", "__builtin_align__"}
)  # fmt: skip
# What marks a function, and a variable, that device code may use.
_DEVICE_WORDS = (
    frozenset({"__device__", "constexpr"}),
    frozenset({"__device__", "constexpr", "const", "__constant__", "__shared__"}),
)
_TYPE_WORDS = frozenset({"struct", "class", "union", "enum"})


@dataclass(frozen=True, slots=True)
class Item:
    """Tokens ``[first, last]`` of the file, with its kind and the names it defines."""

    kind: str
    first: int
    last: int
    defines: frozenset[str]
    uses: frozenset[str]
    device: bool = False
    kernel: bool = False
    template: bool = False

    @property
    def name(self) -> str:
        """The one name a function defines."""
        return next(iter(self.defines), "")


@dataclass(frozen=True, slots=True)
class Layout:
    """The items of a file, the tokens of namespace and ``extern "C"`` wrappers, the namespaces."""

    items: tuple[Item, ...]
    wrappers: tuple[int, ...]
    namespaces: frozenset[str]


def layout(tokens: Sequence[Token], text: str) -> Layout:
    """The file-scope items of ``tokens``, in order."""
    reader = _Reader(tokens, text)
    reader.read(0, len(tokens))
    return Layout(tuple(reader.items), tuple(reader.wrappers), frozenset(reader.namespaces))


class _Reader:
    def __init__(self, tokens: Sequence[Token], text: str) -> None:
        self.tokens = tokens
        self.text = text
        self.items: list[Item] = []
        self.wrappers: list[int] = []
        self.namespaces: set[str] = set()
        self.macros = {
            match[1]: set(_NAME_IN_TEXT.findall(token.text))
            for token in tokens
            if token.kind == DIRECTIVE and (match := _DEFINE.match(token.text))
        }

    def read(self, start: int, end: int) -> None:
        at = start
        while at < end:
            token = self.tokens[at]
            if token.kind == DIRECTIVE:
                self.items.append(_directive(token, at))
                at += 1
            elif token.text == ";":
                at += 1
            elif (inner := self._wrapper(at)) is not None:
                close = matching(self.tokens, inner)
                close = end if close is None else close
                self.wrappers += [*range(at, inner + 1), close]
                self.read(inner + 1, close)
                at = close + 1
            else:
                last = self._end(at, end)
                self.items.append(self._item(at, last))
                at = last + 1

    def _wrapper(self, at: int) -> int | None:
        """Index of the ``{`` of a namespace or linkage block that starts at ``at``."""
        words = [t.text for t in self.tokens[at : at + 12]]
        if words[:1] == ["inline"] and words[1:2] == ["namespace"]:
            words, at = words[1:], at + 1
        if words[:2] == ["extern", '"C"'] and words[2:3] == ["{"]:
            return at + 2
        if words[:1] != ["namespace"] or "{" not in words or "=" in words[: words.index("{")]:
            return None
        brace = words.index("{")
        self.namespaces |= {w for w in words[1:brace] if _NAME_IN_TEXT.fullmatch(w)}
        return at + brace

    def _end(self, at: int, end: int) -> int:
        """Index of the last token of the declaration that starts at ``at``."""
        index = at
        seen: list[str] = []
        while index < end:
            token = self.tokens[index]
            if token.kind == DIRECTIVE and index > at:
                return index - 1
            if token.text == ";":
                return index
            if token.text in ("(", "[", "{"):
                close = matching(self.tokens, index)
                if close is None:
                    return end - 1
                if token.text == "{" and self._is_body(seen):
                    return close
                if token.text == "(" and self._bare_macro(at, index, close, end):
                    return close
                index = close
                seen.append(token.text)
            else:
                seen.append(token.text)
            index += 1
        return end - 1

    def _is_body(self, seen: list[str]) -> bool:
        """Whether a brace after ``seen`` opens a function's body: then no semicolon follows."""
        words = _without_template(seen)
        return "(" in words and "=" not in words and not (_TYPE_WORDS | {"using"}) & set(words[:3])

    def _bare_macro(self, at: int, index: int, close: int, end: int) -> bool:
        """Whether ``NAME(...)`` at ``at`` is a macro used as a declaration of its own."""
        if index != at + 1 or self.tokens[at].text not in self.macros or close + 1 >= end:
            return False
        between = self.text[self.tokens[close].end : self.tokens[close + 1].start]
        return "\n" in between and self.tokens[close + 1].text not in (";", "{")

    def _item(self, first: int, last: int) -> Item:
        part = self.tokens[first : last + 1]
        words = [token.text for token in part]
        body = _without_template(words)
        specifiers = _expanded(body, self.macros)
        kind, names = _kind_and_names(body)
        return Item(
            kind=kind,
            first=first,
            last=last,
            defines=frozenset(names),
            uses=frozenset(token.text for token in part if token.kind == NAME),
            device=bool(specifiers & _DEVICE_WORDS[kind == VARIABLE])
            and not (kind == VARIABLE and _is_declaration(body)),
            kernel=kind == FUNCTION and "__global__" in specifiers,
            template=words[:1] == ["template"],
        )


def _directive(token: Token, at: int) -> Item:
    text = token.text
    uses = frozenset(_NAME_IN_TEXT.findall(text))
    if match := _DEFINE.match(text):
        return Item(DEFINE, at, at, frozenset({match[1]}), uses)
    if re.match(r"#\s*include", text):
        return Item(INCLUDE, at, at, frozenset(), frozenset())
    if re.match(r"#\s*(if|ifdef|ifndef|else|elif|endif)\b", text):
        return Item(CONDITIONAL, at, at, frozenset(), uses)
    return Item(DIRECTIVE_ITEM, at, at, frozenset(), uses)


def _without_template(words: Sequence[str]) -> list[str]:
    """``words`` without leading ``template <...>`` clauses."""
    at = 0
    while words[at : at + 2] == ["template", "<"]:
        close = angle_end(words, at + 1)
        at = len(words) if close is None else close + 1
    return list(words[at:])


def angle_end(words: Sequence[str], at: int) -> int | None:
    """Index of the ``>`` that closes the ``<`` at ``at``; None if nothing does."""
    depth = 0
    for index in range(at, len(words)):
        depth += {"<": 1, ">": -1, ">>": -2}.get(words[index], 0)
        if depth <= 0:
            return index
        if words[index] in (";", "{"):
            return None
    return None


def _expanded(words: Sequence[str], macros: Mapping[str, set[str]]) -> set[str]:
    """The words before the parameter list or body, with the words of macros among them."""
    found: set[str] = set()
    for index, word in enumerate(words):
        if word in ("{", "=", ";"):
            break
        if word == "(" and words[index - 1] not in _ATTRIBUTES | macros.keys() and index:
            break
        found |= {word} | macros.get(word, set())
    return found


def _kind_and_names(words: Sequence[str]) -> tuple[str, set[str]]:
    if not words:
        return OTHER, set()
    if words[0] == "static_assert":
        return ASSERTION, set()
    if words[0] == "using":
        if words[1:2] == ["namespace"]:
            return USING_NAMESPACE, set()
        return TYPE, {words[1]} if words[2:3] == ["="] else {words[-2]}
    if words[0] == "namespace":  # an alias
        return TYPE, set(words[1:2])
    if words[0] == "typedef":
        return TYPE, _typedef_names(words)
    head = [w for w in words[:6] if w not in ("static", "inline", "const", "constexpr")]
    if head and head[0] in _TYPE_WORDS and "{" in words:
        return TYPE, _type_names(words)
    name = _function_name(words)
    if name:
        return FUNCTION, {name}
    return VARIABLE, set(_variable_names(words))


def _typedef_names(words: Sequence[str]) -> set[str]:
    if "}" in words:
        return _type_names(words) | set(words[-2:-1])
    pointers = [
        words[i + 1] for i, w in enumerate(words[:-1]) if w == "*" and i and words[i - 1] == "("
    ]
    return set(pointers) or {next((w for w in reversed(words) if _NAME_IN_TEXT.fullmatch(w)), "")}


def _type_names(words: Sequence[str]) -> set[str]:
    """A type's own name, and an enum's members."""
    brace = words.index("{")
    names = set()
    depth = 0
    for word in words[:brace]:
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word == ":":
            break
        if depth == 0 and _NAME_IN_TEXT.fullmatch(word) and word not in _ATTRIBUTES:
            names.add(word)
    if "enum" in words[:brace]:
        names |= {w for i, w in enumerate(words[brace:], brace) if words[i - 1] in ("{", ",")}
    return names - _TYPE_WORDS - {"typedef", "static", "const", "final"}


def _function_name(words: Sequence[str]) -> str:
    depth = 0
    for index, word in enumerate(words):
        if word in ("=", "{", ";") and depth == 0:
            return ""
        if word == "(" and depth == 0 and index:
            before = words[index - 1]
            if "operator" in words[max(0, index - 3) : index]:
                return "operator"
            if _NAME_IN_TEXT.fullmatch(before) and before not in _ATTRIBUTES:
                return before
            if before == ">" and (name := _specialised_name(words[:index])):
                return name
        depth += {"(": 1, ")": -1}.get(word, 0)
    return ""


def _specialised_name(words: Sequence[str]) -> str:
    """``NAME`` where ``words`` end in ``NAME<...>``, as in the definition of a specialisation."""
    depth = 0
    for index in range(len(words) - 1, 0, -1):
        depth += {">": 1, ">>": 2, "<": -1}.get(words[index], 0)
        if depth == 0:
            before = words[index - 1]
            return before if _NAME_IN_TEXT.fullmatch(before) else ""
    return ""


def _variable_names(words: Sequence[str]) -> Iterator[str]:
    depth = 0
    initialiser = False
    for index, word in enumerate(words):
        if depth == 0 and word in ("=", "[", "{", ",", ";") and index and not initialiser:
            before = words[index - 1]
            if _NAME_IN_TEXT.fullmatch(before):
                yield before
        if depth == 0 and word in ("=", ","):
            initialiser = word == "="
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(word, 0)


def _is_declaration(words: Sequence[str]) -> bool:
    """Whether a variable is only declared: ``extern``, of host and device code alike."""
    own = {"=", "{", "__shared__", "__constant__", "__device__"} & set(words)
    return words[:1] == ["extern"] and not own
