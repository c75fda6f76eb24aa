"""What was written and has not come back through a watch yet, laid over a local copy."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import final

import attrs

from appsdk_operator.cache._informer import Informer
from appsdk_operator.resource import Kind, Object, ObjectKey, is_older_version

__all__ = ["Entry", "Overlay"]

_log = logging.getLogger("appsdk_operator.cache")
_FEWEST_TO_SWEEP = 64


@attrs.frozen(eq=False, kw_only=True)
class Entry:
    """What a write made of one object. It counts until the informer has seen the write."""

    informer: Informer
    rewinds: int
    version: str
    """The server's version after the write; for an object that is gone, one that it had: then
    nothing is known of it from that version on but that it ends."""
    object: Object | None
    """The object; None when there is none, or none that the cache would hold."""
    gone_uid: str = ""
    """The uid of the object that was deleted."""

    def is_over(self, key: ObjectKey, informer: Informer) -> bool:
        """Whether the local copy has come as far as the write."""
        if informer is self.informer and informer.rewinds != self.rewinds:
            return True  # the history that the write belongs to is no more
        if not informer.has_synced or is_older_version(informer.resource_version, self.version):
            return False
        if not self.gone_uid:
            return True
        if not self.version:
            return False  # it may still be to come
        stored = informer.store.get(key.name, key.namespace)
        return stored is None or stored.uid != self.gone_uid

    def over(self, stored: Object | None) -> Object | None:
        """What there is: the newer one of what was written and what the local copy has."""
        if stored is None or (self.gone_uid and stored.uid == self.gone_uid):
            return self.object
        if is_older_version(stored.resource_version, self.version):
            return self.object
        return stored


def _later(first: str, second: str) -> str:
    return second if not first or is_older_version(first, second) else first


@final
class Overlay:
    """Entries by kind and key. Thread-safe; holds no lock while it looks at an informer."""

    def __init__(self, limit: int, informer_of: Callable[[Kind, str], Informer | None]) -> None:
        """Nothing written.

        Args:
            limit: the most entries to hold.
            informer_of: who follows a namespace of a kind now.
        """
        self._limit = limit
        self._informer_of = informer_of
        self._lock = threading.Lock()
        self._entries: dict[Kind, dict[ObjectKey, Entry]] = {}
        self._count = 0
        self._sweep_at = _FEWEST_TO_SWEEP
        # Deleted objects of which no version is known, by kind: that of the next new object is
        # later than whatever becomes of them.
        self._floating: dict[Kind, set[ObjectKey]] = {}
        self.dropped = 0
        """How many entries were given up because there were too many."""

    def get(self, kind: Kind, key: ObjectKey) -> Entry | None:
        """What was written last, if the informer may not have it yet."""
        entries = self._entries.get(kind)
        return None if entries is None else entries.get(key)

    def of_kind(self, kind: Kind) -> dict[ObjectKey, Entry]:
        """All of one kind."""
        if not self._entries.get(kind):
            return {}
        with self._lock:
            return dict(self._entries.get(kind, {}))

    def counts(self) -> dict[Kind, int]:
        """How many there are of each kind."""
        self.sweep()
        with self._lock:
            return {kind: len(entries) for kind, entries in self._entries.items()}

    def lay(self, kind: Kind, key: ObjectKey, entry: Entry, *, is_new: bool = False) -> None:
        """Lay ``entry`` over, unless what is there is newer.

        What ``is_new`` is known to have a later version than all that was written before.
        """
        before = self.get(kind, key)
        if before is not None and before.is_over(key, entry.informer):
            self.drop(kind, key, before)
        with self._lock:
            if is_new:
                self._settle_floating(kind, entry.version)
            entries = self._entries.setdefault(kind, {})
            before = entries.get(key)
            merged = entry if before is None else _merged(before, entry)
            if before is None:
                self._count += 1
            entries[key] = merged
            if merged.gone_uid and not merged.version:
                self._floating.setdefault(kind, set()).add(key)
            is_much = self._count >= self._sweep_at or self._count > self._limit
        if is_much:
            self.sweep()
            self._bound()

    def drop(self, kind: Kind, key: ObjectKey, entry: Entry) -> None:
        """Forget ``entry``, if it is still the one that counts."""
        with self._lock:
            entries = self._entries.get(kind, {})
            if entries.get(key) is entry:
                del entries[key]
                self._count -= 1

    def sweep(self) -> None:
        """Forget what the informers have seen, and what nobody follows any more."""
        for kind in list(self._entries):
            for key, entry in self.of_kind(kind).items():
                informer = self._informer_of(kind, key.namespace)
                if informer is None or entry.is_over(key, informer):
                    self.drop(kind, key, entry)
        with self._lock:
            self._sweep_at = max(_FEWEST_TO_SWEEP, 2 * self._count)

    def _settle_floating(self, kind: Kind, version: str) -> None:
        if version and kind in self._floating:
            for key in self._floating.pop(kind):
                entry = self._entries.get(kind, {}).get(key)
                if entry is not None and not entry.version:
                    self._entries[kind][key] = attrs.evolve(entry, version=version)

    def _bound(self) -> None:
        with self._lock:
            excess = self._count - self._limit
            if excess <= 0:
                return
            if not self.dropped:
                _log.warning(
                    "more than %d objects were written that no watch has brought back: reads may "
                    "be older than these writes; do the informers follow the server?",
                    self._limit,
                )
            for entries in self._entries.values():
                for key in list(entries)[:excess]:
                    del entries[key]
                    excess -= 1
                    self._count -= 1
                    self.dropped += 1


def _merged(before: Entry, entry: Entry) -> Entry:
    """Of two writes whose answers may have come in either order, what counts."""
    if entry.gone_uid:
        written = before.object
        if written is not None and written.uid != entry.gone_uid:
            is_newer = not entry.version or is_older_version(entry.version, before.version)
            return before if is_newer else entry
        return attrs.evolve(entry, version=_later(entry.version, before.version))
    if before.gone_uid and entry.object is not None and entry.object.uid == before.gone_uid:
        # An answer that was overtaken by the one to the deletion.
        return attrs.evolve(before, version=_later(before.version, entry.version))
    return before if is_older_version(entry.version, before.version) else entry
