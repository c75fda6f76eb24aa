"""What was written and has not come back through a watch yet, laid over a local copy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import final

import attrs

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.resource import Kind, Object, ObjectKey, is_older_version
from appsdk_operator.runtime import get_logger

__all__ = ["Entry", "Overlay"]

_log = get_logger("appsdk_operator.cache")
_FEWEST_TO_SWEEP = 64
# Objects of one name that were deleted one after the other while the informer slept.
_MOST_GONE = 16


@attrs.frozen(eq=False, kw_only=True)
class Entry:
    """What writes made of one object. It counts until the informer has seen them."""

    informer: Informer
    rewinds: int
    version: str = ""
    """The server's version after the write of :attr:`object`, or one that a deleted one had."""
    object: Object | None = None
    """The object; None when there is none, or none that the cache would hold."""
    gone: tuple[str, ...] = ()
    """The uids of objects that were deleted, the newest last."""
    gone_version: str = ""
    """From this version of the server on nothing is known of what is :attr:`gone` but that it ends;
    ``""`` when no such version is known."""

    @property
    def is_floating(self) -> bool:
        """Whether there are deleted objects of which the informer may learn at any time."""
        return bool(self.gone) and not self.gone_version

    def is_over(self, key: ObjectKey, informer: Informer) -> bool:
        """Whether the local copy has come as far as the writes."""
        if informer is self.informer and informer.rewinds != self.rewinds:
            return True  # the history that the write belongs to is no more
        if self.is_floating or not _has_reached(informer, self.version):
            return False
        if not self.gone:
            return True
        if not _has_reached(informer, self.gone_version):
            return False
        stored = informer.store.get(key.name, key.namespace)
        return stored is None or stored.uid not in self.gone

    def resolved(
        self, key: ObjectKey, informer: Informer[SpecT, StatusT]
    ) -> Object[SpecT, StatusT] | None:
        """What there is: the newer one of what was written and what the local copy has."""
        while True:
            # In this order: what the informer applies in between is seen by the next look.
            counts = not _has_reached(informer, self.version)
            stored = informer.store.get(key.name, key.namespace)
            if stored is None and counts and _has_reached(informer, self.version):
                continue
            if self.hides(stored, counts=counts):
                return self.object if counts else None
            return stored

    def hides(self, stored: Object | None, *, counts: bool = True) -> bool:
        """Whether ``stored`` is not what there is; ``counts``: the informer is behind the write."""
        if stored is None or stored.uid in self.gone:
            return True
        return counts and is_older_version(stored.resource_version, self.version)


def _has_reached(informer: Informer, version: str) -> bool:
    return informer.has_synced and not is_older_version(informer.resource_version, version)


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
        # Deleted objects of which no version is known, by kind, and when each was laid: the version
        # of the next object that somebody begins to create is later than whatever becomes of them.
        self._floating: dict[Kind, dict[ObjectKey, int]] = {}
        self._laid = 0
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
        """How many there are of each kind that the informers have yet to bring."""
        self.sweep()
        with self._lock:
            return {
                kind: sum(not entry.is_floating for entry in entries.values())
                for kind, entries in self._entries.items()
            }

    def mark(self) -> int:
        """Now, for :meth:`lay`."""
        return self._laid

    def lay(
        self, kind: Kind, key: ObjectKey, entry: Entry, *, created_after: int | None = None
    ) -> None:
        """Lay ``entry`` over, unless what is there is newer.

        What is new, ``created_after`` a :meth:`mark`, is known to have a later version than all
        that was laid before that.
        """
        before = self.get(kind, key)
        if before is not None and before.is_over(key, entry.informer):
            self.drop(kind, key, before)
        with self._lock:
            self._laid += 1
            if created_after is not None:
                self._settle_floating(kind, entry.version, created_after)
            entries = self._entries.setdefault(kind, {})
            before = entries.get(key)
            merged = entry if before is None else _merged(before, entry)
            if before is None:
                self._count += 1
            entries[key] = merged
            if merged.is_floating and merged is not before:
                self._floating.setdefault(kind, {})[key] = self._laid
            is_much = self._count >= self._sweep_at or self._count > self._limit
        if is_much:
            self.sweep()
            self._bound()

    def drop(self, kind: Kind, key: ObjectKey, entry: Entry) -> None:
        """Forget ``entry``, if it is still the one that counts."""
        with self._lock:
            entries = self._entries.get(kind, {})
            if entries.get(key) is entry:
                self._forget(kind, key)

    def sweep(self) -> None:
        """Forget what the informers have seen, and what nobody follows any more."""
        for kind in list(self._entries):
            for key, entry in self.of_kind(kind).items():
                informer = self._informer_of(kind, key.namespace)
                if informer is None or entry.is_over(key, informer):
                    self.drop(kind, key, entry)
        with self._lock:
            self._sweep_at = max(_FEWEST_TO_SWEEP, 2 * self._count)

    def _settle_floating(self, kind: Kind, version: str, mark: int) -> None:
        floating = self._floating.get(kind, {})
        for key in [key for key, laid in floating.items() if laid <= mark and version]:
            del floating[key]
            self._entries[kind][key] = attrs.evolve(self._entries[kind][key], gone_version=version)

    def _forget(self, kind: Kind, key: ObjectKey) -> None:
        del self._entries[kind][key]
        self._floating.get(kind, {}).pop(key, None)
        self._count -= 1

    def _bound(self) -> None:
        with self._lock:
            if self._count <= self._limit:
                return
            # Some more than needed, or the next write would look at them all once more.
            excess = self._count - self._limit + self._limit // 10
            for kind, floating in self._floating.items():
                # Those are kept to be on the safe side: nobody misses them.
                entries = self._entries[kind]
                for key in [key for key in floating if entries[key].object is None][:excess]:
                    self._forget(kind, key)
                    excess -= 1
            if not excess:
                return
            if not self.dropped:
                _log.warning(
                    "more than %d objects were written that no watch has brought back: reads may "
                    "be older than these writes; do the informers follow the server?",
                    self._limit,
                )
            for kind, entries in self._entries.items():
                for key in list(entries)[:excess]:
                    self._forget(kind, key)
                    excess -= 1
                    self.dropped += 1


def _merged(before: Entry, entry: Entry) -> Entry:
    """Of two writes whose answers may have come in either order, what counts."""
    if entry.gone:
        return _merged_deletion(before, entry)
    written = entry.object
    is_older = is_older_version(entry.version, before.version)
    if written is not None and written.uid in before.gone:
        # An answer that was overtaken by the one to the deletion. What was there before it is no
        # more.
        return before if is_older else attrs.evolve(before, version=entry.version, object=None)
    newer = before if is_older else entry
    if before.is_floating or newer.object is None:
        return attrs.evolve(newer, gone=before.gone, gone_version=before.gone_version)
    return newer


def _merged_deletion(before: Entry, entry: Entry) -> Entry:
    written = before.object
    kept: Object | None = None
    if written is not None and written.uid not in entry.gone:
        if entry.is_floating:
            kept = written  # which of the two was first is not known
        elif is_older_version(entry.version, before.version):
            return before
    is_floating = before.is_floating or entry.is_floating
    return attrs.evolve(
        entry,
        version=_later(entry.version, before.version),
        object=kept,
        gone=tuple(dict.fromkeys((*before.gone, *entry.gone)))[-_MOST_GONE:],
        gone_version="" if is_floating else _later(entry.gone_version, before.gone_version),
    )
