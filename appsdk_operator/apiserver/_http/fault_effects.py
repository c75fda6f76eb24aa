"""Applies the matching fault rules to one request of the embedded server."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, final

import msgspec
from aiohttp import web

from appsdk_operator.apiserver._fault_rules import FaultRule
from appsdk_operator.apiserver._http.faults import fault_error
from appsdk_operator.apiserver._http.http_request import HttpRequest
from appsdk_operator.apiserver._storage.watch import Wire, error_event

__all__ = [
    "ConnectionCut",
    "FaultyWire",
    "apply_rules",
    "object_name_in",
    "send_paced",
    "wait_for_release",
    "watch_rules",
]

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
) -> web.StreamResponse:
    """Carry out a request with ``proceed``, and apply the fault rules to it.

    Args:
        rules: the rules.
        released: set when they are cleared, which ends every wait.
        request: the request.
        proceed: carries it out.

    Raises:
        StatusError: a rule answers with an error.
        ConnectionCut: a rule cuts the connection.
    """
    is_watch = request.facts is not None and request.facts.verb == "watch"
    for rule in rules:
        match rule.action:
            case "delay" if not is_watch:
                await wait_for_release(released, rule.seconds)
            case "stall" if not is_watch:
                await wait_for_release(released, rule.seconds)
            case "answer":
                raise fault_error(rule)
            case "drop":
                raise ConnectionCut
    actions = {rule.action: rule for rule in rules}
    try:
        if "duplicate" in actions:
            await proceed()
        response = await proceed()
    finally:
        # After an error, too.
        if "lose" in actions:
            raise ConnectionCut
    if "hold" in actions:
        await wait_for_release(released, actions["hold"].seconds)
    if not is_watch and actions.keys() & {"cut", "slow"}:
        return await _send_with_faults(request, response, actions.get("cut"), actions.get("slow"))
    return response


async def wait_for_release(released: asyncio.Event, seconds: float | None) -> None:
    """Wait ``seconds``, or until the faults are cleared."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await released.wait()


async def send_paced(
    send: Callable[[bytes], Awaitable[None]], body: bytes, slow: FaultRule | None
) -> None:
    """Send a body piece by piece at the rate of a ``slow`` rule; without a rule at once."""
    rate = slow.bytes_per_second if slow is not None else None
    size = len(body) if rate is None else max(1, int(rate * _STEP))
    for start in range(0, len(body), size or 1):
        piece = body[start : start + size]
        if rate is not None:
            await asyncio.sleep(len(piece) / rate)
        await send(piece)


async def _send_with_faults(
    request: HttpRequest,
    response: web.StreamResponse,
    cut: FaultRule | None,
    slow: FaultRule | None,
) -> web.StreamResponse:
    """Send a response, cut off or slowed down by the rules."""
    body = bytes(getattr(response, "body", None) or b"")
    badly = web.StreamResponse(status=response.status, headers=response.headers)
    badly.content_length = len(body)
    await badly.prepare(request)
    await send_paced(badly.write, body if cut is None else body[: cut.after], slow)
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
        self._rules = {rule.action: rule for rule in rules}
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

    async def _wait_for_delay(self, since: float) -> None:
        delay = self._rules.get("delay")
        if delay is not None and delay.seconds is not None:
            left = since + delay.seconds - asyncio.get_running_loop().time()
            if left > 0:
                await wait_for_release(self._released, left)

    async def _send_line(self, line: bytes) -> None:
        cut = self._rules.get("cut")
        room = cut.after - self._bytes if cut is not None else len(line)
        part = line[: max(0, room)]
        await send_paced(self._wire.send, part, self._rules.get("slow"))
        self._bytes += len(part)

    async def _check_events(self, watch: Source) -> bool:
        """Apply the rules that count events; False when the watch ends."""
        stall, end = self._rules.get("stall"), self._rules.get("end_watch")
        cut = self._rules.get("cut")
        if cut is not None and self._bytes >= cut.after:
            self._abort()
            return False
        if stall is not None and self._events >= stall.after:
            await wait_for_release(self._released, stall.seconds)
            del self._rules["stall"]
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
