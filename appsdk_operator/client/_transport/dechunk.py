"""Decoders of chunked and plain answers to lines; without I/O."""

from __future__ import annotations

from typing import Protocol

from appsdk_operator.resource import Lines
from appsdk_operator.runtime.chunked import (
    MAX_SIZE_LINE,
    StreamFormatError,
    check_break,
    chunk_size,
)

MAX_LINE = 64 * 1024 * 1024
"""The maximum length of a line in bytes: etcd stores objects of some MiB."""

_MAX_SIZES = 4096


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
        # An empty line between events is not an event.
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
            StreamFormatError: this is not a chunk, or a line is longer than :data:`MAX_LINE`.
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
            eol = find(b"\r\n", position, position + MAX_SIZE_LINE)
            if eol < 0:
                if total - position >= MAX_SIZE_LINE:
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
            check_break(data, position)
        return Lines(lines)

    def _hold(self, data: bytes, position: int, missing: int) -> None:
        check_break(data, position)
        self._held = [data[position:]]
        self._missing = missing

    def _size(self, text: bytes) -> int:
        check_break(text, 2)
        size = chunk_size(text[2:], MAX_LINE)
        if len(self._sizes) < _MAX_SIZES:
            self._sizes[text] = size
        return size
