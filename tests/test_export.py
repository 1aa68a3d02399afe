"""Exported suites: what a file can express, the bytes it makes, and that nothing is dropped."""

import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay import cell
from kernelassay.check.suites import read_suite
from kernelassay.cli import invoke
from kernelassay.errors import UsageError
from kernelassay.input_shapes import shape_overrides
from kernelassay.input_values import TRANSFORMS
from kernelassay.inputs import InputSpec, digest, draw
from kernelassay.plan import problem_record
from kernelassay.problem import load, read_problem
from kernelassay.session import Session
from kernelassay.suite import suite_problems
from kernelassay.synthesis.export import MARK, REPORT, export
from kernelassay.synthesis.expressible import FORMATS, conditions, free_names, objection, sizes
from kernelassay.synthesis.source import IMPORTS, code_for
from kernelassay.synthesis.suites import Asked, analyse, pools_of
from tests.made_session import GROUPS, SHAPE, STRAYS, cells, plan

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "exported_hidden.py"
HUGE, RAMP = "huge-3e5-s1", "ramp-s1"

# All that a transform treats in its own way: distributions, symmetric and triangular matrices,
# labels, whole numbers, booleans, scalars, tensors of one shape, a rank of 0.
PROBLEM = """
import torch
import torch.nn as nn

rows = 4
columns = 6
width = 3
class Transform(nn.Module):
    def forward(self, x):
        return x * width
Model = Transform
def made(rows):
    return rows
def get_inputs():
    square = torch.rand(5, 5)
    return [
        torch.rand(rows, columns), torch.randn(rows, columns), (square + square.T) / 2,
        square.triu(), square.tril(), torch.softmax(torch.rand(rows, columns), dim=-1),
        torch.randint(0, 3, (rows,)).float(), torch.randint(0, 9, (rows,)),
        torch.rand(rows) > 0.5, 2.5, torch.rand(()), torch.rand(rows, columns).double(),
    ]
def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A benchmark's folder with one problem, whose first input alone feeds its model."""
    folder = tmp_path_factory.mktemp("checkout") / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    (folder / "7_Scaled.py").write_text(PROBLEM)
    return folder.parent.parent


@pytest.fixture(scope="module")
def problem(checkout):
    path = checkout / "KernelBench" / "level1" / "7_Scaled.py"
    return read_problem(path, id="kernelbench-1/7_Scaled", level=1, origin="kernelbench")


def expected(problem, spec):
    return digest(draw(load(problem, dict(spec.overrides)), spec))


def shapes(problem, spec):
    values = draw(load(problem, dict(spec.overrides)), spec)
    return [list(value.shape) for value in values if isinstance(value, torch.Tensor)]


def namespace(transforms):
    names: dict = {}
    exec("\n".join([*IMPORTS, code_for(transforms)]), names)
    return names


def entry(problem, spec):
    own = {"id": spec.id, "seed": spec.seed, "transform": spec.transform}
    return {**own, "shapes": shapes(problem, spec), "sizes": dict(sizes(problem, spec))}


# ---- bytes -------------------------------------------------------------------------------------


MADE_OF_OTHERS = ("sign-mixed:x22", "official:x3:+20", "ramp~sign-mixed:x2~edge-spikes-100")


@pytest.mark.parametrize("name", [*TRANSFORMS, *MADE_OF_OTHERS])
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(), (("columns", 5), ("rows", 9))]))
def test_exported_code_makes_the_same_bytes(problem, name, seed, moved):
    spec = InputSpec("one", "targeted", seed, name, moved)
    get_inputs = load(problem).get_inputs
    values = namespace([name])["made"](get_inputs, entry(problem, spec))
    assert digest(values) == expected(problem, spec)


def test_exported_code_leaves_the_generator_and_the_sizes_of_the_problem_alone(problem):
    get_inputs = load(problem).get_inputs
    spec = InputSpec("one", "shape", 3, "sign-mixed", (("rows", 9),))
    one = entry(problem, spec)
    torch.manual_seed(11)
    state = torch.get_rng_state()
    namespace(["sign-mixed"])["made"](get_inputs, one)
    assert torch.equal(torch.get_rng_state(), state)
    assert get_inputs.__globals__["rows"] == 4


def test_inputs_are_made_on_the_cpu_whatever_the_default_device(problem):
    spec = InputSpec("one", "targeted", 3, "sign-mixed")
    get_inputs, one = load(problem).get_inputs, entry(problem, spec)
    with torch.device("meta"):
        values = namespace(["sign-mixed"])["made"](get_inputs, one)
    assert digest(values) == expected(problem, spec)


