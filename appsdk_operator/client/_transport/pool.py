"""The pool of idle connections."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from appsdk_operator.client._auth.credentials import Credential
from appsdk_operator.client._transport.connection import Connection, Endpoint
from appsdk_operator.runtime import Clock, after_fork

# client-go's numbers: load balancers drop idle connections after some minutes, and more than 25
# idle ones are left over from a burst.
_MAX_IDLE_SECONDS = 90.0
_MAX_IDLE = 25


class Pool:
    """Idle connections to one endpoint, the last used first. Thread-safe."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        # Without a lock, which a signal handler that closes the client would wait for if it
        # interrupted its holder: additions and removals are atomic.
        self._idle: list[Connection] = []
        self._closed = False
        after_fork(self._on_fork)

    def take(
        self,
        credential: Credential,
        started: Callable[[Connection], object],
        *,
        fresh: bool = False,
    ) -> Connection:
        """An idle connection that is still open, else a new one.

        Args:
            credential: has the certificate that it must have shown.
            started: called with the connection before it can block.
            fresh: always open a new one.

        Raises:
            ConnectFailed: a new one was needed and could not be opened.
        """
        while not fresh:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            try:
                is_usable = self._usable(connection, credential)
            except BaseException:  # such as a certificate that cannot be used
                connection.close()
                raise
            if is_usable:
                started(connection)
                return connection
            connection.close()
        return self._endpoint.connect(credential, started)

    def put(self, connection: Connection) -> None:
        """Return a connection whose answer was read to its end."""
        connection.idle_since = self._clock.monotonic()
        if connection.aborted or len(self._idle) >= _MAX_IDLE:
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:  # checked last, as the pool may have been closed just before
            self.clear()

    def clear(self) -> None:
        """Close the idle connections."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def close(self) -> None:
        """Close the idle connections, and later ones when they are returned."""
        self._closed = True
        self.clear()

    def _on_fork(self) -> None:
        # They are the parent's; each has dropped its socket itself.
        self._idle = []

    def _usable(self, connection: Connection, credential: Credential) -> bool:
        return (
            connection.generation == self._endpoint.generation(credential)
            and self._clock.monotonic() - connection.idle_since < _MAX_IDLE_SECONDS
            and not connection.is_stale()
        )
