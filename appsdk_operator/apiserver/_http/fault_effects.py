"""Applies the matching fault rules to one request of the embedded server."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, final

import msgspec
from aiohttp import web

from appsdk_operator.apiserver._fault_rules import FaultRule, combined
from appsdk_operator.apiserver._http.faults import fault_error
from appsdk_operator.apiserver._http.http_request import HttpRequest
from appsdk_operator.apiserver._storage.watch import Wire, error_event

_STEP: Final = 0.05  # seconds between the pieces of an answer that is sent slowly
# The limit of unsent bytes before a watch has to wait.
_ROOM: Final = 1 << 16
_ON_EVENTS: Final = ("cut", "delay", "slow", "stall", "end_watch")


class Source(Protocol):
    """Where the events of a watch come from."""

    async def run(self) -> None:
        """Send events to the wire until the watch ends."""
        ...

    def end(self) -> None:
        """Make :meth:`run` return soon."""
        ...


class ConnectionCut(Exception):  # noqa: N818 - no error: a fault rule is being obeyed
    """Cut the connection without an answer."""


async def apply_rules(
    rules: Sequence[FaultRule],
    released: asyncio.Event,
    request: HttpRequest,
    proceed: Callable[[], Awaitable[web.StreamResponse]],
    encode: Callable[[web.StreamResponse], None],
) -> web.StreamResponse:
    """Carry out a request with ``proceed``, and apply the fault rules to it.

    Args:
        rules: the rules.
        released: set when they are cleared, which ends every wait.
        request: the request.
        proceed: carries it out; an error is a response, too.
        encode: encodes the body of a response that is sent here.

    Raises:
        StatusError: a rule answers with an error.
        ConnectionCut: a rule cuts the connection.
    """
    is_watch = request.facts is not None and request.facts.verb == "watch"
    actions = combined(rules)

    async def wait(seconds: float | None) -> None:
        await wait_for_release(released, seconds)

    await apply_first(actions, wait, is_watch=is_watch)
    if "duplicate" in actions:
        await proceed()
    response = await proceed()
    if "lose" in actions:
        raise ConnectionCut
    if "hold" in actions:
        await wait(actions["hold"].seconds)
    cut, slow = actions.get("cut"), actions.get("slow")
    if is_watch or not (cut or slow):
        return response
    encode(response)
    return await _send_with_faults(request, response, cut, slow, released)


async def apply_first(
    actions: Mapping[str, FaultRule],
    wait: Callable[[float | None], Awaitable[None]],
    *,
    is_watch: bool,
) -> None:
    """Apply the rules that take effect before a request is carried out.

    Raises:
        StatusError: a rule answers with an error.
        ConnectionCut: a rule cuts the connection.
    """
    for name in ("delay", "stall"):
        if name in actions and not is_watch:
            await wait(actions[name].seconds)
    if "answer" in actions:
        raise fault_error(actions["answer"])
    if "drop" in actions:
        raise ConnectionCut


async def wait_for_release(released: asyncio.Event, seconds: float | None) -> None:
    """Wait ``seconds``, or until the faults are cleared."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await released.wait()


async def send_paced(
    send: Callable[[bytes], Awaitable[None]],
    body: bytes,
    slow: FaultRule | None,
    released: asyncio.Event,
) -> None:
    """Send a body at the rate of a ``slow`` rule; without a rule, or when released, at once."""
    rate = slow.bytes_per_second if slow is not None else None
    start = 0
    while rate is not None and start < len(body) and not released.is_set():
        piece = body[start : start + max(1, int(rate * _STEP))]
        await wait_for_release(released, len(piece) / rate)
        await send(piece)
        start += len(piece)
    if start < len(body):
        await send(body[start:])


async def _send_with_faults(
    request: HttpRequest,
    response: web.StreamResponse,
    cut: FaultRule | None,
    slow: FaultRule | None,
    released: asyncio.Event,
) -> web.StreamResponse:
    """Send a response, cut off or slowed down by the rules."""
    body = bytes(getattr(response, "body", None) or b"")
    badly = web.StreamResponse(status=response.status, headers=response.headers)
    badly.content_length = len(body)
    await badly.prepare(request)
    if request.method != "HEAD":
        part = body if cut is None else body[: cut.after]
        await send_paced(badly.write, part, slow, released)
    if cut is not None:
        raise ConnectionCut
    await badly.write_eof()
    return badly


