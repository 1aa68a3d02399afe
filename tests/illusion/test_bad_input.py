"""Whatever is given to the fuzz that is no use ends with an error that says what and where."""

import json

import numpy as np
import pytest

from kernelassay import cli
from kernelassay.errors import ProblemError, SessionError, UsageError
from kernelassay.illusion.corpus import entries, entry, extras
from kernelassay.illusion.op import text_digest
from kernelassay.illusion.op_file import NAME_LENGTH
from kernelassay.illusion.population import read as read_mutants
from kernelassay.illusion.schema import ELEMENTS, RANK, Schema
from kernelassay.illusion.selection import groups, selected
from kernelassay.mutation.engine import mutant_id
from kernelassay.mutation.rule import Edit
from kernelassay.session import PROBLEMS, TRIALS, Session
from tests.illusion.test_op_file import KERNEL, REFERENCE, TOML, read_from


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "scaled.py").write_text(KERNEL)
    (tmp_path / "reference.py").write_text(REFERENCE)
    return tmp_path


@pytest.fixture
def told(capsys):
    """Runs a command; its exit code and what it said, which is never a traceback."""

    def run(*arguments):
        code = cli.invoke([str(one) for one in arguments])
        said = capsys.readouterr().err
        assert "Traceback" not in said
        return code, said

    return run


# ---- operators -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"scaled"', f'"{"a" * (NAME_LENGTH + 1)}"', "name is no line of at most"),
        ('"scaled"', '"a\\nb"', "name is no line of at most"),
        ('"scaled"', '"a\\u0000b"', "name is no line of at most"),
        ('x = ["B", "H"]', 'output = ["B", "H"]', "an input is called 'output'"),
        ('x = ["B", "H"]', f"x = {['B'] * (RANK + 1)}", f"x has {RANK + 1} dimensions"),
        ('output = ["B", "H"]', f"output = {['B'] * (RANK + 1)}", "output has"),
        ("B = [1, 2]", f"B = [1, {ELEMENTS}]", "the largest sizes give tensors of"),
        ("B = [1, 2]", f"B = [{2**63 - 1}]", "the largest sizes give tensors of"),
        ("float32 = 1e-5", "float32 = inf", "tolerances.float32 is no finite number"),
        ("float32 = 1e-5", f"float32 = {10**400}", "tolerances.float32 is no finite number"),
    ],
)
def test_what_no_case_can_be_made_of_is_refused_when_it_is_read(folder, old, new, said):
    assert old in TOML
    with pytest.raises(UsageError) as caught:
        read_from(folder, TOML.replace(old, new, 1))
    assert said in caught.value.what and len(str(caught.value)) < 1000
    assert str(folder / "op.toml") in caught.value.where
    assert caught.value.hint


def test_names_may_hold_what_file_names_cannot(folder):
    for name in ("../../a/b", "[red]", "é" * NAME_LENGTH, "*"):
        assert read_from(folder, TOML.replace('"scaled"', f'"{name}"')).name == name


def test_operators_of_one_name_are_refused_not_merged(folder):
    path = folder / "softmax.toml"
    path.write_text(TOML.replace('name = "scaled"', 'name = "softmax"'))
    assert [op.name for op in selected((), (path,))] == ["softmax"]
    for names, files in ((("softmax",), (path,)), ((), (path, path))):
        with pytest.raises(UsageError, match="there is another kernel softmax"):
            selected(names, files)


@pytest.mark.parametrize("op", [*entries(), *extras()], ids=lambda op: op.name)
def test_elements_of_all_choices_are_counted_without_going_through_them(op):
    each = [op.schema.elements(dict(sizes)) for sizes in op.schema.every()]
    assert op.schema.all_elements() == sum(each)
    assert op.schema.most_elements() == max(each)


def test_elements_are_counted_of_tensors_that_repeat_a_dimension_and_of_scalars():
    schema = Schema({"B": (2, 3), "H": (1, 5)}, {"x": ("B", "B"), "y": ()}, ("H",))
    assert schema.all_elements() == sum(schema.elements(dict(s)) for s in schema.every())


def test_dimensions_may_have_more_choices_than_can_be_gone_through():
    dims = {f"D{i}": (1, 2, 3, 4) for i in range(60)}
    assert Schema(dims, {"x": ("D0",)}, ("D0",)).all_elements() == 2 * 10 * 4**59


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def reference(x, weight):\n    return x[0]\n", "the reference gives the shape"),
        ("def reference(x, weight):\n    return None\n", "returns NoneType"),
        ("def reference(x, weight):\n    raise ValueError('odd')\n", "odd"),
        ("def reference(x:\n", "SyntaxError"),
    ],
)
def test_a_run_blames_a_wrong_reference_and_not_the_kernel(folder, told, text, said):
    (folder / "reference.py").write_text(text)
    path = folder / "op.toml"
    path.write_text(TOML)
    code, heard = told(
        *("illusion", "run", "--op", path, "--cases", 2, "--jobs", 1, "--session", folder / "s")
    )
    assert code == ProblemError.exit_code
    assert said in heard


