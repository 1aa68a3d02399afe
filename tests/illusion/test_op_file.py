"""An operator of the user's own is a TOML file; every mistake in it is told."""

import json

import numpy as np
import pytest

from kernelassay import cli
from kernelassay.errors import ProblemError, UsageError
from kernelassay.illusion import bundle_file
from kernelassay.illusion.bundle import write
from kernelassay.illusion.cases import drawn
from kernelassay.illusion.op_file import FIELDS, read
from kernelassay.illusion.oracle import Rule
from kernelassay.illusion.reference import Reference
from kernelassay.illusion.replay import replay
from kernelassay.illusion.shrink import shrink
from kernelassay.illusion.trial import Examiner
from tests.illusion.benches import NumpyBench

TOML = """\
name = "scaled"
language = "numpy"
kernel = "scaled.py"
reference = "reference.py"
output = ["B", "H"]
dtypes = ["float32", "float16"]

[dims]
B = [1, 2]
H = [1, 3, 256]

[inputs]
x = ["B", "H"]
weight = ["H"]

[tolerances]
float32 = 1e-5
float16 = 1e-2
"""
KERNEL = "def run(x, weight):\n    return x * weight if len(weight) % 2 else x\n"
REFERENCE = "def reference(x, weight):\n    return x * weight\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "scaled.py").write_text(KERNEL)
    (tmp_path / "reference.py").write_text(REFERENCE)
    return tmp_path


def read_from(folder, text):
    path = folder / "op.toml"
    path.write_text(text)
    return read(path)


def test_an_operator_of_a_file_is_one_like_any_other(folder):
    op = read_from(folder, TOML)
    assert (op.name, op.language, op.text, op.dtypes) == (
        "scaled",
        "numpy",
        KERNEL,
        ("float32", "float16"),
    )
    assert (op.reference, op.reference_text) == ("reference.py", REFERENCE)
    assert (op.control, op.fault) == ("scaled", None)
    assert op.schema.shape("weight", {"B": 1, "H": 3}) == (3,)
    assert list(op.schema.dims) == ["B", "H"] and list(op.schema.inputs) == ["x", "weight"]
    assert (op.tolerance("float32"), op.tolerance("float16")) == (1e-5, 1e-2)


def test_what_is_left_out_has_a_default(folder):
    text = 'kernel = "scaled.py"\nreference = "softmax"\noutput = ["H"]\n'
    op = read_from(folder, text + '[dims]\nH = [3]\n[inputs]\nx = ["H"]\n')
    assert (op.name, op.language, op.dtypes) == ("op", "triton", ("float32",))
    assert (op.reference, op.reference_text, op.tolerance("float32")) == ("softmax", None, 1e-5)


def test_a_users_operator_fails_shrinks_and_replays_by_its_own_reference(folder):
    op = read_from(folder, TOML)
    examiner = Examiner(op, Rule())
    bench = NumpyBench(forks=False)
    trials = [examiner.run(bench, a_case(op, index)) for index in range(12)]
    failing = [one for one in trials if one.failure]
    assert {dict(one.case.sizes)["H"] for one in failing} == {256}
    found = shrink(examiner, bench, failing[0].case, device="numpy")
    assert dict(found.case.sizes) == {"B": 1, "H": 2}
    (folder / "reference.py").unlink()
    path = write(folder, found.bundle)
    replayed = replay(bundle_file.read(path), NumpyBench())
    assert (replayed.differences, replayed.trial.failure) == ((), "tolerance")


