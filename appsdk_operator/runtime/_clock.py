"""Clocks: the real one, and one that tests move by hand. Only this module reads the time."""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol, final, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """The clock from which every part of the kit reads the time, and on which it waits.

    All times are seconds as float. Implementations are thread-safe.
    """

    def monotonic(self) -> float:
        """Seconds since an arbitrary point, never decreasing: for delays, backoffs and leases."""
        ...

    def time(self) -> float:
        """Seconds since 1970-01-01 UTC; only for time stamps in objects."""
        ...

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        """Wait, holding ``condition``, until it is notified or ``timeout`` seconds have passed.

        As with :meth:`threading.Condition.wait`, the caller checks its predicate in a loop, because
        a wake-up does not say why.
        """
        ...


@final
class RealClock:
    """The machine's clock."""

    __slots__ = ()

    # The function itself, because it is called several times for each event.
    monotonic: staticmethod[[], float] = staticmethod(time.monotonic)

    def time(self) -> float:
        """Seconds of :func:`time.time`."""
        return time.time()

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        """Wait on ``condition`` for at most ``timeout`` seconds of real time."""
        # Longer waits raise OverflowError, and an early wake-up is allowed.
        condition.wait(timeout if timeout is None else min(timeout, threading.TIMEOUT_MAX))


