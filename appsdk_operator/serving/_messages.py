"""HTTP/1.1 requests and responses as values, and their form on the wire: parsing without I/O."""

from __future__ import annotations

import http
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, final

import attrs

from appsdk_operator.runtime import StopSignal

__all__ = [
    "HTTPHandler",
    "HTTPRequest",
    "HTTPResponse",
    "Headers",
    "RequestHead",
    "RequestRefused",
    "parse_field",
    "parse_head",
    "text_response",
]

TEXT: Final = "text/plain; charset=utf-8"
_MAX_LINES: Final = 1000
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET: Final = re.compile(rb"[\x21\x22\x24-\x7e]+")  # no "#": a fragment is the client's own
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_NO_LINE_BREAK: Final = re.compile(r"[^\r\n\0]*")
_AUTHORITY: Final = re.compile(r"https?://[^/?]+", re.IGNORECASE)
_OWN_FIELDS: Final = frozenset({"connection", "content-length", "date", "transfer-encoding"})


class RequestRefused(Exception):  # noqa: N818 - it is an answer, not a failure of the server
    """What a client sent cannot be served: the status to answer with, and why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@final
class Headers(Mapping[str, str]):
    """Header fields by name, whatever its case; repeated fields are joined by commas (RFC 9110).

    >>> Headers([("Accept", "text/html"), ("accept", "text/plain")])["ACCEPT"]
    'text/html, text/plain'
    """

    __slots__ = ("_values",)

    def __init__(self, fields: list[tuple[str, str]] | None = None) -> None:
        """The fields in the order of their arrival."""
        self._values: dict[str, str] = {}
        for name, value in fields or ():
            key = name.lower()
            before = self._values.get(key)
            self._values[key] = value if before is None else f"{before}, {value}"

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        # Values may be credentials.
        return f"<Headers {', '.join(self._values)}>"


@attrs.frozen(kw_only=True)
class HTTPRequest:
    """What a client asks for. Its ``repr`` shows neither headers nor query nor body."""

    method: str
    """``GET``, ``HEAD``, ``POST``, …"""
    path: str
    """The path with its percent escapes decoded, for example ``/readyz/ping``."""
    query_string: str = attrs.field(default="", repr=False)
    """What came after the question mark, as it was sent."""
    headers: Mapping[str, str] = attrs.field(factory=Headers, repr=False)
    """The header fields; names in any case."""
    body: bytes = attrs.field(default=b"", repr=False)
    """The complete body."""
    peer: str = ""
    """The address of the other side."""
    client_certificate: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    """With a client authority: the verified certificate, as ``ssl.SSLSocket.getpeercert``."""
    stop: StopSignal = attrs.field(factory=StopSignal, repr=False)
    """Set when the server stops: a handler that takes long ends then."""

    @property
    def query(self) -> dict[str, list[str]]:
        """The query's values by name; a name without a value has an empty one."""
        return urllib.parse.parse_qs(self.query_string, keep_blank_values=True)


def _check_status(_: object, __: object, value: int) -> None:
    if not 200 <= value <= 599:
        raise ValueError(f"status={value} is no final HTTP status: use 200 to 599")


