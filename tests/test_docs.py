"""The documentation agrees with the code it describes."""

import ast
import json
import re
import shlex
from dataclasses import fields
from pathlib import Path

import click
import pytest

import kernelassay.cli
from kernelassay import docs, errors
from kernelassay.analysis.anatomy import Anatomy, Rows
from kernelassay.analysis.audit import AuditResult
from kernelassay.analysis.explain import Explanation, Killer, ProtocolVerdict
from kernelassay.analysis.score import Buckets, ProtocolScore
from kernelassay.cell import OUTCOMES, SCHEMA, VIEWS, Cell, table
from kernelassay.cli import INTERNAL, INTERRUPTED, selection
from kernelassay.execute.cpu.device import PATTERNS
from kernelassay.execute.cpu.layout import FINDINGS
from kernelassay.illusion import trials
from kernelassay.inputs import InputSpec
from kernelassay.mutation import FAMILIES, RULES
from kernelassay.oracle import LADDER, Verdict
from kernelassay.session import FORMAT, MUTANT_FIELDS, Session
from kernelassay.synthesis.suites import Suites

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
README = (ROOT / "README.md").read_text()
SESSION = (REFERENCE / "session.md").read_text()
SEMANTICS = (ROOT / "docs" / "explanation" / "semantics.md").read_text()
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(ROOT.glob("docs/**/*.md")))
}


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def coded(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)))


def command_lines(text: str) -> list[list[str]]:
    lines = [line for block in fenced(text, "sh") for line in block.splitlines()]
    inline = [code for code in coded(text) if code.startswith("kernelassay ")]
    return [
        words for line in (*lines, *inline) if (words := shlex.split(line, comments=True)) != []
    ]


@pytest.mark.parametrize("name", docs.PAGES)
def test_a_generated_page_is_what_the_code_makes_today(name):
    assert (REFERENCE / name).read_text() == docs.PAGES[name](), "run: python -m kernelassay.docs"


def test_every_rule_has_its_section_with_a_change_to_see():
    page = docs.rules_page()
    sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", page, re.S | re.M))
    assert list(sections) == [
        rule.id for family in FAMILIES for rule in RULES if rule.family == family
    ]
    for name, section in sections.items():
        (example,) = fenced(section, "diff")
        assert re.search(r"^[-+]", example, re.M), name


