"""Watches the calls that a controller's workers make: those that hold a worker, and time limits."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from typing import Final, final

import msgspec

from appsdk_operator.runtime._clock import Clock, ManualClock
from appsdk_operator.runtime._logs.durations import duration_text
from appsdk_operator.runtime._logs.loggers import SafeLogger, get_logger
from appsdk_operator.runtime._metrics import Metrics
from appsdk_operator.runtime._samples import Family, Sample
from appsdk_operator.runtime._threading.limited_calls import LimitedCall
from appsdk_operator.runtime._threading.stop import StopSignal
from appsdk_operator.runtime._threading.threads import awaited_by, callback_place
from appsdk_operator.runtime._threading.waiters import Waiters

HELD_FOR: Final = 30.0
"""Seconds that a call may take before that is logged, and shown in red."""
_SHORTEST_WAIT: Final = 0.1
_CANCELLATION: Final = 1.0
"""Seconds that a coroutine gets to end after its cancellation."""
_MOST_PLACES: Final = 100

_EXCEEDED = Family(
    "time_limits_exceeded_total",
    "counter",
    "Calls that have not returned within their time limit.",
    ("controller",),
)
_HANGING = Family(
    "calls_over_time_limit",
    "gauge",
    "Calls that run beyond their time limit now; another worker stands in for theirs.",
    ("controller",),
)
_log = get_logger("appsdk_operator.runtime")


class RunningCall(msgspec.Struct, frozen=True):
    """A call that a worker makes now."""

    thread: int
    """The ident of its thread."""
    started: float
    """The monotonic time of its start."""
    about: Callable[[], str]
    """What it is called for, for people; only log lines and pages need it."""
    limited: LimitedCall | None = None
    """The call, or the part of it that runs now, if that may have a time limit."""


class _Late:
    """A call that is over its limit."""

    __slots__ = ("call", "has_replacement", "is_logged", "since", "was_awaited")

    def __init__(self, call: LimitedCall, since: float, *, was_awaited: bool) -> None:
        self.call = call
        self.since = since
        self.was_awaited = was_awaited
        self.is_logged = False
        self.has_replacement = False

    def is_of(self, running: RunningCall | None) -> bool:
        """Whether ``running``, what its thread does, is this call."""
        return running is not None and running.limited is self.call

    @property
    def hangs_from(self) -> float:
        """From when on it hangs, unless it has returned."""
        return self.since + (_CANCELLATION if self.was_awaited else 0.0)


def _no_replacement(thread: int) -> bool:
    del thread
    return False


def _is_never_lent(thread: int) -> bool:
    del thread
    return False


def _none_is_missing() -> None:
    pass


@final
class CallMonitor:
    """Looks at the running calls of a controller now and then, in the thread that waits anyway.

    Calls themselves do nothing for it but to name their limit, so that a look comes in time: the
    pause between two looks is at most the shortest limit that was ever named. Thread-safe.

    At its limit a call's stop signal is set, and what it awaits is cancelled. One that does not
    return then, hangs: it is logged, and another worker takes the place of its own, as long as
    fewer calls hang than there are workers. Its object or request stays closed until it returns.

    A worker that is missing because no thread was to be had, is tried again with each look.
    """

    def __init__(
        self, controller: str, calls: Callable[[], Iterable[RunningCall]], *, clock: Clock
    ) -> None:
        """A monitor of ``calls``, the running ones; :meth:`equip` it before :meth:`watch`."""
        self.shortest: float = math.inf
        """The shortest limit that it knows of, in seconds."""
        self._controller = controller
        self._calls = calls
        self._clock = clock
        self._workers = 1
        self._log = _log
        self._remedy = ""
        self._replace: Callable[[int], bool] = _no_replacement
        self.is_lent: Callable[[int], bool] = _is_never_lent
        """Whether a thread waits for a coroutine, and holds no worker."""
        self._start_missing: Callable[[], None] = _none_is_missing
        self._waiters = Waiters(clock)
        self._has_news = False
        self._remove_alarm: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._said: set[tuple[str, bool]] = set()
        self._late: dict[int, _Late] = {}
        self._exceeded = 0
        self._retire: Callable[[], None] = lambda: None

    def equip(
        self,
        *,
        workers: int,
        log: SafeLogger,
        remedy: str,
        replace: Callable[[int], bool],
        is_lent: Callable[[int], bool] = _is_never_lent,
        start_missing: Callable[[], None] = _none_is_missing,
    ) -> None:
        """Say what it watches.

        Args:
            workers: the number of workers, and the most that it replaces.
            log: for its warnings.
            remedy: the option that sets the number of workers.
            replace: starts a worker in the place of a thread, which ends after its present piece
                of work; returns whether it has.
            is_lent: whether a thread waits for a coroutine, and holds no worker.
            start_missing: called with each look; starts a worker that could not be started before.
        """
        self._workers = workers
        self._log = log
        self._remedy = remedy
        self._replace = replace
        self.is_lent = is_lent
        self._start_missing = start_missing

    def publish(self, metrics: Metrics) -> None:
        """Publish its numbers."""
        self._retire = metrics.add_source(self._samples)

    def retire(self) -> None:
        """Stop publishing; the registry keeps the totals."""
        self._retire()
        if self._remove_alarm is not None:
            self._remove_alarm()

    def _samples(self) -> list[Sample]:
        labels = (self._controller,)
        return [
            Sample(_EXCEEDED, labels, self._exceeded),
            Sample(_HANGING, labels, len(self._hanging(self._calls()))),
        ]

    # For calls.

    def name_limit(self, seconds: float) -> None:
        """Look in time for calls of this limit."""
        with self._lock:
            self.shortest = min(self.shortest, seconds)
            if isinstance(self._clock, ManualClock) and self._remove_alarm is None:
                self._remove_alarm = self._clock.add_alarm(self._alarm)
        self._has_news = True
        self._waiters.wake()

    def has_exceeded(self, call: LimitedCall, now: float) -> bool:
        """Whether a call that returns now has taken longer than its limit, which is counted."""
        if call.deadline is None or (now < call.deadline and not call.is_timed_out):
            return False
        if call.time_out():
            self._count(call)
        return call.is_own_time_out

    def _count(self, call: LimitedCall) -> None:
        with self._lock:
            self._exceeded += call.is_own_time_out

    # For those who wait.

    def watch(self, stop: StopSignal) -> None:
        """Wait for ``stop``, and look meanwhile.

        With a :class:`ManualClock` the clock looks, once there is a limit: looks of ours would be
        the next event of each test that moves the time.
        """
        if isinstance(self._clock, ManualClock):
            stop.wait()
            return
        wait = HELD_FOR
        while not stop.is_set():
            self._has_news = False
            self._waiters.wait(lambda: self._has_news, stop, min(wait, self.shortest))
            if not stop.is_set():
                wait = self.look(self._clock.monotonic())

    def look(self, now: float) -> float:
        """Warn of calls that have run for half a minute, and end those that are at their limit.

        Of calls that have run long, once for each place in the code, and again when one of the
        place holds the last free worker.

        Returns:
            The seconds until the next look.
        """
        due = self._look(now)
        wait = min(HELD_FOR, self.shortest)
        if due is not None:
            wait = min(wait, due - now)
        return max(_SHORTEST_WAIT, wait)

    def _alarm(self) -> float | None:
        now = self._clock.monotonic()
        # Each step of the time asks, and most find nothing to do.
        due = min((due for call in self._calls() for due in self._dues(call)), default=None)
        return due if not self._late and (due is None or due > now) else self._look(now)

    def _look(self, now: float) -> float | None:
        """Look; returns the time of the next look that the running calls need."""
        self._start_missing()
        calls = sorted(self._calls(), key=lambda call: call.started)
        self._forget_ended(calls)
        for call in calls:
            limited = call.limited
            deadline = None if limited is None else limited.deadline  # once: it may be suspended
            if limited is not None and deadline is not None and deadline <= now:
                self._exceed(call.thread, limited, now)
        for call in self._hanging(calls):
            self._cancel(call, now)
        for call in self._hanging(calls):
            self._replace_worker(call, now)
        self._warn_of_held(calls, now)
        return min(
            (due for call in calls for due in self._dues(call) if due > now),
            default=None,
        )

    def _dues(self, call: RunningCall) -> Iterable[float]:
        """When there will be something to do for a call."""
        yield call.started + HELD_FOR
        limited, late = call.limited, self._late.get(call.thread)
        if limited is not None and (deadline := limited.deadline) is not None:
            yield deadline
        if late is not None and late.call is limited:
            yield late.hangs_from

    def _exceed(self, thread: int, call: LimitedCall, now: float) -> None:
        """A call has come to its limit."""
        # Before it is marked: while it is not over, what its thread waits for is its own.
        awaited = awaited_by(thread)
        if not call.time_out():
            return
        self._count(call)
        if awaited is not None:
            awaited.cancel()
        with self._lock:
            self._late[thread] = _Late(call, now, was_awaited=awaited is not None)

    def _cancel(self, call: RunningCall, now: float) -> None:
        """Cancel what a call awaits that came to its limit before it awaited anything."""
        late, awaited = self._late.get(call.thread), awaited_by(call.thread)
        if late is None or awaited is None or late.was_awaited or late.call.is_over:
            return
        awaited.cancel()
        late.since, late.was_awaited = now, True

    def _hanging(self, calls: Iterable[RunningCall]) -> list[RunningCall]:
        """Those of the running calls that are over their limit."""
        running = {call.thread: call for call in calls}
        now = self._clock.monotonic()
        with self._lock:
            return [
                running[thread]
                for thread, late in self._late.items()
                if late.is_of(running.get(thread)) and late.hangs_from <= now
            ]

    def _forget_ended(self, calls: Iterable[RunningCall]) -> None:
        """Only for looks: the calls that a scrape knows may be older than the last look."""
        running = {call.thread: call for call in calls}
        with self._lock:
            for thread, late in list(self._late.items()):
                if not late.is_of(running.get(thread)):
                    del self._late[thread]

    def _replace_worker(self, call: RunningCall, now: float) -> None:
        """Replace the worker of a call that hangs, as soon as a spare one is free; log it once."""
        with self._lock:
            late = self._late.get(call.thread)
            if late is None or late.has_replacement or late.call.is_over:
                return
            replaced = sum(each.has_replacement for each in self._late.values())
        is_used_up, is_lent = replaced >= self._workers, self.is_lent(call.thread)
        late.has_replacement = not (is_used_up or is_lent) and self._replace(call.thread)
        if late.is_logged:
            return
        late.is_logged = True
        if is_lent:
            spare = "it is awaited, and holds no worker"
        elif late.has_replacement:
            spare = f"spare worker {replaced + 1} of {self._workers} takes over"
        elif is_used_up:
            spare = f"no spare worker of {self._workers} is left"
        else:
            spare = "no worker takes over"
        ignored = "the cancellation" if late.was_awaited else "the stop signal"
        self._log.error(
            "%s, called for %s, has not returned within %s and ignores %s: %s in controller %s. "
            "The kit does nothing else for that object until it returns. Set a time-out on what "
            "it waits for, or wait on current_stop()",
            callback_place(call.thread) or "a callback",
            call.about(),
            duration_text(now - late.call.started),
            ignored,
            spare,
            self._controller,
            extra={"controller": self._controller},
        )

    def over_limit(self) -> list[str]:
        """A text for each call that runs beyond its time limit: where, since when, and for what."""
        now = self._clock.monotonic()
        return [
            f"{callback_place(call.thread) or 'a callback'}, for {call.about()}, begun "
            f"{duration_text(now - (call.limited or call).started)} ago"
            for call in self._hanging(self._calls())
        ]

    def note(self) -> str:
        """For health texts: the calls over their limit; "" without any."""
        over = self.over_limit()
        if not over:
            return ""
        more = f", and {len(over) - 1} more" if len(over) > 1 else ""
        return f"over the time limit: {over[0]}{more}"

    # Held workers.

    def _warn_of_held(self, calls: list[RunningCall], now: float) -> None:
        replaced = {thread for thread, late in self._late.copy().items() if late.has_replacement}
        long = [c for c in calls if now - c.started >= HELD_FOR and c.thread not in replaced]
        held = [call for call in long if not self.is_lent(call.thread)]
        are_all_held = len(held) >= self._workers
        for call in long:
            late = self._late.get(call.thread)
            if late is not None and late.is_logged:
                continue
            if call in held:
                self._warn(call, now, is_last=are_all_held and call is held[-1])
            else:
                self._warn_of_awaited(call, now)

    def _warn_of_awaited(self, call: RunningCall, now: float) -> None:
        place = callback_place(call.thread) or "a callback"
        if (place, False) in self._said or len(self._said) >= 2 * _MOST_PLACES:
            return
        self._said.add((place, False))
        self._log.warning(
            "%s of controller %s has awaited something for %s. It was called for %s. The kit "
            "handles no other event of that object meanwhile. The call holds no worker. Set a "
            "time-out on what it waits for, or raise RetryAfter(seconds) to look again later",
            place,
            self._controller,
            duration_text(now - call.started),
            call.about(),
            extra={"controller": self._controller, "callback": place},
        )

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
            "%s has held %s of controller %s for %s. It was called for %s. The kit handles %s "
            "meanwhile. Set a time-out on what it waits for, or raise RetryAfter(seconds) to look "
            "again later%s",
            place,
            holds,
            self._controller,
            duration_text(now - call.started),
            call.about(),
            meanwhile,
            more,
            extra={"controller": self._controller, "callback": place},
        )
