"""Parses HTTP/1.1 requests, without I/O.

Heads, and bodies with a ``Content-Length``, are read here; h11 decodes chunks. RFC 9112 lets a
recipient be lenient: take bare line feeds, folded fields, equal ``Content-Length`` fields, a
``Content-Length`` beside a ``Transfer-Encoding``. Two parties that read one message in two ways are
how requests are smuggled (RFC 9112, section 11), so all of these are refused.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable
from typing import Final, final

import attrs
import h11

from appsdk_operator.serving._limits import HTTPLimits
from appsdk_operator.serving._messages import Headers

__all__ = ["RequestHead", "RequestParser", "RequestRefused"]

_MAX_FIELDS: Final = 1000
_REMEMBERED: Final = 2048
"""Bytes of a head that is kept until the next one."""
_MAX_LINE: Final = 1024
"""Bytes of a chunk's first line, and of all trailers together."""

_END: Final = b"\r\n"
_HEAD_END: Final = b"\r\n\r\n"
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_FIELD_PATTERN: Final = _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*"
# No "#" in a target: a fragment stays with the client.
_REQUEST_LINE: Final = re.compile(rb"(%b) ([\x21\x22\x24-\x7e]+) ([^ ]*)" % _TOKEN)
_VERSION: Final = re.compile(rb"HTTP/[0-9](\.[0-9])?")
_FIELD: Final = re.compile(_FIELD_PATTERN)
_FIELDS: Final = re.compile(rb"(?:%b(?:\r\n%b)*)?" % (_FIELD_PATTERN, _FIELD_PATTERN))
_LENGTH: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
_AUTHORITY: Final = re.compile(r"https?://[^/?]+", re.IGNORECASE)


class RequestRefused(Exception):  # noqa: N818 - it is an answer, not a failure of the server
    """A request that is malformed or too large: the status to answer with, and the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@attrs.frozen
class RequestHead:
    """The request line and the header fields of a request."""

    method: str
    path: str
    query_string: str
    version: str
    headers: Headers = attrs.field(repr=False)
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
        # Bytes received and not yet returned, or passed to h11.
        self._buffer = bytearray()
        # The last head, if it is short: many clients send the same one again and again.
        self._head_data = b""
        self._head: RequestHead | None = None
        # Where the search for the end of the head continues.
        self._searched = 0
        # The size of the empty lines before the head.
        self._empty_bytes = 0
        # Decodes the chunks of a body; None where there are none.
        self._h11: h11.Connection | None = None
        self._body = bytearray()
        self._is_chunked = False
        # Bytes of the body; or of a chunk and its line end, which may pass to h11 as they come.
        self._data_left = 0
        # The sum of the chunk sizes so far.
        self._chunked_size = 0
        # Bytes of trailers; None before the last chunk.
        self._trailer_size: int | None = None

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
        if head.is_chunked:
            self._begin_chunks(data)
        else:
            self._is_chunked = False
            self._data_left = head.content_length
            if self._data_left > self._max_body_bytes:
                raise self._too_long()
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
        if self._h11 is None:
            size = self._data_left
            if len(self._buffer) < size:
                return None
            self._data_left = 0
            return self._take(size)
        refused: RequestRefused | None = None
        parts: list[bytes] = []
        try:
            while (part := self._next_part()) is not None:
                parts.append(part)
        except RequestRefused as error:
            refused = error
        if data := b"".join(parts):  # to h11, no bytes are the end of the connection
            self._h11.receive_data(data)
        # Before a refusal: h11 may refuse an earlier part.
        is_complete = self._collect_body(self._h11)
        if refused is not None:
            raise refused
        if not is_complete:
            return None
        body, self._body = bytes(self._body), bytearray()
        return body

    def _begin_chunks(self, data: bytes) -> None:
        """Prepare for a body in chunks, after the head ``data``."""
        # A new one for each request, because h11 does not keep HTTP/1.0 connections alive.
        self._h11 = h11.Connection(h11.SERVER)
        self._h11.receive_data(data + _HEAD_END)
        self._body = bytearray()
        self._is_chunked = True
        self._data_left = self._chunked_size = 0
        self._trailer_size = None
        try:
            event = self._h11.next_event()
        except h11.RemoteProtocolError:
            raise RequestRefused(400, "malformed header field") from None
        assert isinstance(event, h11.Request)

    def _collect_body(self, parser: h11.Connection) -> bool:
        """Add what h11 has of the body; whether it is complete."""
        try:
            while not isinstance(event := parser.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    return False
                assert isinstance(event, h11.Data)
                self._body += event.data
        except h11.RemoteProtocolError:
            raise RequestRefused(400, "malformed chunk") from None
        self._h11 = None
        return True

    def _next_part(self) -> bytes | None:
        """The next bytes of the body for h11: data as it comes, lines between chunks once whole."""
        if self._data_left:
            data = self._take(self._data_left)
            self._data_left -= len(data)
            return data or None
        if not self._is_chunked:
            return None
        line = self._take_line()
        if line is None:
            return None
        if self._trailer_size is None:
            return self._chunk_line(line)
        if not line:
            self._is_chunked = False  # what follows is the next request
            return _END
        self._trailer_size += len(line)
        if not _FIELD.fullmatch(line):
            raise RequestRefused(400, "malformed header field")
        if self._trailer_size > _MAX_LINE:
            raise RequestRefused(431, "the trailer is too long")
        return b""  # trailers are not offered to handlers

    def _chunk_line(self, line: bytes) -> bytes:
        # For lenient parsers a bare line feed ends an extension and begins another chunk.
        found = _CHUNK_LINE.fullmatch(line)
        if found is None:
            raise RequestRefused(400, "malformed chunk")
        size = int(found[1], 16)
        self._chunked_size += size
        if self._chunked_size > self._max_body_bytes:
            raise self._too_long()
        if size:
            self._data_left = size + len(_END)
        else:
            self._trailer_size = 0
        return found[1] + _END  # without the extension, which is ignored

    def _take_line(self) -> bytes | None:
        end = self._buffer.find(_END)
        if end < 0:
            if len(self._buffer) > _MAX_LINE:
                raise RequestRefused(400, "malformed chunk")
            return None
        return self._take(end + 2)[:-2]

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
