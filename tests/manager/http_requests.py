"""Requests as bytes, parsed without a connection, and a server that repeats them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from appsdk_operator.manager import HTTPLimits, HTTPRequest, HTTPResponse, HTTPServer
from appsdk_operator.serving._request_parser import RequestHead, RequestParser


def parse_head(data: bytes) -> RequestHead:
    """The head of a request from its bytes, the empty line at its end left out."""
    parser = RequestParser(HTTPLimits())
    parser.receive_data(data + b"\r\n\r\n")
    head = parser.read_head()
    assert head is not None
    return head


def parse_all(
    pieces: Iterable[bytes], limits: HTTPLimits | None = None
) -> Iterator[tuple[RequestHead, bytes]]:
    """The requests of one connection, as far as they are complete."""
    parser = RequestParser(limits or HTTPLimits())
    head: RequestHead | None = None
    for piece in pieces:
        parser.receive_data(piece)
        while True:
            if head is None:
                head = parser.read_head()
                if head is None:
                    break
            body = parser.read_body() if head.has_body else b""
            if body is None:
                break
            yield head, body
            head = None


def echo(request: HTTPRequest) -> HTTPResponse:
    """Answer what was asked."""
    return HTTPResponse(body=f"{request.method} {request.path} ".encode() + request.body)


def make(**options: Any) -> HTTPServer:
    """A server of :func:`echo`."""
    server = HTTPServer("127.0.0.1:0", name="pages", **options)
    server.add_handler("/", echo, is_prefix=True, methods=["GET", "HEAD", "POST"])
    return server


def phases(server: HTTPServer) -> list[str]:
    """What the connections of a server are at."""
    return sorted(connection.phase for connection in server._pool._connections)
