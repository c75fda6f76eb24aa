"""Watches: who gets which event, at a cost that does not grow with the number of watchers.

Watches that ask for the same (resource, version, selection and form) share a channel. Once in a
turn of the loop the channel renders its new events into one piece of bytes, and the same piece is
written to each of its watchers.

A watcher whose connection takes no more bytes leaves its channel and reads on from the collection's
ring at its own pace: it holds up nobody and keeps nothing in memory but its position. Should the
ring move past that position, the watch ends with 410 as if it had asked for too old a version.

Belongs to the server's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, final

import attrs
import msgspec

from appsdk_operator.apiserver._storage import conversion
from appsdk_operator.apiserver._storage.lists import Selection
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._storage.storage import (
    Collection,
    Event,
    HistoryGoneError,
    Record,
    Storage,
)
from appsdk_operator.apiserver._values.status import StatusError, expired

__all__ = ["Form", "Watch", "WatchHub", "Wire"]

# What is sent in one go to a watch that reads on its own: this many objects, or this many bytes.
_BATCH: Final = 256
_BATCH_BYTES: Final = 256 * 1024
# Seconds between attempts to have objects converted.
_RETRY: Final = 0.1
# Bytes that may wait in a connection's buffer before its watcher must keep up on its own.
_BEHIND: Final = 1 << 20


class Form(Protocol):
    """How objects look in events: whole, as a table's row, or their metadata only."""

    @property
    def key(self) -> str:
        """What tells this form from another."""
        ...

    @property
    def has_head(self) -> bool:
        """Whether the first object of a watch tells more than the others: a table's columns."""
        ...

    def first_event(self, served: ServedVersion, record: Record) -> bytes:
        """The object of the first event."""
        ...

    def event_object(self, served: ServedVersion, record: Record) -> bytes:
        """The object of an event."""
        ...

    def bookmark(self, served: ServedVersion, metadata: dict[str, Any]) -> bytes:
        """The object of a bookmark."""
        ...


class Wire(Protocol):
    """The connection of one watch."""

    async def send(self, body: bytes) -> None:
        """Send, waiting while the peer does not take it."""
        ...

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was sent."""
        ...

    def push(self, body: bytes, framed: bytes) -> int:
        """Send without waiting; the bytes that are still under way."""
        ...


def framed(body: bytes) -> bytes:
    """``body`` as a chunk of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def error_event(status: StatusError) -> bytes:
    """The event that ends a watch with an error."""
    return b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(status.body())


@final
class _Channel:
    """Watches that ask for the same, and how far they are."""

    def __init__(
        self, storage: Storage, served: ServedVersion, selection: Selection, form: Form
    ) -> None:
        self.storage = storage
        self.collection: Collection = served.resource.collection
        self.position: int = storage.revision
        self.watches: dict[Watch, None] = {}
        self.users = 0
        self._served = served
        self._form = form
        self._includes = selection.includes()

    def render(self, events: list[Event], *, first: bool = False) -> bytes:
        """The lines of those events that concern the selection; whether they are the ``first``."""
        parts: list[bytes] = []
        for event in events:
            seen = _selected_change(event, self._includes)
            if seen is not None:
                type_, record = seen
                if first and not parts:
                    data = self._form.first_event(self._served, record)
                else:
                    data = self._form.event_object(self._served, record)
                parts += (b'{"type":"', type_, b'","object":', data, b"}\n")
        return b"".join(parts)

    def seen(self, events: list[Event]) -> list[Record]:
        """The objects of those events that concern the selection."""
        found = (_selected_change(event, self._includes) for event in events)
        return [seen[1] for seen in found if seen is not None]

    def flush(self) -> None:
        try:
            events = self.collection.since(self.position)
        except HistoryGoneError:
            for watch in list(self.watches):
                watch.fall_behind()
            return
        body = self.render(events) if events else b""
        self.position = self.storage.revision
        if body:
            chunk = framed(body)
            for watch in list(self.watches):
                watch.push(body, chunk)


def _selected_change(
    event: Event, includes: Callable[[Record], bool] | None
) -> tuple[bytes, Record] | None:
    """What a change means for somebody who sees a part of the objects."""
    if includes is None:
        return event.type.encode(), event.record
    now = event.type != "DELETED" and includes(event.record)
    before = event.previous is not None and includes(event.previous)
    if now:
        return (b"MODIFIED" if before else b"ADDED"), event.record
    if not before:
        return None
    return b"DELETED", event.final_record()


