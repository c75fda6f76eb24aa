"""The overlay: outcomes of writes that no watch has delivered yet, over the local copies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import msgspec

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.cache._informer.watch_state import next_order
from appsdk_operator.resource import Kind, Object, ObjectKey, is_older_version
from appsdk_operator.runtime import fork_safe, get_logger

_log = get_logger("appsdk_operator.cache")
_MIN_SWEEP_COUNT = 64


class WrittenObject(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The outcome of writes to one object, valid until the informer has seen them."""

    uid: str
    version: str = ""
    """The latest known resource version of the object; ``""`` if unknown."""
    object: Object | None = None
    """What was written; None when it is deleted, or when the cache does not follow it."""
    is_deleted: bool = False
    deleted_version: str = ""
    """For a deleted one: a resource version after which a watch can only deliver the deletion;
    ``""`` if unknown."""
    order: int = msgspec.field(default_factory=next_order)
    """When the server had answered, among all lists and writes."""

    @property
    def is_open(self) -> bool:
        """Whether it is a deletion whose resource version is unknown."""
        return self.is_deleted and not self.deleted_version

    def is_outdated(self, key: ObjectKey, informer: Informer) -> bool:
        """Whether the local copy has caught up with the writes."""
        if informer.list_order > self.order:
            return True  # the list has the write, or the server's history with it is gone
        if self.is_open or not _has_reached(informer, self.version):
            return False
        if not self.is_deleted:
            return True
        if not _has_reached(informer, self.deleted_version):
            return False
        stored = informer.store.get(key.name, key.namespace)
        return stored is None or stored.uid != self.uid

    def merged(self, later: WrittenObject) -> WrittenObject:
        """The outcome of two writes whose answers may have arrived in either order."""
        is_older = is_older_version(later.version or "0", self.version or "0")
        newer = self if is_older else later
        is_deleted = self.is_deleted or later.is_deleted
        return msgspec.structs.replace(
            newer,
            object=None if is_deleted else newer.object,
            is_deleted=is_deleted,
            deleted_version=self.deleted_version or later.deleted_version,
            order=later.order,
        )


Written: TypeAlias = tuple[WrittenObject, ...]
"""The objects that were written under one name, each with its own uid."""


def resolved(
    written: Written, key: ObjectKey, informer: Informer[SpecT, StatusT]
) -> Object[SpecT, StatusT] | None:
    """The newer one of the written and the stored object."""
    newest = _newest(written)
    while True:
        # In this order, so that the second look notices what the informer applies in between.
        is_behind = not _has_reached(informer, newest.version)
        stored = informer.store.get(key.name, key.namespace)
        if stored is None and is_behind and _has_reached(informer, newest.version):
            continue
        if hides(written, stored, is_behind=is_behind):
            return newest.object if is_behind else None
        return stored


def hides(written: Written, stored: Object | None, *, is_behind: bool = True) -> bool:
    """Whether ``stored`` must not show; ``is_behind``: the informer is behind the writes."""
    if stored is None or any(each.is_deleted and each.uid == stored.uid for each in written):
        return True
    return is_behind and is_older_version(stored.resource_version, _newest(written).version)


def _newest(written: Written) -> WrittenObject:
    return max(written, key=lambda each: int(each.version or 0))


