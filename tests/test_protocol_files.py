"""A protocol of the user's own is a file; one that means nothing is an error or a plain score."""

import json

import numpy as np
import pytest

from kernelassay import cell
from kernelassay.cli import invoke
from kernelassay.errors import UsageError
from kernelassay.oracle import AcceptanceRule
from kernelassay.protocols import CURRENT, PROTOCOLS, chosen
from kernelassay.protocols.file import read
from kernelassay.session import Session
from tests.made_session import made
from tests.test_score import REFERENCE, mutant, result

OFFICIAL = tuple(f"official-{trial}" for trial in range(5))
TARGETED = "wide-s1"
ROUNDING = 1e-7


@pytest.fixture
def session(tmp_path):
    """A finished session: correct kernels round, one mutant is wrong everywhere, one elsewhere."""
    store = Session.create(tmp_path / "s", {"problems": {"suite/p": "d"}, "identity": "nvrtc"})
    inputs = [
        {
            "id": name,
            "group": "official" if name in OFFICIAL else "targeted",
            "valid": True,
            "reason": "",
            "benign_worst": 2 * ROUNDING,
            "reference_error": 0.0,
            "style_worst": {},
        }
        for name in (*OFFICIAL, TARGETED)
    ]
    call = {"id": "k00", "template": "softmax", "styles": ["optimised"], "not_admitted": {}}
    store.write_plan(
        "suite/p",
        {
            "problem": {"id": "suite/p", "official_shape": True},
            "refused": "",
            "calls": [call],
            "inputs": inputs,
            "mutants": [mutant("gross"), mutant("hidden")],
            "benign": [{"id": "benign/k00/plain", "call": "k00", "unsupported": ""}],
        },
    )
    for record in inputs:
        name = record["id"]
        cells = [
            result("original/k00/optimised", name, ROUNDING, infected=True),
            result("benign/k00/plain", name, 2 * ROUNDING),
            result("control/zeros", name, -REFERENCE),
            result("control/forced-failure", name, 2 + 2 * REFERENCE),
            result("control/nan", name, np.nan),
            result("gross", name, 1.0),
            result("hidden", name, 1.0 if name == TARGETED else ROUNDING),
        ]
        store.write_cells("suite/p", name, cell.table(cells))
    store.close()
    return tmp_path / "s"


def written(folder, text, name="own.toml"):
    path = folder / name
    path.write_text(text)
    return str(path)


def audited(session, path, capsys):
    """The exit code, the score if there is one, and what was said on standard error."""
    code = invoke(["audit", str(session), "--protocol", path, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out)["data"]["scores"][0] if code == 0 else None, said.err


def rates(score):
    return score["detection"]["rate"], score["false_rejection"]["rate"], score["originals"]["rate"]


def test_a_protocol_of_a_file_is_scored_like_any_other(session, tmp_path, capsys):
    path = written(tmp_path, 'inputs = ["official-*", "wide-s1"]\ntolerance = 1e-3\n')
    code, score, _ = audited(session, path, capsys)
    assert (code, score["protocol"], score["inputs"]) == (0, "own", 6)
    assert rates(score) == (1.0, 0.0, 0.0)
    code, score, _ = audited(session, "kernelbench", capsys)
    assert (code, rates(score)) == (0, (0.5, 0.0, 0.0))


def test_a_tolerance_of_zero_rejects_all_that_is_not_equal_to_the_last_bit(
    session, tmp_path, capsys
):
    path = written(tmp_path, 'inputs = ["official-*"]\ntolerance = 0\n')
    code, score, _ = audited(session, path, capsys)
    assert (code, rates(score)) == (0, (1.0, 1.0, 1.0))
    gate = ["audit", str(session), "--protocol", path, "--json", "--fail-under", "0.9"]
    assert invoke(gate) == 2
    assert "1 of 1 correct kernels" in capsys.readouterr().err


def test_a_protocol_that_accepts_everything_is_scored_so(session, tmp_path, capsys):
    path = written(tmp_path, 'inputs = ["*"]\ntolerance = inf\nnonfinite = "ignored"\n')
    code, score, _ = audited(session, path, capsys)
    assert (code, rates(score)) == (0, (0.0, 0.0, 0.0))
    assert score["wrong_accepted"] == {"control/nan": 1, "control/forced-failure": 1}


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("[]", "has no inputs"),
        ('["nothing-*"]', "no input of the session matches 'nothing-*'"),
        ('["official-*", "wdie-*"]', "no input of the session matches 'wdie-*'"),
        ('["official-0", "official-9"]', "inputs not measured: official-9"),
    ],
)
def test_a_protocol_with_no_inputs_is_an_error(session, tmp_path, capsys, inputs, said):
    path = written(tmp_path, f"inputs = {inputs}\ntolerance = 1e-2\n")
    code, _, error = audited(session, path, capsys)
    assert code == 1
    assert said in error
    assert "hint:" in error