def test_the_shape_that_is_expected_is_the_schemas(folder):
    op = read_from(folder, TOML.replace('output = ["B", "H"]', 'output = ["H"]'))
    with pytest.raises(ProblemError, match=r"the shape \[2, 3\], not \[3\]"):
        op.expected([np.ones((2, 3)), np.ones(3)], (("B", 2), ("H", 3)))


# ---- files of mutants ------------------------------------------------------------------------

RELU = entry("relu_triton")
FIRST = RELU.text.index("def run")
EDITS = [[FIRST, FIRST + 3, "def  "]]


def a_file(path, change=lambda whole, one: None):
    """A file of one mutant, after a change of the whole or of the mutant."""
    edits = [Edit(*edit) for edit in EDITS]
    one = {
        "id": mutant_id(RELU.name, "", "triton", "triton-add-to-sub", edits),
        "rule": "triton-add-to-sub",
        "family": "arithmetic",
        "line": 1,
        "edits": EDITS,
        "benign": False,
        "status": "distinct",
        "reason": "",
        "twin": None,
    }
    record = {"kernel": RELU.name, "digest": text_digest(RELU.text), "mutants": [one]}
    whole = {"kernelassay": "triton-mutants", "version": 1, "populations": [record]}
    change(whole, one)
    path.write_text(json.dumps(whole))
    return path


def grouped(path):
    return groups([RELU], read_mutants(path))


def test_a_file_of_mutants_that_is_whole_is_taken(tmp_path):
    ((control, mutant),) = (group.subjects for group in grouped(a_file(tmp_path / "m.json")))
    assert mutant.text == control.text.replace("def run", "def   run", 1)


ODD = (None, -1, 10**9, 2**70, 1.5, True, "x", "\ud800", [], {}, [[0, 1]], [[5, 1, "a"]])
ODD_EDITS = ([[0, 10**9, "a"]], [[0, "1", "a"]], [[0, 1, None]], [[0, 5, "a"], [2, 8, "b"]])
FREE = {"family": str, "line": int, "benign": bool, "reason": str, "twin": (str, type(None))}


@pytest.mark.parametrize("field", ["id", "rule", "edits", "status", *FREE])
def test_a_mutant_that_was_damaged_is_refused(tmp_path, field):
    for value in (*ODD, *ODD_EDITS):
        path = a_file(tmp_path / "m.json", lambda _, one, new=value: one.update({field: new}))
        if (
            field in FREE
            and isinstance(value, FREE[field])
            and (value is not True or field == "benign")
        ):
            grouped(path)  # nothing tells another text from the right one
            continue
        with pytest.raises(UsageError) as caught:
            grouped(path)
        assert caught.value.where and caught.value.hint
    path = a_file(tmp_path / "m.json", lambda _, one: one.pop(field))
    with pytest.raises(UsageError, match=f"KeyError: '{field}'"):
        grouped(path)


