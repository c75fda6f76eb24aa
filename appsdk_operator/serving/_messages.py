"""HTTP/1.1 requests and responses as values."""

from __future__ import annotations

import functools
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, Protocol, final

import attrs

from appsdk_operator.runtime import StopSignal

TEXT: Final = "text/plain; charset=utf-8"
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NO_LINE_BREAK: Final = re.compile(r"[^\r\n\0]*")
_OWN_FIELDS: Final = frozenset({"connection", "content-length", "date", "transfer-encoding"})


@final
class Headers(Mapping[str, str]):
    """Header fields by name, whatever its case; repeated fields are joined by commas (RFC 9110).

    >>> Headers([("Accept", "text/html"), ("accept", "text/plain")])["ACCEPT"]
    'text/html, text/plain'
    """

    __slots__ = ("_values",)

    def __init__(self, fields: list[tuple[str, str]] | None = None) -> None:
        """The fields, in the order in which they arrived."""
        self._values: dict[str, str] = {}
        for name, value in fields or ():
            key = name.lower()
            before = self._values.get(key)
            self._values[key] = value if before is None else f"{before}, {value}"

    @classmethod
    def of_values(cls, values: dict[str, str]) -> Headers:
        """Those of a dict, which is not copied, with names in lower case."""
        self = cls.__new__(cls)
        self._values = values
        return self

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    # That of Mapping raises and catches a KeyError.
    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field; ``default`` if there is none."""
        return self._values.get(name.lower(), default)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        # Values may be credentials.
        return f"<Headers {', '.join(self._values)}>"


def _headers(given: Mapping[str, str]) -> Headers:
    return given if isinstance(given, Headers) else Headers(list(given.items()))


@attrs.frozen(kw_only=True)
class HTTPRequest:
    """A request. Its ``repr`` shows neither headers nor query nor body."""

    method: str
    """``GET``, ``HEAD``, ``POST``, …"""
    path: str
    """The path with its percent escapes decoded, for example ``/readyz/ping``."""
    query_string: str = attrs.field(default="", repr=False)
    """The part after the question mark, as the client sent it."""
    headers: Mapping[str, str] = attrs.field(factory=Headers, converter=_headers, repr=False)
    """The header fields; names in any case."""
    body: bytes = attrs.field(default=b"", repr=False)
    """The complete body."""
    peer: str = ""
    """The client's address."""
    client_certificate: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    """With a client authority: the verified certificate, as ``ssl.SSLSocket.getpeercert``."""
    stop: StopSignal = attrs.field(factory=StopSignal, repr=False)
    """Set when the server stops: a handler that takes long ends then."""
    # A dict, because setdefault looks and sets at once, with the GIL and without.
    _claim: dict[str, str] = attrs.field(factory=dict, init=False, repr=False, eq=False)

    def claim_answer(self, by: Literal["handler", "time limit"]) -> bool:
        """Whether ``by`` answers this request: the first that asks does, the other one does not.

        A server asks for a time limit that has passed before it answers in place of the handler;
        whoever counts what handlers answer asks for the handler once it has ended. Thread-safe.
        """
        return self._claim.setdefault("by", by) == by

    @property
    def query(self) -> dict[str, list[str]]:
        """The query's values by name; a name without a value has an empty one."""
        return urllib.parse.parse_qs(self.query_string, keep_blank_values=True)


def _check_status(_: object, __: object, value: int) -> None:
    if not 200 <= value <= 599:
        raise ValueError(f"status={value} is not a final HTTP status: use 200 to 599")


def _check_text(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if not _NO_LINE_BREAK.fullmatch(value):
        raise ValueError(f"{attribute.name} holds a line break, which would end the header early")


def _check_headers(_: object, __: object, value: Mapping[str, str]) -> None:
    for name, text in value.items():
        if not _TOKEN.fullmatch(name.encode("latin-1", "replace")):
            raise ValueError(f"{name!r} is not a name of a header field")
        if name.lower() in _OWN_FIELDS:
            raise ValueError(f"header {name} is the server's own: leave it out")
        if name.lower() == "content-type":
            raise ValueError(f"header {name}: use content_type= instead")
        if not _NO_LINE_BREAK.fullmatch(text):
            raise ValueError(f"header {name} holds a line break, which would end it early")


@attrs.frozen(kw_only=True)
class HTTPResponse:
    """A handler's answer."""

    status: int = attrs.field(default=200, validator=_check_status)
    """The HTTP status; default 200."""
    body: bytes = attrs.field(
        default=b"", validator=attrs.validators.instance_of(bytes), repr=False
    )
    """The body; default: none. It is not sent with the statuses 204 and 304, which have no body."""
    content_type: str = attrs.field(default=TEXT, validator=_check_text)
    """The body's media type; default: plain text."""
    headers: Mapping[str, str] = attrs.field(factory=dict, validator=_check_headers)
    """Further header fields. The server adds ``Content-Length``, ``Date`` and ``Connection``."""
    stream: Iterator[bytes] | None = attrs.field(default=None, repr=False)
    """A body that comes piece by piece, in place of ``body``; each piece is sent at once. It is
    advanced in the connection's thread, has to end soon after ``request.stop`` is set, and is
    closed in any case. A client that does not read a piece within ten seconds is dropped, and the
    connection ends with the answer. Default: none."""

    @property
    def may_have_body(self) -> bool:
        """Whether answers with this status have a body."""
        return self.status not in (204, 304)

    def encode_head(self, *, date: str, keep: bool, version: str) -> bytes:
        """The status line and the header fields, as bytes."""
        phrase = "OK" if self.status == 200 else _phrases().get(self.status, "")
        fields = {"X-Content-Type-Options": "nosniff", **self.headers, "Date": date}
        if self.status != 204:
            fields["Content-Type"] = self.content_type
            if self.stream is None:
                fields["Content-Length"] = str(len(self.body))
        if not keep:
            fields["Connection"] = "close"
        elif version == "HTTP/1.0":
            fields["Connection"] = "keep-alive"
        lines = [f"HTTP/1.1 {self.status} {phrase}", *(f"{k}: {v}" for k, v in fields.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


HTTPHandler = Callable[[HTTPRequest], HTTPResponse]
"""Answers requests. Called from several threads at once."""


class RequestLimits(Protocol):
    """The limits of single requests, for :meth:`HTTPServer.add_handler`."""

    def body_limit(self, path: str, /) -> int:
        """The most bytes of the body of a request for ``path``; more is answered with 413."""
        ...

    def time_limit(self, request: HTTPRequest, /) -> float | None:
        """Seconds that the handler of ``request`` may take; None for no limit."""
        ...

    def timed_out(self, request: HTTPRequest, /) -> HTTPResponse:
        """The answer after that time, in place of the handler's."""
        ...


@functools.cache
def _phrases() -> dict[int, str]:
    # The probes and scrapes of a healthy operator need no more than the one of 200.
    import http

    return {status.value: status.phrase for status in http.HTTPStatus}


def text_response(status: int, text: str, **headers: str) -> HTTPResponse:
    """A page of plain text, with a line break at its end.

    >>> text_response(404, "404 page not found").body
    b'404 page not found\\n'
    """
    return HTTPResponse(status=status, body=f"{text}\n".encode(), headers=headers)
