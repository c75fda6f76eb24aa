"""The storage: objects as immutable JSON, and the last events of each collection.

One counter gives every write its revision. A collection holds its objects sorted by key and a
bounded ring of events. An event has the object before it, so the state at any revision in the ring
is the current state with the later events undone: pages and lists at an exact version need no
copies.

Not thread-safe: everything runs on the server's event loop. No I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, final

import msgspec

from appsdk_operator.apiserver._values.status import StatusError

_encode: Final = msgspec.json.Encoder().encode
# Bytes: etcd's default limit for a request.
_LARGEST: Final = 3 * 1024 * 1024 // 2
_decode: Final = msgspec.json.Decoder().decode


class HistoryGoneError(Exception):
    """A revision is older than the ring of events."""


@final
class Record:
    """A revision of an object: its JSON, and the metadata that selection needs."""

    __slots__ = (
        "_variants",
        "api_version",
        "blocked",
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
        "written",
    )

    def __init__(self, key: str, revision: int, obj: dict[str, Any], written: int = 0) -> None:
        """Serialise ``obj``, whose metadata must be final.

        Args:
            key: of the object in its collection.
            revision: of the object.
            obj: the object.
            written: the revision at which its content was written; default: ``revision``.
        """
        metadata = obj["metadata"]
        self.key: str = key
        self.revision: int = revision
        self.written: int = written or revision
        self.api_version: str = obj["apiVersion"]
        self.namespace: str = metadata.get("namespace") or ""
        self.name: str = metadata["name"]
        self.uid: str = metadata["uid"]
        self.labels: dict[str, str] = metadata.get("labels") or _NO_LABELS
        self.deleting: bool = "deletionTimestamp" in metadata
        self.finalizers: tuple[str, ...] = tuple(metadata.get("finalizers") or ())
        references = metadata.get("ownerReferences") or ()
        self.owners: tuple[str, ...] = tuple(each.get("uid", "") for each in references)
        # The owners whose deletion in the foreground waits for this object.
        self.blocked: tuple[str, ...] = tuple(
            each.get("uid", "") for each in references if each.get("blockOwnerDeletion")
        )
        self.data: bytes = _encode(obj)
        self._variants: dict[Hashable, bytes] | None = None

    def at(self, revision: int) -> Record:
        """The same content with the revision of its deletion."""
        obj = self.decode()
        obj["metadata"]["resourceVersion"] = str(revision)
        return Record(self.key, revision, obj, self.written)

    def repeated(self, uid: str, data: bytes) -> Record:
        """The same revision of the object with this uid, whose JSON is ``data``."""
        made = Record.__new__(Record)
        made.key, made.revision, made.written = self.key, self.revision, self.written
        made.api_version, made.namespace, made.name = self.api_version, self.namespace, self.name
        made.uid, made.labels, made.data = uid, self.labels, data
        made.deleting, made.finalizers = self.deleting, self.finalizers
        made.owners, made.blocked = self.owners, self.blocked
        made._variants = None  # noqa: SLF001 - it is of this class
        return made

    def decode(self) -> dict[str, Any]:
        """A new copy of the object, which the caller may change."""
        decoded: dict[str, Any] = _decode(self.data)
        return decoded

    def encoded_as(self, variant: Hashable, encode: Callable[[], bytes]) -> bytes:
        """A variant of the object in any encoding, encoded once and cached under ``variant``."""
        if self._variants is None:
            self._variants = {}
        found = self._variants.get(variant)
        if found is None:
            found = self._variants[variant] = encode()
        return found

    def variant(self, variant: Hashable) -> bytes | None:
        """The JSON of a variant, if it is cached."""
        return self._variants.get(variant) if self._variants is not None else None

    def keep_variant(self, variant: Hashable, obj: dict[str, Any]) -> None:
        """Cache a variant of the object."""
        if self._variants is None:
            self._variants = {}
        self._variants[variant] = _encode(obj)


_NO_LABELS: Final[dict[str, str]] = {}


@final
class Event:
    """A change of an object: its state after and before."""

    __slots__ = ("_final_record", "previous", "record", "revision", "type")

    def __init__(self, type_: str, revision: int, record: Record, previous: Record | None) -> None:
        """A change of ``type_`` ADDED, MODIFIED or DELETED.

        The record of a deletion is the last state with the revision of the deletion.
        """
        self.type: str = type_
        self.revision: int = revision
        self.record: Record = record
        self.previous: Record | None = previous
        self._final_record: Record | None = None

    def final_record(self) -> Record:
        """The state to send in a DELETED event to a watch that no longer selects the object.

        The record of a deletion is this state. For an object that left a selection it is the state
        before, with the revision of the event.
        """
        if self.type == "DELETED" or self.previous is None:
            return self.record
        if self._final_record is None:
            self._final_record = self.previous.at(self.revision)
        return self._final_record


@final
class Collection:
    """The objects of a resource sorted by key, and their last events."""

    def __init__(self, name: str, history: int, floor: int) -> None:
        """An empty collection whose ring holds ``history`` events."""
        self.name = name
        self.records: dict[str, Record] = {}
        self.keys: list[str] = []
        self.events: deque[Event] = deque(maxlen=history)
        # The ring has all events with a revision above the floor.
        self.floor: int = floor

    def append(self, event: Event) -> None:
        """Apply an event."""
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
            HistoryGoneError: the ring no longer has all of them.
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
        """The objects whose key starts with ``prefix``, sorted by key, after the key ``after``.

        Args:
            prefix: ``""`` for all, ``"<namespace>/"`` for those of one namespace.
            after: the key to start after.
            at: the revision to show; default: the present.

        Raises:
            HistoryGoneError: the ring does not cover ``at``.
        """
        changed = self._records_at(at) if at is not None else {}
        deleted = [key for key in changed if key not in self.records]
        keys = sorted([*self.keys, *deleted]) if deleted else self.keys
        start = bisect_right(keys, after) if after > prefix else bisect_left(keys, prefix)
        # "0" follows "/", so this is the end of the keys with the prefix.
        end = bisect_left(keys, f"{prefix[:-1]}0") if prefix else len(keys)
        records = {**self.records, **changed} if changed else self.records
        return filter(None, map(records.__getitem__, keys[start:end]))

    def _records_at(self, revision: int) -> dict[str, Record | None]:
        changed: dict[str, Record | None] = {}
        for event in reversed(self.since(revision)):
            changed[event.record.key] = event.previous
        return changed


@final
class Storage:
    """The collections, and the counter of revisions."""

    def __init__(self, *, history: int, revision: int = 0) -> None:
        """An empty storage whose collections hold ``history`` events each."""
        self.revision: int = revision
        self.collections: dict[str, Collection] = {}
        self.on_event: Callable[[Collection, Event], None] = lambda _collection, _event: None
        self._history = history
        self._compacted = revision

    def collection(self, name: str) -> Collection:
        """The collection of this name, as if it had existed from the start."""
        found = self.collections.get(name)
        if found is None:
            found = self.collections[name] = Collection(name, self._history, self._compacted)
        return found

    def new_collection(self, name: str) -> Collection:
        """A new collection, which has no history from before."""
        found = self.collections[name] = Collection(name, self._history, self.revision)
        return found

    def drop(self, name: str) -> None:
        """Drop a collection with its objects."""
        self.collections.pop(name, None)

    def put(self, collection: Collection, key: str, obj: dict[str, Any]) -> Record:
        """Store ``obj`` with the next revision, which is set in its metadata.

        Raises:
            StatusError: 500, the object exceeds etcd's limit.
        """
        obj["metadata"]["resourceVersion"] = str(self.revision + 1)
        record = Record(key, self.revision + 1, obj)
        if len(record.data) > _LARGEST:
            raise StatusError(500, "etcdserver: request is too large", reason="")
        self.repeat(collection, record)
        return record

    def repeat(self, collection: Collection, record: Record) -> None:
        """Store a record that has the next revision already."""
        self.revision += 1
        previous = collection.records.get(record.key)
        kind = "ADDED" if previous is None else "MODIFIED"
        self._emit(collection, Event(kind, self.revision, record, previous))

    def remove(self, collection: Collection, key: str) -> Record:
        """Delete an object; return its last state with the revision of the deletion."""
        previous = collection.records[key]
        self.revision += 1
        record = previous.at(self.revision)
        self._emit(collection, Event("DELETED", self.revision, record, previous))
        return record

    def compact(self) -> None:
        """Drop all events, as etcd's compaction does: only the present revision is left."""
        self._compacted = self.revision
        for collection in self.collections.values():
            collection.drop_events(self.revision)

    def _emit(self, collection: Collection, event: Event) -> None:
        collection.append(event)
        self.on_event(collection, event)
