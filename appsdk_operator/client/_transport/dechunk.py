"""Decoders of chunked and plain answers, to a body or to lines; without I/O."""

from __future__ import annotations

import re
from typing import Protocol, final

from appsdk_operator.resource import Lines

__all__ = ["ChunkedBody", "ChunkedLines", "LineDecoder", "PlainLines", "StreamFormatError"]

MAX_LINE = 64 * 1024 * 1024
"""The maximum length of a line in bytes: etcd stores objects of some MiB."""

_MAX_SIZE_LINE = 256  # a chunk's size and extensions
_MAX_TRAILERS = 16384
_MAX_SIZES = 4096
# Some servers pad the size with spaces. int() alone accepts signs, underscores and 0x.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class StreamFormatError(ValueError):
    """The bytes break the transfer coding, or a line is too long."""


class LineDecoder(Protocol):
    """Splits bytes into lines, in whatever pieces they arrive."""

    ended: bool
    """Whether the answer has ended."""

    def feed(self, data: bytes) -> Lines:
        """The lines completed by ``data``, without their newlines."""
        ...

    @property
    def pending(self) -> bool:
        """Whether an incomplete line is buffered."""
        ...


class PlainLines:
    """Lines of an answer without transfer coding, which ends by its length or with the connection.

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
        """Whether an incomplete line is buffered."""
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

    API servers write each event as one chunk, so the common chunk is one line: two searches find
    it, and it is not copied. Other chunks take a slower path. The answer ends with its last chunk,
    without its trailers, since nothing follows a stream.

    >>> lines = ChunkedLines()
    >>> list(lines.feed(b'8\\r\\n{"a":1}\\n\\r\\n8\\r\\n{"b"'))
    [b'{"a":1}']
    >>> list(lines.feed(b":2}\\n\\r\\n0\\r\\n"))
    [b'{"b":2}']
    >>> lines.ended
    True
    """

    def __init__(self) -> None:
        super().__init__()
        # The bytes of an incomplete chunk, so that a large chunk in many reads is joined once.
        self._held: list[bytes] = []
        self._missing = 0
        # Chunk sizes by their text, with the line break of the chunk before it: a look-up costs
        # less than a conversion, and checks both.
        self._sizes: dict[bytes, int] = {}

    @property
    def pending(self) -> bool:
        """Whether an incomplete chunk or line is buffered."""
        return bool(self._held or self._line)

    def feed(self, data: bytes) -> Lines:
        """The lines completed by ``data``.

        Raises:
            StreamFormatError: this is no chunk, or a line is longer than :data:`MAX_LINE`.
        """
        if self.ended:
            return Lines([])
        held = self._held
        if held:
            held.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return Lines([])
            data = b"".join(held)
            self._held = []
        lines: list[tuple[bytes, int, int]] = []
        find, known = data.find, self._sizes.get
        total = len(data)
        position = 0  # of a chunk's size
        while position < total:
            eol = find(b"\r\n", position, position + _MAX_SIZE_LINE)
            if eol < 0:
                if total - position >= _MAX_SIZE_LINE:
                    raise StreamFormatError("a chunk begins without its size")
                self._hold(data, position, 1)
                break
            text = data[position - 2 : eol] if position else b"\r\n" + data[:eol]
            size = known(text)
            if size is None:
                size = self._size(text)
            if not size:
                self.ended = True
                break
            start = eol + 2
            end = start + size
            if end + 2 > total:
                self._hold(data, position, end + 2 - total)
                break
            newline = find(b"\n", start, end)
            if newline == end - 1 > start and not self._line:
                lines.append((data, start, newline))
            else:
                self._split(data[start:end], lines)
            position = end + 2
        else:
            _check_break(data, position)
        return Lines(lines)

    def _hold(self, data: bytes, position: int, missing: int) -> None:
        _check_break(data, position)
        self._held = [data[position:]]
        self._missing = missing

    def _size(self, text: bytes) -> int:
        _check_break(text, 2)
        size = _size(text[2:], MAX_LINE)
        if len(self._sizes) < _MAX_SIZES:
            self._sizes[text] = size
        return size


def _check_break(data: bytes, position: int) -> None:
    """Refuse a chunk that does not end with a line break before ``position``."""
    if position and not data.startswith(b"\r\n", position - 2):
        raise StreamFormatError("a chunk is longer than its size")


def _size(text: bytes, limit: int) -> int:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise StreamFormatError(f"{text[:40]!r} is not the size of a chunk")
    size = int(found[1], 16)
    if size > limit:
        raise StreamFormatError(f"a chunk of {size} bytes is not taken: at most {limit}")
    return size


@final
class ChunkedBody:
    """A body in the chunked transfer coding, read to its exact end.

    >>> body = ChunkedBody(limit=100)
    >>> body.feed(b"3\\r\\nabc\\r\\n0\\r\\n"), body.ended
    ([b'abc'], False)
    >>> body.feed(b"\\r\\nHTTP"), body.ended, body.rest
    ([], True, b'HTTP')
    """

    def __init__(self, *, limit: int) -> None:
        """A body of ``limit`` bytes at most."""
        self.ended = False
        """Whether the empty line at its end has come."""
        self.rest = b""
        """The bytes after it, which belong to the next answer."""
        self.too_large = False
        """Whether the body, the present chunk included, exceeds the limit."""
        self._limit = limit
        self._left = 0
        """The missing bytes of the present chunk, its final line break included."""
        self._held = b""
        self._in_trailers = False
        self._trailers = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The parts of the body in ``data``.

        Raises:
            StreamFormatError: this is not in the transfer coding.
        """
        parts: list[bytes] = []
        if self._held:
            data, self._held = self._held + data, b""
        position, total = 0, len(data)
        while position < total and not self.too_large:
            if self._left > 2:
                part = data[position : position + self._left - 2]
                parts.append(part)
                position += len(part)
                self._left -= len(part)
                continue
            if self._left:
                if total - position < 2 and data[position:] == b"\r":
                    break
                position += 2
                _check_break(data, position)
                self._left = 0
                continue
            eol = data.find(b"\r\n", position)
            bound = _MAX_TRAILERS if self._in_trailers else _MAX_SIZE_LINE
            if (total if eol < 0 else eol) - position > bound:
                raise StreamFormatError(
                    "the trailers do not end"
                    if self._in_trailers
                    else "a chunk begins without its size"
                )
            if eol < 0:
                break
            line, position = data[position:eol], eol + 2
            if self._in_trailers:
                if not line:
                    self.ended = True
                    self.rest = data[position:]
                    return parts
                self._trailers += len(line) + 2
                if self._trailers > _MAX_TRAILERS:
                    raise StreamFormatError("the trailers do not end")
            else:
                self._begin(_size(line, 1 << 60))
        self._held = data[position:]
        return parts

    def _begin(self, size: int) -> None:
        self._limit -= size
        self.too_large = self._limit < 0
        self._in_trailers = not size
        self._left = size + 2 if size else 0
