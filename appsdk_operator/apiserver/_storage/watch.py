"""Watches: delivery of events, rendered once for all watches of the same selection.

Watches with the same resource, version, selection and representation share a channel. Once per
iteration of the event loop a channel renders its new events, and writes the same bytes to each of
its watches.

A watch whose connection is congested leaves its channel and reads from the collection's ring at its
own pace. It delays no other watch and buffers nothing but its position. If the ring moves past that
position, the watch ends with 410, like a watch of a version that is too old.

Not thread-safe: everything runs on the server's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
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

# A batch for a watch that reads alone: at most this many objects, and about this many bytes.
_BATCH: Final = 256
_BATCH_BYTES: Final = 256 * 1024
# Seconds between attempts to convert objects.
_RETRY: Final = 0.1
# Bytes in a connection's buffer from which on its watch reads alone.
_BEHIND: Final = 1 << 20


class Representation(Protocol):
    """How events show objects: as whole objects, table rows, or metadata only."""

    @property
    def key(self) -> str:
        """The identity of the representation."""
        ...

    @property
    def has_head(self) -> bool:
        """Whether only the first event has a head, such as the columns of a table."""
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
    """The connection of a watch."""

    async def send(self, body: bytes) -> None:
        """Send, waiting while the peer does not read."""
        ...

    async def drain(self) -> None:
        """Wait until the peer has read most of the sent bytes."""
        ...

    def push(self, body: bytes, framed: bytes) -> int:
        """Send without waiting; return the number of buffered bytes."""
        ...


def framed(body: bytes) -> bytes:
    """Frame ``body`` as a chunk of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def error_event(status: StatusError) -> bytes:
    """The ERROR event that ends a watch."""
    return b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(status.body())


@final
class _Channel:
    """Watches with the same selection and representation, and their common revision."""

    def __init__(
        self,
        storage: Storage,
        served: ServedVersion,
        selection: Selection,
        representation: Representation,
    ) -> None:
        self.storage = storage
        self.collection: Collection = served.resource.collection
        self.position: int = storage.revision
        self.watches: dict[Watch, None] = {}
        self.users = 0
        self._served = served
        self._representation = representation
        self._includes = selection.includes(served)

    def render(self, events: list[Event], *, first: bool = False) -> bytes:
        """The JSON lines of the selected events; ``first``: they are the first of the watch."""
        parts: list[bytes] = []
        for event in events:
            seen = _selected_change(event, self._includes)
            if seen is not None:
                type_, record = seen
                if first and not parts:
                    rendered = self._representation.first_event(self._served, record)
                else:
                    rendered = self._representation.event_object(self._served, record)
                parts += (b'{"type":"', type_, b'","object":', rendered, b"}\n")
        return b"".join(parts)

    def seen(self, events: list[Event]) -> list[Record]:
        """The objects of the selected events."""
        found = (_selected_change(event, self._includes) for event in events)
        return [seen[1] for seen in found if seen is not None]

    def flush(self) -> None:
        try:
            events = self.collection.since(self.position)
            body = self.render(events) if events else b""
        except Exception:
            # Each watch meets the error again as it reads alone, where it ends no other watch.
            for watch in list(self.watches):
                watch.fall_behind()
            return
        self.position = self.storage.revision
        if body:
            chunk = framed(body)
            for watch in list(self.watches):
                watch.push(body, chunk)


def _selected_change(
    event: Event, includes: Callable[[Record], bool] | None
) -> tuple[bytes, Record] | None:
    """The type and object of an event for a selection; None if it does not concern it."""
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
    """How many of ``records`` fit into a batch; at least one."""
    size = 0
    for count, record in enumerate(records, 1):
        size += len(record.data)
        if size >= _BATCH_BYTES:
            return count
    return len(records)


