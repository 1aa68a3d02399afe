"""Conditionals of a user's file are decided as a preprocessor decides them."""

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay.execute.cpu.toolchain import find_compiler
from kernelassay.user.conditionals import decided
from kernelassay.user.extract import DeviceFile, extract
from kernelassay.user.templates import Instance

NAMES = st.sampled_from(["A", "B", "C"])
CONDITIONS = st.recursive(
    st.one_of(
        NAMES,
        NAMES.map("defined({})".format),
        NAMES.map("defined {}".format),
        st.integers(0, 3).map(str),
        st.just("__CUDA_ARCH__ >= 800"),
    ),
    lambda inner: st.one_of(
        inner.map("!({})".format),
        st.tuples(inner, st.sampled_from(["&&", "||", "==", "<", ">=", "+"]), inner).map(
            lambda parts: "({} {} {})".format(*parts)
        ),
    ),
    max_leaves=4,
)
LINES = st.one_of(
    st.just("LINE"),
    NAMES.map("#define {} 1".format),
    st.tuples(NAMES, st.integers(0, 3)).map(lambda p: f"#undef {p[0]}\n#define {p[0]} {p[1]}"),
    NAMES.map("#undef {}".format),
)


def chain(inner):
    opening = st.one_of(CONDITIONS.map("#if {}".format), NAMES.map("#ifdef {}".format),
                        NAMES.map("#ifndef {}".format))  # fmt: skip
    elifs = st.lists(st.tuples(CONDITIONS.map("#elif {}".format), inner), max_size=2)
    return st.tuples(opening, inner, elifs, st.one_of(st.none(), inner)).map(
        lambda p: "\n".join(
            [p[0], p[1], *(part for pair in p[2] for part in pair)]
            + (["#else", p[3]] if p[3] is not None else [])
            + ["#endif"]
        )
    )


PROGRAMS = st.recursive(
    LINES,
    lambda inner: chain(inner) | st.lists(inner, min_size=2, max_size=3).map("\n".join),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PROGRAMS, min_size=1, max_size=3).map("\n".join))
def test_the_lines_that_stay_are_those_a_preprocessor_keeps(program):
    text = "#define A 2\n" + program.replace("#define A 1", "#undef A\n#define A 1")
    text = text.replace("#define B 1", "#undef B\n#define B 1").replace(
        "#define C 1", "#undef C\n#define C 1"
    )
    lines = text.split("\n")
    numbered = "\n".join(f"line{i}" if line == "LINE" else line for i, line in enumerate(lines))
    command = [*find_compiler().command, "-E", "-P", "-x", "c++", "-D__CUDA_ARCH__=900", "-"]
    ran = subprocess.run(command, input=numbered, capture_output=True, text=True, check=True)
    now = decided(numbered)
    assert now.count("\n") == numbered.count("\n")
    assert [x for x in now.split() if x.startswith("line")] == ran.stdout.split()


def test_a_condition_over_an_unknown_macro_stays_with_both_branches():
    text = "#ifdef __clang__\na\n#else\nb\n#endif\n#if CUDART_VERSION > 11000\nc\n#endif\n"
    assert decided(text) == text


FLOATX = """\
#define ENABLE_%s
#if defined(ENABLE_FP16)
typedef half floatX;
#elif defined(ENABLE_BF16)
typedef __nv_bfloat16 floatX;
#else
typedef float floatX;
#endif
__global__ void k(floatX* y) { y[0] = (floatX)0.0f; }
"""


def test_a_type_that_depends_on_a_macro_is_the_one_that_is_compiled():
    for macro, kind in (("FP16", "half"), ("BF16", "__nv_bfloat16"), ("FP32", "float")):
        file = DeviceFile.read(FLOATX % macro, "f.cu")
        assert f"void k({kind}* y)" in extract(file, [Instance("k", None, "k")], ()).text