def _has_reached(informer: Informer, version: str) -> bool:
    return informer.has_synced and not is_older_version(informer.resource_version, version)


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
        self._written: dict[Kind, dict[ObjectKey, Written]] = {}
        self._count = 0
        self._sweep_at = _MIN_SWEEP_COUNT
        # The names with deletions whose version is unknown. A create that begins later gets a later
        # version than any event about them.
        self._open_deletions: dict[Kind, dict[ObjectKey, None]] = {}
        self.dropped = 0
        """How many written objects were dropped early because there were too many."""

    def current(self, kind: Kind, key: ObjectKey, informer: Informer) -> Written:
        """What was written under that name and ``informer`` may not have yet; forgets the rest."""
        written = self._written.get(kind, {}).get(key)
        if written is None:
            return ()
        left = tuple(each for each in written if not each.is_outdated(key, informer))
        if len(left) < len(written):
            with self._lock:
                if self._written[kind].get(key) is written:
                    self._put(kind, key, left)
        return left

    def keys(self, kind: Kind) -> Sequence[ObjectKey]:
        """The names under which objects of one kind were written."""
        if not self._written.get(kind):
            return ()
        with self._lock:
            return list(self._written[kind])

    def counts(self) -> dict[Kind, int]:
        """The number of writes of each kind that the informers have not delivered."""
        self.sweep()
        with self._lock:
            return {
                kind: sum(not each.is_open for written in of_kind.values() for each in written)
                for kind, of_kind in self._written.items()
            }

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
            created_after: for a create, the :data:`next_order` before it began: its version is
                later than those of everything added before.
        """
        informer = self._informer_of(kind, key.namespace)
        if informer is not None:
            self.current(kind, key, informer)
        with self._lock:
            if created_after is not None:
                self._close_deletions(kind, written.version, created_after)
            objects = {each.uid: each for each in self._written.get(kind, {}).get(key, ())}
            before = objects.get(written.uid)
            objects[written.uid] = written if before is None else before.merged(written)
            self._put(kind, key, tuple(objects.values()))
            is_much = self._count >= self._sweep_at or self._count > self._limit
        if is_much:
            self.sweep()
            self._enforce_limit()

    def sweep(self) -> None:
        """Remove what the informers have seen, and what no informer follows any more."""
        for kind in list(self._written):
            for key in self.keys(kind):
                informer = self._informer_of(kind, key.namespace)
                if informer is not None:
                    self.current(kind, key, informer)
                else:
                    with self._lock:
                        self._put(kind, key, ())
        with self._lock:
            self._sweep_at = max(_MIN_SWEEP_COUNT, 2 * self._count)

    def _close_deletions(self, kind: Kind, version: str, mark: int) -> None:
        """Give deletions from before ``mark`` the version of a create that began after it."""
        for key in list(self._open_deletions.get(kind, ())):
            written = self._written[kind][key]
            if any(each.is_open and each.order < mark for each in written):
                closed = (
                    msgspec.structs.replace(each, deleted_version=version)
                    if each.is_open and each.order < mark
                    else each
                    for each in written
                )
                self._put(kind, key, tuple(closed))

    def _put(self, kind: Kind, key: ObjectKey, written: Written) -> None:
        of_kind = self._written.setdefault(kind, {})
        self._count += len(written) - len(of_kind.get(key, ()))
        # In place, for readers without the lock.
        if written:
            of_kind[key] = written
        else:
            of_kind.pop(key, None)
        self._open_deletions.setdefault(kind, {}).pop(key, None)
        if any(each.is_open for each in written):
            self._open_deletions[kind][key] = None

    def _enforce_limit(self) -> None:
        with self._lock:
            if self._count <= self._limit:
                return
            # Some more than needed, or the next write would sweep again.
            excess = self._count - self._limit + self._limit // 10
            held = [
                (kind, key, each)
                for kind, of_kind in self._written.items()
                for key, written in of_kind.items()
                for each in written
            ]
            # Open deletions first: they are only a precaution, so nobody misses them.
            held.sort(key=lambda one: (not one[2].is_open, one[2].order))
            lost = 0
            for kind, key, oldest in held[:excess]:
                left = tuple(each for each in self._written[kind][key] if each is not oldest)
                self._put(kind, key, left)
                lost += not oldest.is_open
            is_first, self.dropped = not self.dropped, self.dropped + lost
        if lost and is_first:
            _log.warning(
                "the watches have not yet reported more than %d objects that this client has "
                "written. Reads from the cache may be older than these writes. Check with health() "
                "whether the informers follow the server",
                self._limit,
            )
