"""A strict parser of the heads of HTTP/1.1 answers; without I/O.

Ambiguous heads are refused: on a connection that is reused, a wrong guess about the end of an
answer gives its rest to the next request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import final

import msgspec

from appsdk_operator.runtime.chunked import StreamFormatError

MAX_HEAD = 65536
"""The maximum size of a head in bytes."""
_MAX_HEADERS = 100
_BEGIN = b"HTTP/1."
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n\0]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_BARE_NEWLINE = re.compile(rb"(?<!\r)\n")
_LENGTH = re.compile(r"[0-9]{1,18}")


@final
class Headers:
    """The header fields of an answer; names are case-insensitive."""

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        """These fields, in their order."""
        self._fields: dict[str, list[str]] = {}
        for name, value in fields:
            self._fields.setdefault(name.lower(), []).append(value)

    def get(self, name: str, default: str = "") -> str:
        """The first field of this name."""
        return self._fields.get(name.lower(), (default,))[0]

    def get_all(self, name: str) -> list[str]:
        """All fields of this name."""
        return self._fields.get(name.lower(), [])

    def tokens(self, name: str) -> list[str]:
        """The elements of all fields of this name, in lower case."""
        fields = self.get_all(name)
        values = ",".join(fields).lower().split(",") if fields else ()
        return [token for value in values if (token := value.strip())]


class Head(msgspec.Struct, frozen=True):
    """The head of an answer."""

    minor: int
    """The version after ``HTTP/1.``."""
    status: int
    headers: Headers


class Framing(msgspec.Struct, frozen=True):
    """How the end of an answer is found."""

    length: int | None
    """The bytes of its body; None: it is chunked, or ends with the connection."""
    chunked: bool
    closes: bool
    """Whether the connection cannot be reused."""


def end_of_head(data: bytes, searched: int) -> int:
    """The end of the first head in ``data``, its empty line included; 0: it is incomplete.

    Args:
        data: the bytes received so far.
        searched: how many of them an earlier call has searched.

    Raises:
        StreamFormatError: no further bytes can make this a head.
    """
    found = data.find(b"\r\n\r\n", max(0, searched - 3))
    if not data.startswith(_BEGIN[: len(data)]):
        raise StreamFormatError(f"it begins {data[:40]!r}")
    if found < 0 and _BARE_NEWLINE.search(data, max(0, searched - 1)):
        raise StreamFormatError("a line of its head ends without a carriage return")
    if (len(data) if found < 0 else found) > MAX_HEAD:
        raise StreamFormatError(f"its head has more than {MAX_HEAD} bytes")
    return found + 4 if found >= 0 else 0


def parse_head(raw: bytes) -> Head:
    r"""Parse a head, which ends with its empty line.

    >>> head = parse_head(b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\n")
    >>> head.status, head.headers.get("a")
    (200, '1')

    Raises:
        StreamFormatError: it breaks the rules of RFC 9112.
    """
    first, *lines = raw[:-4].split(b"\r\n")
    status = _STATUS_LINE.fullmatch(first)
    if status is None:
        raise StreamFormatError(f"it begins {first[:40]!r}")
    if len(lines) > _MAX_HEADERS:
        raise StreamFormatError(f"it has more than {_MAX_HEADERS} header fields")
    fields: list[tuple[str, str]] = []
    for line in lines:
        if line[:1] in (b" ", b"\t") and fields and not re.search(rb"[\r\n\0]", line):
            # An obsolete line folding stands for a space.
            name, value = fields[-1]
            fields[-1] = (name, f"{value} {line.decode('latin-1').strip()}")
            continue
        field = _FIELD.fullmatch(line)
        if field is None:
            raise StreamFormatError(f"{line[:40]!r} is not a header field")
        fields.append((field[1].decode("latin-1"), field[2].decode("latin-1").rstrip(" \t")))
    return Head(int(status[1]), int(status[2]), Headers(fields))


def framing_of(head: Head, method: str) -> Framing:
    """How the answer to a request with this method ends.

    Raises:
        StreamFormatError: the head contradicts itself, or uses an unknown coding.
    """
    headers, status = head.headers, head.status
    lengths = set(headers.tokens("Content-Length"))
    codings = headers.tokens("Transfer-Encoding")
    if len(lengths) > 1 or not all(_LENGTH.fullmatch(length) for length in lengths):
        raise StreamFormatError(f"its Content-Length is {', '.join(sorted(lengths))[:40]!r}")
    if headers.get_all("Content-Length") and not lengths:
        raise StreamFormatError("its Content-Length is empty")
    if headers.get_all("Transfer-Encoding") and (codings != ["chunked"] or not head.minor):
        raise StreamFormatError(f"its Transfer-Encoding is {', '.join(codings)[:40]!r}")
    if codings and lengths:
        raise StreamFormatError("it has both Content-Length and Transfer-Encoding")
    wishes = headers.tokens("Connection")
    closes = "close" in wishes or (not head.minor and "keep-alive" not in wishes)
    length = int(lengths.pop()) if lengths else None
    if method == "HEAD":
        return Framing(0, chunked=False, closes=closes)
    if status in (204, 304):
        # These have no body. A server that announces one may send it all the same.
        return Framing(0, chunked=False, closes=closes or bool(length or codings))
    until_end = length is None and not codings
    return Framing(length, chunked=bool(codings), closes=closes or until_end)