def _check_text(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if not _NO_LINE_BREAK.fullmatch(value):
        raise ValueError(f"{attribute.name} holds a line break, which would end the header early")


def _check_headers(_: object, __: object, value: Mapping[str, str]) -> None:
    for name, text in value.items():
        if not _TOKEN.fullmatch(name.encode("latin-1", "replace")):
            raise ValueError(f"{name!r} is no name of a header field")
        if name.lower() in _OWN_FIELDS:
            raise ValueError(f"header {name} is the server's own: leave it out")
        if name.lower() == "content-type":
            raise ValueError(f"header {name}: use content_type= instead")
        if not _NO_LINE_BREAK.fullmatch(text):
            raise ValueError(f"header {name} holds a line break, which would end it early")


@attrs.frozen(kw_only=True)
class HTTPResponse:
    """What a handler answers."""

    status: int = attrs.field(default=200, validator=_check_status)
    """The HTTP status; default 200."""
    body: bytes = attrs.field(
        default=b"", validator=attrs.validators.instance_of(bytes), repr=False
    )
    """The body; default: none. It is not sent with the statuses 204 and 304, which have none."""
    content_type: str = attrs.field(default=TEXT, validator=_check_text)
    """The body's media type; default: plain text."""
    headers: Mapping[str, str] = attrs.field(factory=dict, validator=_check_headers)
    """Further header fields. The server adds ``Content-Length``, ``Date`` and ``Connection``."""

    @property
    def may_have_body(self) -> bool:
        """Whether its status is one whose answers have a body."""
        return self.status not in (204, 304)

    def encode_head(self, *, date: str, keep: bool, version: str) -> bytes:
        """What comes before the body."""
        try:
            phrase = http.HTTPStatus(self.status).phrase
        except ValueError:
            phrase = ""
        fields = {"X-Content-Type-Options": "nosniff", **self.headers, "Date": date}
        if self.status != 204:
            fields["Content-Type"] = self.content_type
            fields["Content-Length"] = str(len(self.body))
        if not keep:
            fields["Connection"] = "close"
        elif version == "HTTP/1.0":
            fields["Connection"] = "keep-alive"
        lines = [f"HTTP/1.1 {self.status} {phrase}", *(f"{k}: {v}" for k, v in fields.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


HTTPHandler = Callable[[HTTPRequest], HTTPResponse]
"""Answers requests. Called from several threads at once."""


def text_response(status: int, text: str, **headers: str) -> HTTPResponse:
    """A page of plain text, with a line break at its end.

    >>> text_response(404, "404 page not found").body
    b'404 page not found\\n'
    """
    return HTTPResponse(status=status, body=f"{text}\n".encode(), headers=headers)


@attrs.frozen
class RequestHead:
    """The first part of a request."""

    method: str
    path: str
    query_string: str
    version: str
    headers: Headers = attrs.field(repr=False)

    @property
    def is_kept_alive(self) -> bool:
        """Whether the client wants to use the connection again."""
        options = {o.strip().lower() for o in self.headers.get("connection", "").split(",")}
        return "close" not in options and (self.version == "HTTP/1.1" or "keep-alive" in options)

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "transfer-encoding" in self.headers

    @property
    def content_length(self) -> int:
        """The length of a body that is not in chunks."""
        return int(self.headers.get("content-length", "0"))

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for a word before it sends the body."""
        expected = self.headers.get("expect", "").strip().lower()
        return self.version == "HTTP/1.1" and expected == "100-continue"


def parse_head(data: bytes) -> RequestHead:
    """The head of a request from its bytes, the empty line at its end left out.

    Strict where leniency lets two parties read one message in two ways (RFC 9112, section 11).

    Raises:
        RequestRefused: 400, 431, 501 or 505.

    >>> parse_head(b"GET /readyz?verbose HTTP/1.1\\r\\nHost: a").query_string
    'verbose'
    """
    first, *lines = data.split(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]) or not _TARGET.fullmatch(parts[1]):
        raise RequestRefused(400, "malformed request line")
    method, target, version = (part.decode("ascii", "replace") for part in parts)
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        if re.fullmatch(r"HTTP/[0-9](\.[0-9])?", version):
            raise RequestRefused(505, "HTTP/1.1 is spoken here")
        raise RequestRefused(400, "malformed HTTP version")
    if len(lines) > _MAX_LINES:
        raise RequestRefused(431, f"more than {_MAX_LINES} header fields")
    fields = [parse_field(line) for line in lines]
    headers = Headers(fields)
    _check_framing(headers, [name.lower() for name, _ in fields], version)
    path, query_string = _split(target)
    return RequestHead(method, path, query_string, version, headers)


def parse_field(line: bytes) -> tuple[str, str]:
    """Name and value of a header field; :class:`RequestRefused` if it is none."""
    name, colon, value = line.partition(b":")
    if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
        raise RequestRefused(400, "malformed header field")
    return name.decode("ascii"), value.decode("latin-1").strip(" \t")


def _check_framing(headers: Headers, names: list[str], version: str) -> None:
    if names.count("host") > 1 or ("host" not in headers and version == "HTTP/1.1"):
        raise RequestRefused(400, "exactly one Host header is required")
    length = headers.get("content-length")
    if length is not None and (names.count("content-length") > 1 or not _LENGTH.fullmatch(length)):
        raise RequestRefused(400, "malformed Content-Length")
    encoding = headers.get("transfer-encoding")
    if encoding is None:
        return
    if length is not None or version == "HTTP/1.0":
        raise RequestRefused(400, "Transfer-Encoding does not go with Content-Length or HTTP/1.0")
    if encoding.lower() != "chunked":
        raise RequestRefused(501, "the only transfer encoding is chunked")


def _split(target: str) -> tuple[str, str]:
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
