"""The command line names what is wrong, where, and what to do, and ends with its exit codes."""

import json
import subprocess
import sys

import pytest

from kernelassay import __version__
from kernelassay.cli import app, invoke


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["problems", "suite/softmax_row"], "suite/softmax_rows"),
        (["mutants", "suite/relo"], "suite/relu"),
        (["rules", "guard-delet"], "guard-delete"),
        (["run", "--rules", "barrier-delet", "--session", "unused"], "barrier-delete"),
        (["run", "--style", "splitt", "--session", "unused"], "split"),
        (["mutants", "suite/relu", "--style", "optimized"], "optimised"),
    ],
)
def test_an_unknown_name_gets_the_nearest_names(arguments, nearest, capsys):
    assert invoke(arguments) == 1
    assert nearest in capsys.readouterr().err


def test_an_unknown_protocol_gets_the_nearest_names(tmp_path, capsys):
    from kernelassay.session import Session

    Session.create(tmp_path / "s", {"problems": {}}).close()
    assert invoke(["audit", str(tmp_path / "s"), "--protocol", "kernelbench-v1"]) == 1
    assert "kernelbench-v0.1" in capsys.readouterr().err


def test_a_style_for_a_device_is_refused_by_a_run_on_the_cpu(capsys):
    assert invoke(["run", "--style", "tensor_core", "--session", "unused"]) == 1
    assert "cuda" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["problems", "run"])
def test_a_selection_that_matches_nothing_ends_with_4(command, capsys):
    assert invoke([command, "nothing-*"]) == 4
    assert "nothing-*" in capsys.readouterr().err


def test_level_without_a_checkout_is_a_usage_error(capsys):
    assert invoke(["problems", "--level", "1"]) == 1
    assert "--kernelbench" in capsys.readouterr().err


def test_a_directory_that_is_no_checkout_is_named(tmp_path, capsys):
    assert invoke(["problems", "--kernelbench", str(tmp_path), "--level", "1"]) == 1
    assert str(tmp_path) in capsys.readouterr().err


def test_auditing_what_is_no_session_says_so(tmp_path, capsys):
    assert invoke(["audit", str(tmp_path)]) == 1
    assert "not a session" in capsys.readouterr().err


def test_an_unknown_option_is_a_usage_error(capsys):
    assert invoke(["audit", "--no-such-option"]) == 1
    assert "no-such-option" in capsys.readouterr().err


def test_an_internal_defect_ends_with_70(monkeypatch, capsys):
    def explode(*_args, **_kwargs):
        raise ZeroDivisionError("defect")

    monkeypatch.setattr("kernelassay.cli.inspect.selected_rules", explode)
    assert invoke(["rules"]) == 70
    assert "defect" in capsys.readouterr().err


def test_ctrl_c_ends_with_130_and_says_how_to_resume(monkeypatch, capsys):
    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("kernelassay.cli.inspect.selected_rules", interrupt)
    assert invoke(["rules"]) == 130
    assert "resume" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["problems"], ["rules"], ["rules", "boundary"]])
