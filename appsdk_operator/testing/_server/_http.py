"""HTTP: from a connection to a call for a resource, and back.

A request is authenticated, logged, given to the fault rules and carried out. Whatever is wrong with
it is answered with a ``Status``; nothing a client sends ends in a traceback.
"""

from __future__ import annotations

import asyncio
import logging
from random import uniform
from typing import Any, Final, final

import attrs
import msgspec
from aiohttp import hdrs, web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from appsdk_operator.testing._fault_rules import RequestFacts
from appsdk_operator.testing._server import _bodies, _discovery, _endpoints, _openapi
from appsdk_operator.testing._server._core import Core
from appsdk_operator.testing._server._endpoints import Call, Endpoints, NoPageError
from appsdk_operator.testing._server._exchange import Exchange
from appsdk_operator.testing._server._fault_effects import (
    ConnectionCut,
    FaultyWire,
    befall,
    name_in,
    watch_rules,
)
from appsdk_operator.testing._server._faults import Faults, LoggedRequest
from appsdk_operator.testing._server._forms import negotiate
from appsdk_operator.testing._server._resources import Resource, ServedVersion
from appsdk_operator.testing._server._routes import Route, parse_path, verb_of
from appsdk_operator.testing._server._stale import cache_at
from appsdk_operator.testing._server._status import StatusError, method_not_allowed
from appsdk_operator.testing._server._watch import Wire

__all__ = ["Frontend", "HttpServer", "Settings"]

_log: Final = logging.getLogger("appsdk_operator.testing.server")

_JSON: Final = "application/json"
# What may be read without a token, as with the real server's default roles.
_PUBLIC: Final = ("/healthz", "/livez", "/readyz", "/version")
# The real server gives a watch without a time-out between one and two times this, in seconds.
_WATCH_TIMEOUT: Final = 1800.0
_READ_TIMEOUT: Final = 30.0


@attrs.define
class Settings:
    """What can be changed while the server runs."""

    tokens: frozenset[str]
    address: str = ""


