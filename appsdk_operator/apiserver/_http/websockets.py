"""Watches over WebSocket: each event is a text message."""

from __future__ import annotations

import contextlib
import re
from typing import Final, Protocol, final

from aiohttp import hdrs, web

from appsdk_operator.apiserver._http.http_request import HttpRequest
from appsdk_operator.apiserver._values.status import StatusError

# Seconds that a closed connection waits for the answer of its peer.
_CLOSING: Final = 1.0
_TEXT: Final = 0x81
_VERSION: Final = "13"
# What Go's url.ParseRequestURI takes: a browser's "null" and a bare host are none.
_ORIGIN: Final = re.compile(r"\*|/.*|[a-zA-Z][a-zA-Z0-9+.-]*:\S*")


class _Source(Protocol):
    def end(self) -> None: ...


def asks_for_websocket(request: HttpRequest) -> bool:
    """Whether the request is the handshake of a WebSocket."""
    connection = request.headers.get(hdrs.CONNECTION, "").lower()
    upgrade = request.headers.get(hdrs.UPGRADE, "").lower()
    return request.method == "GET" and "upgrade" in connection and upgrade == "websocket"


async def refusal(request: HttpRequest) -> web.Response | None:
    """The response to a handshake that golang.org/x/net/websocket refuses: no ``Status``.

    It has begun when this returns: that package takes over the connection, so that the headers of
    other responses are missing.
    """
    status, text = 400, ""
    if not request.headers.get(hdrs.SEC_WEBSOCKET_KEY):
        text = "mismatch challenge/response"
    elif request.headers.get(hdrs.SEC_WEBSOCKET_VERSION) != _VERSION:
        text = "missing or bad WebSocket Version"
    elif not _ORIGIN.fullmatch(request.headers.get(hdrs.ORIGIN, "")):
        status = 403
    elif len(_offered(request)) <= 1:
        return None
    response = web.Response(status=status, body=text.encode() or None)
    if "Version" in text:
        response.headers[hdrs.SEC_WEBSOCKET_VERSION] = _VERSION
    response.force_close()
    await response.prepare(request)
    return response


def _offered(request: HttpRequest) -> list[str]:
    """The subprotocols that the client offers."""
    offered = request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "").strip()
    return [each.strip() for each in offered.split(",")] if offered else []


async def accept(request: HttpRequest) -> web.WebSocketResponse:
    """Answer the handshake, with the subprotocol that it offers.

    Raises:
        StatusError: it is not valid.
    """
    response = web.WebSocketResponse(
        timeout=_CLOSING,
        protocols=_offered(request),
        # Messages are written here, and not by the response.
        compress=False,
    )
    try:
        await response.prepare(request)
    except web.HTTPException as error:
        raise StatusError(error.status, error.text or "not a WebSocket handshake") from None
    return response


async def serve(response: web.WebSocketResponse, watch: _Source) -> None:
    """Ignore what the client sends, and end the watch when it goes away. Runs until cancelled."""
    async for _message in response:
        pass
    watch.end()


@final
class SocketWire:
    """The WebSocket of a watch."""

    __slots__ = ("_request", "_rest")

    def __init__(self, request: HttpRequest) -> None:
        """Writes to the connection of ``request``, whose handshake is done."""
        self._request = request
        self._rest = b""

    async def send(self, body: bytes) -> None:
        """Send, waiting while the peer does not read."""
        self.push(body, b"")
        await self.drain()

    async def drain(self) -> None:
        """Wait until the peer has read most of the sent bytes."""
        with contextlib.suppress(ConnectionError):  # the watch ends when its client is gone
            await self._request.writer.drain()

    def push(self, body: bytes, framed: bytes) -> int:  # noqa: ARG002 - a chunk of HTTP
        """Send events without waiting; return the number of buffered bytes."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return 0
        *lines, self._rest = (self._rest + body).split(b"\n")
        transport.write(b"".join(_message(line + b"\n") for line in lines))
        return transport.get_write_buffer_size()


def _message(text: bytes) -> bytes:
    """A text message in one frame."""
    size = len(text)
    if size < 126:
        return bytes((_TEXT, size)) + text
    if size < 1 << 16:
        return bytes((_TEXT, 126)) + size.to_bytes(2, "big") + text
    return bytes((_TEXT, 127)) + size.to_bytes(8, "big") + text
