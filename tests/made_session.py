"""A tiny made session with whole plans: mutants of one kernel on a few inputs."""

from pathlib import Path

import numpy as np

from kernelassay import cell
from kernelassay.execute.outputs import without_output
from kernelassay.kernel import Finding
from kernelassay.protocols import V01
from kernelassay.session import Session
from tests.test_score import REFERENCE, result

PRINTED = Path(__file__).parent / "printed"
"""What commands print of such a session."""

OFFICIAL = V01.inputs
SOURCE = "line one\nline two\nline three\n"
GROUPS = {
    **dict.fromkeys(OFFICIAL, "official"),
    "huge-3e5-s1": "targeted",
    "ramp-s1": "targeted",
    "rows=3/official": "shape",
}
TRANSFORMS = {"huge-3e5-s1": "huge-3e5", "ramp-s1": "ramp"}
ELEMENTS = {"rows=3/official": 3}
SHAPE = "rows=3/official"

# How far a mutant strays, by input: 0 is the right output. A string is an outcome.
STRAYS = {
    "aa01": dict.fromkeys(GROUPS, 1.0),  # wrong everywhere
    "aa02": {"huge-3e5-s1": 1.0, SHAPE: 1.0},  # two groups
    "ab03": {"huge-3e5-s1": 1.0},  # one input, hence minimal
    "ab04": {"huge-3e5-s1": 2.0},  # the same input
    "ac05": {SHAPE: cell.TIMEOUT},  # stops, on the shape alone
    "ad06": {**dict.fromkeys(OFFICIAL, 1e-3), "ramp-s1": 1.0},  # tolerated at 1e-2, not at 1e-4
    "ae07": {},  # unobserved
    "af08": {},  # flagged only
}
RACE = (Finding("race-shared", 1, "thread 3"),)
RULES = {"aa02": "tail-drop", "ad06": "fp16-load-temp"}


def record(name, status="distinct", **fields):
    return {
        "id": name,
        "call": "k00",
        "style": "optimised",
        "rule": RULES.get(name, "guard-delete"),
        "family": "precision" if name == "ad06" else "boundary",
        "line": 2,
        "edits": [[9, 17, f"edit {name}"]],
        "status": status,
        "unsupported": "",
        "reason": "",
        "twin": None,
        **fields,
    }


UNRUN = [
    record("b001", "stillborn", reason="expected a ;"),
    record("b002", "equivalent"),
    record("b003", "duplicate", twin="aa01"),
    record("b004", unsupported="inline PTX"),
]


def plan(problem="suite/p", strays=STRAYS, official_shape=True, benign=(), refused=()):
    return {
        "problem": {"id": problem, "official_shape": official_shape},
        "refused": "",
        "calls": [
            {
                "id": "k00",
                "template": "softmax",
                "styles": ["optimised"],
                "not_admitted": {},
                "sources": {"optimised": SOURCE},
            }
        ],
        "inputs": [
            {
                "id": name,
                "group": group,
                "spec": {
                    "transform": TRANSFORMS.get(name, "official"),
                    "overrides": {"rows": 3} if group == "shape" else {},
                    "order": "forward",
                    "surroundings": "finite",
                },
                "shapes": [[ELEMENTS.get(name, 12)], [2, 2]],
                "valid": name not in refused,
                "reason": "the references differ" if name in refused else "",
                # At 1e-4 a correct kernel strays too far on the ramp.
                "benign_worst": 1e-3 if name == "ramp-s1" else 0.0,
                "reference_error": 0.0,
                "style_worst": {},
            }
            for name, group in GROUPS.items()
        ],
        "mutants": [*map(record, strays), *UNRUN],
        "benign": [{"id": name, "call": "k00", "unsupported": ""} for name in benign],
    }


def cells(input_id, strays=STRAYS, implied=frozenset(), lost=frozenset()):
    yield result("original/k00/optimised", input_id, infected=True)
    yield result("control/zeros", input_id, -REFERENCE)
    yield result("control/forced-failure", input_id, 10.0)
    yield result("control/nan", input_id, np.nan)
    for name, row in strays.items():
        error = row.get(input_id, 0.0)
        if (name, input_id) in implied:
            yield cell.Cell.implied(name, input_id, "witnessed on an earlier input")
        elif (name, input_id) in lost:
            yield without_output(name, input_id, cell.INFRASTRUCTURE, "out of memory")
        elif isinstance(error, str):
            yield result(name, input_id, outcome=error)
        else:
            yield result(name, input_id, error, findings=RACE if name == "af08" else ())


def made(root, problems=("suite/p",), strays=STRAYS, benign=None, refused=(), **options):
    """A finished session of equal problems with the given strays by mutant and input.

    So have ``benign`` variants; on ``refused`` inputs nothing was measured.
    """
    variants = benign or {}
    store = Session.create(root, {"problems": dict.fromkeys(problems, "d"), "identity": "nvrtc"})
    for problem in problems:
        store.write_plan(problem, plan(problem, strays, benign=variants, refused=refused))
        for name in filter(lambda name: name not in refused, GROUPS):
            measured = cells(name, {**variants, **strays}, **options)
            store.write_cells(problem, name, cell.table(measured))
    store.close()
    return store
