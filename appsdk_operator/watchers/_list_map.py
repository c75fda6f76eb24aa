"""A thread-safe map of lists, as in grafana-app-sdk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar, final, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")


@final
class ListMap(Generic[K, V]):
    """Lists by key that may change during an iteration. Thread-safe.

    Readers get snapshots and never wait. Writers hold a lock only while they replace a list, never
    while a ``match`` function runs, so they do not wait for each other's code. A key whose list
    becomes empty is removed. An absent key is never an error.

    The semantics are those of grafana-app-sdk's ``ListMap``, which however keeps empty keys.

    >>> watchers = ListMap[str, str]()
    >>> watchers.add_items("pods", "first", "second")
    >>> for watcher in watchers.items("pods"):
    ...     _ = watchers.remove_item("pods", lambda w: w == watcher)
    >>> len(watchers)
    0
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A tuple is never changed, only replaced, so each one is a snapshot.
        self._lists: dict[K, tuple[V, ...]] = {}

    def add_item(self, key: K, item: V) -> None:
        """Append one item to the list of ``key``."""
        self.add_items(key, item)

    def add_items(self, key: K, *items: V) -> None:
        """Append items to the list of ``key``, in their order and next to each other."""
        if items:
            with self._lock:
                self._lists[key] = (*self._lists.get(key, ()), *items)

    @overload
    def item_at(self, key: K, index: int) -> V | None: ...
    @overload
    def item_at(self, key: K, index: int, default: D) -> V | D: ...
    def item_at(self, key: K, index: int, default: D | None = None) -> V | D | None:
        """The item at ``index``, counted from 0; ``default`` when there is none."""
        items = self._lists.get(key, ())
        return items[index] if 0 <= index < len(items) else default

    def key_size(self, key: K) -> int:
        """The number of items in the list of ``key``."""
        return len(self._lists.get(key, ()))

    def keys(self) -> list[K]:
        """The keys that have items."""
        with self._lock:
            return list(self._lists)

    def items(self, key: K) -> tuple[V, ...]:
        """A snapshot of the items of ``key``, in order."""
        return self._lists.get(key, ())

    def all_items(self) -> Iterator[tuple[K, int, V]]:
        """A snapshot of every item with its key and index."""
        with self._lock:
            lists = list(self._lists.items())
        # Not a generator function, which would take the snapshot only at the first step.
        return ((key, index, item) for key, items in lists for index, item in enumerate(items))

    def __len__(self) -> int:
        """How many keys have items."""
        return len(self._lists)

    def __contains__(self, key: object) -> bool:
        return key in self._lists

    def remove_item(self, key: K, match: Callable[[V], bool]) -> bool:
        """Remove the first item that matches; returns whether there was one."""
        return self.remove_items(key, match, limit=1) == 1

    def remove_items(self, key: K, match: Callable[[V], bool], *, limit: int = 0) -> int:
        """Remove the first ``limit`` items that match (below 1: all); returns their number.

        Items that are added while ``match`` runs may be left out.
        """
        removed = 0
        while True:
            before = self._lists.get(key, ())
            matched: list[int] = []
            for index, item in enumerate(before):
                if match(item):
                    matched.append(index)
                    if len(matched) == limit - removed:
                        break
            gone = self._discard(key, before, matched)
            removed += gone
            # Another thread removed one of them first: look for further matches.
            if limit < 1 or gone == len(matched):
                return removed

    def _discard(self, key: K, before: tuple[V, ...], matched: list[int]) -> int:
        """Remove the items at those indexes of ``before`` that are still there; their number."""
        if not matched:
            return 0
        with self._lock:
            items = list(self._lists.get(key, ()))
            if self._lists.get(key) is before:
                indexes = matched
            else:
                # By identity: equal items may be different ones.
                ids = [id(item) for item in items]
                indexes = []
                for index in matched:
                    wanted = id(before[index])
                    if wanted in ids:
                        found = ids.index(wanted)
                        ids[found] = 0
                        indexes.append(found)
            for index in sorted(indexes, reverse=True):
                del items[index]
            self._replace(key, items)
            return len(indexes)

    def remove_item_at(self, key: K, index: int) -> None:
        """Remove the item at ``index``; an index out of range is ignored."""
        with self._lock:
            items = list(self._lists.get(key, ()))
            if 0 <= index < len(items):
                del items[index]
                self._replace(key, items)

    def remove_key(self, key: K) -> None:
        """Remove the whole list of ``key``."""
        with self._lock:
            self._lists.pop(key, None)

    def _replace(self, key: K, items: list[V]) -> None:
        if items:
            self._lists[key] = tuple(items)
        else:
            self._lists.pop(key, None)
