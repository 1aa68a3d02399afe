"""Facts about the kernels that stand beside the mutants of a problem."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

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


class Counted:
    """A toolbox that notes how many sources it was given to build, and builds none of them."""

    def __init__(self):
        self.given = []

    def build(self, sources):
        self.given.append(list(sources))
        return {name: SimpleNamespace(kernels=()) for name in sources}


def test_a_sample_of_the_variants_is_chosen_before_any_is_built_and_part_of_a_larger_one():
    problem = next(p for p in suite_problems() if p.id == "suite/softmax_rows")
    calls = call_infos(ProblemBench(problem))

    def chosen(sample, name=problem.id, rewrites=True):
        tools = Counted()
        correct = correct_kernels(name, calls, tools, DEFAULT, rewrites, sample)
        assert tools.given == [[c.id for c in correct.benign], list(correct.originals)]
        return [c.id for c in correct.benign]

    everything = chosen(None)
    assert len(everything) > 2
    samples = [chosen(size) for size in range(1, len(everything) + 2)]
    assert [len(s) for s in samples] == [*range(1, len(everything) + 1), len(everything)]
    for few, more in itertools.pairwise(samples):
        assert few == [name for name in more if name in few]
    assert samples[-1] == everything
    # Another problem's styles have the same ids, and its sample need not have the same ones.
    first = {chosen(1, f"suite/p{n}", rewrites=False)[0] for n in range(8)}
    assert len(first) > 1