@final
@attrs.define(eq=False)
class Watch:
    """An open watch, run by the handler of its request."""

    hub: WatchHub
    served: ServedVersion
    selection: Selection
    representation: Representation
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
    _has_initial: bool = attrs.field(default=False, init=False)
    """Whether all initial events were sent; before that, no bookmark may be."""

    async def run(self) -> None:
        """Send events until :meth:`end`, a closed connection, or 410."""
        key = (self.served, self.selection, self.representation.key)
        self._channel = self.hub.acquire(key, self.representation)
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
        while not self._has_ended():
            await self.hub.running.wait()
            if self._has_ended():  # meanwhile, which clearing the wake-up below would lose
                break
            events = collection.since(self.position)
            if events:
                events = events[: _batch_length([event.record for event in events[:_BATCH]])]
                if not (
                    await self._convert_to_select(
                        record
                        for event in events
                        for record in (event.record, event.previous)
                        if record is not None
                    )
                    and await self._convert(self._channel.seen(events))
                ):
                    return
                self.position = events[-1].revision
                if body := self._channel.render(events, first=not self._started):
                    self._started = True
                    await self.wire.send(body)
            elif self.position > self.hub.storage.revision or self._reads_alone:
                # It waits for a version in the future, which the channel has not reached; or it
                # reads alone, because its events must be converted first or because its first
                # event has the columns of a table.
                self._wake.clear()
                if self._reads_alone:
                    self.position = max(self.position, self.hub.storage.revision)
                if not self._bookmark_requested:
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
        if self.bookmarks and self._has_initial:
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
            if not await self._convert_to_select(batch):
                return
            batch = list(filter(self.selection.filter(self.served), batch))
            if not batch:
                continue
            if not await self._convert(batch):
                return
            parts: list[bytes] = []
            for record in batch:
                render = (
                    self.representation.event_object
                    if self._started
                    else self.representation.first_event
                )
                self._started = True
                rendered = render(self.served, record)
                parts += (b'{"type":"ADDED","object":', rendered, b"}\n")
            await self.wire.send(b"".join(parts))
        self._has_initial = True
        if self.ends_initial:
            await self.hub.running.wait()
            await self.wire.send(self.bookmark(self.position, ends_initial=True))

    @property
    def _reads_alone(self) -> bool:
        """Whether it reads alone even if its connection is not congested."""
        begins = self.representation.has_head and not self._started
        return begins or self.served.resource.converter is not None

    async def _convert_to_select(self, records: Iterable[Record]) -> bool:
        """Convert the records if the selection reads converted fields; see :meth:`_convert`."""
        return not self.selection.reads_converted(self.served) or await self._convert(records)

    async def _convert(self, records: Iterable[Record]) -> bool:
        """Convert the records; retry while that fails, as the real server's watch cache does.

        Returns:
            False if the watch ended meanwhile.
        """
        records = list(records)
        while not self._ended:
            try:
                await conversion.convert_records(self.served, records)
            except StatusError:
                await asyncio.sleep(_RETRY)
            else:
                return True
        return False

    def bookmark(self, revision: int, *, ends_initial: bool = False) -> bytes:
        """The BOOKMARK event with the revision of the watch."""
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if ends_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        body = self.representation.bookmark(self.served, metadata)
        return b'{"type":"BOOKMARK","object":%b}\n' % body

    def push(self, body: bytes, chunk: bytes) -> None:
        """Send the bytes that the channel rendered."""
        if self.wire.push(body, chunk) > _BEHIND:
            self.fall_behind()

    def fall_behind(self) -> None:
        """Leave the channel and read alone."""
        self.hub.leave(self._channel, self)
        self._wake.set()

    def catch_up(self) -> None:
        """Move to the present revision if no event since the watch's position is left to send."""
        collection = self._channel.collection
        last = collection.events[-1].revision if collection.events else 0
        if collection.floor <= self.position and last <= self.position:
            self.position = max(self.position, self.hub.storage.revision)

    def request_bookmark(self) -> None:
        """Send a bookmark soon, unless the channel sends it."""
        if self.bookmarks and self._reads_alone:
            self._bookmark_requested = True
            self._wake.set()

    def end(self) -> None:
        """End the watch cleanly."""
        self._ended = True
        self.hub.leave(self._channel, self)
        self._wake.set()

    def _has_ended(self) -> bool:
        # A call, because it changes between two looks.
        return self._ended

    def _too_old(self) -> StatusError:
        floor = self._channel.collection.floor
        return expired(f"too old resource version: {self.position} ({floor})")


