"""A warning of callbacks that do not return for half a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, final

from appsdk_operator.runtime._clock import Clock, RealClock
from appsdk_operator.runtime._logs.durations import duration_text
from appsdk_operator.runtime._logs.loggers import SafeLogger
from appsdk_operator.runtime._threading.stop import StopSignal
from appsdk_operator.runtime._threading.threads import callback_place

HELD_FOR: Final = 30.0
"""Seconds that a call may take before that is logged, and shown in red."""
_SHORTEST_WAIT: Final = 0.1
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
    """Looks at the running calls of a controller now and then, in the thread that waits anyway.

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
        self._said: set[tuple[str, bool]] = set()

    def watch(self, stop: StopSignal) -> None:
        """Wait for ``stop``, and look meanwhile."""
        if not isinstance(self._clock, RealClock):
            stop.wait()
            return
        wait = HELD_FOR
        while not stop.wait(wait):
            wait = self.look(self._clock.monotonic())

    def look(self, now: float) -> float:
        """Warn of the calls that have run for half a minute, once for each place in the code.

        A second warning of a place comes when it holds the last free worker.

        Returns:
            The seconds until the next look: when the first of the other calls has run so long.
        """
        calls = sorted(self._calls(), key=lambda call: call.started)
        held = [call for call in calls if now - call.started >= HELD_FOR]
        are_all_held = len(held) >= self._workers
        for call in held:
            self._warn(call, now, is_last=are_all_held and call is held[-1])
        if len(held) == len(calls):
            return HELD_FOR
        return max(_SHORTEST_WAIT, calls[len(held)].started + HELD_FOR - now)

    def _warn(self, call: RunningCall, now: float, *, is_last: bool) -> None:
        place = callback_place(call.thread) or "a callback"
        if (place, is_last) in self._said or len(self._said) >= 2 * _MOST_PLACES:
            return
        self._said |= {(place, is_last), (place, False)}
        only = "the only worker" if self._workers == 1 else f"the last of {self._workers} workers"
        holds = only if is_last else f"one of {self._workers} workers"
        meanwhile = "nothing else" if is_last else "no other event of that object"
        more = f", or give the controller more workers with {self._remedy}" if is_last else ""
        self._log.warning(
            "%s holds %s of controller %s for %s, for %s, and %s is handled meanwhile: give what "
            "it waits for a time-out, or raise RetryAfter(seconds) to look again later%s",
            place,
            holds,
            self._controller,
            duration_text(now - call.started),
            call.about,
            meanwhile,
            more,
            extra={"controller": self._controller, "callback": place},
        )