def test_compare_and_explain_take_files_too(session, tmp_path, capsys):
    path = written(tmp_path, 'inputs = ["*"]\ntolerance = 0.1\n')
    pair = ["--protocol", "kernelbench", "--protocol", path]
    assert invoke(["compare", str(session), *pair, "--sweep", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    assert found["comparison"]["detection"]["second"] == {"count": 2, "total": 2, "rate": 1.0}
    assert [sweep["protocol"] for sweep in found["sweeps"]] == ["kernelbench", "own"]


def test_all_are_the_known_ones_that_a_session_can_score_and_why_not_the_others(
    session, tmp_path, capsys
):
    path = written(tmp_path, 'inputs = ["*"]\ntolerance = 0.1\n')
    asked = ["--protocol", "all", "--protocol", path, "--protocol", "llm.c"]
    assert invoke(["audit", str(session), *asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    scored = {score["protocol"] for score in found["scores"]}
    assert {"kernelbench", "llm.c", "flashinfer-bench", "own"} <= scored
    assert scored | set(found["not_scored"]) == {*(p.name for p in PROTOCOLS), "own"}
    assert "log-uniform-0" in found["not_scored"]["illusion-log-uniform"]


def test_a_tolerance_of_zero_is_explained_without_a_margin(tmp_path, capsys):
    made(tmp_path / "made")
    path = written(tmp_path, 'inputs = ["official-*"]\ntolerance = 0\n')
    for how in ([], ["--json"]):
        assert invoke(["explain", "ad06", str(tmp_path / "made"), "--protocol", path, *how]) == 0
        assert "own" in capsys.readouterr().out


def test_two_protocols_of_one_name_are_an_error(session, tmp_path, capsys):
    text = 'name = "mine"\ninputs = ["*"]\ntolerance = 0.1\n'
    first, second = (written(tmp_path, text, name) for name in ("a.toml", "b.toml"))
    pair = ["--protocol", first, "--protocol", second]
    assert invoke(["audit", str(session), *pair, "--json"]) == 1
    assert "two protocols have the name 'mine'" in capsys.readouterr().err


def test_a_file_may_not_take_the_name_of_a_known_protocol(session, tmp_path, capsys):
    path = written(tmp_path, 'name = "kernelbench"\ninputs = ["*"]\ntolerance = 0.1\n')
    for others in ([], ["--protocol", "all"]):
        command = ["audit", str(session), "--protocol", path, *others, "--json"]
        assert invoke(command) == 1
        assert "'kernelbench' is the name of a known protocol" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("inputs = [", "is no TOML"),
        ('inputs = ["*"]', "has no tolerance"),
        ('inputs = "*"\ntolerance = 1', "inputs is no list"),
        ('inputs = ["*"]\ntolerance = "1e-2"', "tolerance is no number"),
        ('inputs = ["*"]\ntolerance = nan', "a tolerance is negative or NaN"),
        ('inputs = ["*"]\ntolerance = -1e-2', "a tolerance is negative or NaN"),
        ('inputs = ["*"]\ntolerance = 1e-2\nrelative = -1e-2', "a tolerance is negative or NaN"),
        ('inputs = ["*"]\ntolerance = 1e-2\n[dtypes.float32]\ntolerance = 1', "never be used"),
        ('inputs = ["*"]\ntolerence = 1e-2', "did you mean tolerance"),
        ('inputs = ["*"]\ntolerance = 1e-2\nform = "summ"', "did you mean sum"),
        ('inputs = ["*"]\ntolerance = 1e-2\nnonfinite = "strickt"', "did you mean strict"),
        ('inputs = ["*"]\ntolerance = 1e-2\nview = "exact"', "unknown view"),
        ('inputs = ["*"]\ntolerance = 1e-2\nunfit = "run"', "did you mean runs"),
        ('inputs = ["*"]\ntolerance = 1e-2\nmatched_ratio = 95', "matched_ratio is 95"),
        ('inputs = ["*"]\ntolerance = 1e-2\ndtypes = 1', "dtypes is no table"),
        ('inputs = ["*"]\ntolerance = 1e-2\n[dtypes.float16]\nview = "seen"', "field of a dtype"),
        ('name = 1\ninputs = ["*"]\ntolerance = 1e-2', "name is no text"),
    ],
)
def test_a_file_that_is_no_protocol_says_what_and_where(tmp_path, text, said):
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as error:
        chosen([path])
    assert said in str(error.value)
    assert path in str(error.value)
    assert error.value.hint


PYTHON = """
from kernelassay.oracle import AcceptanceRule as Rule
from kernelassay.protocols import Protocol
PROTOCOL = Protocol({})
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('"own", "", "", "official-0", Rule(1e-2), {}', "inputs must be a tuple"),
        ('"own", "", "", ("official-0",), 1e-2, {}', "default must be an AcceptanceRule"),
        ('"own", "", "", ("official-0",), Rule("1e-2"), {}', "must be numbers"),
        ('"own", "", "", ("official-0",), Rule(1e-2), []', "rules must give"),
        ('"own", "", "", ("official-0",), Rule(1e-2), {"float16": 1e-2}', "rules must give"),
        ('3, "", "", ("official-0",), Rule(1e-2), {}', "must be texts"),
    ],
)
def test_a_python_file_whose_protocol_has_fields_of_other_types_says_which(
    tmp_path, arguments, said
):
    path = written(tmp_path, PYTHON.format(arguments), "own.py")
    with pytest.raises(UsageError, match=said) as error:
        chosen([path])
    assert error.value.where == path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("PROTOCOL = 1 / 0", "does not run: ZeroDivisionError"),
        ("raise SystemExit", "does not run: SystemExit"),
        ("protocol = None", "defines no PROTOCOL"),
        ("def", "does not run: SyntaxError"),
    ],
)
def test_a_python_file_that_is_no_protocol_says_what_and_where(tmp_path, text, said):
    path = written(tmp_path, text, "own.py")
    with pytest.raises(UsageError, match=said) as error:
        chosen([path])
    assert error.value.where == path


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="no such protocol file"):
        chosen([str(tmp_path / "none.toml")])


def test_a_dtype_takes_what_it_leaves_out_from_the_rest(tmp_path):
    text = (
        'inputs = ["*"]\ntolerance = 1e-4\nform = "max"\nmatched_ratio = 0.9\n'
        "[dtypes.float16]\ntolerance = 1e-2\n"
    )
    found = read(tmp_path / written(tmp_path, text))
    assert found.default == AcceptanceRule(1e-4, "max", matched_ratio=0.9)
    assert found.rule("float16") == AcceptanceRule(1e-2, "max", matched_ratio=0.9)


def test_the_rules_of_a_known_protocol_can_be_written_as_a_file(tmp_path):
    text = (
        'name = "kernelbench"\ninputs = ["official-0", "official-1", "official-2", "official-3",'
        ' "official-4"]\ntolerance = 1e-4\n[dtypes.float16]\ntolerance = 1e-2\n'
        "[dtypes.bfloat16]\ntolerance = 1e-2\n"
    )
    found = read(tmp_path / written(tmp_path, text))
    assert (found.inputs, found.default, found.rules) == (
        CURRENT.inputs,
        CURRENT.default,
        CURRENT.rules,
    )