def a_case(op, index):
    return drawn(
        op.schema, strategy="default", index=index, master=0, dtypes=op.dtypes, values="uniform"
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[dims]", "[dims", "is no TOML"),
        ('name = "scaled"', "name = 3", "name is no text: 3"),
        ('name = "scaled"', 'name = ""', "name is empty"),
        ('name = "scaled"', 'nmae = "scaled"', "unknown field 'nmae'"),
        ('language = "numpy"', 'language = "opencl"', "unknown language 'opencl'"),
        ('kernel = "scaled.py"', "", "has no kernel"),
        ('"scaled.py"', '"none.py"', "the kernel 'none.py' cannot be read: No such file"),
        ('"scaled.py"', '"."', "the kernel '.' cannot be read: Is a directory"),
        ('"scaled.py"', '"binary.py"', "cannot be read: it is no UTF-8 text"),
        ('reference = "reference.py"', "", "has no reference"),
        ('"reference.py"', '"none.py"', "the reference 'none.py' cannot be read"),
        ('"reference.py"', '"sofmax"', "unknown reference 'sofmax'"),
        ('output = ["B", "H"]', "", "has no output"),
        ('output = ["B", "H"]', 'output = "BH"', "output is no list of texts"),
        ('output = ["B", "H"]', 'output = ["B", "Z"]', "output has the unknown dimension 'Z'"),
        ('weight = ["H"]', 'weight = ["K"]', "weight has the unknown dimension 'K'"),
        ('weight = ["H"]', "weight = [1]", "inputs.weight is no list of texts"),
        ("H = [1, 3, 256]", "H = []", "dimension H has the candidates []"),
        ("H = [1, 3, 256]", "H = [0]", "dimension H has the candidates [0]"),
        ("H = [1, 3, 256]", "H = 3", "dims.H is no list of integers: 3"),
        ("H = [1, 3, 256]", "H = [1.5]", "dims.H is no list of integers"),
        ("H = [1, 3, 256]", "H = [true]", "dims.H is no list of integers"),
        ('x = ["B", "H"]\nweight = ["H"]', "", "has no input tensor"),
        ('[inputs]\nx = ["B", "H"]\nweight = ["H"]', "", "has no inputs"),
        ("[dims]\nB = [1, 2]\nH = [1, 3, 256]", "", "has no dims"),
        ('["float32", "float16"]', '["float32", "int8"]', "unknown dtype 'int8'"),
        ('["float32", "float16"]', "[]", "dtypes is empty"),
        ('["float32", "float16"]', '["float32", "float32"]', "names one twice"),
        ("float32 = 1e-5", "float64 = 1e-5", "unknown dtype 'float64'"),
        ("float32 = 1e-5", "float32 = -1", "float32 is no finite number of at least 0: -1"),
        ("float32 = 1e-5", "float32 = nan", "float32 is no finite number of at least 0: nan"),
        ("float32 = 1e-5", "float32 = inf", "float32 is no finite number of at least 0: inf"),
        ("float32 = 1e-5", "float32 = true", "tolerances.float32 is no finite number"),
        ('dtypes = ["float32", "float16"]', "tolerances = 1", "is no TOML"),
    ],
)
def test_every_mistake_names_the_file_the_field_and_what_to_write(folder, old, new, said):
    (folder / "binary.py").write_bytes(b"\xff\xfe")
    assert old in TOML
    with pytest.raises(UsageError) as caught:
        read_from(folder, TOML.replace(old, new, 1))
    assert said in caught.value.what
    assert caught.value.where.startswith(str(folder / "op.toml"))
    assert caught.value.hint


def test_tables_must_be_tables(folder):
    for name in ("dims", "inputs", "tolerances"):
        kept = TOML.split("[dims]", maxsplit=1)[0]
        rest = {"dims": "{B = [1], H = [1]}", "inputs": '{x = ["H"]}', "tolerances": "{}"}
        lines = [f"{k} = {'3' if k == name else v}" for k, v in rest.items()]
        with pytest.raises(UsageError, match=f"{name} is no table: 3"):
            read_from(folder, kept + "\n".join(lines))


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read(tmp_path / "none.toml")


def test_every_field_is_read(folder):
    op = read_from(folder, TOML)
    assert {line.split(" = ")[0].strip("[]") for line in TOML.splitlines()} >= set(FIELDS)
    assert op.tolerances == {"float32": 1e-5, "float16": 1e-2}


