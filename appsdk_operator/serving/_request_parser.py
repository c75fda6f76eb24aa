"""Parses HTTP/1.1 requests, without I/O.

RFC 9112 lets a recipient be lenient: take bare line feeds, folded fields, equal ``Content-Length``
fields, a ``Content-Length`` and a ``Transfer-Encoding``. Two parties that read one message in
two ways are how requests are smuggled (RFC 9112, section 11), so all of these are refused.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable
from typing import Final, final

import msgspec

from appsdk_operator.runtime.chunked import (
    FIELD,
    TOKEN,
    ChunkedBody,
    StreamFormatError,
    TrailersTooLongError,
)
from appsdk_operator.serving._limits import HTTPLimits
from appsdk_operator.serving._messages import Headers

_MAX_FIELDS: Final = 1000
_REMEMBERED: Final = 2048
"""Bytes of a head that is kept until the next one."""
_MAX_TRAILERS: Final = 1024
"""Bytes of all trailers together."""

_END: Final = b"\r\n"
_HEAD_END: Final = b"\r\n\r\n"
# No "#" in a target: a fragment stays with the client.
_REQUEST_LINE: Final = re.compile(rb"(%b) ([\x21\x22\x24-\x7e]+) ([^ ]*)" % TOKEN)
_VERSION: Final = re.compile(rb"HTTP/[0-9](\.[0-9])?")
_FIELDS: Final = re.compile(rb"(?:%b(?:\r\n%b)*)?" % (FIELD, FIELD))
_LENGTH: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_AUTHORITY: Final = re.compile(r"https?://[^/?]+", re.IGNORECASE)


class RequestRefused(Exception):  # noqa: N818 - it is an answer, not a failure of the server
    """A request that is malformed or too large: the status to answer with, and the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class RequestHead(msgspec.Struct, frozen=True):
    """The request line and the header fields of a request."""

    method: str
    path: str
    query_string: str
    version: str
    headers: Headers
    expects_continue: bool = False
    """Whether the client waits for ``100 Continue`` before it sends the body."""
    is_chunked: bool = False
    """Whether the body comes in chunks."""
    content_length: int = 0
    """The length of a body that is not in chunks."""

    @property
    def is_kept_alive(self) -> bool:
        """Whether the client wants to use the connection again."""
        given = self.headers.get("connection")
        if given is None:
            return self.version == "HTTP/1.1"
        options = {o.strip().lower() for o in given.split(",")}
        return "close" not in options and (self.version == "HTTP/1.1" or "keep-alive" in options)

    @property
    def has_body(self) -> bool:
        """Whether a body follows."""
        return self.is_chunked or self.content_length > 0


@final
class RequestParser:
    """Parses the requests of one connection: takes bytes as they come, gives heads and bodies.

    Not thread-safe.

    >>> parser = RequestParser(HTTPLimits())
    >>> parser.receive_data(b"GET /readyz?verbose HTTP/1.1\\r\\nHost: a\\r\\n")
    >>> parser.read_head() is None
    True
    >>> parser.receive_data(b"\\r\\n")
    >>> parser.read_head().query_string
    'verbose'
    """

    def __init__(self, limits: HTTPLimits, body_limit: Callable[[str], int] | None = None) -> None:
        """A parser for a new connection.

        Args:
            limits: the limits for clients.
            body_limit: the most bytes of a body by the path of the request; default:
                ``limits.max_body_bytes``.
        """
        self._limits = limits
        self._body_limit = body_limit
        # The one of the request whose head was read last.
        self._max_body_bytes = limits.max_body_bytes
        # Bytes received and not yet returned.
        self._buffer = bytearray()
        # The last head, if it is short: many clients send the same one again and again.
        self._head_data = b""
        self._head: RequestHead | None = None
        # Where the search for the end of the head continues.
        self._searched = 0
        # The size of the empty lines before the head.
        self._empty_bytes = 0
        # The missing bytes of a body that is not in chunks.
        self._data_left = 0
        # The decoder of a body in chunks, and what it has found.
        self._chunks: ChunkedBody | None = None
        self._body = bytearray()

    @property
    def pending(self) -> int:
        """Bytes that have been received and belong to no request yet."""
        return len(self._buffer)

    @property
    def body_size(self) -> int:
        """Bytes received of a body that is not complete."""
        return len(self._body) + len(self._buffer)

    def receive_data(self, data: bytes) -> None:
        """Append what the client has sent."""
        self._buffer += data

    def read_head(self) -> RequestHead | None:
        """The head of the next request; None while it is incomplete.

        Raises:
            RequestRefused: 400, 431, 501 or 505.
        """
        limit = self._limits.max_header_bytes
        self._skip_empty_lines(limit)
        while (end := self._buffer.find(_HEAD_END, self._searched)) < 0:
            if len(self._buffer) > limit:
                raise RequestRefused(431, f"the headers are longer than {limit} bytes")
            _refuse_bare_line_feeds(self._buffer, self._searched)
            self._searched = max(0, len(self._buffer) - 3)
            return None
        if end > limit:
            raise RequestRefused(431, f"the headers are longer than {limit} bytes")
        data = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        self._searched = self._empty_bytes = 0
        head = self._head
        if head is None or data != self._head_data:
            head = _parse_head(data)
            if len(data) <= _REMEMBERED:
                self._head_data, self._head = data, head
        if self._body_limit is not None:
            self._max_body_bytes = self._body_limit(head.path)
        self._data_left = head.content_length
        if self._data_left > self._max_body_bytes:
            raise self._too_long()
        if head.is_chunked:
            self._chunks = ChunkedBody(limit=self._max_body_bytes, max_trailers=_MAX_TRAILERS)
        return head

    def _skip_empty_lines(self, limit: int) -> None:
        # Some clients send one more line end after a body.
        while self._buffer.startswith(_END):
            del self._buffer[:2]
            self._searched = 0
            self._empty_bytes += 2
        if self._empty_bytes > limit:
            raise RequestRefused(431, f"the headers are longer than {limit} bytes")

    def read_body(self) -> bytes | None:
        """The body of the request whose head was read last; None while it is incomplete.

        Raises:
            RequestRefused: 400, 413 or 431.
        """
        if self._chunks is not None:
            return self._read_chunks(self._chunks)
        size = self._data_left
        if len(self._buffer) < size:
            return None
        self._data_left = 0
        return self._take(size)

    def _read_chunks(self, chunks: ChunkedBody) -> bytes | None:
        try:
            self._body += b"".join(chunks.feed(self._take(len(self._buffer))))
        except TrailersTooLongError:
            raise RequestRefused(431, "the trailer is too long") from None
        except StreamFormatError:
            text = "malformed header field" if chunks.in_trailers else "malformed chunk"
            raise RequestRefused(400, text) from None
        if chunks.too_large:
            raise self._too_long()
        if not chunks.ended:
            return None
        self._buffer += chunks.rest
        body, self._body, self._chunks = bytes(self._body), bytearray(), None
        return body

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _too_long(self) -> RequestRefused:
        return RequestRefused(413, f"the body is longer than {self._max_body_bytes} bytes")