def _batch_length(records: list[Record]) -> int:
    """How many of ``records``, at least one, fit into one batch."""
    size = 0
    for count, record in enumerate(records, 1):
        size += len(record.data)
        if size >= _BATCH_BYTES:
            return count
    return len(records)


@final
@attrs.define(eq=False)
class Watch:
    """One open watch, run by the handler of its request."""

    hub: WatchHub
    served: ServedVersion
    selection: Selection
    form: Form
    wire: Wire
    position: int
    bookmarks: bool = False
    initial: list[Record] | None = None
    ends_initial: bool = False
    _channel: _Channel = attrs.field(init=False)
    _wake: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _ended: bool = attrs.field(default=False, init=False)
    _bookmark_requested: bool = attrs.field(default=False, init=False)
    _started: bool = attrs.field(default=False, init=False)

    async def run(self) -> None:
        """Send events until :meth:`end`, the connection's end, or history that is gone."""
        key = (self.served, self.selection, self.form.key)
        self._channel = self.hub.acquire(key, self.form)
        self.hub.watches[self] = None
        try:
            await self._send_initial()
            await self._follow()
        except HistoryGoneError:
            await self.wire.send(error_event(self._too_old()))
        finally:
            self.hub.watches.pop(self, None)
            self.hub.leave(self._channel, self)
            self.hub.release(key, self._channel)

    async def _follow(self) -> None:
        collection = self._channel.collection
        while not self._ended:
            await self.hub.running.wait()
            events = collection.since(self.position)
            if events:
                events = events[: _batch_length([event.record for event in events[:_BATCH]])]
                if not await self._convert(self._channel.seen(events)):
                    return
                self.position = events[-1].revision
                if body := self._channel.render(events, first=not self._started):
                    self._started = True
                    await self.wire.send(body)
            elif self.position > self.hub.storage.revision or self._reads_alone:
                # It asked for a version that is yet to come, so the channel is ahead of it; or
                # what comes is its own: converted first, for which nobody else waits, or with the
                # columns of a table, which only the first event has.
                self._wake.clear()
                if self._reads_alone:
                    self.position = max(self.position, self.hub.storage.revision)
                await self.hub.next_change(self._wake)
                if self._bookmark_requested:
                    self._bookmark_requested = False
                    await self.wire.send(self.bookmark(self.position))
            else:
                self._wake.clear()
                self.hub.join(self._channel, self)
                await self._wake.wait()
                if not self._ended:
                    await self.wire.drain()
        if self.bookmarks:
            await self.wire.send(self.bookmark(self.position))

    async def _send_initial(self) -> None:
        records = self.initial or []
        self.initial = None
        start = 0
        while start < len(records):
            await self.hub.running.wait()
            if self._ended:
                return
            batch = records[start : start + _BATCH]
            batch = batch[: _batch_length(batch)]
            start += len(batch)
            if not await self._convert(batch):
                return
            parts: list[bytes] = []
            for record in batch:
                shape = self.form.event_object if self._started else self.form.first_event
                self._started = True
                data = shape(self.served, record)
                parts += (b'{"type":"ADDED","object":', data, b"}\n")
            await self.wire.send(b"".join(parts))
        if self.ends_initial:
            await self.hub.running.wait()
            await self.wire.send(self.bookmark(self.position, ends_initial=True))

    @property
    def _reads_alone(self) -> bool:
        """Whether it reads on by itself, however quickly it is read."""
        begins = self.form.has_head and not self._started
        return begins or self.served.resource.converter is not None

    async def _convert(self, records: list[Record]) -> bool:
        """Have the records converted; wait while that fails, as the real server's cache does.

        False when the watch ended meanwhile.
        """
        while not self._ended:
            try:
                await conversion.convert_records(self.served, records)
            except StatusError:
                await asyncio.sleep(_RETRY)
            else:
                return True
        return False

    def bookmark(self, revision: int, *, ends_initial: bool = False) -> bytes:
        """The event that says how far the watch is."""
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if ends_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        body = self.form.bookmark(self.served, metadata)
        return b'{"type":"BOOKMARK","object":%b}\n' % body

    def push(self, body: bytes, chunk: bytes) -> None:
        """Take what the channel rendered."""
        if self.wire.push(body, chunk) > _BEHIND:
            self.fall_behind()

    def fall_behind(self) -> None:
        """Leave the channel and read on alone."""
        self.hub.leave(self._channel, self)
        self._wake.set()

    def request_bookmark(self) -> None:
        """Send a bookmark soon, unless that is for the channel to do."""
        if self.bookmarks and self._reads_alone:
            self._bookmark_requested = True
            self._wake.set()

    def end(self) -> None:
        """Finish the watch in good order."""
        self._ended = True
        self.hub.leave(self._channel, self)
        self._wake.set()

    def _too_old(self) -> StatusError:
        floor = self._channel.collection.floor
        return expired(f"too old resource version: {self.position} ({floor})")


