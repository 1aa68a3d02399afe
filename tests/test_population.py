"""Facts about the kernels that stand beside the mutants of a problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelassay.execute.bench import ProblemBench
from kernelassay.execute.serving import call_infos
from kernelassay.execute.toolbox import CpuToolbox
from kernelassay.mutation import mutants
from kernelassay.mutation.benign import BENIGN
from kernelassay.population import correct_kernels
from kernelassay.styles import DEFAULT
from kernelassay.suite import suite_problems


@pytest.mark.parametrize("name", ["suite/relu", "suite/softmax_rows"])
def test_every_benign_rewrite_and_every_other_style_is_a_benign_variant(name, tmp_path: Path):
    problem = next(p for p in suite_problems() if p.id == name)
    calls = call_infos(ProblemBench(problem))
    expected = {f"benign/{call.id}/plain" for call in calls}
    for call in calls:
        source = call.sources["optimised"]
        found = mutants(source, problem=name, call=call.id, style="optimised", rules=BENIGN)
        expected |= {f"benign/{call.id}/{m.rule}-{m.id}" for m in found.mutants if not m.twin_of}
    assert len(expected) > len(calls)
    correct = correct_kernels(name, calls, CpuToolbox.at(tmp_path), DEFAULT)
    assert {c.id for c in correct.benign} | {row[0] for row in correct.unbuilt} >= expected
    alone = correct_kernels(name, calls, CpuToolbox.at(tmp_path), DEFAULT, rewrites=False)
    assert not {c.id for c in alone.benign} & (expected - {f"benign/{c.id}/plain" for c in calls})
