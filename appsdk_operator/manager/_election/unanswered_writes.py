"""Writes without an answer, which the server may still carry out."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import final

from appsdk_operator.client import ApiError, TransportError
from appsdk_operator.manager._election.options import LeadershipLost
from appsdk_operator.resource import DecodeError
from appsdk_operator.runtime import Clock


@final
class UnansweredWrites:
    """The writes of one lead that have no answer yet, or will never have one. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: set[TrackedWrite] = set()
        self._lost_at = -math.inf

    def track(self, check: Callable[[], None]) -> TrackedWrite:
        """Track a write that is about to begin; ``check`` raises if it may not."""
        return TrackedWrite(self, check)

    @property
    def latest(self) -> float:
        """The time at which the last of them passed its check; minus infinity: there is none."""
        with self._lock:
            return max([self._lost_at, *(write.started_at for write in self._open)])

    def start_try(self, write: TrackedWrite, *, again: bool) -> None:
        """For writes: a try is sent now; ``again``: an earlier try of it has no answer."""
        with self._lock:
            if again:
                self._lost_at = max(self._lost_at, write.started_at)
            write.started_at = self._clock.monotonic()
            self._open.add(write)

    def finish(self, write: TrackedWrite, *, is_lost: bool) -> None:
        """For writes: a write is over; ``is_lost``: its answer is missing."""
        with self._lock:
            if is_lost and write in self._open:
                self._lost_at = max(self._lost_at, write.started_at)
            self._open.discard(write)


@final
class TrackedWrite:
    """One write, from its first check of the fence to its end. Used by one thread."""

    def __init__(self, writes: UnansweredWrites, check: Callable[[], None]) -> None:
        self.started_at: float = -math.inf
        """The time at which its last try passed the check."""
        self._writes = writes
        self._check = check
        self._tries = 0

    def begin(self) -> None:
        """Check the fence when the client's method is called."""
        self._check_now(again=False)

    def before_send(self) -> None:
        """Check the fence right before the bytes of a try are sent."""
        self._tries += 1
        self._check_now(again=self._tries > 1)

    def _check_now(self, *, again: bool) -> None:
        # Recorded first: if the lead ends between the two, the release has to wait for this write.
        self._writes.start_try(self, again=again)
        try:
            self._check()
        except BaseException:
            self._writes.finish(self, is_lost=False)
            raise

    def end(self, *, is_lost: bool) -> None:
        """The write is over; ``is_lost``: no answer says whether it was carried out."""
        self._writes.finish(self, is_lost=is_lost)


def may_still_be_carried_out(error: BaseException) -> bool:
    """Whether the server may still carry out a write that failed with ``error``."""
    if isinstance(error, TransportError):
        return error.sent
    # A 5xx may mean that the server, or a proxy, stopped waiting for a write that goes on.
    return not isinstance(error, (LeadershipLost, DecodeError)) and not (
        isinstance(error, ApiError) and error.status < 500
    )