@pytest.mark.parametrize("field", ["kernelassay", "version", "populations"])
def test_a_file_of_another_form_holds_no_mutants(tmp_path, field):
    for value in (None, -1, 2, "x", {}, [3], [[]], [{}]):
        path = a_file(tmp_path / "m.json", lambda whole, _, new=value: whole.update({field: new}))
        with pytest.raises(UsageError, match="no file of mutants") as caught:
            grouped(path)
        assert caught.value.where == str(path) and caught.value.hint


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00", b"[" * 100_000, b"[]", b"NaN", b'{"a": 1'])
def test_what_is_no_json_holds_no_mutants(tmp_path, told, data):
    (tmp_path / "m.json").write_bytes(data)
    code, said = told("illusion", "run", "--mutants", tmp_path / "m.json", "--session", tmp_path)
    assert code == 1 and "is no file of mutants" in said and str(tmp_path / "m.json") in said


def test_one_mutant_is_there_once(tmp_path):
    twice = a_file(
        tmp_path / "m.json", lambda whole, one: whole["populations"][0].update(mutants=[one, one])
    )
    with pytest.raises(UsageError, match="a mutant twice"):
        grouped(twice)
    both = a_file(
        tmp_path / "m.json", lambda whole, _: whole["populations"].extend(whole["populations"])
    )
    with pytest.raises(UsageError, match="two populations of one kernel"):
        grouped(both)


# ---- sessions --------------------------------------------------------------------------------


@pytest.fixture
def of_trials(tmp_path):
    Session.create(tmp_path / "trials", {"kind": TRIALS, "kernels": {}}).close()
    return tmp_path / "trials"


@pytest.fixture
def of_problems(tmp_path):
    Session.create(tmp_path / "matrix", {"problems": {"suite/relu": "d"}}).close()
    return tmp_path / "matrix"


@pytest.mark.parametrize(
    "command",
    [
        ("audit",),
        ("suite",),
        ("cost",),
        ("ladder",),
        ("rules", "--session"),
        ("explain", "mutant"),
        ("compare", "--sweep", "--protocol", "kernelbench"),
        ("replay",),
    ],
    ids=" ".join,
)
def test_a_reader_of_kill_matrices_tells_what_reads_trials(told, of_trials, command):
    code, said = told(*command, of_trials)
    assert (code, str(of_trials) in said) == (1, True)
    assert "holds trials of the fuzz" in said and "kernelassay illusion score" in said


@pytest.mark.parametrize("command", ["score", "calibrate", "bundle --out x"])
def test_a_reader_of_trials_tells_what_reads_kill_matrices(told, of_problems, command):
    name, *more = command.split()
    code, said = told("illusion", name, of_problems, *more)
    assert (code, str(of_problems) in said) == (1, True)
    assert "holds a kill matrix" in said and "kernelassay audit" in said


def test_a_cell_of_trials_is_not_replayed(told, of_trials):
    code, said = told("replay", of_trials, "mutant", "input")
    assert code == 1 and "holds trials of the fuzz" in said


@pytest.mark.parametrize("kind", ["newer", 3, ["illusion"], None])
def test_a_session_of_an_unknown_kind_is_not_read(tmp_path, kind):
    Session.create(tmp_path / "s", {"kind": kind}).close()
    for wanted in (PROBLEMS, TRIALS):
        with pytest.raises(SessionError, match="does not know"):
            Session.open(tmp_path / "s", wanted)


@pytest.fixture
def finished(tmp_path, told):
    """A finished session of one NumPy kernel."""
    root = tmp_path / "finished"
    assert (
        told(*("illusion", "run", "softmax", "--cases", 1, "--jobs", 1, "--session", root))[0] == 0
    )
    return root


def edited(path, change):
    record = json.loads(path.read_text())
    path.write_text(json.dumps(change(record)))


NO_OBJECT = (b"", b"[]", b"3", b"\xff", b"[" * 100_000)


def test_a_damaged_session_is_told_and_not_scored(finished, told):
    manifest, kernels = finished / "manifest.json", finished / "kernels" / "softmax.json"
    (trials,) = finished.glob("trials/*/*.parquet")
    damage = [(path, data) for path in (manifest, kernels) for data in NO_OBJECT]
    damage += [(trials, data) for data in (b"", b"PAR1", trials.read_bytes()[:60])]
    for field in ("kernels", "strategies", "device"):
        for value in (None, 3, "x" * (field != "device"), [[]], {"softmax": 3}):
            new = {**json.loads(manifest.read_text()), field: value}
            damage.append((manifest, json.dumps(new).encode()))
    for field, value in (("operator", {}), ("kernels", []), ("kernels", [{}]), ("kernels", 3)):
        new = {**json.loads(kernels.read_text()), field: value}
        damage.append((kernels, json.dumps(new).encode()))
    text = kernels.read_text()
    damage += [(kernels, text.replace(old, "Q").encode()) for old in ('"H"', "def run", "softmax")]
    for path, data in damage:
        whole = path.read_bytes()
        assert data != whole
        path.write_bytes(data)
        for command in (("score", finished), ("bundle", finished, "--out", finished / "out")):
            code, said = told("illusion", *command)
            assert (code, str(finished) in said, "hint: " in said) == (1, True, True), (data, said)
        path.write_bytes(whole)
    assert told("illusion", "score", finished)[0] == 0
    assert not (finished / "out").exists()


def test_bundles_are_not_written_where_nothing_can_be(tmp_path, finished, told):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "below"
    code, said = told("illusion", "bundle", finished, "--scale", "1e-30", "--out", out)
    assert code == 1 and "cannot write" in said and str(out) in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "has no @triton.jit function"),
        (b"import triton\n@triton.jit\ndef k(x:\n", "does not parse"),
        (b"import triton\0", "does not parse"),
        (b"\xef\xbb\xbfimport triton\n", "byte order mark"),
        (b"# \xe9\nimport triton\n", "no UTF-8 text"),
        (f"import triton\nx = {'(' * 300}1{')' * 300}\n".encode(), "does not parse"),
        (f"import triton\nx = {'+'.join('y' * 700)}\n".encode(), "too deep"),
        (f"import triton\nx = {'+'.join('y' * 5000)}\n".encode(), "too deep"),
    ],
)
def test_a_module_that_is_no_triton_is_told_with_its_file(tmp_path, told, text, said):
    path = tmp_path / "kernel.py"
    path.write_bytes(text)
    code, heard = told("mutants", "--kernel", path)
    assert code == 1 and said in heard and str(path) in heard and "hint: " in heard


@pytest.mark.parametrize("kernel", ["softmax", "softmax_cuda", "softmax_triton_buggy"])
def test_what_is_no_correct_triton_kernel_has_no_mutants(tmp_path, told, kernel):
    code, said = told("illusion", "mutants", kernel, "--out", tmp_path / "mutants.json")
    assert code == 4 and "no correct kernel in Triton" in said
    assert not (tmp_path / "mutants.json").exists()
