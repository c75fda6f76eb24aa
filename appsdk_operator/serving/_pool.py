"""The open connections of an HTTP server: how many, until when, and which one makes room."""

from __future__ import annotations

import socket
import threading
from typing import Final, final

from appsdk_operator.runtime import Clock, StopSignal
from appsdk_operator.serving._connection import ConnectionPhase, HTTPLimits, ServerConnection

__all__ = ["ConnectionPool"]

_SLOW_SECONDS: Final = 1.0
"""Seconds for which a client may send a body, or read an answer, while others want its place; and
to take the answer that its time is up."""

_QUEUE_SECONDS: Final = 10.0
"""Seconds for which a request waits for its turn: the default time-out of Prometheus' scrapes."""


@final
class ConnectionPool:
    """Knows each open connection, and cuts off the ones whose time is up. Thread-safe."""

    def __init__(self, limits: HTTPLimits, clock: Clock) -> None:
        """An empty pool."""
        self._limits = limits
        self._clock = clock
        # Guards all below; notified when a connection goes, waits, or has an earlier deadline.
        self._changed = threading.Condition()
        self._connections: set[ServerConnection] = set()
        self._nearest: float | None = None
        self._is_draining = False
        # Whether a new connection waits for a place, and nobody is about to give one.
        self._needs_capacity = False

    def __len__(self) -> int:
        return len(self._connections)

    def wake(self) -> None:
        """Have everybody who waits look at their stop signal."""
        with self._changed:
            self._changed.notify_all()

    def add(self, connection: ServerConnection) -> None:
        """Take in a new connection."""
        with self._changed:
            connection.since = self._clock.monotonic()
            self._connections.add(connection)
            if self._is_draining:
                connection.expire()

    def remove(self, connection: ServerConnection) -> None:
        """Close a connection, which nobody cuts off from now on."""
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()
        connection.close()

    def enter(
        self, connection: ServerConnection, phase: ConnectionPhase, seconds: float | None
    ) -> None:
        """Note what a connection does now, and that it is cut off after ``seconds``."""
        with self._changed:
            now = self._clock.monotonic()
            if connection.is_expired and seconds is not None:
                # It is to take its last answer and go.
                seconds = min(seconds, _SLOW_SECONDS)
            connection.phase = phase
            connection.since = now
            connection.deadline = None if seconds is None else now + seconds
            if phase == "waiting":
                connection.turn = None
                if self._is_draining or (self._needs_capacity and connection.answers):
                    # Or who sends one request after another would never be seen to wait.
                    self._needs_capacity = False
                    connection.expire()
                self._changed.notify_all()
            elif connection.is_expired or (
                connection.deadline is not None
                and (self._nearest is None or connection.deadline < self._nearest)
            ):
                self._changed.notify_all()

    def take_turn(
        self, connection: ServerConnection, turn: object, limit: int, stop: StopSignal
    ) -> bool:
        """Wait until fewer than ``limit`` requests that have a ``turn`` are being answered.

        The answer of a client that takes it too slowly makes room, as for a new connection. The
        next one is of the peer that has the fewest turns, so that one peer cannot keep others out.

        Returns:
            False after ten seconds, at a stop, or when its place is wanted.
        """
        with self._changed:
            begun = connection.since = self._clock.monotonic()
            connection.phase, connection.turn = "queued", turn
            while not (stop.is_set() or connection.is_expired):
                mine = [c for c in self._connections if c.turn is turn]
                busy = [c for c in mine if c.phase != "queued"]
                queued = [c for c in mine if c.phase == "queued"]
                first = min(queued, key=lambda c: (_count(busy, c.peer), c.since))
                left = begun + _QUEUE_SECONDS - self._clock.monotonic()
                if left <= 0:
                    break
                if first is connection:
                    if len(busy) < limit:
                        connection.phase = "handling"
                        self._changed.notify_all()  # the next one may have a turn, too
                        return True
                    left = min(left, self._evict_slow_reader(busy))
                self._clock.wait(self._changed, left)
            # All that is left is to say so; were it "handling", another one would make room, too.
            connection.phase, connection.turn = "writing", None
            self._changed.notify_all()
        return False

    def _evict_slow_reader(self, busy: list[ServerConnection]) -> float:
        """Cut off the slowest reader of an answer; the seconds until there may be one."""
        writing = [c for c in busy if c.phase == "writing"]
        if any(c.is_expired for c in writing):
            return _QUEUE_SECONDS  # it is about to go
        found = min(writing, key=lambda c: c.since, default=None)
        if found is None:
            return _QUEUE_SECONDS
        left = found.since + _SLOW_SECONDS - self._clock.monotonic()
        if left <= 0:
            found.expire()
            return _QUEUE_SECONDS
        return left

    def wait_for_capacity(self, stop: StopSignal) -> bool:
        """Wait until another connection may come; False at a stop.

        The one that has waited longest for a request goes; or else the latest that is queued, of
        the peer that has most of those; or else, after a moment, the one whose client has kept us
        waiting longest. Where all are at work, one has to end.
        """
        victim: ServerConnection | None = None
        with self._changed:
            while not stop.is_set():
                if len(self._connections) < self._limits.max_connections:
                    self._needs_capacity = False
                    return True
                # One that had a request after all may be at work for long: another goes, too.
                left: float | None = None
                if victim not in self._connections or victim.phase == "handling":
                    victim, left = self._next_eviction()
                    if victim is not None:
                        victim.expire()
                        self._changed.notify_all()
                self._needs_capacity = victim is None
                self._clock.wait(self._changed, left)
        return False

    def _next_eviction(self) -> tuple[ServerConnection | None, float | None]:
        """Which connection is to make room; or, if none yet, in how many seconds one may be."""
        idle = [c for c in self._connections if c.phase == "waiting"]
        slow = [c for c in self._connections if c.phase in ("reading", "writing")]
        found = min(idle or slow, key=lambda c: c.since, default=None)
        queued = [c for c in self._connections if c.phase == "queued"]
        if queued and not idle:
            return max(queued, key=lambda c: (_count(queued, c.peer), c.since)), None
        if found is None or idle:
            return found, None
        left = found.since + _SLOW_SECONDS - self._clock.monotonic()
        return (None, left) if left > 0 else (found, None)

    def watch(self, stop: StopSignal) -> None:
        """Cut off connections whose time is up, until the stop."""
        with self._changed:
            while not stop.is_set():
                self._wait()

    def close_idle(self) -> None:
        """Cut off connections that have no request under way, from now on at once."""
        with self._changed:
            self._is_draining = True
            for connection in self._connections:
                if connection.phase == "waiting":
                    connection.expire()

    def drain(self, timeout: float) -> None:
        """Wait for all connections to end, and cut off those that are left after ``timeout``."""
        with self._changed:
            deadline = self._clock.monotonic() + timeout
            while self._connections and self._clock.monotonic() < deadline:
                self._wait(deadline)
            for connection in self._connections:
                connection.cut()

    def handled(self) -> list[str]:
        """The paths of the requests that handlers are busy with."""
        with self._changed:
            return sorted(c.path for c in self._connections if c.phase == "handling")

    def _wait(self, until: float | None = None) -> None:
        """Cut off connections whose time is up, and wait for a change or the next one's time."""
        now = self._clock.monotonic()
        for connection in self._connections:
            if connection.deadline is not None and connection.deadline <= now:
                connection.deadline = None
                connection.expire()
        deadlines = [c.deadline for c in self._connections if c.deadline is not None]
        if until is not None:
            deadlines.append(until)
        self._nearest = min(deadlines, default=None)
        self._clock.wait(self._changed, None if self._nearest is None else self._nearest - now)


def _count(connections: list[ServerConnection], peer: str) -> int:
    return sum(connection.peer == peer for connection in connections)


def peer_of(name: object) -> str:
    """The host of a peer's name; IPv4 addresses that came in over IPv6 as IPv4."""
    host = str(name[0]) if isinstance(name, tuple) and name else ""
    return host.removeprefix("::ffff:")


def configure(sock: socket.socket) -> None:
    """Blocking, and without delay: a response is one write."""
    sock.setblocking(True)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
