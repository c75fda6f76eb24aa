"""The work queue of controllers and watchers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Hashable, Iterable
from threading import get_ident
from typing import Any, Final, Generic, TypeVar, cast, final

from appsdk_operator.runtime._clock import (
    Clock,
    yield_to_threads,
)
from appsdk_operator.runtime._environment import present_clock
from appsdk_operator.runtime._fork import OneProcess, after_fork
from appsdk_operator.runtime._logs.loggers import get_logger
from appsdk_operator.runtime._logs.texts import safe_text
from appsdk_operator.runtime._metrics import Metrics
from appsdk_operator.runtime._queue.rate_limiters import ItemExponential, RateLimiter
from appsdk_operator.runtime._queue.state import QueueItem, QueueState
from appsdk_operator.runtime._samples import Family, LocalHistogram, Sample
from appsdk_operator.runtime.validation import check_count

K = TypeVar("K", bound=Hashable)

_log = get_logger("appsdk_operator.runtime")

_LABELS = ("name", "controller")
_SECONDS = tuple(10.0**exponent for exponent in range(-8, 4))
_MAX_PRIORITIES = 25

_DEPTH = Family(
    "workqueue_depth",
    "gauge",
    "Keys ready to be handled, by priority.",
    (*_LABELS, "priority"),
)
_ADDS = Family("workqueue_adds_total", "counter", "How often a key became ready.", _LABELS)
_RETRIES = Family("workqueue_retries_total", "counter", "Keys queued with a delay.", _LABELS)
_QUEUE_TIME = Family(
    "workqueue_queue_duration_seconds", "histogram", "Time from ready to handed out.", _LABELS
)
_WORK_TIME = Family(
    "workqueue_work_duration_seconds", "histogram", "Time from handed out to done.", _LABELS
)
_UNFINISHED = Family(
    "workqueue_unfinished_work_seconds",
    "gauge",
    "Seconds that the keys now being worked on have taken so far, together.",
    _LABELS,
)
_LONGEST = Family(
    "workqueue_longest_running_processor_seconds",
    "gauge",
    "Seconds that the longest of them has taken so far.",
    _LABELS,
)
_OLDEST = Family(
    "workqueue_oldest_item_age_seconds",
    "gauge",
    "Seconds that the key which has been ready for longest has waited so far.",
    _LABELS,
)


@final
class WorkQueue(Generic[K]):
    """A queue of keys that need work, each at most once, in order of priority and arrival.

    Guarantees:
        * A key is never handed out again before :meth:`done` is called for it.
        * A key that is added while it is queued has one entry. If it is added while it is
          processed, it is handed out again.
        * A key is never handed out before its delay is over. Adding it without a delay ends the
          delay.

    Thread-safe. The semantics are those of controller-runtime's priority queue.

    >>> queue = WorkQueue[str]("demo")
    >>> queue.add("a"); queue.add("b", priority=1); queue.add("a")
    >>> [queue.get().key, queue.get().key, len(queue)]
    ['b', 'a', 0]
    >>> queue.shut_down()
    >>> queue.get() is None
    True
    """

    def __init__(
        self,
        name: str,
        *,
        controller: str = "",
        rate_limiter: RateLimiter | None = None,
        max_reasons: int = 8,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        others: Callable[[], int] = lambda: 0,
        oldest_other: Callable[[], float | None] = lambda: None,
    ) -> None:
        """An empty queue.

        Args:
            name: the ``name`` label of its metrics.
            controller: the ``controller`` label of its metrics; default: ``name``.
            rate_limiter: the delays of :meth:`add_rate_limited`; default: exponential per key,
                5 ms to 1000 s.
            max_reasons: the most reasons to keep for each key, the first and the newest; default 8.
            clock: the clock for delays; default: the environment's.
            metrics: the metrics that it writes to; default: none.
            others: returns the number of pieces of work without a key, which count towards the
                depth.
            oldest_other: returns the time of ``clock`` at which the oldest of these was queued;
                called without the queue's lock.
        """
        if max_reasons < 1:
            raise ValueError(f"max_reasons={max_reasons}: keep at least 1")
        self.rate_limiter: RateLimiter = rate_limiter or ItemExponential()
        self._clock = clock = present_clock(clock)
        # Entered directly: through the condition it costs one more call, four times a key.
        # Re-entrant, because a signal handler may shut down in a thread that is inside.
        self._lock = lock = threading.RLock()
        self._condition = threading.Condition(lock)
        # A second condition, so that the notification for a key only reaches threads in get().
        self._became_idle = threading.Condition(lock)
        self._state: QueueState[K] = QueueState(max_reasons=max_reasons)
        self._is_shut_down = False
        self._is_draining = False
        self._has_to_drop = False
        self.is_held: bool = False
        """Whether :meth:`hold` was called, and :meth:`let_go` was not yet."""
        self._sleepers = 0
        # Only one sleeping thread waits for the next due time; the others wait for notifications.
        self._timed_until: float | None = None
        self._retries = 0
        self._queue_time = LocalHistogram(_SECONDS)
        self._work_time = LocalHistogram(_SECONDS)
        self._labels = (name, controller or name)
        self._others = others
        self._oldest_other = oldest_other
        self._priorities = {0: "0"}
        self._process = OneProcess(f"the queue {name!r}", "make it in the child")
        after_fork(self._on_fork)
        self._retire: Callable[[], None] = lambda: None
        if metrics is not None:  # last, because a scrape may follow at once
            self.publish(metrics)

    def publish(self, metrics: Metrics) -> None:
        """Write to ``metrics`` from now on."""
        self._retire = metrics.add_source(self._samples)

    # For callers with an order of their own.

    def tickets(self, count: int) -> range:
        """Reserve positions in the order of arrival, for later :meth:`add` calls."""
        with self._lock:
            return self._state.tickets(count, self._clock.monotonic())

    def next_ticket(self) -> int | None:
        """The ticket of the next key; None if no key is ready."""
        with self._lock:
            return self._state.next_ticket(self._clock.monotonic())

    def holds_others(self, own: Iterable[K], others: Iterable[K]) -> list[bool] | None:
        """Which of ``others`` are queued or processed; None: nothing is, except perhaps ``own``."""
        with self._lock:
            state = self._state
            return [state.holds(other) for other in others] if state.has_others(own) else None

    def add(
        self,
        key: K,
        *,
        priority: int = 0,
        after: float = 0.0,
        ticket: int | None = None,
        reason: Any = None,
    ) -> None:
        """Queue ``key``.

        Args:
            key: the key.
            priority: a higher priority goes first; of two adds of a key, the higher counts.
            after: seconds before which it must not be handed out; of two adds, the earlier time
                counts.
            ticket: a position from :meth:`tickets`; default, and always with ``after``: behind all
                other keys.
            reason: the reason, for logs and debug pages; turned into text only when shown.

        After :meth:`shut_down` the call does nothing.

        Raises:
            TypeError: the priority is not a whole number.
        """
        lock = self._lock
        if get_ident() == _MAIN_THREAD:
            with lock:
                self._add(key, priority, after, ticket, reason)
            return
        if not lock.acquire(False):
            self._take_turn()
        try:
            self._add(key, priority, after, ticket, reason)
        finally:
            lock.release()

    def _add(self, key: K, priority: int, after: float, ticket: int | None, reason: Any) -> None:
        if self._is_shut_down:
            return
        if type(priority) is not int:  # one that cannot be compared would block the queue
            check_count("priority", priority)
        now = self._clock.monotonic()
        if after > 0:
            self._retries += 1
        self._state.add(key, now, priority=priority, delay=after, ticket=ticket, reason=reason)
        if self._sleepers:
            self._pass_on(now)

    def add_all(
        self, keys: Iterable[K], *, priority: int = 0, tickets: Iterable[int] | None = None
    ) -> None:
        """Queue many keys at the cost of one, each with its ticket, or behind all other keys.

        Raises:
            TypeError: the priority is not a whole number.
        """
        check_count("priority", priority)
        # Outside the lock: an iterable may run code of its owner, and fail.
        pairs: list[tuple[K, int | None]] = (
            [(key, None) for key in keys]
            if tickets is None
            else list(zip(keys, tickets, strict=True))
        )
        with self._lock:
            if self._is_shut_down:
                return
            now = self._clock.monotonic()
            add = self._state.add
            for key, ticket in pairs:
                add(key, now, priority=priority, ticket=ticket)
            if self._sleepers:
                self._pass_on(now)

    def add_rate_limited(
        self, key: K, *, priority: int = 0, after: float | None = None, reason: Any = None
    ) -> float:
        """Queue ``key`` after the rate limiter's delay, or ``after`` seconds if that is sooner.

        Returns:
            The delay in seconds.
        """
        delay = self.rate_limiter.when(key)
        if after is not None:
            delay = min(delay, after)
        self.add(key, priority=priority, after=delay, reason=reason)
        return delay

    def forget(self, key: K) -> None:
        """Reset the rate limiter for ``key``; a queued key stays queued."""
        self.rate_limiter.forget(key)

    def failures(self, key: K) -> int:
        """How often ``key`` was rate limited since the last :meth:`forget`."""
        return self.rate_limiter.failures(key)

    def get(self) -> QueueItem[K] | None:
        """Wait for the next key and lock it; None once the queue is shut down.

        Call :meth:`done` when the work is over, even if it has failed.
        """
        with self._lock:
            now = self._clock.monotonic()
            item = self._hand_out(now)
            if item is not None:
                if self._sleepers:
                    self._pass_on(now)
                return item
            item = self._wait_for_key(now)
            is_over = item is None and self._is_idle(self._clock.monotonic())
        if is_over:
            self._retire()
        return item

    @property
    def has_sleepers(self) -> bool:
        """Whether a thread waits in :meth:`get`."""
        return self._sleepers > 0

    def try_get(self) -> QueueItem[K] | None:
        """The next key if one is ready, without waiting."""
        with self._lock:
            return self._hand_out(self._clock.monotonic())

    def done(self, key: K, *, pieces: int = 1, waited: float = 0.0) -> None:
        """Unlock ``key``; if it was added in the meantime, it may be handed out again.

        Args:
            key: the key.
            pieces: the number of pieces of work, for a key that stands for several.
            waited: the seconds for which each further piece was queued.
        """
        with self._lock:
            now = self._clock.monotonic()
            if not self._unlock(key, now, pieces, waited):
                return
            is_idle = self._is_idle(now)
            if is_idle:
                self._became_idle.notify_all()
            if self._is_shut_down:
                self._condition.notify_all()
            elif self._sleepers:
                self._pass_on(now)
            is_over = self._is_shut_down and is_idle
        if is_over:
            self._retire()

    def done_and_get(self, key: K) -> QueueItem[K] | None:
        """:meth:`done` and :meth:`get` in one, at half of the cost.

        No other thread is woken for a key that the caller takes itself.
        """
        lock = self._lock
        if get_ident() == _MAIN_THREAD:
            with lock:
                item = self._next_after(key)
        else:
            if not lock.acquire(False):
                self._take_turn()
            try:
                item = self._next_after(key)
            finally:
                lock.release()
        if item is None:
            with lock:
                is_over = self._is_idle(self._clock.monotonic())
            if is_over:
                self._retire()
        return item

    def exchange(self, key: K, *, unless: Container[K] = ()) -> QueueItem[K] | None:
        """:meth:`done` and :meth:`get` in one if a key is ready; else nothing, and no wait.

        Args:
            key: the key that is done.
            unless: the keys that are not to be taken this way: if one of them is the next, nothing
                is done.

        Returns:
            The next key, or None. Then ``key`` is still the caller's, who says :meth:`done` later.
        """
        lock = self._lock
        if not lock.acquire(False):
            self._take_turn()
        try:
            now = self._clock.monotonic()
            if self._is_shut_down or self.is_held:
                return None
            following = self._state.next_key(now)
            if following is None or following in unless:
                return None
            self._unlock(key, now)
            item = self._hand_out(now)  # perhaps the same key, which was added meanwhile
            if self._sleepers:
                self._pass_on(now)
            return item
        finally:
            lock.release()

    def _next_after(self, key: K) -> QueueItem[K] | None:
        now = self._clock.monotonic()
        self._unlock(key, now)
        item = self._hand_out(now)
        if item is not None:
            if self._sleepers:
                self._pass_on(now)
            return item
        if self._is_idle(now):
            self._became_idle.notify_all()
        if self._is_shut_down:
            self._condition.notify_all()
        return self._wait_for_key(now)

    def _take_turn(self) -> None:
        """Take the lock, which another thread has.

        Not for the main thread: Ctrl-C may come between any two of its steps, and only a ``with``
        statement on the lock itself gives back what it has taken by then.

        Threads that block on a lock get it in turn, each by a switch of threads, and the one that
        gives it back has to wait for all of them before its next key. So the interpreter goes to
        another thread instead, in which the lock's holder may be, and this one tries again.

        Its callers say twice how the lock is taken: to hand their steps to one function costs 5 %
        of the instructions of a reconcile that does nothing.
        """
        for _ in range(_TURNS):
            yield_to_threads()
            if self._lock.acquire(False):
                return
        self._lock.acquire()

    def _unlock(self, key: K, now: float, pieces: int = 1, waited: float = 0.0) -> bool:
        since = self._state.done(key)
        if since is None:
            _log.warning("done(%r) without get(): ignored", key)
            return False
        if pieces == 1:
            self._work_time.observe(now - since)
        elif pieces:
            self._work_time.observe((now - since) / pieces, pieces)
            self._queue_time.observe(waited, pieces - 1)
            self._state.adds += pieces - 1
        return True

    def hold(self) -> None:
        """Hand out no key until :meth:`let_go`. Harmless when called twice.

        Keys can still be added, and their delays run.
        """
        with self._lock:
            self.is_held = True

    def let_go(self) -> None:
        """Hand out keys again, after :meth:`hold`."""
        with self._lock:
            self.is_held = False
            self._condition.notify_all()

    def shut_down(self, *, drain: bool = False) -> None:
        """Refuse new keys and let :meth:`get` return None. Calling it again is harmless.

        Args:
            drain: whether to hand out the ready keys first, also those that were added while they
                are processed. By default, and while the queue is held, they are dropped. Keys whose
                delay is not over are always dropped.
        """
        is_interrupted = self._is_inside()
        with self._lock:
            drain = drain and not self.is_held
            self._is_draining = drain and (self._is_draining or not self._is_shut_down)
            self._is_shut_down = self._has_to_drop = True
            # A call that a signal handler has interrupted still uses the keys; the next call drops
            # them.
            is_over = not is_interrupted and self._is_idle(self._clock.monotonic())
            if is_over:
                self._became_idle.notify_all()
            self._condition.notify_all()
        # Keys that are still processed still count; the last done() retires the metrics.
        if is_over:
            self._retire()

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until no key is ready or processed; False after ``timeout`` seconds."""
        with self._lock:
            clock = self._clock
            deadline = None if timeout is None else clock.monotonic() + timeout
            while not self._is_idle(self._clock.monotonic()):
                left = None if deadline is None else deadline - clock.monotonic()
                if left is not None and left <= 0:
                    return False
                clock.wait(self._became_idle, left)
            return True

    def __len__(self) -> int:
        """The number of ready keys; waiting ones do not count."""
        with self._lock:
            return self._state.ready_count(self._clock.monotonic())

    @property
    def waiting(self) -> int:
        """The number of keys whose delay is not over."""
        with self._lock:
            self._state.has_ready(self._clock.monotonic())
            return self._state.waiting_count

    @property
    def oldest_wait(self) -> float | None:
        """Seconds since the oldest ready key, or other piece of work, became ready; None if there
        is none."""
        oldest_other = self._oldest_other()  # without the lock, as in _samples
        with self._lock:
            now = self._clock.monotonic()
            oldest = self._oldest(now, oldest_other)
        return None if oldest is None else max(0.0, now - oldest)

    def _oldest(self, now: float, oldest_other: float | None) -> float | None:
        ready_since = (self._state.oldest_ready(now), oldest_other)
        return min((since for since in ready_since if since is not None), default=None)

    @property
    def next_due(self) -> float | None:
        """The monotonic time at which the next waiting key is due; None when no key waits."""
        with self._lock:
            return self._state.next_due()

    def snapshot(self) -> list[dict[str, Any]]:
        """Every queued key with place, priority, seconds to go and reasons, for debug pages."""
        with self._lock:
            now = self._clock.monotonic()
            self._state.has_ready(now)
            entries = list(self._state.snapshot())
        # Outside the lock: the text of a reason comes from code of its owner.
        return [
            {
                "key": key,
                "place": place,
                "priority": priority,
                "due_in": max(0.0, due - now) if place == "waiting" else 0.0,
                "reasons": [safe_text(reason) for reason in reasons],
            }
            for key, place, priority, due, reasons in entries
        ]

    def _wait_for_key(self, now: float) -> QueueItem[K] | None:
        try:
            while True:
                if self._is_shut_down and (not self._is_draining or self._is_idle(now)):
                    return None
                self._sleep(now)
                now = self._clock.monotonic()
                item = self._hand_out(now)
                if item is not None:
                    return item
        finally:
            if self._sleepers:
                self._pass_on(self._clock.monotonic())

    def _is_inside(self) -> bool:
        """Whether this thread has the lock already: the caller is a signal handler."""
        try:
            self._condition.notify(0)
        except RuntimeError:
            return False
        return True

    def _drop(self, now: float) -> None:
        """After a shut-down: drop the keys that will not be handed out."""
        self._has_to_drop = False
        if self._is_draining:
            self._state.drop_waiting(now)
        else:
            self._state.drop_all()

    def _hand_out(self, now: float) -> QueueItem[K] | None:
        if self._has_to_drop:
            self._drop(now)
        item = None if self.is_held else self._state.pop(now)
        if item is not None:
            self._queue_time.observe(item.waited)
        return item

    def _is_idle(self, now: float) -> bool:
        if self._has_to_drop:
            self._drop(now)
        state = self._state
        return not state.locked and not state.depth and not state.ready_count(now)

    def _sleep(self, now: float) -> None:
        due = None if self.is_held else self._state.next_due()
        timed = due is not None and (self._timed_until is None or due < self._timed_until)
        self._sleepers += 1
        if timed:
            self._timed_until = due
        try:
            self._clock.wait(self._condition, due - now if timed and due is not None else None)
        finally:
            self._sleepers -= 1
            if timed and self._timed_until == due:
                self._timed_until = None

    def _pass_on(self, now: float) -> None:
        """Wake a sleeping thread if a key is ready, or if no thread waits for the next due time.

        Each thread that leaves :meth:`get` calls it, too: one notification may stand for several
        keys, and the thread may have been the one that waited for the due time. So each thread
        wakes the next, until no key is ready.
        """
        if self.is_held:
            return
        state = self._state
        due = state.next_due()
        if (
            due is not None and (self._timed_until is None or due < self._timed_until)
        ) or state.has_ready(now):
            self._condition.notify()

    def _on_fork(self) -> None:
        # The threads that process keys, and perhaps hold the lock, are in the parent. The refusal
        # replaces the lock, so that it costs nothing in the parent.
        self._lock = cast("Any", _Refusal(self._process))

    def _samples(self) -> list[Sample]:
        if self._process.inherited:
            return []
        # Without the lock, which its owner takes under one of its own.
        oldest_other = self._oldest_other()
        with self._lock:
            now = self._clock.monotonic()
            labels = self._labels
            self._state.has_ready(now)
            running = [now - since for since in self._state.locked.values()]
            for priority in self._state.depth:
                if priority not in self._priorities and len(self._priorities) < _MAX_PRIORITIES:
                    self._priorities[priority] = str(priority)
            oldest = self._oldest(now, oldest_other)
            depth = dict.fromkeys(self._priorities.values(), 0)
            depth["0"] += self._others()
            for priority, count in self._state.depth.items():
                name = self._priorities.get(priority, _TOO_MANY)
                depth[name] = depth.get(name, 0) + count
            return [
                *(Sample(_DEPTH, (*labels, name), count) for name, count in depth.items()),
                Sample(_ADDS, labels, self._state.adds),
                Sample(_RETRIES, labels, self._retries),
                Sample(_QUEUE_TIME, labels, self._queue_time.copy()),
                Sample(_WORK_TIME, labels, self._work_time.copy()),
                Sample(_UNFINISHED, labels, sum(running)),
                Sample(_LONGEST, labels, max(running, default=0.0)),
                Sample(_OLDEST, labels, 0.0 if oldest is None else max(0.0, now - oldest)),
            ]


_MAIN_THREAD: Final = threading.main_thread().ident
_TURNS: Final = 100
"""The tries of a thread to take the lock before it waits for it."""
_TOO_MANY = "exceeded_cardinality_limit"


@final
class _Refusal:
    """The replacement of the lock in a forked child: entering it raises ForkedError."""

    def __init__(self, process: OneProcess) -> None:
        self._process = process

    def __enter__(self) -> None:
        self._process.refuse()

    def acquire(self, _: bool) -> bool:
        self._process.refuse()
        return True

    def __exit__(self, *_: object) -> None:
        pass
