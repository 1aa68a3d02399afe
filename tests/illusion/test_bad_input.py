"""Whatever is given to the fuzz that is no use ends with an error that says what and where."""

import numpy as np
import pytest

from kernelassay import cli
from kernelassay.errors import ProblemError, UsageError
from kernelassay.illusion.corpus import entries, extras
from kernelassay.illusion.op_file import NAME_LENGTH
from kernelassay.illusion.schema import ELEMENTS, RANK, Schema
from kernelassay.illusion.selection import selected
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
        ("float32 = 1e-5", "float32 = inf", "tolerances.float32 is no number"),
        ("float32 = 1e-5", f"float32 = {10**400}", "tolerances.float32 is no number"),
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
        with pytest.raises(UsageError, match="a second operator is called 'softmax'"):
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
        op.expected([np.ones((2, 3)), np.ones(3)], {"B": 2, "H": 3})
