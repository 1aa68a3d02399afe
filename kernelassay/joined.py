"""Several sessions read as one: a campaign whose problems were spread over machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from kernelassay.errors import SessionError
from kernelassay.session import Session

MAY_DIFFER = frozenset({"machine", "created", "torch", "compiler", "nvrtc", "problems"})
"""What sessions of one campaign may differ in: where each was measured, and which problems."""


class Cells(Protocol):
    """What reading a kill matrix needs of a session, or of several."""

    @property
    def name(self) -> str:
        """Where it lies."""

    @property
    def problems(self) -> frozenset[str]:
        """The ids of the selected problems."""

    def finished_plans(self) -> list[dict[str, Any]]:
        """The plans whose problem is refused, or has all its cells."""

    def unfinished(self) -> list[str]:
        """The selected problems that are not planned yet or lack cells."""

    def read_cells(self, problem: str, input_id: str) -> pa.Table:
        """The cells of one unit of work."""


class JoinedSessions:
    """Sessions of one campaign. A problem counts where it is finished, and in one of them only.

    Raises :class:`SessionError` if they were started with other options than the first, or if a
    problem is finished in two.
    """

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.sessions = tuple(sessions)
        for session in self.sessions[1:]:
            _require_same_options(self.sessions[0], session)
        found = [(plan, session) for session in sessions for plan in session.finished_plans()]
        self._plans = sorted((plan for plan, _ in found), key=_problem_of)
        self._home = {_problem_of(plan): session for plan, session in found}
        times = Counter(map(_problem_of, self._plans))
        twice = [problem for problem, count in times.items() if count > 1]
        if twice:
            raise SessionError(
                f"finished in two of the sessions: {', '.join(twice)}",
                where=self.name,
                hint="leave one of the sessions out",
            )

    @property
    def name(self) -> str:
        """The sessions' directories."""
        return ", ".join(session.name for session in self.sessions)

    @property
    def problems(self) -> frozenset[str]:
        """The ids of the problems that some session selects."""
        return frozenset().union(*(session.problems for session in self.sessions))

    def finished_plans(self) -> list[dict[str, Any]]:
        """The plans of all that is finished somewhere, by problem id."""
        return self._plans

    def unfinished(self) -> list[str]:
        """The problems that no session has finished."""
        return sorted(self.problems - self._home.keys())

    def read_cells(self, problem: str, input_id: str) -> pa.Table:
        """The cells of one unit of work, from the session that finished its problem."""
        return self._home[problem].read_cells(problem, input_id)


def _problem_of(plan: Mapping[str, Any]) -> str:
    return str(plan["problem"]["id"])


def _require_same_options(first: Session, other: Session) -> None:
    keys = sorted({*first.manifest, *other.manifest} - MAY_DIFFER)
    differing = [key for key in keys if first.manifest.get(key) != other.manifest.get(key)]
    if differing:
        raise SessionError(
            f"not of one campaign with {first.name}: differs in {', '.join(differing)}",
            where=other.name,
            hint="sessions that are audited together must be run with the same options",
        )
    shared = first.problems & other.problems
    changed = [p for p in sorted(shared) if first.digest_of(p) != other.digest_of(p)]
    if changed:
        raise SessionError(
            f"not of one campaign with {first.name}: {changed[0]} is another text",
            where=other.name,
        )
