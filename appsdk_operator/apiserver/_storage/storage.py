"""What the server remembers: objects as immutable bytes, and the last events of each collection.

One counter gives every write its revision. A collection keeps its objects in the order of their
keys and a bounded ring of events. Because an event knows the revision of the object before it, the
state at any version the ring still covers is the present state with the events since undone: lists
in pages and lists of an exact version need no copies.

Everything here belongs to one thread (the server's loop) and does no I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, final

import msgspec

__all__ = ["Collection", "Event", "HistoryGoneError", "Record", "Storage", "TooLargeError"]

_encode: Final = msgspec.json.Encoder().encode
# What etcd takes in one request unless told otherwise.
_LARGEST: Final = 3 * 1024 * 1024 // 2
_decode: Final = msgspec.json.Decoder().decode


class HistoryGoneError(Exception):
    """A version was asked for that the ring no longer covers."""


class TooLargeError(Exception):
    """An object beyond the size that can be stored."""


@final
class Record:
    """One revision of one object: its bytes, and the metadata that selection needs."""

    __slots__ = (
        "_variants",
        "api_version",
        "data",
        "deleting",
        "finalizers",
        "key",
        "labels",
        "name",
        "namespace",
        "owners",
        "revision",
        "uid",
    )

    def __init__(self, key: str, revision: int, obj: dict[str, Any]) -> None:
        """Serialise ``obj``, which must carry its final metadata."""
        metadata = obj["metadata"]
        self.key: str = key
        self.revision: int = revision
        self.api_version: str = obj["apiVersion"]
        self.namespace: str = metadata.get("namespace") or ""
        self.name: str = metadata["name"]
        self.uid: str = metadata["uid"]
        self.labels: dict[str, str] = metadata.get("labels") or _NO_LABELS
        self.deleting: bool = "deletionTimestamp" in metadata
        self.finalizers: tuple[str, ...] = tuple(metadata.get("finalizers") or ())
        self.owners: tuple[str, ...] = tuple(
            reference.get("uid", "") for reference in metadata.get("ownerReferences") or ()
        )
        self.data: bytes = _encode(obj)
        self._variants: dict[str, bytes] | None = None

    def decode(self) -> dict[str, Any]:
        """A fresh copy of the object, the caller's to change."""
        decoded: dict[str, Any] = _decode(self.data)
        return decoded

    def data_as(self, variant: str, convert: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
        """The bytes of the object in another form, made once for each ``variant``."""
        if self._variants is None:
            self._variants = {}
        found = self._variants.get(variant)
        if found is None:
            found = self._variants[variant] = _encode(convert(self.decode()))
        return found

    def variant(self, variant: str) -> bytes | None:
        """The bytes of the object in another form, if they were made."""
        return self._variants.get(variant) if self._variants is not None else None

    def keep_variant(self, variant: str, obj: dict[str, Any]) -> None:
        """Remember the object in another form."""
        if self._variants is None:
            self._variants = {}
        self._variants[variant] = _encode(obj)


_NO_LABELS: Final[dict[str, str]] = {}


@final
class Event:
    """One change: what the object became, and what it was."""

    __slots__ = ("_final_record", "previous", "record", "revision", "type")

    def __init__(self, type_: str, revision: int, record: Record, previous: Record | None) -> None:
        """A change of ``type_`` ADDED, MODIFIED or DELETED.

        A deletion's record is the last state under the revision of the deletion.
        """
        self.type: str = type_
        self.revision: int = revision
        self.record: Record = record
        self.previous: Record | None = previous
        self._final_record: Record | None = None

    def final_record(self) -> Record:
        """The last state somebody saw for whom the object goes with this event.

        A deletion's record is that already. For an object that only left a selection it is the
        state before, under the revision of the event.
        """
        if self.type == "DELETED" or self.previous is None:
            return self.record
        if self._final_record is None:
            obj = self.previous.decode()
            obj["metadata"]["resourceVersion"] = str(self.revision)
            self._final_record = Record(self.record.key, self.revision, obj)
        return self._final_record


@final
class Collection:
    """All objects of one resource, in the order of their keys, and their last events."""

    def __init__(self, name: str, history: int, floor: int) -> None:
        """An empty collection whose ring holds ``history`` events."""
        self.name = name
        self.records: dict[str, Record] = {}
        self.keys: list[str] = []
        self.events: deque[Event] = deque(maxlen=history)
        # Events with a revision above the floor are all there.
        self.floor: int = floor

    def append(self, event: Event) -> None:
        """Take a change in."""
        if len(self.events) == self.events.maxlen:
            self.floor = self.events[0].revision
        self.events.append(event)
        key = event.record.key
        if event.type == "DELETED":
            del self.records[key]
            del self.keys[bisect_left(self.keys, key)]
            return
        if key not in self.records:
            insort(self.keys, key)
        self.records[key] = event.record

    def drop_events(self, revision: int) -> None:
        """Drop all events up to ``revision``."""
        while self.events and self.events[0].revision <= revision:
            self.events.popleft()
        self.floor = max(self.floor, revision)

    def since(self, revision: int) -> list[Event]:
        """The events after ``revision``, oldest first.

        Raises:
            HistoryGoneError: some of them are no longer there.
        """
        if revision < self.floor:
            raise HistoryGoneError
        found: list[Event] = []
        for event in reversed(self.events):
            if event.revision <= revision:
                break
            found.append(event)
        found.reverse()
        return found

    def scan(self, prefix: str, *, after: str = "", at: int | None = None) -> Iterator[Record]:
        """The objects whose key starts with ``prefix``, in order, from beyond the key ``after``.

        Args:
            prefix: ``""`` for all, ``"<namespace>/"`` for those of one namespace.
            after: the last key that is not wanted any more.
            at: as they were at this revision; default: now.

        Raises:
            HistoryGoneError: the ring does not cover ``at``.
        """
        changed = self._records_at(at) if at is not None else {}
        keys = self.keys
        if changed:
            keys = sorted({*keys, *changed})
        start = bisect_right(keys, after) if after > prefix else bisect_left(keys, prefix)
        # The character after "/" bounds everything that starts with the prefix.
        end = bisect_left(keys, f"{prefix[:-1]}0") if prefix else len(keys)
        records = self.records
        for index in range(start, end):
            key = keys[index]
            record = changed[key] if key in changed else records[key]
            if record is not None:
                yield record

    def _records_at(self, revision: int) -> dict[str, Record | None]:
        changed: dict[str, Record | None] = {}
        for event in reversed(self.since(revision)):
            changed[event.record.key] = event.previous
        return changed


@final
class Storage:
    """Every collection, and the one counter of revisions."""

    def __init__(self, *, history: int, revision: int = 0) -> None:
        """Empty; each collection remembers ``history`` events."""
        self.revision: int = revision
        self.collections: dict[str, Collection] = {}
        self.on_event: Callable[[Collection, Event], None] = lambda _collection, _event: None
        self._history = history

    def collection(self, name: str) -> Collection:
        """The collection of that name, made when it is new."""
        found = self.collections.get(name)
        if found is None:
            found = Collection(name, self._history, self.revision)
            self.collections[name] = found
        return found

    def drop(self, name: str) -> None:
        """Forget a collection with all that is in it."""
        self.collections.pop(name, None)

    def put(self, collection: Collection, key: str, obj: dict[str, Any]) -> Record:
        """Store ``obj`` under the next revision, which is set in its metadata.

        Raises:
            TooLargeError: it is more than a server's etcd takes.
        """
        obj["metadata"]["resourceVersion"] = str(self.revision + 1)
        record = Record(key, self.revision + 1, obj)
        if len(record.data) > _LARGEST:
            raise TooLargeError
        self.revision += 1
        previous = collection.records.get(key)
        kind = "ADDED" if previous is None else "MODIFIED"
        self._emit(collection, Event(kind, self.revision, record, previous))
        return record

    def remove(self, collection: Collection, key: str) -> Record:
        """Delete the object; its last state is told under the revision of the deletion."""
        previous = collection.records[key]
        self.revision += 1
        obj = previous.decode()
        obj["metadata"]["resourceVersion"] = str(self.revision)
        record = Record(key, self.revision, obj)
        self._emit(collection, Event("DELETED", self.revision, record, previous))
        return record

    def compact(self) -> None:
        """Forget all events: every version but the present is gone."""
        for collection in self.collections.values():
            collection.drop_events(self.revision)

    def _emit(self, collection: Collection, event: Event) -> None:
        collection.append(event)
        self.on_event(collection, event)