@final
class FaultyWire:
    """The connection of a watch, with delayed, cut or stalled events."""

    def __init__(
        self,
        wire: Wire,
        rules: Sequence[FaultRule],
        released: asyncio.Event,
        abort: Callable[[], None],
    ) -> None:
        """Events go to ``wire`` as the rules allow.

        Args:
            wire: the connection.
            rules: the rules.
            released: set when they are cleared, which ends every wait.
            abort: cuts the connection.
        """
        self._wire = wire
        self._rules = combined(rules)
        self._released = released
        self._abort = abort
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._events = 0
        self._bytes = 0
        self._is_closed = False
        self._changed = asyncio.Condition()
        self._news = asyncio.Event()

    def push(self, body: bytes, framed: bytes) -> int:  # noqa: ARG002 - the protocol's
        """Queue events without waiting; return the number of unsent bytes."""
        if not self._is_closed:
            self._pieces.append((asyncio.get_running_loop().time(), body))
            self._size += len(body)
            self._news.set()
        # Beyond the limit, return a number that makes any watch wait.
        return self._size if self._size <= _ROOM else 1 << 62

    async def send(self, body: bytes) -> None:
        """Queue events, and wait while too many bytes are unsent."""
        self.push(body, b"")
        await self.drain()

    async def drain(self) -> None:
        """Wait until the unsent bytes are below the limit."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._size <= _ROOM or self._is_closed)

    async def run(self, watch: Source) -> None:
        """Run the watch to its end, and send its events as the rules say."""
        pump = asyncio.get_running_loop().create_task(self._pump(watch))
        try:
            await watch.run()
            async with self._changed:
                await self._changed.wait_for(lambda: not self._size or self._is_closed)
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _pump(self, watch: Source) -> None:
        try:
            if not await self._check_events(watch):
                return
            while True:
                while not self._pieces:
                    self._news.clear()
                    await self._news.wait()
                since, body = self._pieces[0]
                await self._wait_for_delay(since)
                for line in body.splitlines(keepends=True):
                    await self._send_line(line)
                    self._events += 1
                    if not await self._check_events(watch):
                        return
                self._pieces.popleft()
                async with self._changed:
                    self._size -= len(body)
                    self._changed.notify_all()
        except ConnectionError:
            watch.end()
        finally:
            self._is_closed = True
            async with self._changed:
                self._changed.notify_all()

    def _rule(self, action: str) -> FaultRule | None:
        return None if self._released.is_set() else self._rules.get(action)

    async def _wait_for_delay(self, since: float) -> None:
        delay = self._rule("delay")
        if delay is not None and delay.seconds is not None:
            left = since + delay.seconds - asyncio.get_running_loop().time()
            if left > 0:
                await wait_for_release(self._released, left)

    async def _send_line(self, line: bytes) -> None:
        cut = self._rule("cut")
        room = cut.after - self._bytes if cut is not None else len(line)
        part = line[: max(0, room)]
        await send_paced(self._wire.send, part, self._rule("slow"), self._released)
        self._bytes += len(part)
        if len(part) < len(line):
            self._abort()
            raise ConnectionError("a fault rule cut the connection in the middle of an event")

    async def _check_events(self, watch: Source) -> bool:
        """Apply the rules that count events; False when the watch ends."""
        stall, cut = self._rule("stall"), self._rule("cut")
        if cut is not None and self._bytes >= cut.after:
            self._abort()
            return False
        if stall is not None and self._events >= stall.after:
            await wait_for_release(self._released, stall.seconds)
            del self._rules["stall"]
        end = self._rule("end_watch")
        if end is not None and self._events >= end.after:
            if end.status is not None:
                await self._wire.send(error_event(fault_error(end)))
            watch.end()
            return False
        return True


def watch_rules(rules: Sequence[FaultRule]) -> list[FaultRule]:
    """The rules that apply to the events of a watch, not to its start."""
    return [rule for rule in rules if rule.action in _ON_EVENTS]


class _Metadata(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def object_name_in(body: bytes) -> str:
    """The name of the object in a JSON body; empty when it has none."""
    try:
        return msgspec.json.decode(body, type=_Named).metadata.name
    except (msgspec.MsgspecError, RecursionError):
        return ""
