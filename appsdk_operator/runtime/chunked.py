"""The chunked transfer coding of HTTP/1.1, decoded strictly; without I/O.

What two parties could read in two ways is refused (RFC 9112, section 11): bare line feeds, chunks
that are longer than their size, trailers that are not header fields.
"""

from __future__ import annotations

import re
from typing import Final, final

__all__ = [
    "FIELD",
    "MAX_SIZE_LINE",
    "TOKEN",
    "ChunkedBody",
    "StreamFormatError",
    "TrailersTooLongError",
    "check_break",
    "chunk_size",
]

TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
"""The pattern of a method and of a field's name."""
FIELD: Final = TOKEN + rb":[\t\x20-\x7e\x80-\xff]*"
"""The pattern of a header field or trailer."""
MAX_SIZE_LINE: Final = 256
"""The maximum length of a chunk's size and extensions in bytes."""

_FIELD: Final = re.compile(FIELD)
# Some servers pad the size with spaces. int() alone accepts signs, underscores and 0x.
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class StreamFormatError(ValueError):
    """The bytes break the transfer coding, or a line is too long."""


class TrailersTooLongError(StreamFormatError):
    """The trailers are longer than allowed."""


def check_break(data: bytes, position: int) -> None:
    """Refuse a chunk that does not end with a line break before ``position``.

    Raises:
        StreamFormatError: it has none.
    """
    if position and not data.startswith(b"\r\n", position - 2):
        raise StreamFormatError("a chunk is longer than its size")


def chunk_size(text: bytes, limit: int) -> int:
    """The size of a chunk from its first line.

    Raises:
        StreamFormatError: it is not a number, or more than ``limit``.
    """
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

    def __init__(self, *, limit: int, max_trailers: int = 16384) -> None:
        """A body of ``limit`` bytes at most, with trailers of ``max_trailers``."""
        self.ended: bool = False
        """Whether the empty line at its end has come."""
        self.rest: bytes = b""
        """The bytes after it, which belong to the next message."""
        self.too_large: bool = False
        """Whether the body, the present chunk included, exceeds the limit."""
        self.in_trailers: bool = False
        """Whether the last chunk has come."""
        self._limit = limit
        self._max_trailers = max_trailers
        self._left = 0
        """The missing bytes of the present chunk, its final line break included."""
        self._held = b""

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
                check_break(data, position)
                self._left = 0
                continue
            eol = data.find(b"\r\n", position)
            # A last byte may be half of the line break.
            self._check_line(total - 1 - position if eol < 0 else eol - position)
            if eol < 0:
                break
            line, position = data[position:eol], eol + 2
            if not self.in_trailers:
                self._begin(chunk_size(line, 1 << 60))
            elif not line:
                self.ended = True
                self.rest = data[position:]
                return parts
            elif not _FIELD.fullmatch(line):
                raise StreamFormatError(f"{line[:40]!r} is not a header field")
            else:
                self._max_trailers -= len(line) + 2
        self._held = data[position:]
        return parts

    def _check_line(self, size: int) -> None:
        """Refuse a line that is longer than allowed."""
        if self.in_trailers:
            if size > self._max_trailers:
                raise TrailersTooLongError("the trailers do not end")
        elif size > MAX_SIZE_LINE:
            raise StreamFormatError("a chunk begins without its size")

    def _begin(self, size: int) -> None:
        self._limit -= size
        self.too_large = self._limit < 0
        self.in_trailers = not size
        self._left = size + 2 if size else 0