_ChannelKey: TypeAlias = tuple[ServedVersion, Selection, str]


@final
class WatchHub:
    """The open watches, and the delivery of events to them."""

    def __init__(self, storage: Storage, loop: asyncio.AbstractEventLoop) -> None:
        """A hub without watches; deliveries run on ``loop``."""
        self.storage = storage
        self.watches: dict[Watch, None] = {}
        self.running: asyncio.Event = asyncio.Event()
        self.running.set()
        self._loop = loop
        self._channels: dict[_ChannelKey, _Channel] = {}
        self._dirty: dict[Collection, None] = {}
        self._scheduled = False
        self._changed: dict[asyncio.Future[None], None] = {}

    def acquire(self, key: _ChannelKey, representation: Representation) -> _Channel:
        """The channel for this key, created on first use."""
        channel = self._channels.get(key)
        if channel is None:
            served, selection, _ = key
            channel = self._channels[key] = _Channel(
                self.storage, served, selection, representation
            )
        channel.users += 1
        return channel

    def release(self, key: _ChannelKey, channel: _Channel) -> None:
        """Release a channel; the last release removes it."""
        channel.users -= 1
        if not channel.users:
            del self._channels[key]

    def join(self, channel: _Channel, watch: Watch) -> None:
        """Add a watch that has all events so far to the channel."""
        if channel.watches:
            channel.flush()
        channel.position = self.storage.revision
        channel.watches[watch] = None

    def leave(self, channel: _Channel, watch: Watch) -> None:
        """Remove a watch from the channel, at the position of the channel."""
        if watch in channel.watches:
            del channel.watches[watch]
            watch.position = channel.position

    def schedule_flush(self, collection: Collection) -> None:
        """Schedule delivery of the new events of a collection, batched per loop iteration."""
        self._dirty[collection] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Deliver the new events."""
        self._scheduled = False
        for waiter in self._changed:
            if not waiter.done():
                waiter.set_result(None)
        if not self.running.is_set():
            return
        dirty, self._dirty = self._dirty, {}
        for channel in self._live():
            if channel.collection in dirty:
                channel.flush()

    def _live(self) -> list[_Channel]:
        return [channel for channel in self._channels.values() if channel.watches]

    async def next_change(self, wake: asyncio.Event) -> None:
        """Wait for the next write or for ``wake``."""
        waiter = self._loop.create_future()
        self._changed[waiter] = None
        woken = self._loop.create_task(wake.wait())
        try:
            await asyncio.wait((waiter, woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._changed[waiter]
            woken.cancel()

    def set_stalled(self, stalled: bool) -> None:
        """Pause all deliveries, or resume them from the position of each watch."""
        if stalled:
            self.flush()
            self.running.clear()
            return
        self.running.set()
        for channel in self._live():
            channel.flush()

    def flush_all(self) -> None:
        """Deliver all events, so that every channel is at the present revision.

        A watch that reads alone and has had every event is then there as well.
        """
        if self.running.is_set():
            for channel in self._live():
                channel.flush()
            for watch in self.watches:
                watch.catch_up()

    def send_bookmarks(self) -> None:
        """Send a bookmark to each watch that wants bookmarks."""
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
        """End the watches of a resource that is no longer served."""
        self.flush_all()
        for watch in list(self.watches):
            if watch.served.resource.collection is collection:
                watch.end()
