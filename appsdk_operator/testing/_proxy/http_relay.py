"""The half of a proxy that reads requests: it ends TLS, and lets rules decide what befalls each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar, final
from urllib.parse import parse_qs, urlsplit

from appsdk_operator.apiserver import (
    Authority,
    ConnectionCut,
    FaultRule,
    Faults,
    FaultyWire,
    LoggedRequest,
    RequestFacts,
    StatusError,
    fault_error,
    object_name_in,
    parse_path,
    send_paced,
    verb_of,
    wait_for_release,
    watch_rules,
)
from appsdk_operator.client import ClientConfig, TLSContexts, credentials_of
from appsdk_operator.runtime import Clock
from appsdk_operator.testing._proxy.http_messages import (
    ClosableReader,
    MessageHead,
    body_of,
    framed,
    read_head,
)

__all__ = ["HTTPRelay"]

_T = TypeVar("_T")
_Streams: TypeAlias = tuple[ClosableReader, asyncio.StreamWriter]

_HOST: Final = "127.0.0.1"
_BODY_LIMIT: Final = 16 * 1024 * 1024
_LOG_SIZE: Final = 10_000


@final
class HTTPRelay:
    """Passes requests on to an API server, but for what the rules say.

    Made by any thread, then belongs to the loop of the proxy.
    """

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        """Requests go to the server of ``config``, with its credentials where they bring none."""
        parts = urlsplit(config.server)
        assert parts.hostname is not None
        is_tls = parts.scheme == "https"
        self.faults = Faults(log_size=_LOG_SIZE)
        self.authority = Authority(clock.time()) if is_tls else None
        self._name = config.tls_server_name or parts.hostname
        self._address = (parts.hostname, parts.port or (443 if is_tls else 80))
        self._credentials = credentials_of(config, clock)
        self._own = self.authority.context(_HOST) if self.authority is not None else None
        self._theirs = TLSContexts(config, self._credentials).get() if is_tls else None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen on loopback; the port."""
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.StreamReaderProtocol:
            reader = ClosableReader()

            def begin(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = loop.create_task(self._serve_client(reader, writer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

            return asyncio.StreamReaderProtocol(reader, begin, loop=loop)

        self._server = await loop.create_server(connection, _HOST, 0, ssl=self._own)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Cut every connection and listen no more."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def connect(self) -> _Streams:
        """A connection to the API server."""
        loop = asyncio.get_running_loop()
        reader = ClosableReader()
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        name = self._name if self._theirs is not None else None
        transport, _ = await loop.create_connection(
            lambda: protocol, *self._address, ssl=self._theirs, server_hostname=name
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def authorization(self) -> str | None:
        """What a request without credentials is to carry."""
        return self._credentials.authorization()

    async def _serve_client(self, reader: ClosableReader, writer: asyncio.StreamWriter) -> None:
        connection = _RelayedConnection(self, reader, writer)
        errors = (ConnectionCut, OSError, ValueError, ssl.SSLError)
        try:
            with contextlib.suppress(*errors):
                while await connection.exchange():
                    pass
                with contextlib.suppress(OSError):
                    await writer.drain()
                    writer.close()
        finally:
            connection.close()


@final
class _RelayedConnection:
    """One client's connection, and the one to the server that belongs to it."""

    def __init__(
        self, relay: HTTPRelay, reader: ClosableReader, writer: asyncio.StreamWriter
    ) -> None:
        self._relay = relay
        self._reader = reader
        self._writer = writer
        self._upstream: _Streams | None = None

    def close(self) -> None:
        """End both sides at once."""
        for writer in (self._writer, self._upstream[1] if self._upstream else None):
            if writer is not None and not writer.is_closing():
                writer.transport.abort()
        if self._upstream is not None:
            self._upstream[1].transport.abort()

    async def exchange(self) -> bool:
        """One request and its answer; whether another may follow.

        Raises:
            ConnectionCut: by a rule.
            OSError, ValueError: one side has gone, or speaks no HTTP.
        """
        loop = asyncio.get_running_loop()
        # Where the server ends a connection that is idle, so does the proxy.
        others = [self._upstream[0].gone] if self._upstream is not None else []
        head = await _until_closed(read_head(self._reader), *others)
        if head is None:
            return False
        began = loop.time()
        body = await self._body(head)
        facts = _facts_of(head, body)
        faults = self._relay.faults
        rules = faults.take(facts) if facts is not None else ()
        told: list[int] = []

        def tell(status: int) -> None:
            told.append(status)
            faults.log.append(_logged(head, facts, status, loop.time() - began, rules))

        try:
            await self._apply_faults(rules, facts, head, body, tell)
        except StatusError as error:
            tell(error.code)
            await self._send_status(error)
        finally:
            if not told:
                tell(0)
        return not head.closes and not self._writer.is_closing()

    async def _body(self, head: MessageHead) -> bytes:
        if head.get("Expect").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        parts: list[bytes] = []
        size = 0
        async for piece in body_of(self._reader, head, has_none=False, until_end=False):
            size += len(piece)
            if size > _BODY_LIMIT:
                raise ValueError("a body that is too long")
            parts.append(piece)
        return b"".join(parts)

    async def _apply_faults(
        self,
        rules: Sequence[FaultRule],
        facts: RequestFacts | None,
        head: MessageHead,
        body: bytes,
        tell: Callable[[int], None],
    ) -> None:
        """Pass a request on with all that befalls it, and tell which status is answered."""
        faults = self._relay.faults
        actions = {rule.action: rule for rule in rules}
        is_watch = facts is not None and facts.verb == "watch"
        if not is_watch:
            for name in ("delay", "stall"):
                if name in actions:
                    await self._wait(faults.released, actions[name].seconds)
        if "answer" in actions:
            raise fault_error(actions["answer"])
        if "drop" in actions:
            raise ConnectionCut
        if "duplicate" in actions:
            async for _ in self._answer_body(head, await self._forward(head, body)):
                pass
        answer = await self._forward(head, body)
        status = int(answer.start[1])
        if actions.keys() & {"lose", "hold", "cut", "slow"} and not is_watch:
            await self._send_faulty_answer(head, answer, actions, tell)
        else:
            tell(status)
            if status == 101:
                await self._tunnel(answer)
            elif is_watch and status == 200 and (events := watch_rules(rules)):
                await self._send_events(answer, events)
            else:
                await self._send_answer(head, answer)
        if answer.closes:
            self._writer.close()

    async def _wait(self, released: asyncio.Event, seconds: float | None) -> None:
        await _until_closed(wait_for_release(released, seconds), self._reader.gone)

    # -- with the server ---------------------------------------------------------------------

    async def _forward(self, head: MessageHead, body: bytes) -> MessageHead:
        """Send the request to the server; the head of its answer."""
        if self._upstream is None:
            self._upstream = await self._relay.connect()
        reader, writer = self._upstream
        sent = head.changed(Expect=None, Transfer_Encoding=None)
        if body or head.is_chunked:
            sent = sent.changed(Content_Length=str(len(body)))
        own = None if head.get("Authorization") else self._relay.authorization()
        if own is not None:
            sent = sent.changed(Authorization=own)
        writer.write(sent.encode() + body)
        await writer.drain()
        while True:
            answer = await _until_closed(read_head(reader), self._reader.gone)
            if answer is None:
                raise ConnectionError("the server has gone")
            if answer.start[1] == "101" or not answer.start[1].startswith("1"):
                return answer

    def _answer_body(self, head: MessageHead, answer: MessageHead) -> Any:
        assert self._upstream is not None
        status = answer.start[1]
        has_none = head.start[0] == "HEAD" or status in ("204", "304")
        return body_of(self._upstream[0], answer, has_none=has_none, until_end=True)

    # -- with the client ---------------------------------------------------------------------

    async def _send_answer(self, head: MessageHead, answer: MessageHead) -> None:
        """Pass an answer on as it comes."""
        self._writer.write(answer.encode())
        pieces = self._answer_body(head, answer)
        while True:
            await self._writer.drain()
            piece = await _until_closed(anext(pieces, b""), self._reader.gone)
            if not piece:
                break
            self._writer.write(framed(piece) if answer.is_chunked else piece)
        if answer.is_chunked and head.start[0] != "HEAD":
            self._writer.write(b"0\r\n\r\n")
        elif answer.length is None and answer.start[1] not in ("204", "304"):
            self._writer.close()
        await self._writer.drain()

    async def _send_faulty_answer(
        self,
        head: MessageHead,
        answer: MessageHead,
        actions: dict[str, FaultRule],
        tell: Callable[[int], None],
    ) -> None:
        """Pass an answer on late, slowly, in part or not at all."""
        body = b"".join([piece async for piece in self._answer_body(head, answer)])
        if "lose" in actions:
            raise ConnectionCut
        if "hold" in actions:
            await self._wait(self._relay.faults.released, actions["hold"].seconds)
        cut, slow = actions.get("cut"), actions.get("slow")
        tell(int(answer.start[1]) if cut is None else 0)
        whole = answer.changed(Transfer_Encoding=None, Content_Length=str(len(body)))
        self._writer.write(whole.encode())

        async def send(piece: bytes) -> None:
            self._writer.write(piece)
            await self._writer.drain()

        await send_paced(send, body if cut is None else body[: cut.after], slow)
        if cut is not None:
            await self._flush()
            raise ConnectionCut

    async def _send_events(self, answer: MessageHead, rules: Sequence[FaultRule]) -> None:
        """Pass a watch on, event by event."""
        assert self._upstream is not None
        self._writer.write(answer.encode())
        wire = _Wire(self._writer)
        faulty = FaultyWire(wire, rules, self._relay.faults, self._reader.gone.set)
        pieces = body_of(self._upstream[0], answer, has_none=False, until_end=True)
        source = _WatchEvents(pieces, faulty)
        await _until_closed(faulty.run(source), self._reader.gone, flush=self._flush)
        if answer.is_chunked:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        # The server may not have ended what the client was told has ended.
        self._writer.close()

    async def _flush(self) -> None:
        """Wait until what was written is on its way; a socket takes small parts at once."""
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def _send_status(self, error: StatusError) -> None:
        body = json.dumps(error.body()).encode()
        fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if error.retry_after is not None:
            fields.append(("Retry-After", str(error.retry_after)))
        head = MessageHead(("HTTP/1.1", str(error.code), error.reason or "Error"), tuple(fields))
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def _tunnel(self, answer: MessageHead) -> None:
        """Pass bytes on in both directions, whatever they mean: the protocol has changed."""
        assert self._upstream is not None
        reader, writer = self._upstream
        self._writer.write(answer.encode())

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while piece := await source.read(65536):
                sink.write(piece)
                await sink.drain()

        async with asyncio.TaskGroup() as directions:
            directions.create_task(pump(reader, self._writer))
            directions.create_task(pump(self._reader, writer))
        raise ConnectionError("the tunnel has ended")


@final
class _Wire:
    """A client's connection, for the events of a watch."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, body: bytes) -> None:
        self._writer.write(framed(body))
        await self._writer.drain()

    async def drain(self) -> None:
        await self._writer.drain()

    def push(self, body: bytes, framed: bytes) -> int:
        raise NotImplementedError("events of a proxy are sent one after the other")


@final
class _WatchEvents:
    """The events that a server sends, in whole lines."""

    def __init__(self, pieces: Any, wire: FaultyWire) -> None:
        self._pieces = pieces
        self._wire = wire
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Hand on what comes until the server or :meth:`end` ends it."""
        rest = b""
        with contextlib.suppress(_PeerClosedError):
            while piece := await _until_closed(anext(self._pieces, b""), self._ended):
                lines, newline, rest = (rest + piece).rpartition(b"\n")
                if newline:
                    await self._wire.send(lines + newline)

    def end(self) -> None:
        """Take no more."""
        self._ended.set()


class _PeerClosedError(ConnectionError):
    """The other side went while one wait_for_release."""


async def _until_closed(
    work: Awaitable[_T],
    *gone: asyncio.Event,
    flush: Callable[[], Awaitable[None]] | None = None,
) -> _T:
    """The outcome of ``work``, but for a side that goes before.

    Raises:
        _PeerClosedError: it went.
    """
    doing = asyncio.ensure_future(work)
    watching = [asyncio.ensure_future(event.wait()) for event in gone]
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
    place = urlsplit(head.start[1])
    return LoggedRequest(
        head.start[0],
        place.path,
        place.query,
        head.get("User-Agent"),
        status,
        verb=facts.verb if facts is not None else "",
        namespace=facts.namespace if facts is not None else "",
        duration=duration,
        fault=", ".join(map(repr, rules)),
    )


def _facts_of(head: MessageHead, body: bytes) -> RequestFacts | None:
    """What a rule sees of a request; None: it is for no resource."""
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
