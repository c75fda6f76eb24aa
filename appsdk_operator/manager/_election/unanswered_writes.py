"""Writes without an answer: the server may yet carry them out."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import final

from appsdk_operator.runtime import Clock

__all__ = ["TrackedWrite", "UnansweredWrites"]


@final
class UnansweredWrites:
    """The writes of one lead that were sent and have no answer yet, or never will. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: set[TrackedWrite] = set()
        self._lost_at = -math.inf

    def track(self, check: Callable[[], None]) -> TrackedWrite:
        """A write that is about to begin; ``check`` raises when it may not."""
        return TrackedWrite(self, check)

    @property
    def latest(self) -> float:
        """When the last of them passed the check, by the clock; minus infinity: there are none."""
        with self._lock:
            return max([self._lost_at, *(write.started_at for write in self._open)])

    def start_try(self, write: TrackedWrite, *, again: bool) -> None:
        """For writes: one is sent now; ``again``: an earlier try of it has no answer."""
        with self._lock:
            if again:
                self._lost_at = max(self._lost_at, write.started_at)
            write.started_at = self._clock.monotonic()
            self._open.add(write)

    def finish(self, write: TrackedWrite, *, is_lost: bool) -> None:
        """For writes: no more will be heard of one."""
        with self._lock:
            if is_lost and write in self._open:
                self._lost_at = max(self._lost_at, write.started_at)
            self._open.discard(write)


@final
class TrackedWrite:
    """One write, from its first look at the fence to its end. One thread uses it."""

    def __init__(self, writes: UnansweredWrites, check: Callable[[], None]) -> None:
        self.started_at: float = -math.inf
        """When its last try passed the check."""
        self._writes = writes
        self._check = check
        self._tries = 0

    def begin(self) -> None:
        """The first look, when the verb is called."""
        self._check_now(again=False)

    def before_send(self) -> None:
        """A look right before the bytes of a try."""
        self._tries += 1
        self._check_now(again=self._tries > 1)

    def _check_now(self, *, again: bool) -> None:
        # Noted first: an end of the lead that comes in between must know of it.
        self._writes.start_try(self, again=again)
        try:
            self._check()
        except BaseException:
            self._writes.finish(self, is_lost=False)
            raise

    def end(self, *, is_lost: bool) -> None:
        """Its answer has come; ``is_lost``: it has none that says whether it was carried out."""
        self._writes.finish(self, is_lost=is_lost)
