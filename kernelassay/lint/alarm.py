"""A time limit that breaks off one check and keeps what the others found."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class OutOfTime(BaseException):
    """The time is over. No ``Exception``: problem code might catch that."""


class Alarm:
    """Breaks code off after some time, between two operations of torch, where that is expected.

    Takes the process's SIGALRM for itself: use it in a worker only.
    """

    def __init__(self, seconds: float) -> None:
        self.rung = False
        self._armed = False
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Raise ``OutOfTime`` in the body when the time is over."""
        self._armed = True
        try:
            yield
        finally:
            self._armed = False

    def _ring(self, *_: object) -> None:
        self.rung = True
        if self._armed:
            raise OutOfTime
