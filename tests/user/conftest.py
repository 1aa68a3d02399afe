from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelassay.campaign import identity_backend
from kernelassay.execute.toolbox import CpuToolbox
from kernelassay.execute.worker import Worker
from kernelassay.mutation import select
from kernelassay.plan import PlanOptions, make_plan
from kernelassay.problem import read_problem
from kernelassay.user.kernel_file import read_kernel


class Desk:
    """Plans problems in one worker, without a campaign around them."""

    def __init__(self, cache: Path) -> None:
        self.tools = CpuToolbox.at(cache)
        self.worker = Worker(self.tools)

    def plan(self, folder: Path, problem: str, kernel: str = "", *, inputs: int = 2, rules=()):
        """The plan of a problem, with a kernel's text or without."""
        path = folder / "problem.py"
        path.write_text(problem)
        found = read_problem(path)
        if kernel:
            (folder / "kernel.cu").write_text(kernel)
            found = replace(found, kernel=read_kernel(folder / "kernel.cu"))
        chosen = select(rules or ["barrier-delete"])
        options = PlanOptions(chosen, True, identity_backend(), max_inputs=inputs)
        return make_plan(found, self.worker, self.tools, options)


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("images"))
    yield made
    made.worker.close()
