import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay.errors import ProblemError, UnsupportedError, UsageError
from kernelassay.problem import Lever, apply_overrides, load, read_problem

TAIL = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.rand(rows, 4)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def write(tmp_path):
    def make(text, tail=TAIL, name="thing.py"):
        path = tmp_path / name
        path.write_text(text + tail)
        return path

    return make


def levers(problem):
    return {lever.name: lever.value for lever in problem.levers}


def test_module_level_integers_are_levers(write):
    problem = read_problem(
        write(
            "rows = 2048 * 2\nscale = 2.0\nflag = True\nshape = (3, 5)\nD, H = 24, 32\n"
            "a = b = 7\nc: int = 9\nderived = rows * 2\nmixed = (rows, 6)\n"
        )
    )
    assert levers(problem) == {
        "rows": 4096, "shape[0]": 3, "shape[1]": 5, "D": 24, "H": 32, "a": 7, "b": 7, "c": 9,
        "mixed[1]": 6,
    }  # fmt: skip
    assert problem.id == "file/thing"
    assert problem.official_shape


def test_the_last_assignment_of_a_name_is_its_lever(write):
    assert "rows" not in levers(read_problem(write("rows = 4\nrows = rows * 2\n")))
    assert "rows" not in levers(read_problem(write("rows = 4\nrows += 2\n")))
    problem = read_problem(write("rows = c = 4\nrows, b = 8, 9\n"))
    assert levers(problem) == {"c": 4, "rows": 8, "b": 9}
    assert apply_overrides(problem, {"rows": 3}).startswith("rows = c = 4\nrows, b = 3, 9\n")
    assert apply_overrides(problem, {"c": 3}).startswith("rows = 4; c = 3\nrows, b = 8, 9\n")


def test_overrides_change_only_their_literals(write):
    text = "width = height = 128  # both\nrows = 16 * (1024)  # µ\nshape = (8, 9)\n"
    problem = read_problem(write(text))
    changed = apply_overrides(problem, {"height": 7, "rows": 3, "shape[1]": 1})
    assert changed.startswith("width = 128; height = 7  # both\nrows = 3  # µ\nshape = (8, 1)\n")
    assert len(changed.splitlines()) == len(problem.source.splitlines())


def test_overrides_reach_the_inputs(write):
    loaded = load(read_problem(write("rows = 4\n")), {"rows": 9})
    assert loaded.draw(1)[0].shape == (9, 4)
    assert loaded.overrides == (("rows", 9),)


@given(value=st.integers(1, 10**9), other=st.integers(1, 10**9))
@settings(max_examples=30, deadline=None)
def test_setting_a_lever_reads_back_as_its_value(tmp_path_factory, value, other):
    path = tmp_path_factory.mktemp("p") / "p.py"
    path.write_text("rows = 4\nsides = [1 + 2, 3]\na, b = 5, 6\n" + TAIL)
    problem = read_problem(path)
    path.write_text(apply_overrides(problem, {"sides[0]": value, "b": other}))
    now = levers(read_problem(path))
    assert now == {**levers(problem), "sides[0]": value, "b": other}


def test_annotations_are_evaluated_as_in_a_plain_file(write):
    loaded = load(read_problem(write("rows = 4\n", TAIL.replace("self, x", "self, x: int"))))
    assert loaded.model_class.forward.__annotations__ == {"x": int}


def test_an_unknown_lever_is_named_with_its_neighbours(write):
    with pytest.raises(UsageError, match="did you mean rows"):
        apply_overrides(read_problem(write("rows = 4\n")), {"row": 5})


@pytest.mark.parametrize(
    ("name", "value", "size"),
    [
        ("batch_size", 1, True),
        ("in_features", 8192, True),
        ("layer_sizes[0]", 16384, True),
        ("dim", 393216, True),
        ("dim", 1, False),
        ("reduce_dim", 1, False),
        ("kernel_size", 3, False),
        ("maxpool_kernel_size", 2, False),
        ("num_groups", 8, False),
        ("num_layers", 6, False),
        ("output_padding", 1, False),
        ("num_classes", 1000, True),
        ("bias_shape[1]", 1, False),
    ],
)
def test_names_tell_sizes_from_other_integers(name, value, size):
    assert Lever(name, value).is_size is size


