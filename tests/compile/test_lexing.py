"""A text lexed by what it shares with another has the tokens it has by itself."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kernelassay.compile.lexing import lexed, tokenize

TEXTS = [path.read_text() for path in sorted((Path(__file__).parent / "kernels").glob("*.cu"))]
# What begins, ends or swallows tokens, beside ordinary characters.
PIECES = st.one_of(
    st.sampled_from(
        ["/*", "*/", "//", "\n", "\\\n", '"', "'", "#", "#define A\\", "...", "<<<", ">", "->*"]
    ),
    st.sampled_from(["1e", "+", "0x", ".", "5f", "a", "_", " ", "", "\\", "\t", "é", "{", "}"]),
    st.text(max_size=6),
)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), PIECES), min_size=1, max_size=3)


def edited(text, edits):
    for where, removed, piece in edits:
        at = int(where * len(text))
        text = text[:at] + piece + text[at + removed :]
    return text


@given(st.sampled_from(TEXTS), EDITS, EDITS)
def test_tokens_do_not_depend_on_what_was_lexed_before(text, first, second):
    for changed in (text, edited(text, first), edited(text, second), edited(text, first + second)):
        assert tokenize(changed) == list(lexed(changed))


@given(st.sampled_from(TEXTS), EDITS)
def test_tokens_are_the_text_at_their_places(text, edits):
    changed = edited(text, edits)
    tokenize(text)
    for token in tokenize(changed):
        assert changed[token.start : token.end] == token.text