def test_another_problem_in_the_file_s_place_is_an_error_not_another_input(problem):
    spec = InputSpec("one", "targeted", 3, "sign-mixed")
    other = replace(problem, source=PROBLEM.replace("rows = 4", "rows = 5"))
    with pytest.raises(RuntimeError, match="the problem draws the shapes"):
        namespace(["sign-mixed"])["made"](load(other).get_inputs, entry(problem, spec))


def test_a_module_holds_the_transforms_it_uses_and_no_others():
    names = namespace(["huge-3e5", "ties"])
    assert set(names["TRANSFORMS"]) == {"huge-3e5", "ties"}
    assert "_saturating" not in names
    assert "kernelassay" not in code_for(TRANSFORMS)


# ---- what can be expressed ---------------------------------------------------------------------


@pytest.mark.parametrize("problem", suite_problems(), ids=lambda problem: problem.id)
def test_sizes_that_are_called_free_give_the_inputs_of_the_edited_text(problem):
    free = free_names(problem.source)
    checked = 0
    for moved in shape_overrides(problem, 3):
        chosen = tuple((name, size) for name, size in moved if name in free)
        try:
            wanted = load(problem, dict(chosen)).draw(5)
        except Exception:  # sizes that the problem does not take
            continue
        loaded = load(problem)
        loaded.get_inputs.__globals__.update(dict(chosen))
        assert digest(loaded.draw(5)) == digest(wanted)
        checked += 1
    assert checked or not free


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("n = 3\ndef get_inputs():\n    return [n]", {"n"}),
        ("n = 3\ndef get_inputs():\n    return [n]\nclass Model:\n    n = n", set()),
        ("n = 3\nm = n * 2\ndef get_inputs():\n    return [m]", {"m"}),
        ("n = 3\ndef helper():\n    return n\ndef get_inputs():\n    return [helper()]", set()),
        ("n = 3\ndef get_inputs(n=n):\n    return [n]", set()),
        ("n = 3\ndef get_inputs():\n    return [n]\ndef other(n):\n    return n", {"n"}),
        ("n = 3\ndef get_inputs():\n    return [n]\nclass Model:\n    x = n", set()),
        ("n = 3\ndef get_inputs():\n    return [n]\ndef f():\n    return lambda: n", set()),
        ("n = 3\ndef get_inputs():\n    n = 5\n    return [n]", {"n"}),
        ("n = 3\ndef get_inputs():\n    global n\n    n += 1\n    return [n]", set()),
        ("n = 3\ndef get_inputs():\n    return [(lambda: n)()]", {"n"}),
        ("n, m = 3, 4\ndef get_inputs():\n    return [n, m]", {"n", "m"}),
    ],
)
def test_a_size_is_free_where_nothing_but_the_drawing_reads_it(source, expected):
    assert free_names(source) == expected


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"overrides": (("rows", 9),)}, ""),
        ({"order": "reverse", "surroundings": "nan"}, ""),
        ({"overrides": (("width", 9),)}, "built-in sizes: width"),
        ({"parameters": "redrawn:1001"}, "parameters are redrawn:1001"),
        ({"layout": "strided"}, "the layout is strided"),
        ({"transform": "given:/tmp/x.pt"}, "lie in a file"),
    ],
)
def test_what_a_python_file_cannot_express_has_a_reason_and_json_holds_all(problem, changes, why):
    spec = replace(InputSpec("one", "targeted", 1, "ties"), **changes)
    for form in ("hidden", "get-inputs"):
        found = objection(form, problem, spec)
        assert found.startswith(why) if why and "file" not in why else why in found
        assert bool(found) == bool(why)
    assert not objection("json", problem, spec)


def test_a_scaled_problem_is_expressible_at_the_sizes_that_it_was_measured_at(problem):
    spec = InputSpec("one", "targeted", 1, "ties")
    small = replace(problem, shrunk=(("columns", 3), ("rows", 2)))
    assert not objection("hidden", small, spec)
    assert sizes(small, replace(spec, overrides=(("rows", 7),))) == {"columns": 3, "rows": 7}
    inside = replace(problem, shrunk=(("@18:24", 3),))
    assert "built-in sizes: @18:24" in objection("hidden", inside, spec)


