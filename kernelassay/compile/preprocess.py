"""Macro expansion for the host function, on tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelassay.compile.lexing import DIRECTIVE, NAME, Token, matching, split_commas
from kernelassay.compile.source import SourceParts, line_of, macro_definitions
from kernelassay.errors import KernelSyntaxError, UnsupportedError

_TOUCHES = re.compile(r"#\s*(?:define|undef)\s+([A-Za-z_]\w*)")


class Expander:
    """Expands the macros of one source in token sequences taken from it."""

    def __init__(self, parts: SourceParts) -> None:
        self._text = parts.text
        self._macros = macro_definitions(parts.tokens)
        touched = [
            match.group(1)
            for token in parts.tokens
            if token.kind == DIRECTIVE and (match := _TOUCHES.match(token.text))
        ]
        self._ambiguous = {name for name in touched if touched.count(name) > 1}

    def expand(self, tokens: Sequence[Token], active: frozenset[str] = frozenset()) -> list[Token]:
        """``tokens`` with macros replaced; a macro is not expanded within itself.

        Raises ``UnsupportedError`` for a macro that is redefined, undefined, or uses ``#``.
        """
        out: list[Token] = []
        index = 0
        while index < len(tokens):
            token = tokens[index]
            index += 1
            macro = self._macros.get(token.text) if token.kind == NAME else None
            if macro is None or token.text in active:
                out.append(token)
                continue
            where = f"line {line_of(self._text, token.start)}"
            if token.text in self._ambiguous or any(t.kind == DIRECTIVE for t in macro.body):
                raise UnsupportedError(
                    f"launch uses the macro {token.text!r}, which is redefined or pastes tokens",
                    where=where,
                    hint="give it one plain definition",
                )
            body = [part._replace(start=token.start, end=token.end) for part in macro.body]
            if macro.parameters is not None:
                if index >= len(tokens) or tokens[index].text != "(":
                    out.append(token)
                    continue
                close = matching(tokens, index)
                arguments = split_commas(tokens[index + 1 : close]) if close is not None else []
                if close is None or len(arguments) != len(macro.parameters):
                    raise KernelSyntaxError(
                        f"macro {token.text!r} takes {len(macro.parameters)} arguments",
                        where=where,
                    )
                index = close + 1
                values = {
                    name: self.expand(value, active)
                    for name, value in zip(macro.parameters, arguments, strict=True)
                }
                body = [t for part in body for t in values.get(part.text, [part])]
            out.extend(self.expand(body, active | {token.text}))
        return out
