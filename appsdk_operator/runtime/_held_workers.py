"""A warning of callbacks that hold all workers of a controller for a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, final

from appsdk_operator.runtime._clock import Clock, RealClock, present_clock
from appsdk_operator.runtime._durations import duration_text
from appsdk_operator.runtime._logging import SafeLogger
from appsdk_operator.runtime._stop import StopSignal
from appsdk_operator.runtime._tracebacks import present_place

__all__ = ["HeldWorkers", "RunningCall"]

_HELD_FOR: Final = 60.0
"""Seconds that the calls of all workers may take before that is logged."""
_LOOK_EVERY: Final = 15.0
_MOST_PLACES: Final = 100


class RunningCall(NamedTuple):
    """A call that a worker makes now."""

    thread: int
    """The ident of its thread."""
    started: float
    """The monotonic time of its start."""
    about: str
    """What it is called for, for people."""


@final
class HeldWorkers:
    """Looks every 15 seconds at the running calls of a controller, in the thread that waits anyway.

    Calls themselves do nothing for it. With another clock than the machine's there are no looks:
    they would be the next event of each test that moves the time.
    """

    def __init__(
        self,
        controller: str,
        workers: int,
        calls: Callable[[], Iterable[RunningCall]],
        *,
        log: SafeLogger,
        remedy: str,
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._workers = workers
        self._calls = calls
        self._log = log
        self._remedy = remedy
        self._clock = clock
        self._said: set[str] = set()

    def watch(self, stop: StopSignal) -> None:
        """Wait for ``stop``, and look meanwhile."""
        if not isinstance(present_clock(self._clock), RealClock):
            stop.wait()
            return
        while not stop.wait(_LOOK_EVERY):
            self.look(self._clock.monotonic())

    def look(self, now: float) -> None:
        """Warn once for each place in the code that holds the last free worker."""
        held = [call for call in self._calls() if now - call.started >= _HELD_FOR]
        if len(held) < self._workers:
            return
        newest = max(held, key=lambda call: call.started)
        place = present_place(newest.thread) or "a callback"
        if place in self._said or len(self._said) >= _MOST_PLACES:
            return
        self._said.add(place)
        only = "the only worker" if self._workers == 1 else f"the last of {self._workers} workers"
        self._log.warning(
            "%s holds %s of controller %s for %s, for %s, and nothing else is handled meanwhile: "
            "give what it waits for a time-out, raise RetryAfter(seconds) to look again later, or "
            "give the controller more workers with %s",
            place,
            only,
            self._controller,
            duration_text(now - newest.started),
            newest.about,
            self._remedy,
            extra={"controller": self._controller, "callback": place},
        )