def test_hidden_tests_need_the_number_that_the_benchmark_finds_them_by(problem):
    spec = InputSpec("one", "targeted", 1, "ties")
    for other in (replace(problem, path="/x/Scaled.py"), replace(problem, level=0)):
        assert "by level and number" in objection("hidden", other, spec)
        assert not objection("get-inputs", other, spec)


def test_conditions_of_a_run_are_told():
    spec = InputSpec("one", "shape", 1, order="reverse", surroundings="packed")
    assert conditions(spec) == "thread order reverse, surroundings packed"
    assert conditions(InputSpec("one", "shape", 1)) == ""


@pytest.mark.parametrize(
    ("group", "overrides", "expected"),
    [
        ("official", (), "draws of the device"),
        ("targeted", (), ""),
        ("protocol", (("rows", 3),), ""),
    ],
)
def test_what_was_drawn_on_a_device_is_told_to_be_drawn_otherwise(group, overrides, expected):
    spec = InputSpec("one", group, 1, overrides=overrides)
    assert conditions(spec, device_drawn=True) == expected
    assert conditions(spec) == ""


# ---- files -------------------------------------------------------------------------------------

SPECS = {
    **{name: InputSpec(name, "official", 40 + k) for k, name in enumerate(list(GROUPS)[:5])},
    HUGE: InputSpec(HUGE, "targeted", 1, "huge-3e5"),
    RAMP: InputSpec(RAMP, "targeted", 1, "ramp", parameters="redrawn:1001"),
    SHAPE: InputSpec(SHAPE, "shape", 1, overrides=(("rows", 3),), order="reverse"),
}


@pytest.fixture
def session(tmp_path, problem):
    """A finished session on the problem of the checkout."""
    store = Session.create(
        tmp_path / "s", {"problems": {problem.id: problem.digest}, "identity": "nvrtc"}
    )
    made = plan(problem.id)
    made["problem"] = problem_record(problem)
    for record in made["inputs"]:
        spec = SPECS[record["id"]]
        record |= {
            "spec": spec.to_json(),
            "shapes": shapes(problem, spec),
            "digest": expected(problem, spec),
        }
    store.write_plan(problem.id, made)
    for name in GROUPS:
        store.write_cells(problem.id, name, cell.table(cells(name, STRAYS)))
    store.close()
    return tmp_path / "s"


def run(session, folder, form, *options):
    arguments = ["--export", str(folder), "--format", form, "--choose", "greedy", "--budget", "3"]
    return invoke(["suite", str(session), *arguments, *options])


def load_hidden(path):
    """As the benchmark loads hidden tests: the text is run with these names, and called."""
    names = {"torch": torch, "__file__": str(path), "__builtins__": __builtins__}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names["get_hidden_inputs"]()


def test_hidden_tests_load_as_the_benchmark_loads_them(session, checkout, problem, capsys):
    folder = checkout / "hidden_tests"
    assert run(session, folder, "hidden") == 0
    printed = " ".join(capsys.readouterr().out.split())
    path = folder / "level1" / "7_hidden.py"
    configs = load_hidden(path)
    # Greed chose three; one redraws the parameters, which are the benchmark's.
    assert [digest(values) for values in configs] == [
        expected(problem, SPECS[HUGE]),
        expected(problem, SPECS[SHAPE]),
    ]
    model = load(problem).build_model()
    assert all(torch.isfinite(model(values[0])).all() for values in configs)
    assert f"left out: {problem.id} {RAMP}: parameters are redrawn:1001" in printed
    assert f"without its thread order reverse: {problem.id} {SHAPE}" in printed
    assert "2 inputs, which detect 5 mutants" in printed


