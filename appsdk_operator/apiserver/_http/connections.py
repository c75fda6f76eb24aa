"""The HTTP server: connections, and requests that are not valid HTTP.

Every malformed request is answered with a ``Status``; nothing that a client sends leads to a
traceback.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from appsdk_operator.apiserver._http.frontend import Frontend, log
from appsdk_operator.apiserver._http.http_request import HttpRequest
from appsdk_operator.apiserver._http.listeners import ClosableServer
from appsdk_operator.apiserver._http.responses import status_response
from appsdk_operator.apiserver._values.status import StatusError


class _Connection(web.RequestHandler):
    """One connection; malformed HTTP is answered with a ``Status``, too."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002 - its text is in the message
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that could not be handled, without logging it."""
        if request.writer.output_size > 0:
            raise ConnectionError("the request failed after the response had begun")
        text = (message or "").partition("\n")[0] or "malformed request"
        response = status_response(StatusError(status, text))
        response.force_close()
        return response


class HttpServer(ClosableServer):
    """The protocol factory for the listening socket."""

    def __init__(self, frontend: Frontend) -> None:
        """A server whose requests ``frontend`` answers."""
        self.most_connections = 10_000
        """The limit of open connections; further ones are closed at once."""
        super().__init__(
            frontend.handle,
            request_factory=self._request,
            handler_cancellation=True,
            access_log=None,
            logger=log,
            # A value that a client sends back may be long: tokens and selectors.
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
            # Who is impersonated may be in many groups, with a header for each.
            max_headers=512,
            lingering_time=1.0,
            # As the real server, which reads the bytes as they are.
            auto_decompress=False,
        )

    def __call__(self) -> web.RequestHandler:
        """The handler of a new connection."""
        return _Connection(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Register a connection; abort it when the server is closing or full."""
        super().connection_made(handler, transport)
        if len(self.open) > self.most_connections:
            transport.abort()

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: Any,
        task: asyncio.Task[None],
    ) -> HttpRequest:
        return HttpRequest(message, payload, protocol, writer, task, self._loop)

    def cut(self, *, watches_only: bool) -> None:
        """Abort connections at the level of TCP."""
        for connection, transport in list(self.open.items()):
            request = connection._current_request  # noqa: SLF001 - nowhere else to be had
            facts = request.facts if isinstance(request, HttpRequest) else None
            watching = facts is not None and facts.verb == "watch"
            if watching or not watches_only:
                transport.abort()
