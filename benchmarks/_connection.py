"""A connection of the replay server, plain or encrypted, with its bytes prepared beforehand."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator
from typing import Protocol

__all__ = ["Connection", "EncryptedConnection", "PlainConnection"]

_READ = 65536
# How much is gathered before it is handed on, so that a client need not wait for all of it.
_BATCH = 1 << 20


class Connection(Protocol):
    """What requests come from and answers go to."""

    def read(self) -> bytes:
        """What has come; waits for the first byte; ``b""`` at the end."""
        ...

    def seal(self, pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        """What is to be sent for these pieces, in large buffers.

        What was sealed first must be sent first, and all of it.
        """
        ...

    def send_sealed(self, data: bytes | memoryview) -> None:
        """Send what :meth:`seal` made."""
        ...

    def send(self, *pieces: bytes | memoryview) -> None:
        """Seal and send."""
        ...


class PlainConnection:
    """Bytes as they are."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def read(self) -> bytes:
        """What has come."""
        return self._socket.recv(_READ)

    def seal(self, pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        """The pieces themselves."""
        return iter(pieces)

    def send_sealed(self, data: bytes | memoryview) -> None:
        """Send it."""
        self._socket.sendall(data)

    def send(self, *pieces: bytes | memoryview) -> None:
        """Send all of them."""
        for piece in pieces:
            self._socket.sendall(piece)


class EncryptedConnection:
    """TLS in memory: each piece is a record of its own, as API servers flush each event.

    Records have numbers, so they can be made long before they are sent, but in their order.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        """Shake hands.

        Raises:
            OSError: the client went away, or does not trust us.
        """
        self._socket = connection
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._feed()
        self._flush()

    def read(self) -> bytes:
        """What has come."""
        while True:
            try:
                return self._tls.read(_READ)
            except ssl.SSLWantReadError:
                self._feed()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def seal(self, pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        """The records of the pieces."""
        write, outgoing = self._tls.write, self._outgoing
        for piece in pieces:
            write(piece)
            if outgoing.pending >= _BATCH:
                yield outgoing.read()
        if outgoing.pending:
            yield outgoing.read()

    def send_sealed(self, data: bytes | memoryview) -> None:
        """Send the records."""
        self._socket.sendall(data)

    def send(self, *pieces: bytes | memoryview) -> None:
        """Encrypt and send all of them, each as soon as it is encrypted."""
        for piece in pieces:
            for start in range(0, len(piece), _BATCH):
                self._tls.write(piece[start : start + _BATCH])
                self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.sendall(self._outgoing.read())

    def _feed(self) -> None:
        data = self._socket.recv(_READ)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
