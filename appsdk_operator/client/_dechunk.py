"""From the bytes of a streamed answer to its lines, without I/O and without work by the byte."""

from __future__ import annotations

from typing import Protocol

from appsdk_operator.resource import Lines

__all__ = ["ChunkedLines", "LineDecoder", "PlainLines", "StreamFormatError"]

MAX_LINE = 64 * 1024 * 1024
"""The longest line taken, in bytes: etcd holds at most some MiB, the rest is headroom."""

_MAX_SIZE_LINE = 256  # a chunk's size and extensions


class StreamFormatError(ValueError):
    """The bytes break the rules of the transfer coding, or a line is too long."""


class LineDecoder(Protocol):
    """Makes lines of whatever pieces the network delivers."""

    ended: bool
    """Whether the end of the answer was seen."""

    def feed(self, data: bytes) -> Lines:
        """The lines completed by ``data``, without their newlines."""
        ...

    @property
    def pending(self) -> bool:
        """Whether the begin of a line is held whose end has not come."""
        ...


class PlainLines:
    """Lines of an answer without a transfer coding: it ends with the connection or its length.

    >>> lines = PlainLines()
    >>> list(lines.feed(b'{"a":1}\\n{"b"')), list(lines.feed(b":2}\\n"))
    ([b'{"a":1}'], [b'{"b":2}'])
    """

    def __init__(self, length: int | None = None) -> None:
        """An answer of ``length`` bytes; None: until the connection ends."""
        self._left = length
        self.ended = length == 0
        self._line: list[bytes] = []
        self._line_size = 0

    @property
    def pending(self) -> bool:
        """Whether half a line is held."""
        return bool(self._line)

    def feed(self, data: bytes) -> Lines:
        """The lines completed by ``data``.

        Raises:
            StreamFormatError: a line is longer than :data:`MAX_LINE`.
        """
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
            self.ended = not self._left
        lines: list[tuple[bytes, int, int]] = []
        self._split(data, lines)
        return Lines(lines)

    def _split(self, data: bytes, places: list[tuple[bytes, int, int]]) -> None:
        first, *rest = data.split(b"\n")
        if first:
            self._line.append(first)
            self._line_size += len(first)
            if self._line_size > MAX_LINE:
                raise StreamFormatError(f"a line is longer than {MAX_LINE} bytes")
        if not rest:
            return
        whole = [b"".join(self._line), *rest[:-1]]
        # An empty line between events is no event.
        places += [(line, 0, len(line)) for line in whole if line]
        self._line = [rest[-1]] if rest[-1] else []
        self._line_size = len(rest[-1])


class ChunkedLines(PlainLines):
    """Lines of an answer in the chunked transfer coding of RFC 9112.

    API servers write each event as one chunk, so the common chunk is one line, which is found
    with two searches and not copied; any other division is taken the slower way.

    >>> lines = ChunkedLines()
    >>> list(lines.feed(b'8\\r\\n{"a":1}\\n\\r\\n8\\r\\n{"b"'))
    [b'{"a":1}']
    >>> list(lines.feed(b":2}\\n\\r\\n0\\r\\n\\r\\n"))
    [b'{"b":2}']
    >>> lines.ended
    True
    """

    def __init__(self) -> None:
        super().__init__()
        # Raw bytes up to the next point where going on makes sense, so that a large chunk that
        # trickles in is joined once and not at each read.
        self._held: list[bytes] = []
        self._missing = 0

    @property
    def pending(self) -> bool:
        """Whether half a chunk or half a line is held."""
        return bool(self._held or self._line)

    def feed(self, data: bytes) -> Lines:
        """The lines completed by ``data``.

        Raises:
            StreamFormatError: this is no chunk, or a line is longer than :data:`MAX_LINE`.
        """
        held = self._held
        if held:
            held.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return Lines([])
            data = b"".join(held)
            self._held = []
        lines: list[tuple[bytes, int, int]] = []
        find = data.find
        total = len(data)
        position = 0
        while position < total and not self.ended:
            eol = find(b"\r\n", position, position + _MAX_SIZE_LINE)
            if eol < 0:
                if total - position >= _MAX_SIZE_LINE:
                    raise StreamFormatError("a chunk begins without its size")
                self._hold(data[position:], 1)
                break
            start = eol + 2
            try:
                size = int(data[position:eol], 16)
            except ValueError:
                size = -1
            if not 0 < size <= MAX_LINE:
                size = _size(data[position:eol])
                if not size:
                    self._end(data[position:], start - position)
                    break
            end = start + size
            if end + 2 > total:
                self._hold(data[position:], end + 2 - total)
                break
            newline = find(b"\n", start, end)
            if newline == end - 1 > start and not self._line:
                lines.append((data, start, newline))
            else:
                self._split(data[start:end], lines)
            position = end + 2
        return Lines(lines)

    def _hold(self, rest: bytes, missing: int) -> None:
        self._held = [rest]
        self._missing = missing

    def _end(self, rest: bytes, start: int) -> None:
        """The last chunk; trailers follow it up to an empty line."""
        if rest.startswith(b"\r\n", start) or rest.find(b"\r\n\r\n", start) >= 0:
            self.ended = True
        elif len(rest) > _MAX_SIZE_LINE * 64:
            raise StreamFormatError("the trailers do not end")
        else:
            self._hold(rest, 1)


def _size(text: bytes) -> int:
    try:
        size = int(text, 16)
    except ValueError:
        try:
            size = int(text.partition(b";")[0], 16)
        except ValueError:
            raise StreamFormatError(f"{text[:40]!r} is not the size of a chunk") from None
    if not 0 <= size <= MAX_LINE:
        raise StreamFormatError(f"a chunk of {size} bytes is not taken: at most {MAX_LINE}")
    return size