COMMANDS = dict(docs.commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_says_what_it_is(name):
    command = COMMANDS[name]
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.opts


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_that_a_page_names_exists(page):
    for program, *words in command_lines(PAGES[page]):
        if program != "kernelassay" or not words:
            continue
        if words[0].startswith("-"):
            assert words[0] in ("--help", "--version")
            continue
        named = " ".join(words[:2])
        named = named if named in COMMANDS else words[0]
        assert named in COMMANDS, words
        known = {name for p in COMMANDS[named].params for name in p.opts}
        assert {word for word in words[1:] if word.startswith("--")} <= known, words


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_that_a_page_names_exists(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^    make (\S+)|`make (\S+)`", PAGES[page], re.MULTILINE))
    assert {a or b for a, b in named} <= targets


def test_the_readme_opens_with_the_two_commands():
    assert re.findall(r"^    make (\w+)", README, re.MULTILINE) == ["audit", "test"]
    assert README.index("make test") < README.index("## What came out")
    assert README.index("<!-- result:start -->") < README.index("<!-- result:end -->")


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        target, _, anchor = link.partition("#")
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), link
        headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
        assert not anchor or anchor in {h.lower().replace(" ", "-") for h in headings}, link


def test_every_finding_and_all_surroundings_are_explained():
    assert {*FINDINGS, *PATTERNS} <= coded(SEMANTICS)


def test_every_exit_code_is_explained():
    kinds = (getattr(errors, name) for name in dir(errors))
    codes = {kind.exit_code for kind in kinds if hasattr(kind, "exit_code")}
    assert set(docs.EXIT_CODES) == codes | {0, INTERNAL, INTERRUPTED}
    for code, meaning in docs.EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in README


def test_every_column_of_a_cell_is_documented():
    cells = SESSION.split("## Cells")[1].split("## Trials")[0]
    documented = set(re.findall(r"^\| `([^`]+)` \|", cells, re.MULTILINE))
    columns = {
        next((n.removeprefix(f"{v}_") for v in VIEWS if n.startswith(f"{v}_")), n)
        for n in SCHEMA.names
    }
    assert documented == columns
    assert {f"{view}_" for view in VIEWS} | set(OUTCOMES) <= coded(SESSION)


def test_every_column_of_a_trial_is_documented():
    described = SESSION.split("## Trials")[1]
    rows = re.findall(r"^\| (`.+?`) \|", described, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    views = tuple(f"{view}_" for view in trials.VIEWS)
    assert documented == {n for n in trials.SCHEMA.names if not n.startswith(views)}
    assert set(views) <= coded(described)


@pytest.mark.parametrize(
    ("module", "functions"),
    [
        ("plan.py", {"refused_plan", "problem_record", "_call_record"}),
        ("gate_inputs.py", {"input_record"}),
        ("population.py", {"_identified", "mutant_records"}),
        ("campaign.py", {"manifest"}),
        ("host.py", {"machine"}),
    ],
)
def test_every_field_of_a_plan_and_a_manifest_is_documented(module, functions):
    tree = ast.parse((Path(docs.__file__).parent / module).read_text())
    found = [n for n in ast.walk(tree) if getattr(n, "name", "") in functions]
    keys = {
        key.value
        for function in found
        for node in ast.walk(function)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    assert len(found) == len(functions)
    assert keys <= coded(SESSION)
    assert set(InputSpec.__slots__) <= coded(SESSION)
    assert f"format `{FORMAT}`" in SESSION


def test_every_kind_of_json_document_has_an_example_in_its_envelope():
    page = (REFERENCE / "json.md").read_text()
    sources = Path(kernelassay.cli.__file__).parent.glob("*.py")
    kinds = {
        k for path in sources for k in re.findall(r'emit_json\(\s*"([\w-]+)"', path.read_text())
    }
    examples = {e["schema"]: e for e in map(json.loads, fenced(page, "json"))}
    assert set(examples) == {f"kernelassay/{kind}" for kind in kinds}
    for example in examples.values():
        assert set(example) == {"schema", "schema_version", "version", "data"}
        assert example["schema_version"] == selection.SCHEMA
    audit = examples["kernelassay/audit"]["data"]
    assert set(audit) == {field.name for field in fields(AuditResult)}
    assert set(audit["account"]) == {field.name for field in fields(Buckets)}
    assert set(audit["scores"][0]) == {field.name for field in fields(ProtocolScore)}
    anatomy = examples["kernelassay/anatomy"]["data"]
    assert set(anatomy) == {field.name for field in fields(Anatomy)}
    assert set(anatomy["rows"]) == {field.name for field in fields(Rows)}
    suites = examples["kernelassay/suite"]["data"]
    assert set(suites) == {field.name for field in fields(Suites)} | {"exported"}
    explanation = examples["kernelassay/explain"]["data"]
    assert set(explanation) == {field.name for field in fields(Explanation)}
    assert set(explanation["protocols"][0]) == {field.name for field in fields(ProtocolVerdict)}
    assert set(explanation["killers"][0]) == {field.name for field in fields(Killer)}
    assert set(examples["kernelassay/replay"]["data"]["stored"]) == set(Cell.__slots__)


def test_the_example_of_a_problem_is_what_the_command_prints(capsys):
    page = (REFERENCE / "json.md").read_text()
    example = next(e for e in fenced(page, "json") if '"kernelassay/problems"' in e)
    assert kernelassay.cli.invoke(["problems", "suite/relu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(example)


def test_every_finding_is_explained():
    assert {*FINDINGS, "order-dependent"} <= coded(SEMANTICS)


def test_every_kind_of_lint_finding_is_explained():
    from kernelassay.lint import KINDS

    page = (ROOT / "docs" / "explanation" / "lint.md").read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []


def test_the_mutant_that_the_readme_shows_exists():
    from kernelassay.execute.bench import ProblemBench
    from kernelassay.mutation import mutants
    from kernelassay.suite import suite_problems

    (shown,) = set(re.findall(r"--show (\w+)", README)) & set(
        re.findall(r"replay \S+ (\w+)", README)
    )
    relu = next(p for p in suite_problems() if p.id == "suite/relu")
    (call,) = ProblemBench(relu).calls
    source = call.sources["optimised"]
    found = mutants(source, problem=relu.id, call=call.id, style="optimised").mutants
    assert shown in {mutant.id for mutant in found}


def test_the_query_of_the_readme_finds_a_survivor(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    session = Session.create(tmp_path / "sessions" / "quick", {"problems": {}})
    blank = dict.fromkeys(MUTANT_FIELDS, "")
    mutant_records = [
        {**blank, "id": name, "rule": "tail-drop", "line": 7} for name in ("a1", "b2", "c3")
    ]
    session.write_plan(
        "suite/p",
        {"problem": {"id": "suite/p"}, "refused": "", "mutants": mutant_records, "inputs": []},
    )
    session.write_tables()
    strays = {
        "a1": {"official-0": 1e-3, "spike": 0.5},  # survives the official inputs
        "b2": {"official-0": 0.7, "spike": 0.7},  # detected
        "c3": {"official-0": 1e-3, "spike": 1e-3},  # never beyond
    }
    for name in ("official-0", "spike"):
        session.write_cells("suite/p", name, table(cell(m, name, strays[m][name]) for m in strays))
    session.close()
    (program,) = fenced(README, "python")
    exec(compile(program, "README.md", "exec"), {})
    printed = capfd.readouterr().out
    assert "a1" in printed and "tail-drop" in printed
    assert "b2" not in printed and "c3" not in printed


def cell(candidate: str, input_id: str, stray: float) -> Cell:
    verdict = Verdict(
        count=1,
        critical_tolerance=stray,
        critical_max_rule=stray,
        max_abs=stray,
        max_rel=stray,
        max_ulp=0.0,
        past=tuple(0 for _ in LADDER),
        out_nan=0,
        out_inf=0,
        ref_nan=0,
        ref_inf=0,
        nan_matches=True,
        inf_matches=True,
    )
    return Cell(candidate, input_id, "ok", "", True, True, 0, (), "", verdict, verdict, verdict)


def test_the_pages_are_written_as_they_are_made(tmp_path):
    docs.write_pages(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        name: page() for name, page in docs.PAGES.items()
    }
