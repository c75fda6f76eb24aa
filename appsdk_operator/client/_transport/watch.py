"""An open watch: lines in batches, with a limit on silence."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, Self, final

from appsdk_operator._generics import SpecT_co, StatusT_co, subscript
from appsdk_operator.client._errors import (
    BadResponse,
    ConnectionLost,
    TransportError,
    WatchSilent,
    error_from_status,
    is_late,
)
from appsdk_operator.client._redaction import redacted
from appsdk_operator.client._request import Request
from appsdk_operator.client._transport.dechunk import ChunkedLines, LineDecoder, PlainLines
from appsdk_operator.resource import (
    DecodeError,
    Kind,
    Lines,
    WatchEvent,
    WatchEventType,
    decode_watch_event,
)
from appsdk_operator.runtime import StopSignal, system_clock, weak_method
from appsdk_operator.runtime.chunked import StreamFormatError
from appsdk_operator.runtime.validation import check_number

if TYPE_CHECKING:
    from appsdk_operator.client._transport.metrics import RequestMetrics
    from appsdk_operator.client._transport.transport import OpenResponse


# The sizes of reads: small while little comes, because Python allocates the full size, and larger
# while more bytes wait. Each read switches between the reading thread and the handling ones, so
# large reads make a flood cheaper by a third. The largest read is 3 ms of work, by which the first
# event in it may be late.
_READ = 32768
_LARGEST_READ = 1 << 20
_MARGIN = 5.0
_NO_LINES = Lines([])


def _nothing() -> None:
    pass


@final
class WatchStream(Generic[SpecT_co, StatusT_co]):
    """An open watch. Iteration yields batches of lines: the lines that one read completed.

    Each line is the JSON of one event, without its newline, for
    :func:`appsdk_operator.resource.decode_watch_event`; :meth:`events` decodes them for you. The
    iteration ends when the server ends the watch, as it does after its time-out, and when
    :meth:`close` is called. One thread iterates; any thread may close. Use it in a ``with`` block:
    without one it is open until nothing refers to it any more.

    Raises, while iterating:
        WatchSilent: no byte came for :attr:`silence_limit` seconds.
        ConnectionLost: the connection broke.
        BadResponse: the answer is not HTTP, or a line is longer than 64 MiB.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(
        self,
        kind: Kind[SpecT_co, StatusT_co],
        request: Request,
        opened: OpenResponse,
        *,
        silence_limit: float,
        metrics: RequestMetrics | None = None,
        heard: Callable[[], object] = _nothing,
    ) -> None:
        self.kind = kind
        """What is watched."""
        self.silence_limit = silence_limit
        """The seconds without a byte after which the connection counts as dead."""
        self.truncated: bool = False
        """Whether the stream ended in the middle of a line, which was dropped."""
        self._request = request
        self._metrics = metrics
        self._heard = heard
        self._connection, self._response = opened
        self._connection.set_timeout(silence_limit)
        self._on_release: list[Callable[[], None]] = []
        # Not an Event: a signal handler could interrupt a thread that holds the Event's lock.
        self._closing = False
        self._released = False
        # Locked while reading. The last thread to get it closes the socket, so that its descriptor
        # is not reused while another thread still reads from it.
        self._read_lock = threading.Lock()
        response = self._response
        self._decoder: LineDecoder = (
            ChunkedLines() if response.chunked else PlainLines(response.length)
        )
        self._read1 = response.read1
        self._read_size = _READ
        # When the first bytes after the last complete line came.
        self._partial_since: float | None = None
        # The lines that events() has still to decode, for a caller that goes on after an error.
        self._undecoded: Iterator[bytes] = iter(())

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called or the iteration has ended."""
        return self._closing

    def close(self) -> None:
        """End the watch, and the iteration of a thread that waits in it.

        Calling it twice is harmless. Safe from any thread and from a signal handler.
        """
        self._closing = True
        self._connection.abort()
        self._release()

    def close_when(self, stop: StopSignal) -> None:
        """Close the watch when ``stop`` is set."""
        find = weak_method(self.close)

        def close() -> None:
            if (present := find()) is not None:
                present()

        self._on_release.append(stop.on_set(close))
        if self._released:
            self._run_on_release()

    def __del__(self) -> None:
        # As a loop that is left with `break` leaves it.
        if not getattr(self, "_released", True):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Lines]:
        return self

    def __next__(self) -> Lines:
        try:
            with self._read_lock:
                lines = self._next_lines()
        except BaseException:
            self._closing = True
            self._release()
            raise
        if not lines or self._closing:
            self._closing = True
            self._release()
            if not lines:
                raise StopIteration
        return lines

    def events(self) -> Iterator[WatchEvent[SpecT_co, StatusT_co]]:
        """The events, decoded.

        Raises:
            ApiError: the server ended the watch with an ERROR event, for example
                :class:`~appsdk_operator.client.Expired`.
            DecodeError: a line is not an event of this kind, or its object cannot be read. The
                watch is still open: call this again for the next events.
            TransportError: as for iterating the stream.
        """
        while True:
            for line in self._undecoded:
                yield self.decoded(line)
            lines = next(self, None)
            if lines is None:
                return
            self._undecoded = iter(lines)

    def decoded(self, line: bytes) -> WatchEvent[SpecT_co, StatusT_co]:
        """The event in a line of the stream.

        Raises:
            ApiError, DecodeError: as :meth:`events`.
        """
        try:
            event = decode_watch_event(self.kind, line)
        except DecodeError:
            if self._metrics is not None:
                self._metrics.garbled(self._request)
            raise
        if self._metrics is not None:
            self._metrics.watched(self._request, event.type.value)
        if event.type is WatchEventType.ERROR:
            raise error_from_status(event.status or {}, request=self._request)
        return event

    def _next_lines(self) -> Lines:
        """The next lines, none at the end."""
        decoder = self._decoder
        while not (decoder.ended or self._closing):
            try:
                data = self._read1(self._read_size)
                lines = decoder.feed(data)
            except (OSError, ValueError) as error:
                # ValueError: the reader was closed meanwhile, or the format is wrong.
                self.truncated = decoder.pending
                # The property, because the type checker assumes the attribute unchanged.
                if self.closed:
                    return _NO_LINES
                cause = None if isinstance(error, StreamFormatError) else error
                raise self._failure(error) from cause
            self._heard()
            self._read_size = _next_size(self._read_size, len(data))
            if lines:
                self._partial_since = None
                return lines
            if not data:
                self._check_end()
                break
            self._check_progress()
        self.truncated = decoder.pending
        return _NO_LINES

    def _check_progress(self) -> None:
        """Refuse a server that sends single bytes: those that complete no line count as silence."""
        now = system_clock.monotonic()
        if self._partial_since is None:
            self._partial_since = now
        elif now - self._partial_since > self.silence_limit:
            raise self._failure(TimeoutError())

    def _check_end(self) -> None:
        """Refuse the end of the connection where length or chunks mark the end of the answer."""
        if self._closing or not (self._response.chunked or self._response.length):
            return
        self.truncated = self._decoder.pending
        raise ConnectionLost(
            f"{self._request}: the connection ended before the watch did; resume from the last "
            "resource version"
        )

    def _failure(self, error: Exception) -> TransportError:
        if is_late(error):
            return WatchSilent(
                f"{self._request}: nothing for {self.silence_limit:g} s, the connection is taken "
                "for dead; resume from the last resource version"
            )
        if isinstance(error, StreamFormatError):
            return BadResponse(f"{self._request}: {redacted(str(error))}")
        if self._connection.inherited:
            return ConnectionLost(
                f"{self._request}: the watch belongs to the parent of this process, which was "
                "forked: open another one"
            )
        return ConnectionLost(f"{self._request}: {error}; resume from the last resource version")

    def _release(self) -> None:
        # Without waiting: the reading thread wakes by the cut and comes here itself, and a signal
        # handler may have interrupted it right here.
        if not self._read_lock.acquire(blocking=False):
            return
        try:
            if self._released:
                return
            self._released = True
            self._connection.close()
        finally:
            self._read_lock.release()
        self._run_on_release()

    def _run_on_release(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._on_release.pop()()


def _next_size(size: int, got: int) -> int:
    """The size of the next read, after ``got`` bytes came in one of ``size``."""
    if 2 * got >= size:
        return min(2 * size, _LARGEST_READ)
    return size if 8 * got >= size else _READ


def silence_limit_of(timeout: float, limit: float | None, *, bookmarks: bool) -> float:
    """The silence limit of a watch in seconds.

    Raises:
        ValueError: a time is not positive.

    >>> silence_limit_of(300.0, None, bookmarks=True), silence_limit_of(20.0, None, bookmarks=True)
    (90.0, 25.0)
    """
    check_number("timeout", timeout)
    if limit is not None:
        check_number("silence_limit", limit)
    # Bookmarks come about once a minute; the server itself ends the watch after its time-out.
    wanted = limit if limit is not None else 90.0 if bookmarks else math.inf
    if not (0 < timeout < math.inf and wanted > 0):
        raise ValueError(f"timeout={timeout}, silence_limit={limit}: use more than 0 seconds")
    return min(wanted, timeout + _MARGIN)