@final
class Frontend:
    """Answers requests of the HTTP server."""

    def __init__(
        self, core: Core, faults: Faults, settings: Settings, endpoints: Endpoints
    ) -> None:
        """Requests work on ``core``."""
        self._core = core
        self._faults = faults
        self._settings = settings
        self._endpoints = endpoints

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        assert isinstance(request, Exchange)
        try:
            self._authenticate(request)
            response = await self._answer(request)
        except StatusError as error:
            response = _failure(error)
        except NoPageError:
            response = _no_page()
        except ConnectionCut:
            self._note(request, 0)
            if request.transport is not None:
                request.transport.abort()
            raise asyncio.CancelledError from None
        except (asyncio.CancelledError, ConnectionError):
            raise
        except RecursionError:
            # Writes change the state as their last step, so nothing has happened.
            response = _failure(StatusError(400, "the object is nested too deeply"))
        except Exception as error:  # a bug of the server must not look like a broken connection
            _log.exception("%s %s failed", request.method, request.path)
            response = _failure(StatusError(500, f"Internal error occurred: {error!r}"))
        if not request.is_noted:
            self._note(request, response.status)
        return response

    def _note(self, request: Exchange, status: int) -> None:
        request.is_noted = True
        facts = request.facts
        self._faults.log.append(
            LoggedRequest(
                request.method,
                request.path,
                request.query_string,
                request.headers.get(hdrs.USER_AGENT, ""),
                status,
                verb=facts.verb if facts is not None else "",
                namespace=facts.namespace if facts is not None else "",
                user=request.user,
                duration=asyncio.get_running_loop().time() - request.began,
                fault=", ".join(map(repr, request.rules)),
            )
        )

    def _authenticate(self, request: Exchange) -> None:
        tokens = self._settings.tokens
        if not tokens or request.path.startswith(_PUBLIC):
            return
        scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        if scheme.lower() != "bearer" or token.strip() not in tokens:
            raise StatusError(401, "Unauthorized")

    async def _answer(self, request: Exchange) -> web.StreamResponse:
        route = parse_path(request.raw_path)
        if route is None:
            return self._document(request)
        query = request.query
        watching = request.method in ("GET", "HEAD") and _bodies.flag(query, "watch")
        verb = verb_of(request.method, route, watch=watching)
        if not verb:
            raise method_not_allowed()
        served = _endpoints.find(self._core, route)
        resource = served.resource
        body: bytes | None = None
        if route.name or verb != "create" or not self._faults.asks_for_names:
            facts = _facts(request, verb, route, resource)
        else:
            body = await _body(request)
            facts = _facts(request, verb, route, resource, name=name_in(body))
        request.facts = facts
        rules = request.rules = self._faults.take(facts)
        if not rules:
            return await self._proceed(request, verb, route, served, body)
        if body is None and verb != "watch":
            body = await _body(request) if request.can_read_body else b""
        return await befall(
            rules,
            self._faults,
            request,
            lambda: self._proceed(request, verb, route, served, body),
        )

    async def _proceed(
        self,
        request: Exchange,
        verb: str,
        route: Route,
        served: ServedVersion,
        body: bytes | None,
    ) -> web.StreamResponse:
        query, resource = request.query, served.resource
        if body is None:
            body = await _body(request) if request.can_read_body else b""
        form = negotiate(
            request.headers.get(hdrs.ACCEPT, ""),
            include=query.get("includeObject", ""),
            now=self._core.clock.time(),
        )
        if verb not in resource.verbs and not route.subresource:
            raise method_not_allowed()
        call = Call(
            verb=verb,
            route=route,
            served=served,
            query=query,
            body=body,
            content_type=_media_type(request),
            form=form,
            at=self._lag(request, resource),
        )
        if verb == "watch":
            return await self._watch(request, call)
        return await self._carry_out(call)

    def _lag(self, request: Exchange, resource: Resource) -> int | None:
        """The revision that a rule makes a cache be at."""
        for rule in request.rules:
            if rule.action == "stale":
                return cache_at(self._core.storage, resource.collection, rule.behind)
        return None

    async def _carry_out(self, call: Call) -> web.Response:
        answer = await self._endpoints.answer(call)
        headers = {hdrs.CONTENT_TYPE: _JSON}
        response = web.Response(status=answer.status, body=answer.body, headers=headers)
        warnings = answer.warnings
        if call.served.warning:
            warnings = (call.served.warning, *warnings)
        for warning in dict.fromkeys(warnings):
            response.headers.add("Warning", _warning(warning))
        return response

    async def _watch(self, request: Exchange, call: Call) -> web.StreamResponse:
        seconds = _bodies.number(call.query, "timeoutSeconds")
        response = web.StreamResponse(status=200, headers={hdrs.CONTENT_TYPE: _JSON})
        wire: Wire = _HttpWire(request, response)
        faulty = self._faulty_wire(request, wire)
        watch = self._endpoints.watch(call, faulty or wire)
        if request.version >= (1, 1):
            response.enable_chunked_encoding()
        await response.prepare(request)
        self._note(request, 200)
        if isinstance(watch, bytes):
            await response.write(watch)
        else:
            timeout = seconds if seconds > 0 else uniform(_WATCH_TIMEOUT, 2 * _WATCH_TIMEOUT)
            timer = asyncio.get_running_loop().call_later(timeout, watch.end)
            try:
                await (watch.run() if faulty is None else faulty.run(watch))
            finally:
                timer.cancel()
        await response.write_eof()
        return response

    def _faulty_wire(self, request: Exchange, wire: Wire) -> FaultyWire | None:
        rules = watch_rules(request.rules)
        if not rules:
            return None

        def abort() -> None:
            if request.transport is not None:
                request.transport.abort()

        return FaultyWire(wire, rules, self._faults, abort)

    # -- what is not a resource --------------------------------------------------------------

    def _document(self, request: Exchange) -> web.Response:
        path, accept = request.path, request.headers.get(hdrs.ACCEPT, "")
        if path.startswith(("/healthz", "/livez", "/readyz")):
            return web.Response(text="ok")
        if path == "/version":
            return _json(_discovery.VERSION)
        if path.startswith("/openapi/"):
            return self._openapi(path)
        aggregated = _discovery.wants_aggregated(accept)
        found = _discovery.discover(
            self._core.catalog, path, aggregated=aggregated, address=self._settings.address
        )
        if found is None:
            raise _endpoints.unknown_path(self._core.catalog, path)
        kind = _discovery.AGGREGATED if found["kind"] == "APIGroupDiscoveryList" else _JSON
        return _json(found, content_type=kind)

    def _openapi(self, path: str) -> web.Response:
        found = _openapi.document(self._core.catalog, path)
        return _no_page() if found is None else _json(found)


