"""The first writes to a storage: carried out once in a process, and repeated on equal storages.

Servers begin with the same objects, and in a test run often with the same definitions. What such
writes store depends on nothing but themselves and the writes before, except for uids and times.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable
from typing import Final, final

import attrs

from appsdk_operator.apiserver._schema.metadata import new_uid, timestamp
from appsdk_operator.apiserver._storage.storage import Collection, Event, Record, Storage
from appsdk_operator.runtime import Clock

# Bytes of objects that are kept for all servers of the process.
_LIMIT: Final = 16 * 1024 * 1024


@attrs.frozen
class _Recording:
    """What some writes stored."""

    time: str
    """The time stamp in all objects."""
    records: tuple[tuple[str, Record], ...]
    """Each new record with the name of its collection; the first of an object made its uid."""
    size: int


@final
class _Recordings:
    """The recordings of the process, by the digest of all first writes so far. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Recording] = {}
        self._size = 0
        self._lock = threading.Lock()

    def get(self, digest: bytes) -> _Recording | None:
        with self._lock:
            found = self._known.pop(digest, None)
            if found is not None:
                self._known[digest] = found  # the last one is dropped last
            return found

    def keep(self, digest: bytes, recording: _Recording) -> None:
        with self._lock:
            if digest in self._known:
                return
            self._known[digest] = recording
            self._size += recording.size
            while self._size > _LIMIT:
                self._size -= self._known.pop(next(iter(self._known))).size


_RECORDINGS: Final = _Recordings()


@final
class FirstWrites:
    """Carries out the first writes to a storage, or repeats them.

    Repeated writes store the same objects with the same resource versions, with uids of the
    server's own generator and the present time. They raise the same events.
    """

    def __init__(self, storage: Storage, clock: Clock, rng: random.Random) -> None:
        """Nothing was written to ``storage`` yet; ``rng`` makes the uids of its objects."""
        self._storage = storage
        self._clock = clock
        self._rng = rng
        self._digest: bytes | None = b""
        self._revision = storage.revision
        self.is_repeating: bool = False
        """Whether the events of the storage are those of repeated writes: what a controller
        wrote because of them comes next."""

    def write(self, key: bytes, write: Callable[[], None]) -> None:
        """Call ``write``, or repeat what it did on another server after the same first writes.

        After any other write to the storage, it is always called.

        Args:
            key: whatever ``write`` depends on, besides what is stored.
            write: creates objects, and nothing else.
        """
        before, self._digest = self._digest, None
        if before is None or self._storage.revision != self._revision:
            write()
            return
        digest = hashlib.blake2b(key, key=before, digest_size=32).digest()
        recording = _RECORDINGS.get(digest)
        if recording is not None:
            self._repeat(recording)
        else:
            recording = self._record(write)
            if recording is not None and recording.time.encode() not in key:
                _RECORDINGS.keep(digest, recording)
        self._digest, self._revision = digest, self._storage.revision

    def _record(self, write: Callable[[], None]) -> _Recording | None:
        """Call ``write``; None where it cannot be repeated."""
        storage, began, state = self._storage, self._clock.time(), self._rng.getstate()
        found: list[tuple[str, Event]] = []
        on_event = storage.on_event

        def record(collection: Collection, event: Event) -> None:
            found.append((collection.name, event))
            on_event(collection, event)

        storage.on_event = record
        try:
            write()
        finally:
            storage.on_event = on_event
        uids = random.Random()
        uids.setstate(state)
        for _, event in found:
            is_new = event.type == "ADDED" and event.record.uid == new_uid(uids)
            if not is_new and event.type != "MODIFIED":
                return None
        time = timestamp(began)
        if uids.getstate() != self._rng.getstate() or timestamp(self._clock.time()) != time:
            return None
        records = tuple((name, event.record) for name, event in found)
        return _Recording(time, records, sum(len(record.data) for _, record in records))

    def _repeat(self, recording: _Recording) -> None:
        time_before = recording.time.encode()
        time = timestamp(self._clock.time()).encode()
        storage = self._storage
        self.is_repeating = True
        try:
            for name, record in recording.records:
                collection = storage.collection(name)
                present = collection.records.get(record.key)
                uid = new_uid(self._rng) if present is None else present.uid
                data = record.data.replace(record.uid.encode(), uid.encode())
                data = data.replace(time_before, time)
                storage.repeat(collection, record.repeated(uid, data))
        finally:
            self.is_repeating = False