def test_a_hidden_test_needs_neither_the_package_nor_the_text_of_the_problem(
    session, checkout, problem, tmp_path
):
    folder = checkout / "hidden_tests"
    assert run(session, folder, "hidden") == 0
    path = folder / "level1" / "7_hidden.py"
    text = path.read_text()
    lines = [line.strip() for line in PROBLEM.splitlines() if len(line.strip()) > 12]
    assert not [line for line in lines if line in text and not line.startswith("import")]
    script = (
        "import sys; sys.modules['kernelassay'] = None\n"
        "import builtins, torch\n"
        f"names = {{'torch': torch, '__file__': {str(path)!r}, '__builtins__': vars(builtins)}}\n"
        f"exec(compile(open({str(path)!r}).read(), 'x', 'exec'), names)\n"
        "print(len(names['get_hidden_inputs']()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "2"


def test_text_appended_to_a_problem_gives_its_inputs_in_turn(session, problem, tmp_path):
    assert run(session, tmp_path / "out", "get-inputs") == 0
    (path,) = (tmp_path / "out").glob("*_get_inputs.py")
    names: dict = {}
    exec(compile(PROBLEM + path.read_text(), "<string>", "exec"), names)
    wanted = [expected(problem, SPECS[name]) for name in (HUGE, SHAPE)]
    found = []
    for seed in (5, 5, 6, 7):
        torch.manual_seed(seed)
        found.append(digest(names["get_inputs"]()))
    assert found == [*wanted, *wanted]
    # Names of the problem that the text also uses are still the problem's.
    assert issubclass(names["Transform"], torch.nn.Module)
    assert names["made"](9) == 9


def test_specs_come_back_from_json(session, problem, tmp_path):
    assert run(session, tmp_path / "out", "json") == 0
    (path,) = (tmp_path / "out").glob("*.json")
    data = json.loads(path.read_text())
    specs = [InputSpec.from_json(one["spec"]) for one in data["inputs"]]
    assert specs == [SPECS[name] for name in (HUGE, SHAPE, RAMP)]
    assert read_suite(path, problem) == tuple(specs)
    assert [one["digest"] for one in data["inputs"]] == [expected(problem, spec) for spec in specs]
    assert data["problem"]["digest"] == problem.digest
    assert data["inputs"][2]["alone"] == ["ad06"]


@pytest.mark.parametrize("form", FORMATS)
def test_the_report_says_of_every_chosen_input_what_it_is_for(session, tmp_path, form):
    assert run(session, tmp_path / "out", form) == 0
    report = (tmp_path / "out" / REPORT).read_text()
    for name in (HUGE, SHAPE, RAMP):
        assert f"**{name}**: detects" in report
    assert "alone: `ad06` fp16-load-temp: " in report
    assert ("LEFT OUT: parameters are redrawn:1001" in report) == (form != "json")


def test_a_suite_can_be_chosen_among_what_a_format_expresses(session, problem, tmp_path, capsys):
    assert run(session, tmp_path / "out", "get-inputs", "--expressible", "get-inputs") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "left out" not in printed
    assert "some fit input that can be expressed as get-inputs detects 83.3% (5/6)" in printed
    assert "not to choose from: 1 inputs: get-inputs cannot express it: parameters are" in printed


def test_what_was_written_is_in_the_json_document(session, problem, tmp_path, capsys):
    assert run(session, tmp_path / "out", "get-inputs", "--json") == 0
    (written,) = json.loads(capsys.readouterr().out)["data"]["exported"]["suites"]
    assert [one["input"] for one in written["inputs"]] == [HUGE, SHAPE]
    assert set(written["left_out"]) == {RAMP}
    assert written["detected"] == 5


def test_only_files_of_an_earlier_export_are_written_over(session, tmp_path, capsys):
    folder = tmp_path / "out"
    assert run(session, folder, "hidden") == 0
    assert run(session, folder, "hidden") == 0
    path = folder / "level1" / "7_hidden.py"
    assert MARK in path.read_text()
    path.write_text("def get_hidden_inputs():\n    return []\n")
    (folder / REPORT).unlink()
    assert run(session, folder, "hidden") == 1
    assert "was not written by this command" in capsys.readouterr().err
    assert not (folder / REPORT).exists()


@pytest.mark.parametrize("name", ["level1/7_hidden.py", REPORT])
def test_a_folder_in_the_place_of_a_file_is_left_alone(session, tmp_path, name, capsys):
    (tmp_path / "out" / name).mkdir(parents=True)
    assert run(session, tmp_path / "out", "hidden") == 1
    assert f"{name} is there" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(session, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(session, tmp_path / "file" / "out", "json") == 1
    assert "cannot write" in capsys.readouterr().err


def test_two_problems_of_one_number_are_not_written_over_each_other(session, problem, tmp_path):
    store = Session.open(session)
    asked = Asked(budget=3)
    pools = pools_of(store, asked)
    suites = analyse(store, pools, asked).suites
    twin = replace(problem, id="other/7_Scaled")
    asked_for = iter([problem, twin])
    with pytest.raises(UsageError, match="would be written for other/7_Scaled"):
        export(2 * pools, 2 * suites, "hidden", tmp_path / "out", lambda plan: next(asked_for))
    assert not (tmp_path / "out").exists()


def test_a_problem_that_changed_since_it_was_measured_is_not_exported(
    session, checkout, problem, tmp_path, capsys
):
    path = checkout / "KernelBench" / "level1" / "7_Scaled.py"
    path.write_text(PROBLEM + "\n# another text\n")
    try:
        assert run(session, tmp_path / "out", "hidden") == 1
    finally:
        path.write_text(PROBLEM)
    assert "the problem file changed" in capsys.readouterr().err


def test_a_suite_of_which_nothing_can_be_expressed_is_an_error(session, tmp_path, capsys):
    arguments = ["--choose", "exact", "--budget", "1"]
    assert run(session, tmp_path / "out", "hidden", *arguments) == 0
    store = Session.open(session)
    made = store.read_plan("kernelbench-1/7_Scaled")
    for record in made["inputs"]:
        record["spec"]["layout"] = "strided"
    store.write_plan("kernelbench-1/7_Scaled", made)
    assert run(session, tmp_path / "other", "hidden", *arguments) == 4
    assert "no input of any suite" in capsys.readouterr().err


def test_a_file_says_which_of_its_inputs_a_gpu_run_drew_itself(session, problem, tmp_path, capsys):
    manifest = json.loads((session / "manifest.json").read_text())
    manifest["cuda"] = {"draw": "device", "tf32": False}
    (session / "manifest.json").write_text(json.dumps(manifest))
    assert run(session, tmp_path / "out", "hidden", "--choose", "smoothed", "--budget", "8") == 0
    printed = capsys.readouterr().out
    assert f"without its draws of the device: {problem.id} official-0" in printed
    assert f"draws of the device: {problem.id} {HUGE}" not in printed
    text = (tmp_path / "out" / "level1" / "7_hidden.py").read_text()
    assert "measured under draws of the device" in text


def test_a_problem_without_a_file_is_named(session, problem, tmp_path, capsys):
    store = Session.open(session)
    other = "kernelbench-1/8_Other"
    made = store.read_plan(problem.id)
    made["problem"] = {**made["problem"], "id": other, "path": "/nowhere/8_Other.py"}
    store.write_plan(other, made)
    for name in GROUPS:
        store.write_cells(other, name, store.read_cells(problem.id, name))
    manifest = json.loads((session / "manifest.json").read_text())
    manifest["problems"][other] = "d"
    (session / "manifest.json").write_text(json.dumps(manifest))
    assert run(session, tmp_path / "out", "hidden") == 1
    assert f"{other} comes from a KernelBench checkout" in capsys.readouterr().err
    made["problem"] = {**made["problem"], "path": problem.path}
    for record in made["inputs"]:
        record["spec"]["layout"] = "strided"
    store.write_plan(other, made)
    assert run(session, tmp_path / "out", "hidden") == 0
    assert f"no file: {other}: no input of its suite" in capsys.readouterr().out
    assert f"## {other}" in (tmp_path / "out" / REPORT).read_text()


EVAL = """
import a_library_that_is_not_there

def load_hidden_inputs(path):
    names = {"torch": torch, "__file__": path, "__builtins__": __builtins__}
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), names)
    return names["get_hidden_inputs"]()
"""
VALIDATION = """
def validate_hidden_inputs(problem, path):
    return LIMIT, 2 - LIMIT, ["Config 2: NaN"] * (2 - LIMIT)
"""


@pytest.mark.parametrize("valid", [2, 1])
def test_hidden_tests_are_tried_with_the_functions_of_a_checkout(
    session, checkout, tmp_path, monkeypatch, capsys, valid
):
    assert run(session, tmp_path / "out", "hidden") == 0
    capsys.readouterr()
    for name, text in (
        ("src/eval.py", EVAL),
        ("scripts/generate_hidden_inputs.py", VALIDATION.replace("LIMIT", str(valid))),
    ):
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text(text)
    arguments = [str(SCRIPT), str(checkout), str(tmp_path / "out"), str(session)]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.syspath_prepend(SCRIPT.parent)
    if valid == 2:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    else:
        with pytest.raises(SystemExit):
            runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:4] == ["7_Scaled", "2", str(valid), "2"]
    assert lines[-1] == f"1 modules, 2 inputs loaded, {valid} valid for the reference"


@pytest.mark.parametrize("options", [["--export", "x"], ["--format", "json"]])
def test_a_folder_and_a_format_go_together(session, options, capsys):
    assert invoke(["suite", str(session), *options]) == 1
    assert "go together" in capsys.readouterr().err
