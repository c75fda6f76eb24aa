"""The open connections of an HTTP server: their number, their deadlines, and which to evict."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

import msgspec

from appsdk_operator.runtime import Clock, StopSignal
from appsdk_operator.serving._limits import HTTPLimits

if TYPE_CHECKING:
    from appsdk_operator.serving._connection import ConnectionPhase, ServerConnection


_SLOW_SECONDS: Final = 1.0
"""Seconds that a client may take to send a body or read an answer while others need its slot, and
to read the answer that its time is up."""

_QUEUE_SECONDS: Final = 10.0
"""Seconds that a request waits for a :class:`RequestLimit`: Prometheus' default scrape time-out."""


@final
class RequestLimit(msgspec.Struct, frozen=True, eq=False):
    """How many requests of one sort may be answered at once."""

    count: int


@final
class ConnectionPool:
    """Tracks the open connections, and expires those whose time is up. Thread-safe."""

    def __init__(
        self,
        limits: HTTPLimits,
        clock: Clock,
        on_late: Callable[[ServerConnection], None] = lambda _: None,
    ) -> None:
        """An empty pool.

        Args:
            limits: the limits for clients.
            clock: the clock of the deadlines.
            on_late: called when a handler exceeds its time limit, with the pool's lock held.
        """
        self._limits = limits
        self._on_late = on_late
        self._clock = clock
        # Guards all below; notified when a connection goes, waits, or has an earlier deadline.
        self._changed = threading.Condition()
        self._connections: set[ServerConnection] = set()
        self._nearest_deadline: float | None = None
        # Threads that wait for a connection to wait, or to go.
        self._waiting_for_others = 0
        self._is_draining = False
        # Bytes of all bodies, except of those that were refused.
        self._held = 0
        # Whether a new connection waits for a slot, and no connection has been expired for it.
        self._needs_capacity = False
        self.is_watched = False
        """Whether a thread is in :meth:`watch`, or about to be."""

    def __len__(self) -> int:
        return len(self._connections)

    def wake(self) -> None:
        """Wake all waiting threads, which check their stop signal."""
        with self._changed:
            self._changed.notify_all()

    def add(self, connection: ServerConnection) -> bool:
        """Add a new connection.

        Returns:
            Whether a thread is in :meth:`watch`. If False, the caller starts one that is.
        """
        with self._changed:
            is_watched, self.is_watched = self.is_watched, True
            connection.phase_since = self._clock.monotonic()
            self._connections.add(connection)
            if self._is_draining:
                connection.expire()
        return is_watched

    def remove(self, connection: ServerConnection) -> None:
        """Remove a connection and close it; the pool does not expire it any more."""
        with self._changed:
            self._connections.discard(connection)
            self._held -= connection.held
            connection.held = 0
            self._changed.notify_all()
        connection.close()

    def enter(
        self, connection: ServerConnection, phase: ConnectionPhase, seconds: float | None
    ) -> None:
        """Record a connection's phase, and expire the connection after ``seconds`` of it."""
        with self._changed:
            now = self._clock.monotonic()
            if connection.is_expired and phase == "writing" and seconds is not None:
                seconds = min(seconds, _SLOW_SECONDS)
            connection.phase = phase
            connection.phase_since = now
            connection.deadline = None if seconds is None else now + seconds
            if phase == "waiting":
                connection.request_limit = None
                if self._is_draining or (self._needs_capacity and connection.answers):
                    # A client that pipelines requests without end is never seen in this phase.
                    self._needs_capacity = False
                    connection.expire()
            # The thread of `watch` is not woken for nothing: that would cost more than the rest.
            if (
                self._waiting_for_others
                or connection.is_expired
                or (
                    connection.deadline is not None
                    and (
                        self._nearest_deadline is None
                        or connection.deadline < self._nearest_deadline
                    )
                )
            ):
                self._changed.notify_all()

    def hold(self, connection: ServerConnection, size: int) -> None:
        """Count the bytes of a connection's body, from now on ``size``.

        Beyond the limit, the connection that has been sending its body for longest is expired.
        """
        with self._changed:
            if connection.is_refused:
                return
            self._held += size - connection.held
            connection.held = size
            while self._held > self._limits.max_buffered_bytes:
                senders = [c for c in self._connections if c.phase == "reading" and c.held]
                victim = min(senders, key=lambda c: c.phase_since, default=None)
                if victim is None:
                    return
                self._held -= victim.held
                victim.held, victim.is_refused = 0, True
                victim.expire()
                self._changed.notify_all()

    def acquire(self, connection: ServerConnection, limit: RequestLimit, stop: StopSignal) -> bool:
        """Wait until fewer than ``limit.count`` requests that count against ``limit`` are answered.

        A client that reads its answer too slowly is evicted, as for a new connection. The next
        request is of the peer that has the fewest requests under way, so that one peer cannot keep
        others out.

        Returns:
            False after ten seconds, at a stop, or when the connection is expired.
        """
        with self._changed:
            begun = connection.phase_since = self._clock.monotonic()
            connection.phase, connection.request_limit = "queued", limit
            while not (stop.is_set() or connection.is_expired):
                counted = [c for c in self._connections if c.request_limit is limit]
                busy = [c for c in counted if c.phase != "queued"]
                queued = [c for c in counted if c.phase == "queued"]
                first = min(queued, key=lambda c: (_count(busy, c.peer), c.phase_since))
                left = begun + _QUEUE_SECONDS - self._clock.monotonic()
                if left <= 0:
                    break
                if first is connection:
                    if len(busy) < limit.count:
                        connection.phase = "handling"
                        self._changed.notify_all()  # there may be capacity for the next one, too
                        return True
                    left = min(left, self._evict_slow_reader(busy))
                self._wait_for_others(left)
            # Only the refusal is left to send; "handling" would have another one evicted, too.
            connection.phase, connection.request_limit = "writing", None
            self._changed.notify_all()
        return False

    def _wait_for_others(self, seconds: float | None) -> None:
        self._waiting_for_others += 1
        try:
            self._clock.wait(self._changed, seconds)
        finally:
            self._waiting_for_others -= 1

    def _evict_slow_reader(self, busy: list[ServerConnection]) -> float:
        """Expire the slowest reader of an answer; the seconds until there may be one."""
        writing = [c for c in busy if c.phase == "writing"]
        if any(c.is_expired for c in writing):
            return _QUEUE_SECONDS  # it is about to end
        found = min(writing, key=lambda c: c.phase_since, default=None)
        if found is None:
            return _QUEUE_SECONDS
        left = found.phase_since + _SLOW_SECONDS - self._clock.monotonic()
        if left <= 0:
            found.expire()
            return _QUEUE_SECONDS
        return left

    def wait_for_capacity(self, stop: StopSignal) -> bool:
        """Wait until there is capacity for another connection; False at a stop.

        Evicts the connection that has waited longest for a request; or else the latest one that is
        queued, of the peer that has most of those; or else, after a moment, the one whose client
        has been sending or reading longest. While handlers are busy with all, it waits for one.
        """
        victim: ServerConnection | None = None
        with self._changed:
            while not stop.is_set():
                if len(self._connections) < self._limits.max_connections:
                    self._needs_capacity = False
                    return True
                # Where a request arrived in the meantime its handler may take long: evict another.
                left: float | None = None
                if victim not in self._connections or victim.phase == "handling":
                    victim, left = self._next_eviction()
                    if victim is not None:
                        victim.expire()
                        self._changed.notify_all()
                self._needs_capacity = victim is None
                self._wait_for_others(left)
        return False

    def _next_eviction(self) -> tuple[ServerConnection | None, float | None]:
        """The connection to evict; or, if none yet, the seconds until there may be one."""
        idle = [c for c in self._connections if c.phase == "waiting"]
        slow = [c for c in self._connections if c.phase in ("reading", "writing")]
        found = min(idle or slow, key=lambda c: c.phase_since, default=None)
        queued = [c for c in self._connections if c.phase == "queued"]
        if queued and not idle:
            return max(queued, key=lambda c: (_count(queued, c.peer), c.phase_since)), None
        if found is None or idle:
            return found, None
        left = found.phase_since + _SLOW_SECONDS - self._clock.monotonic()
        return (None, left) if left > 0 else (found, None)

    def watch(self, stop: StopSignal) -> None:
        """Expire connections whose time is up, until the stop, or until there are none."""
        with self._changed:
            while self._connections and not stop.is_set():
                self._expire_and_wait()
            self.is_watched = False

    def close_idle(self) -> None:
        """Expire connections that have no request under way, now and as they become idle."""
        with self._changed:
            self._is_draining = True
            for connection in self._connections:
                if connection.phase == "waiting":
                    connection.expire()

    def drain(self, timeout: float) -> None:
        """Wait for all connections to end, and cut those that are left after ``timeout``."""
        with self._changed:
            deadline = self._clock.monotonic() + timeout
            while self._connections and self._clock.monotonic() < deadline:
                self._expire_and_wait(deadline)
            for connection in self._connections:
                connection.cut()

    def handled_paths(self) -> list[str]:
        """The paths of the requests whose handlers run."""
        with self._changed:
            return sorted(c.path for c in self._connections if c.phase == "handling")

    def _expire_and_wait(self, until: float | None = None) -> None:
        """Expire connections whose time is up, and wait for a change or the next deadline."""
        now = self._clock.monotonic()
        for connection in self._connections:
            if connection.deadline is not None and connection.deadline <= now:
                connection.deadline = None
                if connection.phase != "handling":
                    connection.expire()
                elif connection.claim_late_answer():
                    self._on_late(connection)
        deadlines = [c.deadline for c in self._connections if c.deadline is not None]
        if until is not None:
            deadlines.append(until)
        self._nearest_deadline = nearest = min(deadlines, default=None)
        self._clock.wait(self._changed, None if nearest is None else nearest - now)


def _count(connections: list[ServerConnection], peer: str) -> int:
    return sum(connection.peer == peer for connection in connections)
