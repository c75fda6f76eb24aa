"""Sources from functions: one that feeds the queue itself, a timer, and polling."""

from __future__ import annotations

import random
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar, final

from appsdk_operator.cache import Health
from appsdk_operator.controllers._protocols import (
    LOW_PRIORITY,
    RequestQueue,
)
from appsdk_operator.controllers._sources.thread import (
    SourceThread,
    checked_interval,
    checked_jitter,
)
from appsdk_operator.controllers._user_functions import check_function, name_of
from appsdk_operator.runtime import Clock, Metrics, StopSignal, settle
from appsdk_operator.runtime.validation import check_count, checked_seconds

R = TypeVar("R", bound=Hashable)


class _ThreadedSource(Generic[R]):
    """A source whose function is called in a :class:`SourceThread`."""

    _thread: SourceThread
    _queue: RequestQueue[R] | None = None

    @property
    def clock(self) -> Clock:
        """The clock for all waits."""
        return self._thread.clock

    def start(self, queue: RequestQueue[R], stop: StopSignal, /) -> None:
        """Start the source's thread, until ``stop`` is set; returns at once.

        Raises:
            RuntimeError: it was started before.
        """
        self._queue = queue if self._queue is None else self._queue
        self._thread.start(stop)

    def join(self, timeout: float | None = None, /) -> list[str]:
        """Wait for its threads after the stop; returns the names of those that still run."""
        return self._thread.join(timeout)

    def __str__(self) -> str:
        return self._thread.name