@final
class _HttpWire:
    """The response of a watch."""

    __slots__ = ("_request", "_response")

    def __init__(self, request: Exchange, response: web.StreamResponse) -> None:
        self._request = request
        self._response = response

    async def send(self, body: bytes) -> None:
        await self._response.write(body)

    async def drain(self) -> None:
        await self._request.writer.drain()

    def push(self, body: bytes, framed: bytes) -> int:
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return 0
        # The frame was made once for all watches of the channel, so it goes past the response.
        transport.write(framed if self._response.chunked else body)
        return transport.get_write_buffer_size()


def _facts(
    request: Exchange, verb: str, route: Route, resource: Resource, *, name: str = ""
) -> RequestFacts:
    return RequestFacts(
        verb=verb,
        group=resource.group,
        plural=resource.plural,
        kind=resource.kind,
        namespace=route.namespace,
        name=route.name or name,
        subresource=route.subresource,
        user_agent=request.headers.get(hdrs.USER_AGENT, ""),
    )


def _media_type(request: Exchange) -> str:
    return request.headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()


async def _body(request: Exchange) -> bytes:
    if (request.content_length or 0) > _bodies.BODY_LIMIT:
        raise _bodies.too_large()
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_READ_TIMEOUT):
            async for part in request.content.iter_any():
                size += len(part)
                if size > _bodies.BODY_LIMIT:
                    raise _bodies.too_large()
                parts.append(part)
    except TimeoutError:
        raise StatusError(408, "the body of the request did not arrive", reason="Timeout") from None
    except web.PayloadAccessError:
        raise ConnectionError("the connection ended before the body did") from None
    return b"".join(parts)


def _warning(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{"".join(char if char.isprintable() else " " for char in quoted)}"'


def _json(value: Any, *, status: int = 200, content_type: str = _JSON) -> web.Response:
    return web.Response(
        status=status,
        body=msgspec.json.encode(value),
        headers={hdrs.CONTENT_TYPE: content_type},
    )


def _no_page() -> web.Response:
    return web.Response(status=404, text="404 page not found\n")


def _failure(error: StatusError) -> web.Response:
    response = _json(error.body(), status=error.code)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    if error.code == 413:
        # What is left of the body is not worth reading.
        response.force_close()
    return response


class _Connection(web.RequestHandler):
    """One connection; what is no HTTP at all is answered with a Status too."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002 - its text is in the message
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be handled, without a word to the log."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun when it failed")
        text = (message or "").partition("\n")[0] or "malformed request"
        response = _failure(StatusError(status, text))
        response.force_close()
        return response


class HttpServer(web.Server):
    """The protocol factory for the listening socket."""

    def __init__(self, frontend: Frontend) -> None:
        """A server whose requests ``frontend`` answers."""
        self.is_closing = False
        self.open: dict[Any, asyncio.Transport] = {}
        """The connections that are not closed yet, whoever closes them, by handler."""
        super().__init__(
            frontend.handle,
            request_factory=self._request,
            handler_cancellation=True,
            access_log=None,
            logger=_log,
            # A value that a client sends back may be long: tokens and selectors.
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
            lingering_time=1.0,
        )

    def __call__(self) -> web.RequestHandler:
        """The handler of a new connection."""
        return _Connection(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Take a connection; one that was accepted while the server closes ends at once."""
        super().connection_made(handler, transport)
        self.open[handler] = transport
        if self.is_closing:
            transport.abort()

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """Forget a connection."""
        self.open.pop(handler, None)
        super().connection_lost(handler, exc)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: Any,
        task: asyncio.Task[None],
    ) -> Exchange:
        return Exchange(message, payload, protocol, writer, task, self._loop)

    def cut(self, *, watches_only: bool) -> None:
        """Abort connections at the level of TCP."""
        for connection in self.connections:
            transport = connection.transport
            request = connection._current_request  # noqa: SLF001 - nowhere else to be had
            watching = request is not None and "watch" in request.query
            if transport is not None and (watching or not watches_only):
                transport.abort()
