"""The HTTP front end: authentication, routing, fault rules, dispatch, and the request log."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from functools import partial
from random import uniform
from typing import Final, final

from aiohttp import hdrs, web

from appsdk_operator.apiserver._core import Core
from appsdk_operator.apiserver._fault_rules import RequestFacts
from appsdk_operator.apiserver._http import routing_errors, websockets
from appsdk_operator.apiserver._http.accepted_types import JSON
from appsdk_operator.apiserver._http.access_control import AccessControl
from appsdk_operator.apiserver._http.fault_effects import (
    ConnectionCut,
    FaultyWire,
    apply_rules,
    object_name_in,
    watch_rules,
)
from appsdk_operator.apiserver._http.faults import Faults, LoggedRequest
from appsdk_operator.apiserver._http.http_request import HttpRequest
from appsdk_operator.apiserver._http.non_resource_handler import (
    NonResourceHandler,
    check_media_types,
)
from appsdk_operator.apiserver._http.representations import media_type_of, negotiate
from appsdk_operator.apiserver._http.resource_handler import ResourceHandler
from appsdk_operator.apiserver._http.resource_request import ResourceRequest
from appsdk_operator.apiserver._http.responses import (
    ResponseWriter,
    add_warnings,
    page_not_found,
    status_response,
)
from appsdk_operator.apiserver._http.stale_reads import lagging_revision
from appsdk_operator.apiserver._registry import bodies
from appsdk_operator.apiserver._storage.resources import Resource, ServedVersion
from appsdk_operator.apiserver._storage.watch import Watch, Wire
from appsdk_operator.apiserver._values.names import NameStyle, name_problems
from appsdk_operator.apiserver._values.routes import Route, parse_path, verb_of
from appsdk_operator.apiserver._values.status import (
    StatusError,
    bad_request,
    method_not_allowed,
)
from appsdk_operator.apiserver._values.users import User
from appsdk_operator.runtime import get_logger

log: Final = get_logger("appsdk_operator.testing.server")

# The real server gives a watch without a time-out between one and two times this, in seconds.
_WATCH_TIMEOUT: Final = 1800.0
_PATCHES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
)
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_READ_TIMEOUT: Final = 30.0
_DURATION: Final = re.compile(r"[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|[-+]?0")


@final
class Frontend:
    """Answers the requests of the HTTP server."""

    def __init__(
        self,
        core: Core,
        faults: Faults,
        resource_handler: ResourceHandler,
        access: AccessControl,
        non_resource_handler: NonResourceHandler,
    ) -> None:
        """Requests that ``access`` authorizes work on ``core``."""
        self._core = core
        self._faults = faults
        self._resource_handler = resource_handler
        self._access = access
        self._non_resource_handler = non_resource_handler
        self._response_writer = ResponseWriter()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        assert isinstance(request, HttpRequest)
        try:
            response = await self._respond(request, self._answer(request))
        except ConnectionCut:
            self._log_request(request, 0)
            if request.transport is not None:
                request.transport.abort()
            raise asyncio.CancelledError from None
        if not response.prepared:
            self._response_writer.encode_body(request, response)
        if not request.is_logged:
            self._log_request(request, response.status)
        return response

    @staticmethod
    async def _respond(
        request: HttpRequest, answer: Awaitable[web.StreamResponse]
    ) -> web.StreamResponse:
        """The answer, or the response for the error that it ends with."""
        try:
            return await answer
        except StatusError as error:
            return status_response(error)
        except routing_errors.PageNotFoundError:
            return page_not_found()
        except (ConnectionCut, ConnectionError):
            raise
        except RecursionError:
            # Writes change the state as their last step, so nothing was written.
            return status_response(StatusError(400, "the object is nested too deeply"))
        except Exception as error:  # a bug of the server must not look like a network error
            log.exception("%s %s failed", request.method, request.path)
            return status_response(StatusError(500, f"Internal error occurred: {error!r}"))

    def _log_request(self, request: HttpRequest, status: int) -> None:
        request.is_logged = True
        verb, namespace = _verb_and_namespace(request)
        self._faults.log.append(
            LoggedRequest(
                request.method,
                request.path,
                request.query_string,
                request.headers.get(hdrs.USER_AGENT, ""),
                status,
                verb=verb,
                namespace=namespace,
                user=request.user,
                duration=asyncio.get_running_loop().time() - request.began,
                fault=", ".join(map(repr, request.rules)),
            )
        )

    async def _answer(self, request: HttpRequest) -> web.StreamResponse:
        if request.protocol_version.major != 1:
            raise StatusError(
                505, "unsupported protocol version: this server supports HTTP/1.1 and 1.0"
            )
        if _BAD_ESCAPE.search(request.raw_path.partition("?")[0]):
            return web.Response(status=400, text="400 Bad Request")
        route = parse_path(request.raw_path)
        watching = _is_watch(request)
        user = self._access.authorize(request, route, watch=watching)
        if not watching and request.query.get("timeout"):
            _check_timeout(request.query["timeout"])
        if route is None:
            return self._non_resource_handler.answer(request)
        verb = verb_of(request.method, route, watch=watching)
        served = routing_errors.find(self._core.catalog, route)
        resource = served.resource
        _check_method(request, verb, route, resource)
        body: bytes | None = None
        if route.name or verb != "create" or not self._faults.asks_for_names:
            facts = _facts(request, verb, route, resource)
        else:
            body = await _body(request)
            facts = _facts(request, verb, route, resource, name=object_name_in(body))
        request.facts = facts
        rules = request.rules = self._faults.take(facts)
        # That of now: when the rules are cleared, another one takes its place.
        released = request.released = self._faults.released
        if not rules:
            return await self._proceed(request, user, verb, route, served, body)
        if body is None and verb != "watch":
            body = await _body(request) if request.can_read_body else b""
        return await apply_rules(
            rules,
            released,
            request,
            lambda: self._respond(request, self._proceed(request, user, verb, route, served, body)),
            partial(self._response_writer.encode_body, request),
        )

    async def _proceed(
        self,
        request: HttpRequest,
        user: User,
        verb: str,
        route: Route,
        served: ServedVersion,
        body: bytes | None,
    ) -> web.StreamResponse:
        query, resource = request.query, served.resource
        if body is None:
            body = await _body(request) if request.can_read_body else b""
        accept = request.headers.get(hdrs.ACCEPT, "")
        if not resource.strategy.custom:
            check_media_types(accept, streams=verb in ("list", "watch"))
            _check_patch(request)
            for problem in name_problems(route.name, NameStyle.PATH_SEGMENT):
                raise bad_request(f'Name parameter invalid: "{route.name}": {problem}')
        representation = negotiate(
            accept,
            include=query.get("includeObject", ""),
            now=self._core.clock.time,
            custom=resource.strategy.custom,
            streams=verb == "watch",
            # Reviews, scales and tokens have no columns.
            tables="get" in resource.verbs and route.subresource not in ("scale", "token"),
        )
        if verb not in resource.verbs and not route.subresource:
            raise method_not_allowed()
        resource_request = ResourceRequest(
            verb=verb,
            route=route,
            served=served,
            query=query,
            body=body,
            content_type=_media_type(request),
            representation=representation,
            user=user,
            user_agent=request.headers.get(hdrs.USER_AGENT, ""),
            cache_revision=self._cache_revision(request, resource),
        )
        try:
            if verb == "watch":
                return await self._watch(request, resource_request)
            return await self._carry_out(resource_request)
        except StatusError as error:
            error.warnings = [served.warning, *error.warnings, *resource_request.warnings]
            raise

    def _cache_revision(self, request: HttpRequest, resource: Resource) -> int | None:
        """The revision of the lagging cache that a ``stale`` rule simulates."""
        for rule in request.rules:
            if rule.action == "stale":
                return lagging_revision(self._core.storage, resource.collection, rule.behind)
        return None

    async def _carry_out(self, resource_request: ResourceRequest) -> web.Response:
        answer = await self._resource_handler.answer(resource_request)
        headers = {hdrs.CONTENT_TYPE: media_type_of(answer.body)}
        response = web.Response(status=answer.status, body=answer.body, headers=headers)
        add_warnings(response, [resource_request.served.warning, *resource_request.warnings])
        return response

    async def _watch(
        self, request: HttpRequest, resource_request: ResourceRequest
    ) -> web.StreamResponse:
        seconds = bodies.number(resource_request.query, "timeoutSeconds")
        if websockets.asks_for_websocket(request):
            return await self._watch_by_websocket(request, resource_request, seconds)
        response = web.StreamResponse(status=200, headers={hdrs.CONTENT_TYPE: JSON})
        wire: Wire = _HttpWire(request, response)
        faulty = self._faulty_wire(request, wire)
        watch = self._resource_handler.watch(resource_request, faulty or wire)
        add_warnings(response, [resource_request.served.warning, *resource_request.warnings])
        if request.version >= (1, 1):
            response.enable_chunked_encoding()
        self._response_writer.set_headers(request, response)
        await response.prepare(request)
        self._log_request(request, 200)
        if isinstance(watch, bytes):
            await response.write(watch)
        else:
            await self._run_watch(watch, faulty, seconds)
        await response.write_eof()
        return response

    @staticmethod
    async def _run_watch(watch: Watch, faulty: FaultyWire | None, seconds: int) -> None:
        timeout = seconds if seconds > 0 else uniform(_WATCH_TIMEOUT, 2 * _WATCH_TIMEOUT)
        timer = asyncio.get_running_loop().call_later(timeout, watch.end)
        try:
            await (watch.run() if faulty is None else faulty.run(watch))
        except ConnectionError:
            raise
        except Exception as error:
            # The answer has begun, so all that is left is to end it.
            if not isinstance(error, StatusError):  # it has no form that the client accepts
                log.exception("a watch of %s failed", watch.served.resource.qualified_name)
        finally:
            timer.cancel()

    async def _watch_by_websocket(
        self, request: HttpRequest, resource_request: ResourceRequest, seconds: int
    ) -> web.StreamResponse:
        wire = websockets.SocketWire(request)
        faulty = self._faulty_wire(request, wire)
        watch = self._resource_handler.watch(resource_request, faulty or wire)
        if (refused := await websockets.refusal(request)) is not None:
            return refused
        response = await websockets.accept(request)
        self._log_request(request, 101)
        if isinstance(watch, bytes):
            await wire.send(watch)
        else:
            reading = asyncio.get_running_loop().create_task(websockets.serve(response, watch))
            try:
                await self._run_watch(watch, faulty, seconds)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        await response.close()
        return response

    def _faulty_wire(self, request: HttpRequest, wire: Wire) -> FaultyWire | None:
        rules = watch_rules(request.rules)
        if not rules or request.released is None:
            return None

        def abort() -> None:
            if request.transport is not None:
                request.transport.abort()

        return FaultyWire(wire, rules, request.released, abort)


@final
class _HttpWire:
    """The HTTP response of a watch."""

    __slots__ = ("_request", "_response")

    def __init__(self, request: HttpRequest, response: web.StreamResponse) -> None:
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
        # The chunk was framed once for all watches of the channel, so it bypasses the response.
        transport.write(framed if self._response.chunked else body)
        return transport.get_write_buffer_size()


def _verb_and_namespace(request: HttpRequest) -> tuple[str, str]:
    """The verb and namespace of a request; of one that was refused by what its path says."""
    if request.facts is not None:
        return request.facts.verb, request.facts.namespace
    route = parse_path(request.raw_path)
    if route is None:
        return "", ""
    return verb_of(request.method, route, watch=_is_watch(request)), route.namespace


def _is_watch(request: HttpRequest) -> bool:
    # A HEAD has no body to send events in.
    return request.method == "GET" and bodies.flag(request.query, "watch")


def _facts(
    request: HttpRequest, verb: str, route: Route, resource: Resource, *, name: str = ""
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


def _check_method(request: HttpRequest, verb: str, route: Route, resource: Resource) -> None:
    """Refuse methods that a resource never supports."""
    if not resource.strategy.custom and request.method == "HEAD":
        raise method_not_allowed()
    if not verb:
        raise routing_errors.unsupported_verb(resource, verb)
    # Create-only resources, such as reviews, have no other path.
    misplaced = bool(route.name) or (resource.namespaced and not route.namespace)
    if resource.verbs == ("create",) and misplaced and not route.subresource:
        raise StatusError(404, "the server could not find the requested resource", details={})


def _check_patch(request: HttpRequest) -> None:
    """Refuse unknown patch types of built-in kinds, before the object is looked up."""
    if request.method == "PATCH" and _media_type(request) not in _PATCHES:
        raise StatusError(415, "415: Unsupported Media Type", details={})


def _check_timeout(text: str) -> None:
    if not _DURATION.fullmatch(text):
        number = text.lstrip("+-").replace(".", "", 1)
        why = "missing unit in" if number.isascii() and number.isdigit() else "invalid"
        raise bad_request(
            f'invalid timeout specified in the request URL - time: {why} duration "{text}"'
        )


def _media_type(request: HttpRequest) -> str:
    return request.headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()


def _send_continue(request: HttpRequest) -> None:
    """Answer ``Expect: 100-continue``, so that the client sends its body.

    Raises:
        StatusError: 417, the client expects something else.
    """
    expected = request.headers.get(hdrs.EXPECT, "")
    if not expected or request.version < (1, 1):
        return
    if expected.lower() != "100-continue":
        raise StatusError(417, "Expectation Failed", reason="")
    if request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


async def _body(request: HttpRequest) -> bytes:
    if (request.content_length or 0) > bodies.BODY_LIMIT:
        raise bodies.too_large()
    if request.content.is_eof():
        # It has arrived as a whole.
        body = request.content.read_nowait(-1)
        if len(body) > bodies.BODY_LIMIT:
            raise bodies.too_large()
        return body
    _send_continue(request)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_READ_TIMEOUT):
            async for part in request.content.iter_any():
                size += len(part)
                if size > bodies.BODY_LIMIT:
                    raise bodies.too_large()
                parts.append(part)
    except TimeoutError:
        raise StatusError(408, "the body of the request did not arrive", reason="Timeout") from None
    except web.PayloadAccessError:
        raise ConnectionError(
            "the client closed the connection before the end of the body"
        ) from None
    return b"".join(parts)