@final
class FunctionSource(_ThreadedSource[R]):
    """A function that feeds the queue until a stop, for example from a message bus.

    It runs in its own thread. The stop cancels an ``async def`` function. When the function
    returns, the source ends. When it raises, the source calls it again with growing delays (1 s,
    doubling, up to a minute). Thread-safe.

    >>> def read_messages(queue, stop):
    ...     while (message := bus.receive(stop)) is not None:
    ...         queue.add(message.key)
    >>> source = FunctionSource(read_messages)
    """

    def __init__(
        self,
        function: Callable[[RequestQueue[R], StopSignal], Awaitable[None] | None],
        *,
        name: str | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """A source that does nothing before its controller starts it.

        Args:
            function: adds requests to the queue until the signal is set.
            name: for logs, threads and metrics; default: the function's name.
            clock: the clock for waits between tries; default: the environment's.
            metrics: the metrics that it writes to; default: its Manager's, else
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            TypeError: ``function`` is not a function of a queue and a stop signal.
        """
        check_function("function", function, "queue", "stop")
        self._function = function
        self._thread = SourceThread(
            name_of(function) if name is None else name,
            self._call,
            is_lasting=True,
            clock=clock,
            metrics=metrics,
            rng=rng,
        )

    def health(self) -> Health:
        """Ready if the function has returned, or has run for 10 s since its last failure."""
        return self._thread.health()

    def _call(self, stop: StopSignal) -> None:
        assert self._queue is not None
        settle(self._function(self._queue, stop))


@final
class TimerSource(_ThreadedSource[R]):
    """Requests at fixed intervals.

    The duration of a call does not shift the schedule, and missed times are skipped. If a function
    raises, the source calls it again with growing delays (1 s, doubling, up to the interval or a
    minute). Thread-safe.

    >>> from appsdk_operator.controllers import Request
    >>> nightly = TimerSource(86400.0, [Request("", "clean-up")], jitter=0.1)
    """

    def __init__(
        self,
        interval: float,
        requests: Iterable[R] | Callable[[], Iterable[R] | Awaitable[Iterable[R]]],
        *,
        first_after: float | None = None,
        jitter: float = 0.0,
        priority: int | None = None,
        name: str | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """A source that does nothing before its controller starts it.

        Args:
            interval: seconds between two times.
            requests: the requests of each time, or a function that returns them; it may be
                ``async def``.
            first_after: seconds until the first time; default: an interval.
            jitter: the share of the interval by which each time may be later, at random, so
                replicas do not act simultaneously; default 0.
            priority: the priority of the requests; default 0.
            name: for logs, threads and metrics; default: ``timer`` and the interval.
            clock: the clock for all waits; default: the environment's.
            metrics: the metrics that it writes to; default: its Manager's, else
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            ValueError: a number is out of bounds.
            TypeError: ``requests`` is neither a list nor a function.
        """
        self._interval = checked_interval(interval)
        self._jitter = checked_jitter(jitter)
        if first_after is not None:
            checked_seconds("first_after", first_after)
        if priority is not None:
            check_count("priority", priority)
        self._requests: Callable[[], Any]
        if callable(requests):
            check_function("requests", requests)
            self._requests = requests
        elif isinstance(requests, (str, bytes)) or not isinstance(requests, Iterable):
            raise TypeError(f"requests={requests!r}: give a list of requests or a function")
        else:
            fixed = tuple(requests)
            self._requests = lambda: fixed
        self._first_after = interval if first_after is None else first_after
        self._priority = 0 if priority is None else priority
        self._next: float | None = None
        self._reason = f"every {interval:g} s"
        self._thread = SourceThread(
            f"timer {interval:g} s" if name is None else name,
            self._call,
            longest_delay=interval,
            clock=clock,
            metrics=metrics,
            rng=rng,
        )

    def health(self) -> Health:
        """Ready unless the function has failed for more than 10 s."""
        return self._thread.health()

    def _call(self, _: StopSignal) -> float:
        assert self._queue is not None
        now = self.clock.monotonic()
        if self._next is None:
            self._next = now + self._first_after
        elif now >= self._next:
            # All requests before the first is queued: a function that fails half-way is repeated.
            for request in list(settle(self._requests())):
                self._queue.add(request, priority=self._priority, reason=self._reason)
            now = self.clock.monotonic()
            missed = max(0.0, (now - self._next) // self._interval)
            self._next += self._interval * (missed + 1)
        return self._jittered(max(0.0, self._next - now))

    def _jittered(self, delay: float) -> float:
        return delay + self._interval * self._jitter * self._thread.random.random()


@final
class PollingSource(_ThreadedSource[R]):
    """Polls a system without events, such as another API, and requests the changes.

    The source calls ``fetch`` at intervals. It adds each request whose value is new, changed
    (``!=``) or removed to the queue, and the requests of the first result with
    :data:`LOW_PRIORITY`. The source has synced with the first result.

    If ``fetch`` raises, the source logs and counts the error, shows it in :meth:`health`, and calls
    ``fetch`` again with growing delays (1 s, doubling, up to the interval or a minute). Meanwhile
    it keeps the last result, so a failure does not look like a removal of everything. Thread-safe.

    >>> def revisions():  # a version, hash or time is enough, and cheaper to keep than the thing
    ...     return {Request("", repository.name): repository.head for repository in forge.list()}
    >>> source = PollingSource(30.0, revisions)
    """

    def __init__(
        self,
        interval: float,
        fetch: Callable[[], Mapping[R, Any] | Awaitable[Mapping[R, Any]]],
        *,
        jitter: float = 0.0,
        name: str | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """A source that does nothing before its controller starts it.

        Args:
            interval: seconds between the end of a call and the next one.
            fetch: returns a value for each request. The source stores and compares the values:
                return new or immutable ones, never the same object changed in place. May be
                ``async def``.
            jitter: the share by which an interval may be longer, at random; default 0.
            name: the name in logs, threads and metrics; default: the name of ``fetch``.
            clock: the clock for all waits; default: the environment's.
            metrics: the metrics that it writes to; default: its Manager's, else
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            ValueError: a number is out of bounds.
            TypeError: ``fetch`` is not a function without arguments.
        """
        self._interval = checked_interval(interval)
        self._jitter = checked_jitter(jitter)
        check_function("fetch", fetch)
        self._fetch = fetch
        self._known: dict[R, Any] | None = None
        self._synced = threading.Condition()
        self._thread = SourceThread(
            name_of(fetch) if name is None else name,
            self._call,
            longest_delay=interval,
            clock=clock,
            metrics=metrics,
            rng=rng,
        )

    @property
    def has_synced(self) -> bool:
        """Whether ``fetch`` has returned once."""
        return self._known is not None

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        """Wait for :attr:`has_synced`; False when stopped or after ``timeout`` seconds."""
        clock = self.clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        detaches = [signal.on_set(self._wake) for signal in (stop, self._thread.stop)]
        try:
            with self._synced:
                while not self.has_synced:
                    left = None if deadline is None else deadline - clock.monotonic()
                    is_over = stop.is_set() or self._thread.stop.is_set()
                    if is_over or (left is not None and left <= 0):
                        return False
                    clock.wait(self._synced, left)
                return True
        finally:
            for detach in detaches:
                detach()

    def health(self) -> Health:
        """Ready once ``fetch`` has returned, unless it has failed for more than 10 s since then."""
        return self._thread.health(self.has_synced)

    def _call(self, _: StopSignal) -> float:
        assert self._queue is not None
        answer = settle(self._fetch())
        if not isinstance(answer, Mapping):
            raise TypeError(
                f"{self} returned {type(answer).__name__}: return a mapping from request to value"
            )
        found: dict[R, Any] = dict(answer)
        known = {} if self._known is None else self._known
        # All comparisons first, because they run the values' own code and may fail.
        news = [
            (request, "changed" if request in known else "new")
            for request, value in found.items()
            if request not in known or known[request] != value
        ]
        news += [(request, "vanished") for request in known if request not in found]
        priority = LOW_PRIORITY if self._known is None else 0
        for request, what in news:
            self._queue.add(request, priority=priority, reason=f"{self}: {what}")
        with self._synced:
            self._known = found
            self._synced.notify_all()
        return self._interval * (1.0 + self._jitter * self._thread.random.random())

    def _wake(self) -> None:
        with self._synced:
            self._synced.notify_all()
