"""Every error the tool raises on purpose, with the exit code a command ends with.

An error tells *what* was wrong, *where*, and *what to do* about it. Anything that is not a
:class:`KernelassayError` is a defect of the tool and ends with exit code 70.

Exit codes: 0 done; 1 usage; 2 a gate the user set was missed, `check` rejects, or a bundle's replay
differs; 3 a control misbehaved; 4 nothing to test; 70 internal error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KernelassayError(Exception):
    """Root of all deliberate errors; shown to users without a traceback."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders; the default pickling would lose the keyword fields.
        return _rebuild, (type(self), self.what, self.where, self.hint)


def _rebuild(kind: type[KernelassayError], what: str, where: str, hint: str) -> KernelassayError:
    return kind(what, where=where, hint=hint)


class UsageError(KernelassayError):
    """The command line or a configuration names something that does not exist or fit."""


class ProblemError(KernelassayError):
    """A problem file does not import, lacks a function, hangs, or returns no tensor."""


class LimitError(ProblemError):
    """Problem code passed a limit, or was killed from outside: this need not be its fault."""


class UnsupportedError(KernelassayError):
    """A construct the tool knows it cannot handle, named: an ATen op, a CUDA feature."""


class KernelSyntaxError(KernelassayError):
    """A CUDA source that does not parse, or lacks a kernel or its host ``launch`` function."""


class ToolchainError(KernelassayError):
    """A compiler or a library the run needs is missing or failed."""


class DeviceError(KernelassayError):
    """A device or a compiler did not work, which says nothing of what was asked of it."""


class EngineError(KernelassayError):
    """Machines that a campaign was given do not fit together, or were lost too often."""


class SessionError(KernelassayError):
    """A session directory is locked, truncated, of another version, or cannot be written."""


class GateError(KernelassayError):
    """A threshold the user set (``--fail-under``) was missed."""

    exit_code = 2


class ReplayError(KernelassayError):
    """A bundle that was run again gave something else than it holds."""

    exit_code = 2


class ControlError(KernelassayError):
    """A control with a known verdict did not behave; no score is given."""

    exit_code = 3


class NothingToTestError(KernelassayError):
    """The selection matches nothing, or no mutant or input is left."""

    exit_code = 4


NO_GPU = "is there a GPU (`nvidia-smi`), and a PyTorch built for CUDA? without, run on the CPU"
_FEW = 16  # so many names are listed where none is near


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for an unknown ``name`` of some ``kind``, with the nearest known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if not near:
        near = [candidate for candidate in names if name.lower() in candidate.lower()][:3]
    if near:
        hint = f"did you mean {', '.join(near)}?"
    elif len(names) <= _FEW:
        hint = f"known: {', '.join(names)}" if names else "none is known here"
    else:
        hint = f"there are {len(names)}; list them"
    return UsageError(f"unknown {kind} {name!r}", hint=hint)