_ChannelKey: TypeAlias = tuple[ServedVersion, Selection, str]


@final
class WatchHub:
    """All open watches, and the turn-by-turn delivery to them."""

    def __init__(self, storage: Storage, loop: asyncio.AbstractEventLoop) -> None:
        """No watches yet; deliveries run on ``loop``."""
        self.storage = storage
        self.watches: dict[Watch, None] = {}
        self.running: asyncio.Event = asyncio.Event()
        self.running.set()
        self._loop = loop
        self._channels: dict[_ChannelKey, _Channel] = {}
        self._dirty: dict[Collection, None] = {}
        self._scheduled = False
        self._changed: list[asyncio.Future[None]] = []

    def acquire(self, key: _ChannelKey, form: Form) -> _Channel:
        """The channel of those that ask for exactly this."""
        channel = self._channels.get(key)
        if channel is None:
            served, selection, _ = key
            channel = self._channels[key] = _Channel(self.storage, served, selection, form)
        channel.users += 1
        return channel

    def release(self, key: _ChannelKey, channel: _Channel) -> None:
        """Give a channel back; it goes with its last user."""
        channel.users -= 1
        if not channel.users:
            del self._channels[key]

    def join(self, channel: _Channel, watch: Watch) -> None:
        """Let a watch that has seen everything take part in the channel's deliveries."""
        if channel.watches:
            channel.flush()
        else:
            channel.position = self.storage.revision
        channel.watches[watch] = None

    def leave(self, channel: _Channel, watch: Watch) -> None:
        """Take a watch out of the channel; it has seen what the channel delivered."""
        if watch in channel.watches:
            del channel.watches[watch]
            watch.position = channel.position

    def schedule_flush(self, collection: Collection) -> None:
        """Deliver the new events of a collection soon, together with those that follow at once."""
        self._dirty[collection] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Deliver what is there."""
        self._scheduled = False
        for waiter in self._changed:
            if not waiter.done():
                waiter.set_result(None)
        self._changed.clear()
        if not self.running.is_set():
            return
        dirty, self._dirty = self._dirty, {}
        for channel in self._live():
            if channel.collection in dirty:
                channel.flush()

    def _live(self) -> list[_Channel]:
        return [channel for channel in self._channels.values() if channel.watches]

    async def next_change(self, wake: asyncio.Event) -> None:
        """Wait for any write, or for ``wake``."""
        waiter = self._loop.create_future()
        self._changed.append(waiter)
        woken = self._loop.create_task(wake.wait())
        try:
            await asyncio.wait((waiter, woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
            woken.cancel()

    def set_stalled(self, stalled: bool) -> None:
        """Send nothing to anybody, or go on from where each watch was."""
        if stalled:
            self.flush()
            self.running.clear()
            return
        self.running.set()
        for channel in self._live():
            channel.flush()

    def flush_all(self) -> None:
        """Deliver everything, and note that every channel is at the present version."""
        if self.running.is_set():
            for channel in self._live():
                channel.flush()

    def send_bookmarks(self) -> None:
        """Tell each watch that asked for bookmarks the present version."""
        if not self.running.is_set():
            return
        for channel in self._live():
            channel.flush()
            for watch in list(channel.watches):
                if watch.bookmarks:
                    body = watch.bookmark(channel.position)
                    watch.push(body, framed(body))
        for watch in list(self.watches):
            watch.request_bookmark()

    def end_collection(self, collection: Collection) -> None:
        """Finish the watches of a resource that is no longer served."""
        self.flush_all()
        for watch in list(self.watches):
            if watch.served.resource.collection is collection:
                watch.end()