def test_reading_does_not_execute(write):
    assert read_problem(write("raise SystemExit(3)\nrows = 4\n")).levers


def test_a_file_that_does_not_parse_is_refused_with_its_line(write):
    with pytest.raises(ProblemError, match=r"thing\.py:2: does not parse"):
        read_problem(write("rows = 4\ndef (:\n"))


def test_a_file_without_the_functions_is_refused(write):
    with pytest.raises(ProblemError, match="does not define Model, get_inputs, get_init_inputs"):
        read_problem(write("rows = 4\n", tail=""))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ProblemError, match="cannot be read"):
        read_problem(tmp_path / "none.py")


def test_an_import_error_names_the_exception_and_the_line(write):
    problem = read_problem(write("rows = 4\nvalue = {}['key']\n"))
    with pytest.raises(ProblemError, match=r"thing\.py:2: does not import: KeyError: 'key'"):
        load(problem)


def test_a_file_that_exits_on_import_is_a_problem_error(write):
    with pytest.raises(ProblemError, match="SystemExit"):
        load(read_problem(write("import sys\nrows = 4\nsys.exit(3)\n")))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [("[1, 2]", "returns no tensor"), ("torch.rand(2)", "returns a Tensor")],
)
def test_inputs_must_be_a_list_with_a_tensor(write, inputs, message):
    tail = TAIL.replace("[torch.rand(rows, 4)]", inputs)
    with pytest.raises(ProblemError, match=message):
        load(read_problem(write("rows = 4\n", tail))).draw(1)


def test_a_model_must_be_a_module_and_return_a_tensor(write):
    no_module = read_problem(write("rows = 4\n", TAIL.replace("(nn.Module)", "")))
    with pytest.raises(ProblemError, match=r"no torch\.nn\.Module"):
        load(no_module).build_model()
    loaded = load(read_problem(write("rows = 4\n", TAIL.replace("x * 2", "{'y': x}"))))
    with pytest.raises(UnsupportedError, match="returns a dict"):
        loaded.forward(loaded.build_model(), loaded.draw(1))


def test_a_tuple_of_tensors_is_several_outputs(write):
    loaded = load(read_problem(write("rows = 4\n", TAIL.replace("x * 2", "(x, x + 1)"))))
    first, second = loaded.forward(loaded.build_model(), loaded.draw(1))
    assert torch.equal(second, first + 1)


def test_a_failing_forward_names_its_line(write):
    loaded = load(read_problem(write("rows = 5\n", TAIL.replace("x * 2", "x @ x"))))
    with pytest.raises(ProblemError, match=r"thing\.py:8: the model fails"):
        loaded.forward(loaded.build_model(), loaded.draw(1))


RANDOM = """
import torch
from torch import nn
rows = 3
class Model(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.bias = bias
        self.weight = nn.Parameter(torch.rand(rows))
    def forward(self, x):
        return x * self.weight
def get_inputs():
    return [torch.rand(rows)]
def get_init_inputs():
    return [torch.rand(rows)]
"""


def test_models_and_inputs_are_seeded_as_kernelbench_does(write):
    loaded = load(read_problem(write(RANDOM, tail="")))
    model = loaded.build_model(42)
    torch.manual_seed(42)
    expected = torch.rand(3)
    # The seed is set again before the constructor, so both draws are the same.
    assert torch.equal(model.bias, expected)
    assert torch.equal(model.weight.detach(), expected)
    drawn = loaded.draw(7)[0]
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(3))
    assert model.training


def test_the_digest_covers_the_source_and_the_scaling(write):
    import dataclasses

    problem = read_problem(write("rows = 4\n"))
    shrunk = dataclasses.replace(problem, shrunk=(("rows", 2),))
    assert shrunk.digest != problem.digest
    assert not shrunk.official_shape
    assert load(shrunk).draw(1)[0].shape == (2, 4)
    assert [lever.value for lever in shrunk.sizes] == [2]