@final
class ManualClock:
    """A clock that stands still until a test moves it.

    :meth:`advance` passes the deadlines one by one, the earliest first, equal ones in the order of
    their registration, and wakes exactly the waiters that are due. The wait of a thread counts from
    the time that it read last. So a thread that reads the time, computes its wait and then waits is
    woken on time, even if the clock moved in between.

    It is also the source of jitter for everything that runs on it, so that a run can be repeated
    with its seed.

    >>> clock = ManualClock()
    >>> clock.advance(2.5)
    >>> clock.monotonic()
    2.5
    """

    def __init__(
        self, *, start: float = 0.0, epoch: float = 1_700_000_000.0, seed: int = 0
    ) -> None:
        """A clock at ``start`` seconds, with :meth:`time` at ``epoch`` seconds after 1970.

        Args:
            start: the first value of :meth:`monotonic`, in seconds; default 0.
            epoch: the first value of :meth:`time`, in seconds since 1970.
            seed: the seed of the jitter of delays; default 0.
        """
        self.rng: random.Random = random.Random(seed)
        """The source of the jitter of delays."""
        self.runs_threads: bool = False
        """For simulations of threads: whether joins of threads end by it, too."""
        self._now = start
        self._offset = epoch - start
        self._changed = threading.Condition()
        self._sequence = itertools.count()
        self._waiters: list[tuple[float, int, threading.Condition]] = []
        self._alarms: tuple[Callable[[], float | None], ...] = ()
        self._seen = threading.local()

    def monotonic(self) -> float:
        """The start, plus the seconds that the clock was moved since."""
        now = self._seen.now = self._now
        return now

    def time(self) -> float:
        """The same time in seconds since 1970."""
        return self._now + self._offset

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        """Wait until notified, or until :meth:`advance` passes the deadline."""
        # The caller computed the time-out from its last reading, and a test may have moved the
        # clock since. The deadline counts from that reading, or the test would wait for ever. Each
        # reading counts once, so that a loop that never reads the clock does not spin.
        seen: float | None = self._seen.__dict__.pop("now", None)
        if timeout is None:
            condition.wait()
            return
        with self._changed:
            deadline = (self._now if seen is None else seen) + timeout
            if deadline <= self._now:
                return
            waiter = (deadline, next(self._sequence), condition)
            heapq.heappush(self._waiters, waiter)
            self._changed.notify_all()
        try:
            condition.wait()
        finally:
            with self._changed:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                    heapq.heapify(self._waiters)

    def advance(self, seconds: float) -> None:
        """Move the clock forward and wake the waiters whose deadline is reached.

        Raises:
            ValueError: ``seconds`` is negative.
        """
        if not seconds >= 0:
            raise ValueError(f"cannot advance by {seconds} s: a clock does not go back")
        self._advance(self._now + seconds, self._next_alarm())

    def advance_to_next(self, *, until: float = math.inf) -> bool:
        """Move the clock to the earliest deadline, as :meth:`advance` does.

        Args:
            until: the latest time of :meth:`monotonic` to move to, in seconds; default: no limit.

        Returns:
            Whether it has moved; False if no waiter or alarm has a deadline until then.
        """
        alarm = self._next_alarm()
        due = self._earliest(alarm)
        if due == math.inf or due > until:
            return False
        self._advance(max(due, self._now), alarm)
        return True

    def _advance(self, target: float, alarm: float) -> None:
        """Move to ``target``; ``alarm`` is what the alarms ask for at the present time."""
        while True:
            with self._changed:
                first = self._waiters[0][0] if self._waiters else math.inf
                if alarm <= target and alarm <= first:
                    self._now = max(self._now, alarm)
                    condition = None
                elif first > target:
                    # What was woken may have moved it on already.
                    self._now = max(self._now, target)
                    return
                else:
                    deadline, _, condition = heapq.heappop(self._waiters)
                    self._now = max(self._now, deadline)
            if condition is not None:
                # The waiter registered while it held the condition. Once this thread holds it, the
                # waiter waits, so the notification cannot be lost.
                with condition:
                    condition.notify_all()
            # At the end of the way no alarm can ask for a time on it.
            alarm = self._next_alarm() if condition is None or self._now < target else math.inf

    def add_alarm(self, alarm: Callable[[], float | None]) -> Callable[[], None]:
        """Call ``alarm`` at each step of the time, in the thread that moves it.

        For code that must check something in time, but has no waiting thread. ``alarm`` returns the
        time at which it wants to be called next, or None. It must not wait.

        Returns:
            A function that removes the alarm.
        """
        with self._changed:
            self._alarms = (*self._alarms, alarm)

        def remove() -> None:
            with self._changed:
                self._alarms = tuple(each for each in self._alarms if each is not alarm)

        return remove

    def _next_alarm(self) -> float:
        """The earliest time after the present one that an alarm asks for."""
        dues = [due for alarm in self._alarms if (due := alarm()) is not None and due > self._now]
        return min(dues, default=math.inf)

    def next_deadline(self) -> float | None:
        """The earliest deadline of any waiter or alarm; None when there is none."""
        due = self._earliest(self._next_alarm())
        return None if due == math.inf else due

    def _earliest(self, alarm: float) -> float:
        with self._changed:
            return min(alarm, self._waiters[0][0] if self._waiters else math.inf)

    def block_until_waiting(self, count: int, *, timeout: float = 10.0) -> None:
        """Return once at least ``count`` threads wait for a deadline of this clock.

        With it, a test with real threads advances the clock at the same moment in each run.

        Raises:
            TimeoutError: fewer threads wait after ``timeout`` seconds of real time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._waiters) >= count, timeout):
                raise TimeoutError(
                    f"{len(self._waiters)} of {count} threads wait on the clock after {timeout} s"
                )


def yield_to_threads() -> None:
    """Let other threads of the process run, if any can."""
    time.sleep(0)


def processor_time_of_thread() -> Callable[[], float]:
    """A function that returns the seconds of processor time that the calling thread has used.

    Any thread may call it; it returns 0 once the thread has ended. Where the system has no clock
    for each thread (macOS), it is the time of all threads of the process.
    """
    find = getattr(time, "pthread_getcpuclockid", None)
    number = time.CLOCK_PROCESS_CPUTIME_ID if find is None else find(threading.get_ident())

    def read() -> float:
        try:
            return time.clock_gettime(number)
        except OSError:
            return 0.0

    return read


def random_of(clock: Clock) -> random.Random:
    """The source of jitter for a part that runs on ``clock``; seeded for a :class:`ManualClock`."""
    return clock.rng if isinstance(clock, ManualClock) else random.Random()


system_clock: Clock = RealClock()
"""The machine's clock, the default of every part."""
