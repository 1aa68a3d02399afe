"""What machines must have in common for their results to be the same bytes."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelassay.execute.cuda.options import CudaOptions


@dataclass(frozen=True, slots=True)
class Likeness:
    """A machine as far as results depend on it, in ``facts``; ``machine`` is for the record only.

    The CPU's model is not among the facts, its vector instructions are: torch chooses its kernels
    by them.
    """

    host: str
    facts: dict[str, str]
    machine: dict[str, Any]


def likeness(backend: str, cuda: CudaOptions | None = None) -> Likeness:
    """This machine. ``backend`` is what tells equivalent mutants, ``cuda`` as in a campaign.

    Raises :class:`ToolchainError` if it lacks what the executor or the backend needs.
    """
    import numpy as np
    import torch

    from kernelassay import executors
    from kernelassay.compile import nvrtc
    from kernelassay.host import machine

    facts = {
        "kernelassay": package_digest(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        **{name: str(value) for name, value in executors.facts(cuda).items()},
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
    }
    if backend == "nvrtc":
        facts["nvrtc"] = nvrtc.version()
    return Likeness(platform.node(), facts, machine())


def differences(ours: Likeness, theirs: Likeness) -> list[str]:
    """One phrase for each fact that differs."""
    names = sorted({*ours.facts, *theirs.facts})
    pairs = [(name, theirs.facts.get(name), ours.facts.get(name)) for name in names]
    return [f"{name} is {there}, here {here}" for name, there, here in pairs if there != here]


@lru_cache
def package_digest() -> str:
    """A hash over this package's files: one version may have been edited."""
    root = Path(__file__).parents[1]
    state = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            state.update(f"{path.relative_to(root)}\0".encode())
            state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()[:16]