# ---- a user's reference ----------------------------------------------------------------------


def computed(text, *inputs):
    return Reference("own.py", text)(inputs or [np.ones((2, 3), np.float16)])


def test_a_reference_computes_in_float64_without_touching_this_process(tmp_path):
    text = "import os\nassert True\ndef reference(x):\n    return x / 3 + os.getpid() * 0\n"
    found = computed(text)
    assert found.dtype == np.float64 and found.tolist() == [[1 / 3] * 3] * 2
    assert computed("def reference(x): return [1, 2]").tolist() == [1.0, 2.0]
    assert np.isinf(computed("def reference(x): return x / 0")).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "defines no function reference"),
        ("def reference(x:", "SyntaxError"),
        ("def reference(): pass", "TypeError"),
        ("def reference(x): raise ValueError('odd')", "odd"),
        ("def reference(x): return 'text'", "returns str, no array of numbers"),
        ("def reference(x): return None", "returns NoneType"),
        ("def reference(x): return [[1], [1, 2]]", "returns list"),
        ("def reference(x): return x * 1j", "returns ndarray, no array of numbers"),
        ("import sys\nsys.exit(3)", "exit(3)"),
        ("import os\nos._exit(3)", "exited with 3"),
        ("def reference(x): open('/tmp/written', 'w')", "PermissionError"),
        ("import socket\ndef reference(x): socket.socket()", "PermissionError"),
    ],
)
def test_what_goes_wrong_in_a_reference_is_told_and_does_no_harm(text, said):
    with pytest.raises(ProblemError) as caught:
        computed(text)
    assert said in str(caught.value)
    assert caught.value.where == "own.py"


def test_a_reference_of_another_shape_than_the_output_is_told(folder, capsys):
    (folder / "reference.py").write_text("def reference(x, weight): return x[0]\n")
    op = read_from(folder, TOML)
    with pytest.raises(ProblemError, match=r"gives the shape \[\d+\], not \[\d, \d+\]"):
        Examiner(op, Rule()).run(NumpyBench(forks=False), a_case(op, 0))
    run = ["illusion", "run", "--op", str(folder / "op.toml"), "--cases", "1", "--jobs", "1"]
    assert cli.invoke([*run, "--session", str(folder / "session")]) == 1
    assert "the reference gives the shape" in capsys.readouterr().err


def test_two_kernels_of_one_name_are_told(folder, capsys):
    read_from(folder, TOML.replace('"scaled"', '"softmax"'))
    run = ["illusion", "run", "--op", str(folder / "op.toml"), "--session", str(folder / "s")]
    for more in (["softmax"], ["--op", str(folder / "op.toml")]):
        assert cli.invoke([*run, *more]) == 1
        assert "another kernel softmax" in capsys.readouterr().err


def test_a_users_kernel_that_is_wrong_has_its_score(folder, capsys):
    read_from(folder, TOML)
    session = ["--session", str(folder / "session")]
    named = ["--strategy", "default", "--strategy", "one_shape", "--cases", "6", "--jobs", "1"]
    assert cli.invoke(["illusion", "run", "--op", str(folder / "op.toml"), *session, *named]) == 0
    assert cli.invoke(["illusion", "score", session[1], "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    (kernel,) = data["strategies"][0]["kernels"]
    assert (kernel["name"], kernel["role"]) == ("scaled", "own")
    assert 0 < kernel["fails"]["count"] < kernel["fails"]["total"] == 6
    assert data["strategies"][0]["false"]["total"] == 0
    assert data["one_shape"] == {check: {"scaled": False} for check in data["one_shape"]}
    assert cli.invoke(["illusion", "score", session[1]]) == 0
    assert "scaled (your own)" in capsys.readouterr().out
    out = folder / "bundles"
    assert cli.invoke(["illusion", "bundle", session[1], "--out", str(out)]) == 0
    assert len([*out.iterdir()]) == kernel["fails"]["count"]
