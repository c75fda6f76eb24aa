"""The part of the fault proxy that reads requests: ends TLS and applies the fault rules to each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar, final
from urllib.parse import parse_qs, urlsplit

from appsdk_operator.apiserver import (
    AccessTable,
    Authority,
    ConnectionCut,
    FaultRule,
    Faults,
    FaultyWire,
    LoggedRequest,
    RequestFacts,
    StatusError,
    apply_first,
    close_listeners,
    combined,
    object_name_in,
    parse_path,
    selected_name,
    send_paced,
    verb_of,
    wait_for_release,
    watch_rules,
)
from appsdk_operator.client import ClientConfig, TLSContexts, credentials_of, proxy_for
from appsdk_operator.runtime import Clock, StopSignal, system_clock
from appsdk_operator.testing._proxy.http_messages import (
    ClosableReader,
    MessageHead,
    MessageStream,
    as_chunk,
)

_T = TypeVar("_T")

_HOST: Final = "127.0.0.1"
_BODY_LIMIT: Final = 16 * 1024 * 1024
_LOG_SIZE: Final = 10_000


@final
class HTTPRelay:
    """Forwards requests to an API server and applies the fault rules.

    Any thread may make it; afterwards only the proxy's loop uses it.
    """

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        """Forwards to the server of ``config``, with its credentials for requests without any."""
        parts = urlsplit(config.server)
        assert parts.hostname is not None
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        other = proxy_for(parts.hostname, config.proxy_url, config.no_proxy, port=port)
        if other is not None:
            raise ValueError(
                f"{config.server} is behind the proxy {other} (proxy_url), but a FaultProxy "
                "connects directly: give it a configuration with proxy_url=None"
            )
        self.faults = Faults(log_size=_LOG_SIZE)
        self.accesses = AccessTable()
        self.authority = Authority(system_clock.time()) if is_tls else None
        self._name = config.tls_server_name or parts.hostname
        self._address = (parts.hostname, port)
        self._credentials = credentials_of(config, clock)
        self._never = StopSignal(clock=clock)
        self._own = self.authority.context(_HOST) if self.authority is not None else None
        self._theirs = (
            TLSContexts(config).get(self._credentials.obtain(self._never).certificate)
            if is_tls
            else None
        )
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen on loopback; returns the port."""
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.StreamReaderProtocol:
            reader = ClosableReader()

            def begin(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                connection = _RelayedConnection(self, MessageStream(reader, writer))
                task = loop.create_task(connection.serve())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                # Not by the task itself, which does nothing when it is cancelled before it begins.
                task.add_done_callback(lambda _: connection.close())

            return asyncio.StreamReaderProtocol(reader, begin, loop=loop)

        self._server = await loop.create_server(connection, _HOST, 0, ssl=self._own)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            await close_listeners(self._server)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def connect(self) -> MessageStream:
        """A new connection to the API server."""
        loop = asyncio.get_running_loop()
        reader = ClosableReader()
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        name = self._name if self._theirs is not None else None
        transport, _ = await loop.create_connection(
            lambda: protocol, *self._address, ssl=self._theirs, server_hostname=name
        )
        return MessageStream(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    def authorization(self) -> str | None:
        """The ``Authorization`` value for requests without credentials; None for none."""
        return self._credentials.obtain(self._never).authorization


@final
class _RelayedConnection:
    """One client's connection, and the connection to the server for its requests."""

    def __init__(self, relay: HTTPRelay, client: MessageStream) -> None:
        self._relay = relay
        self._client = client
        self._writer = client.writer
        self._server: MessageStream | None = None

    async def serve(self) -> None:
        """Relay requests until one side closes, or a rule cuts."""
        with contextlib.suppress(ConnectionCut, OSError, ValueError, ssl.SSLError):
            while await self.exchange():
                pass
            with contextlib.suppress(OSError):
                await self._writer.drain()
                self._writer.close()

    def close(self) -> None:
        """Cut both sides."""
        if not self._writer.is_closing():
            self._writer.transport.abort()
        if self._server is not None:
            self._server.writer.transport.abort()

    async def exchange(self) -> bool:
        """Relay one request and its answer; whether another request may follow.

        Raises:
            ConnectionCut: by a rule.
            OSError, ValueError: one side has closed, or does not speak HTTP.
        """
        loop = asyncio.get_running_loop()
        # When the server closes an idle connection, the proxy does the same.
        others = [self._server.closed] if self._server is not None else []
        head = await _until_closed(self._client.read_request(), *others)
        if head is None:
            return False
        began = loop.time()
        body = await self._read_body(head)
        facts = _facts_of(head, body)
        faults = self._relay.faults
        rules = faults.take(facts) if facts is not None else ()
        # That of now: when the rules are cleared, another one takes its place.
        released = faults.released
        statuses: list[int] = []

        def log_status(status: int) -> None:
            statuses.append(status)
            faults.log.append(_logged(head, facts, status, loop.time() - began, rules))
            _note_access(self._relay.accesses, head, facts, status)

        try:
            await self._apply_faults(rules, released, facts, head, body, log_status)
        except StatusError as error:
            log_status(error.code)
            await self._send_status(error, head)
        finally:
            if not statuses:
                log_status(0)
        return not head.closes and not self._writer.is_closing()

    async def _read_body(self, head: MessageHead) -> bytes:
        if head.get("Expect").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        parts: list[bytes] = []
        size = 0
        async for part in self._client.body():
            size += len(part)
            if size > _BODY_LIMIT:
                raise ValueError("a body that is too long")
            parts.append(part)
        return b"".join(parts)

    async def _apply_faults(
        self,
        rules: Sequence[FaultRule],
        released: asyncio.Event,
        facts: RequestFacts | None,
        head: MessageHead,
        body: bytes,
        log_status: Callable[[int], None],
    ) -> None:
        """Forward a request and its answer with the faults of ``rules``, and log the status."""
        actions = combined(rules)
        is_watch = facts is not None and facts.verb == "watch"
        await apply_first(actions, partial(self._wait, released), is_watch=is_watch)
        if "duplicate" in actions:
            server, _ = await self._forward(head.replace(Connection="keep-alive"), body)
            async for _ in server.body():
                pass
        server, answer = await self._forward(head, body)
        status = int(answer.start[1])
        if actions.keys() & {"lose", "hold", "cut", "slow"} and not is_watch:
            await self._send_faulty_answer(server, answer, actions, released, log_status)
        else:
            log_status(status)
            if status == 101:
                await self._tunnel(server, answer)
            elif is_watch and status == 200 and (on_events := watch_rules(rules)):
                await self._send_events(server, answer, on_events, released)
            else:
                await self._send_answer(server, head, answer)
        if answer.closes:
            self._writer.close()

    async def _wait(self, released: asyncio.Event, seconds: float | None) -> None:
        await _until_closed(wait_for_release(released, seconds), self._client.closed)

    # -- with the server ---------------------------------------------------------------------

    async def _forward(self, head: MessageHead, body: bytes) -> tuple[MessageStream, MessageHead]:
        """Send the request to the server; the server's stream and the head of its answer."""
        if self._server is None:
            self._server = await self._relay.connect()
        server = self._server
        sent = head.replace(Expect=None, Transfer_Encoding=None)
        if body or head.is_chunked:
            sent = sent.replace(Content_Length=str(len(body)))
        credentials = None if head.get("Authorization") else self._relay.authorization()
        if credentials is not None:
            sent = sent.replace(Authorization=credentials)
        server.writer.write(sent.encode() + body)
        await server.writer.drain()
        return server, await _until_closed(server.read_answer(head), self._client.closed)

    # -- with the client ---------------------------------------------------------------------

    async def _send_answer(
        self, server: MessageStream, head: MessageHead, answer: MessageHead
    ) -> None:
        """Send an answer on as it comes."""
        self._writer.write(answer.encode())
        parts = server.body()
        while True:
            await self._writer.drain()
            part = await _until_closed(anext(parts, b""), self._client.closed)
            if not part:
                break
            self._writer.write(as_chunk(part) if answer.is_chunked else part)
        if answer.is_chunked and head.start[0] != "HEAD":
            self._writer.write(b"0\r\n\r\n")
        elif not answer.has_length and answer.start[1] not in ("204", "304"):
            self._writer.close()
        await self._writer.drain()

    async def _send_faulty_answer(
        self,
        server: MessageStream,
        answer: MessageHead,
        actions: dict[str, FaultRule],
        released: asyncio.Event,
        log_status: Callable[[int], None],
    ) -> None:
        """Send an answer late, slowly, in part or not at all."""
        body = b"".join([part async for part in server.body()])
        if "lose" in actions:
            raise ConnectionCut
        if "hold" in actions:
            await self._wait(released, actions["hold"].seconds)
        cut, slow = actions.get("cut"), actions.get("slow")
        log_status(int(answer.start[1]) if cut is None else 0)
        if not answer.has_length:
            answer = answer.replace(Transfer_Encoding=None, Content_Length=str(len(body)))
        self._writer.write(answer.encode())

        async def send(part: bytes) -> None:
            self._writer.write(part)
            await self._writer.drain()

        await send_paced(send, body if cut is None else body[: cut.after], slow, released)
        if cut is not None:
            await self._flush()
            raise ConnectionCut

    async def _send_events(
        self,
        server: MessageStream,
        answer: MessageHead,
        rules: Sequence[FaultRule],
        released: asyncio.Event,
    ) -> None:
        """Send a watch on, event by event."""
        self._writer.write(answer.encode())
        wire = _Wire(self._writer)
        faulty = FaultyWire(wire, rules, released, self._client.closed.set)
        source = _WatchEvents(server.body(), faulty)
        await _until_closed(faulty.run(source), self._client.closed, flush=self._flush)
        if answer.is_chunked:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        # The server's watch may go on where a rule ended the client's.
        self._writer.close()

    async def _flush(self) -> None:
        """Wait until what was written is on its way; a socket takes small parts at once."""
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def _send_status(self, error: StatusError, request: MessageHead) -> None:
        body = json.dumps(error.body()).encode()
        fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if error.retry_after is not None:
            fields.append(("Retry-After", str(error.retry_after)))
        head = MessageHead(("HTTP/1.1", str(error.code), error.reason or "Error"), tuple(fields))
        self._writer.write(head.encode() + (b"" if request.start[0] == "HEAD" else body))
        await self._writer.drain()

    async def _tunnel(self, server: MessageStream, answer: MessageHead) -> None:
        """Copy bytes in both directions after the protocol has changed."""
        self._writer.write(answer.encode())

        async def copy(source: MessageStream, sink: asyncio.StreamWriter) -> None:
            while data := await source.read_raw():
                sink.write(data)
                await sink.drain()
            if sink.can_write_eof():
                sink.write_eof()
            else:  # TLS ends in both directions at once
                sink.close()

        try:
            async with asyncio.TaskGroup() as directions:
                directions.create_task(copy(server, self._writer))
                directions.create_task(copy(self._client, server.writer))
        except* OSError:
            pass
        raise ConnectionError("the tunnel has ended")


@final
class _Wire:
    """A client's connection, for the events of a watch."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, body: bytes) -> None:
        self._writer.write(as_chunk(body))
        await self._writer.drain()

    async def drain(self) -> None:
        await self._writer.drain()

    def push(self, body: bytes, framed: bytes) -> int:
        raise NotImplementedError("events of a proxy are sent one after the other")


@final
class _WatchEvents:
    """The events that a server sends, in whole lines."""

    def __init__(self, parts: AsyncIterator[bytes], wire: FaultyWire) -> None:
        self._parts = parts
        self._wire = wire
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Send events to the wire until the server or :meth:`end` ends them."""
        rest = b""
        with contextlib.suppress(_PeerClosedError):
            while part := await _until_closed(anext(self._parts, b""), self._ended):
                lines, newline, rest = (rest + part).rpartition(b"\n")
                if newline:
                    await self._wire.send(lines + newline)

    def end(self) -> None:
        """Send no further events."""
        self._ended.set()


class _PeerClosedError(ConnectionError):
    """A side of the proxy closed during a wait."""


async def _until_closed(
    work: Awaitable[_T],
    *closed: asyncio.Event,
    flush: Callable[[], Awaitable[None]] | None = None,
) -> _T:
    """The result of ``work``, which is cancelled when one of ``closed`` is set first.

    Raises:
        _PeerClosedError: one was set first.
    """
    doing = asyncio.ensure_future(work)
    watching = [asyncio.ensure_future(event.wait()) for event in closed]
    try:
        await asyncio.wait([doing, *watching], return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        if flush is not None:
            await flush()
        raise _PeerClosedError("the other side has gone")
    finally:
        for task in (doing, *watching):
            task.cancel()
        await asyncio.gather(doing, *watching, return_exceptions=True)


def _logged(
    head: MessageHead,
    facts: RequestFacts | None,
    status: int,
    duration: float,
    rules: Sequence[FaultRule],
) -> LoggedRequest:
    target = urlsplit(head.start[1])
    return LoggedRequest(
        head.start[0],
        target.path,
        target.query,
        head.get("User-Agent"),
        status,
        verb=facts.verb if facts is not None else "",
        namespace=facts.namespace if facts is not None else "",
        duration=duration,
        fault=", ".join(map(repr, rules)),
    )


def _note_access(
    accesses: AccessTable, head: MessageHead, facts: RequestFacts | None, status: int
) -> None:
    """Note what a role has to allow for a request with this answer."""
    if status == 401:
        return
    target = urlsplit(head.start[1])
    user = head.get("Impersonate-User")
    if facts is None:
        accesses.note(user, head.start[0].lower(), path=target.path)
        return
    if not facts.verb:
        return
    place = {"group": facts.group, "resource": facts.plural, "subresource": facts.subresource}
    name = facts.name if facts.verb != "create" or facts.subresource else ""
    if facts.verb in ("list", "watch"):
        name = selected_name(parse_qs(target.query).get("fieldSelector", [""])[0])
    accesses.note(user, facts.verb, namespace=facts.namespace, name=name, **place)
    # An update or patch that creates the object needs both verbs.
    creates = facts.verb == "create" or (facts.verb in ("update", "patch") and status == 201)
    if creates and facts.name and not facts.subresource:
        accesses.note(user, "create", namespace=facts.namespace, name=facts.name, **place)


def _facts_of(head: MessageHead, body: bytes) -> RequestFacts | None:
    """The request as rules see it; None if it is for no resource."""
    method, target, _ = head.start
    route = parse_path(target)
    if route is None:
        return None
    query = parse_qs(urlsplit(target).query, keep_blank_values=True)
    flag = query.get("watch", ["false"])[0].lower()
    verb = verb_of(method, route, watch=flag not in ("false", "0"))
    return RequestFacts(
        verb=verb,
        group=route.group,
        plural=route.plural,
        namespace=route.namespace,
        name=route.name or (object_name_in(body) if verb == "create" else ""),
        subresource=route.subresource,
        user_agent=head.get("User-Agent"),
    )
