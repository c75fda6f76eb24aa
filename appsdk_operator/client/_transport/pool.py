"""The pool of idle connections."""

from __future__ import annotations

import threading
from collections.abc import Callable

from appsdk_operator.client._transport.connection import Connection, Endpoint
from appsdk_operator.runtime import Clock, after_fork, fork_safe

# client-go's numbers: load balancers drop idle connections after some minutes, and more than 25
# idle ones are left over from a burst.
_MAX_IDLE_SECONDS = 90.0
_MAX_IDLE = 25


class Pool:
    """Idle connections to one endpoint, the last used first. Thread-safe."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._lock = fork_safe(threading.Lock())
        self._idle: list[Connection] = []
        self._closed = False
        after_fork(self._on_fork)

    def take(self, started: Callable[[Connection], object], *, fresh: bool = False) -> Connection:
        """An idle connection that is still open, else a new one.

        Args:
            started: called with the connection before it can block.
            fresh: always open a new one.

        Raises:
            ConnectFailed: a new one was needed and could not be opened.
        """
        while not fresh:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            try:
                is_usable = self._usable(connection)
            except BaseException:  # such as a plugin for certificates that fails
                connection.close()
                raise
            if is_usable:
                started(connection)
                return connection
            connection.close()
        return self._endpoint.connect(started)

    def put(self, connection: Connection) -> None:
        """Return a connection whose answer was read to its end."""
        connection.idle_since = self._clock.monotonic()
        with self._lock:
            if not self._closed and not connection.aborted and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def clear(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close the idle connections, and later ones when they are returned."""
        self._closed = True
        self.clear()

    def _on_fork(self) -> None:
        # They are the parent's; each has dropped its socket itself.
        self._idle = []

    def _usable(self, connection: Connection) -> bool:
        return (
            connection.generation == self._endpoint.generation
            and self._clock.monotonic() - connection.idle_since < _MAX_IDLE_SECONDS
            and not connection.is_stale()
        )
