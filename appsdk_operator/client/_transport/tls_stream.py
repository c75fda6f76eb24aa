"""TLS that decrypts in bulk.

An ``SSLSocket`` makes two system calls for each record, and API servers flush one record for each
watch event. Here one system call brings 64 KiB or more, and all records in it are decrypted at
once: that more than halves the cost of an event. The layer below is any byte stream, so the same
class speaks TLS inside the TLS of an HTTPS proxy.
"""

from __future__ import annotations

import io
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from appsdk_operator.runtime import forks_wait

# The least that is worth a system call; a larger read asks for more.
_READ = 65536
_RECORD = 16384


class ByteStream(Protocol):
    """The layer below TLS: a connected socket, or another :class:`TLSStream`."""

    @property
    def recv(self) -> Callable[[int], bytes]:
        """Read at most this many bytes; ``b""`` at the end."""
        ...

    def sendall(self, data: bytes, /) -> None:
        """Send all of it."""
        ...


def ascii_name(name: str) -> str | bytes:
    """A host name as bytes; as text if it is not ASCII.

    Python takes bytes as they are. For text it loads the codec of international names, whose tables
    take 200 KB.
    """
    return name.encode() if name.isascii() else name


class TLSStream:
    """The client's side of a TLS connection over ``inner``, for one thread at a time."""

    def __init__(self, inner: ByteStream, context: ssl.SSLContext, server_name: str) -> None:
        """Shake hands.

        Raises:
            ssl.SSLError: the handshake failed.
            OSError: the stream below failed.
        """
        self._inner = inner
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        with forks_wait:
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_hostname=ascii_name(server_name)
            )
        self._read: Callable[..., Any] | None = None
        """Reads what was decrypted; None before the first data."""
        while True:
            try:
                with forks_wait:
                    self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._feed()
            except ssl.SSLError:
                # The alert that tells the server why.
                self._flush()
                raise
        self._flush()

    def sendall(self, data: bytes, /) -> None:
        """Encrypt and send all of ``data``."""
        view = memoryview(data)
        while view:
            # In portions, so that the encrypted copy of a large body never exists as a whole.
            written = self._tls.write(view[: 16 * _RECORD])
            view = view[written:]
            self._flush()

    def recv(self, limit: int, /) -> bytes:
        """Wait for bytes, and return at most ``limit`` of them."""
        buffer = bytearray(min(limit, _READ))
        return bytes(memoryview(buffer)[: self.recv_into(memoryview(buffer))])

    def recv_now(self, limit: int, /) -> bytes | None:
        """At most ``limit`` bytes of what the stream below delivers in one read; None: it delivered
        a part of a record, or records of TLS itself."""
        self._feed()
        try:
            data: bytes = (self._read or self._first_read)(min(limit, _RECORD))
        except ssl.SSLWantReadError:
            self._flush()
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""
        return data

    def _first_read(self, *arguments: Any) -> Any:
        """Read what follows the handshake, too: tickets for later ones."""
        with forks_wait:
            found = self._tls.read(*arguments)
        self._read = self._tls.read
        return found

    def pending(self) -> bool:
        """Whether received bytes were not read yet."""
        below = isinstance(self._inner, TLSStream) and self._inner.pending()
        return bool(below or self._incoming.pending or self._tls.pending())

    def recv_into(self, view: memoryview) -> int:
        """Wait for a record, and fill ``view`` with all records that have come; 0 at the end."""
        filled = 0
        size = len(view)
        read = self._read or self._first_read
        incoming = self._incoming
        while filled < size:
            # A check for an empty buffer costs less than the exception that it raises.
            if filled and not incoming.pending and not self._tls.pending():
                return filled
            try:
                count = read(size - filled, view[filled:])
            except ssl.SSLWantReadError:
                # A key update among the records requires an answer.
                self._flush()
                if filled:
                    return filled
                self._feed(size)
                continue
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                # Also without close_notify: HTTP's framing shows whether the answer is complete.
                return filled
            if not count:
                return filled
            filled += count
        return filled

    def makefile(self) -> io.RawIOBase:
        """An unbuffered reader of the decrypted bytes."""
        return _RawReader(self)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._inner.sendall(self._outgoing.read())

    def _feed(self, wanted: int = _READ) -> None:
        data = self._inner.recv(max(_READ, wanted))
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()


class _RawReader(io.RawIOBase):
    def __init__(self, stream: TLSStream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        return self._stream.recv_into(memoryview(buffer))
