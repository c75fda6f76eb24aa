"""The overlay: written objects that no watch has delivered yet, over the local copies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import final

import attrs

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.resource import Kind, Object, ObjectKey, is_older_version
from appsdk_operator.runtime import fork_safe, get_logger

__all__ = ["Overlay", "WrittenObject"]

_log = get_logger("appsdk_operator.cache")
_MIN_SWEEP_COUNT = 64
# Objects of one name that were deleted one after the other while the informer was behind.
_MAX_DELETED_UIDS = 16


@attrs.frozen(eq=False, kw_only=True)
class WrittenObject:
    """The outcome of writes to one object, valid until the informer has seen them."""

    informer: Informer
    rewinds: int
    """:attr:`Informer.rewinds` at the time of the write."""
    version: str = ""
    """The resource version of the written :attr:`object`, or one that a deleted object had."""
    object: Object | None = None
    """The object; None when it is deleted, or when the cache does not follow it."""
    deleted_uids: tuple[str, ...] = ()
    """The uids of deleted objects of this name, the latest last."""
    deleted_version: str = ""
    """A resource version after which a watch can only deliver the deletion of these objects;
    ``""`` if unknown."""

    @property
    def has_open_deletion(self) -> bool:
        """Whether it has deletions whose resource version is unknown."""
        return bool(self.deleted_uids) and not self.deleted_version

    def is_outdated(self, key: ObjectKey, informer: Informer) -> bool:
        """Whether the local copy has caught up with the writes."""
        if informer is self.informer and informer.rewinds != self.rewinds:
            return True  # the server's history with the write in it is gone
        if self.has_open_deletion or not _has_reached(informer, self.version):
            return False
        if not self.deleted_uids:
            return True
        if not _has_reached(informer, self.deleted_version):
            return False
        stored = informer.store.get(key.name, key.namespace)
        return stored is None or stored.uid not in self.deleted_uids

    def resolved(
        self, key: ObjectKey, informer: Informer[SpecT, StatusT]
    ) -> Object[SpecT, StatusT] | None:
        """The newer one of the written object and the stored one."""
        while True:
            # In this order, so that the second look notices what the informer applies in between.
            is_behind = not _has_reached(informer, self.version)
            stored = informer.store.get(key.name, key.namespace)
            if stored is None and is_behind and _has_reached(informer, self.version):
                continue
            if self.hides(stored, is_behind=is_behind):
                return self.object if is_behind else None
            return stored

    def hides(self, stored: Object | None, *, is_behind: bool = True) -> bool:
        """Whether ``stored`` must not show; ``is_behind``: the informer is behind the write."""
        if stored is None or stored.uid in self.deleted_uids:
            return True
        return is_behind and is_older_version(stored.resource_version, self.version)


def _has_reached(informer: Informer, version: str) -> bool:
    return informer.has_synced and not is_older_version(informer.resource_version, version)


def _later(first: str, second: str) -> str:
    return second if not first or is_older_version(first, second) else first


@final
class Overlay:
    """Written objects by kind and key. Thread-safe; holds no lock while it reads an informer."""

    def __init__(self, limit: int, informer_of: Callable[[Kind, str], Informer | None]) -> None:
        """An empty overlay.

        Args:
            limit: the most written objects to hold.
            informer_of: the informer that follows a namespace of a kind now.
        """
        self._limit = limit
        self._informer_of = informer_of
        self._lock = fork_safe(threading.Lock())
        self._written: dict[Kind, dict[ObjectKey, WrittenObject]] = {}
        self._count = 0
        self._sweep_at = _MIN_SWEEP_COUNT
        # Deletions whose version is unknown, by kind, each with the sequence number of its
        # addition. A create that begins later gets a later version than any event about them.
        self._open_deletions: dict[Kind, dict[ObjectKey, int]] = {}
        self._sequence = 0
        self.dropped = 0
        """How many written objects were dropped early because there were too many."""

    def get(self, kind: Kind, key: ObjectKey) -> WrittenObject | None:
        """The written object of that key, if the informer may not have it yet."""
        of_kind = self._written.get(kind)
        return None if of_kind is None else of_kind.get(key)

    def of_kind(self, kind: Kind) -> dict[ObjectKey, WrittenObject]:
        """All written objects of one kind."""
        if not self._written.get(kind):
            return {}
        with self._lock:
            return dict(self._written.get(kind, {}))

    def counts(self) -> dict[Kind, int]:
        """The number of writes of each kind that the informers have not delivered."""
        self.sweep()
        with self._lock:
            return {
                kind: sum(not written.has_open_deletion for written in of_kind.values())
                for kind, of_kind in self._written.items()
            }

    def mark(self) -> int:
        """The present sequence number, for :meth:`add`."""
        return self._sequence

    def add(
        self,
        kind: Kind,
        key: ObjectKey,
        written: WrittenObject,
        *,
        created_after: int | None = None,
    ) -> None:
        """Add ``written``, unless something newer is there.

        Args:
            kind: the kind.
            key: the object's key.
            written: the outcome of a write.
            created_after: for a create, the :meth:`mark` before it began: its version is later than
                those of everything added before.
        """
        before = self.get(kind, key)
        if before is not None and before.is_outdated(key, written.informer):
            self.drop(kind, key, before)
        with self._lock:
            self._sequence += 1
            if created_after is not None:
                self._close_deletions(kind, written.version, created_after)
            of_kind = self._written.setdefault(kind, {})
            before = of_kind.get(key)
            merged = written if before is None else _merged(before, written)
            if before is None:
                self._count += 1
            of_kind[key] = merged
            if merged.has_open_deletion and merged is not before:
                self._open_deletions.setdefault(kind, {})[key] = self._sequence
            is_much = self._count >= self._sweep_at or self._count > self._limit
        if is_much:
            self.sweep()
            self._enforce_limit()

    def drop(self, kind: Kind, key: ObjectKey, written: WrittenObject) -> None:
        """Remove ``written``, unless a later write has replaced it."""
        with self._lock:
            of_kind = self._written.get(kind, {})
            if of_kind.get(key) is written:
                self._remove(kind, key)

    def sweep(self) -> None:
        """Remove what the informers have seen, and what no informer follows any more."""
        for kind in list(self._written):
            for key, written in self.of_kind(kind).items():
                informer = self._informer_of(kind, key.namespace)
                if informer is None or written.is_outdated(key, informer):
                    self.drop(kind, key, written)
        with self._lock:
            self._sweep_at = max(_MIN_SWEEP_COUNT, 2 * self._count)

    def _close_deletions(self, kind: Kind, version: str, mark: int) -> None:
        """Give deletions from before ``mark`` the version of a create that began after it."""
        deletions = self._open_deletions.get(kind, {})
        for key in [key for key, added in deletions.items() if added <= mark and version]:
            del deletions[key]
            before = self._written[kind][key]
            self._written[kind][key] = attrs.evolve(before, deleted_version=version)

    def _remove(self, kind: Kind, key: ObjectKey) -> None:
        del self._written[kind][key]
        self._open_deletions.get(kind, {}).pop(key, None)
        self._count -= 1

    def _enforce_limit(self) -> None:
        with self._lock:
            if self._count <= self._limit:
                return
            # Some more than needed, or the next write would sweep again.
            excess = self._count - self._limit + self._limit // 10
            for kind, deletions in self._open_deletions.items():
                # These are only a precaution, so nobody misses them.
                of_kind = self._written[kind]
                for key in [key for key in deletions if of_kind[key].object is None][:excess]:
                    self._remove(kind, key)
                    excess -= 1
            if not excess:
                return
            if not self.dropped:
                _log.warning(
                    "more than %d objects were written that no watch has brought back: reads may "
                    "be older than these writes; do the informers follow the server?",
                    self._limit,
                )
            for kind, of_kind in self._written.items():
                for key in list(of_kind)[:excess]:
                    self._remove(kind, key)
                    excess -= 1
                    self.dropped += 1


def _merged(before: WrittenObject, later: WrittenObject) -> WrittenObject:
    """The outcome of two writes whose answers may have arrived in either order."""
    if later.deleted_uids:
        return _merged_deletion(before, later)
    written = later.object
    is_older = is_older_version(later.version, before.version)
    if written is not None and written.uid in before.deleted_uids:
        # The answer to the deletion overtook this one: the object is deleted, and so is any before.
        return before if is_older else attrs.evolve(before, version=later.version, object=None)
    newer = before if is_older else later
    if before.has_open_deletion or newer.object is None:
        return attrs.evolve(
            newer, deleted_uids=before.deleted_uids, deleted_version=before.deleted_version
        )
    return newer


def _merged_deletion(before: WrittenObject, deletion: WrittenObject) -> WrittenObject:
    written = before.object
    remaining: Object | None = None
    if written is not None and written.uid not in deletion.deleted_uids:
        if deletion.has_open_deletion:
            remaining = written  # which of the two came first is not known
        elif is_older_version(deletion.version, before.version):
            return before
    is_open = before.has_open_deletion or deletion.has_open_deletion
    uids = dict.fromkeys((*before.deleted_uids, *deletion.deleted_uids))
    later = _later(deletion.deleted_version, before.deleted_version)
    return attrs.evolve(
        deletion,
        version=_later(deletion.version, before.version),
        object=remaining,
        deleted_uids=tuple(uids)[-_MAX_DELETED_UIDS:],
        deleted_version="" if is_open else later,
    )