def test_json_is_one_versioned_document(arguments, capsys):
    assert invoke([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == f"kernelassay/{arguments[0]}"
    assert document["version"] == __version__
    assert document["data"]


def test_the_catalogue_has_at_least_150_cuda_rules_each_with_an_example(capsys):
    assert invoke(["rules", "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)["data"]
    assert len(rules) >= 150
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert {rule["family"] for rule in rules} == {
        "arithmetic",
        "indexing",
        "semantic",
        "boundary",
        "synchronization",
        "precision",
    }
    assert all(rule["examples"] and rule["bug"] for rule in rules)


def test_rules_of_another_language_are_asked_for_by_its_name(capsys):
    from kernelassay.mutation import LANGUAGES, rules_of

    assert invoke(["rules", "--language", "triton", "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)["data"]
    assert [rule["id"] for rule in rules] == [rule.id for rule in rules_of("triton")]
    assert {rule["language"] for rule in rules} == {"triton"}
    (option,) = (p for p in app.commands["rules"].params if p.name == "language")
    assert tuple(option.type.choices) == LANGUAGES


def test_what_rules_did_in_a_session_is_of_cuda_rules(capsys):
    assert invoke(["rules", "--language", "triton", "--session", "none"]) == 1
    assert "CUDA" in capsys.readouterr().err


TRITON = """\
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2.0 * tl.load(x_ptr + i, mask=i < n), mask=i < n)
"""


def test_mutants_of_a_triton_module_are_listed_and_shown(capsys, tmp_path):
    path = tmp_path / "double.py"
    path.write_text(TRITON)
    select = ["--kernel", str(path), "--rules", "triton-drop-scale"]
    assert invoke(["mutants", *select, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["data"]
    assert (row["problem"], row["rule"], row["line"]) == ("double", "triton-drop-scale", 8)
    assert invoke(["mutants", *select, "--show", row["id"]]) == 0
    shown = capsys.readouterr().out
    assert "-    tl.store(y_ptr + i, 2.0 * tl.load(x_ptr + i, mask=i < n), mask=i < n)" in shown
    assert "+    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)" in shown
    assert invoke(["mutants", "--kernel", str(path), "--source"]) == 0
    assert capsys.readouterr().out == f"# double\n{TRITON}\n"


@pytest.mark.parametrize("more", [["suite/relu"], ["--style", "plain"]])
def test_a_triton_module_takes_no_problem_and_no_style(capsys, tmp_path, more):
    path = tmp_path / "double.py"
    path.write_text(TRITON)
    assert invoke(["mutants", "--kernel", str(path), *more]) == 1
    assert "stands for itself" in capsys.readouterr().err


def test_mutants_show_prints_a_unified_diff(capsys):
    assert invoke(["mutants", "suite/relu", "--json"]) == 0
    mutants = json.loads(capsys.readouterr().out)["data"]
    assert invoke(["mutants", "suite/relu", "--show", mutants[0]["id"]]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("---")
    assert "\n-" in shown
    assert "\n+" in shown
    assert invoke(["mutants", "suite/relu", "--show", "feedfacecafe"]) == 1


def test_a_missing_compiler_is_named_with_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KERNELASSAY_CXX", str(tmp_path / "no-such-compiler"))
    assert invoke(["run", "suite/relu", "--session", str(tmp_path / "s")]) == 1
    assert "compiler" in capsys.readouterr().err


def test_the_vacuity_of_softmax_grows_with_its_length(capsys):
    arguments = ["vacuity", "suite/softmax_rows", "--json"]
    assert invoke([*arguments, "--set", "features=64", "--set", "features=4096"]) == 0
    short, long = json.loads(capsys.readouterr().out)["data"]
    assert 0.3 < short["undetectable"] < 0.5
    assert 20 < long["undetectable"] < 30
    assert long["zeros_pass"] and long["noise_passes"]
    assert long["noise_error"] < 1e-2 < short["noise_error"]
    assert not long["copy_passes"]  # of inputs far larger than a softmax
    assert invoke(["vacuity", "suite/softmax_rows", "--set", "nonsense=3"]) == 1
    assert "features" in capsys.readouterr().err


def test_vacuity_tells_whether_a_copy_passes_and_where_noise_means_nothing(capsys):
    assert invoke(["vacuity", "suite/relu", "suite/mse_loss", "--json"]) == 0
    relu, loss = json.loads(capsys.readouterr().out)["data"]
    assert (relu["copy_passes"], relu["copy_error"]) == (True, 0.0)  # of inputs from zero to one
    assert (relu["zeros_pass"], relu["noise_passes"]) == (False, False)
    assert (loss["copy_passes"], loss["noise_passes"]) == (None, None)  # one number
    assert invoke(["vacuity", "suite/relu", "suite/mse_loss"]) == 0
    assert "a copied input" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        ("vacuity", "suite/relu", "--tolerance", "nan"),
        ("ceiling", "suite/relu", "--up-to", "nan"),
        ("audit", "somewhere", "--fail-under", "nan"),
        ("illusion", "run", "--seconds", "nan"),
        ("illusion", "score", "--scale", "nan"),
        ("audit", "somewhere", "--tolerance", "nan"),
        ("compare", "somewhere", "--protocol", "kernelbench", "--sweep", "--at", "nan"),
    ],
)
def test_nan_is_no_number_of_an_option(options, capsys):
    assert invoke([*options]) == 1
    assert "NaN is no number" in capsys.readouterr().err


def test_every_command_and_option_has_help():
    for name, command in app.commands.items():
        assert command.help, name
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "jobs":
                assert parameter.help or parameter.name in ("tolerance", "level"), parameter.name


def test_two_files_of_one_name_are_told_apart_or_refused(tmp_path, capsys):
    from kernelassay.suite import suite_problems

    source = next(p.source for p in suite_problems() if p.id == "suite/relu")
    arguments = ["problems"]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.py").write_text(source)
        arguments += ["--problem", str(tmp_path / folder / "x.py")]
    assert invoke(arguments) == 1
    assert "file/x" in capsys.readouterr().err


def test_a_run_without_a_mutant_has_nothing_to_test(tmp_path, capsys):
    arguments = ["run", "suite/relu", "--quick", "--rules", "syncwarp-delete"]
    assert invoke([*arguments, "--session", str(tmp_path / "s")]) == 4
    assert "no mutant" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["60", "-1", "nan"])
def test_a_threshold_out_of_range_is_a_usage_error(value, tmp_path):
    assert invoke(["audit", str(tmp_path), "--fail-under", value]) == 1


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "kernelassay", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("kernelassay, version")