def _parse_head(data: bytes) -> RequestHead:
    """The head of a request, without the empty line at its end.

    Raises:
        RequestRefused: 400, 431, 501 or 505.
    """
    first, _, fields = data.partition(_END)
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise RequestRefused(400, "malformed request line")
    method, target, version = line.groups()
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        if _VERSION.fullmatch(version):
            raise RequestRefused(505, "HTTP/1.1 is spoken here")
        raise RequestRefused(400, "malformed HTTP version")
    if fields.count(_END) >= _MAX_FIELDS:
        raise RequestRefused(431, f"more than {_MAX_FIELDS} header fields")
    # Also line feeds and carriage returns within a field, and lines that continue a field.
    if not _FIELDS.fullmatch(fields):
        raise RequestRefused(400, "malformed header field")
    is_new = version == b"HTTP/1.1"
    headers = _headers(fields, is_new=is_new)
    path, query_string = _split_target(target.decode("ascii"))
    expected = headers.get("expect") if is_new else None
    return RequestHead(
        method.decode("ascii"),
        path,
        query_string,
        version.decode("ascii"),
        headers,
        expected is not None
        and "100-continue" in (each.strip().lower() for each in expected.split(",")),
        "transfer-encoding" in headers,
        int(headers.get("content-length", "0")),
    )


def _headers(fields: bytes, *, is_new: bool) -> Headers:
    """The fields, which are well-formed, and leave no doubt about host and length.

    Raises:
        RequestRefused: 400 or 501.
    """
    found: dict[str, str] = {}
    twice: set[str] = set()
    for text in fields.decode("latin-1").split("\r\n") if fields else ():
        name, _, value = text.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if name in found:
            twice.add(name)
            value = f"{found[name]}, {value}"
        found[name] = value
    if "host" in twice or ("host" not in found and is_new):
        raise RequestRefused(400, "exactly one Host header is required")
    length = found.get("content-length")
    if "content-length" in twice or (length is not None and not _LENGTH.fullmatch(length)):
        raise RequestRefused(400, "malformed Content-Length")
    encoding = found.get("transfer-encoding")
    if encoding is not None:
        if length is not None or not is_new:
            text = "Transfer-Encoding does not go with Content-Length or HTTP/1.0"
            raise RequestRefused(400, text)
        if encoding.lower() != "chunked":
            raise RequestRefused(501, "the only transfer encoding is chunked")
    return Headers.of_values(found)


def _refuse_bare_line_feeds(data: bytearray, start: int) -> None:
    """Refuse a bare line feed at once, so that its sender does not wait for the time-out."""
    at = data.find(b"\n", start)
    while at >= 0:
        if at == 0 or data[at - 1] != 0x0D:
            raise RequestRefused(400, "lines end with CR LF")
        at = data.find(b"\n", at + 1)


def _split_target(target: str) -> tuple[str, str]:
    """The decoded path and the query string of a request target."""
    if not target.startswith("/"):
        if target == "*":
            return target, ""
        authority = _AUTHORITY.match(target)
        if authority is None:
            raise RequestRefused(400, "malformed request target")
        target = target[authority.end() :]
    path, _, query_string = target.partition("?")
    try:
        path = urllib.parse.unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise RequestRefused(400, "the path is not UTF-8") from None
    if "\0" in path:
        raise RequestRefused(400, "the path holds a zero byte")
    return path or "/", query_string
