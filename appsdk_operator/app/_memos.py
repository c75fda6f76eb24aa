"""Memos: what an App's functions remember of objects, for as long as those exist."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, final

from appsdk_operator.cache import Cache, Event, ResourceAction
from appsdk_operator.client import ClientLike, NotFound
from appsdk_operator.resource import Kind, Object


@final
class Memos:
    """A dict for each object of one manager, by uid, until the object is gone. Thread-safe."""

    def __init__(self, cache: Cache, client: ClientLike) -> None:
        """No memos yet.

        Args:
            cache: says which objects go; their kinds have to be in it.
            client: reads from the cache, own writes included.
        """
        self._cache = cache
        self._client = client
        self._lock = threading.Lock()
        self._following = threading.Lock()
        """Held while a kind is followed: nobody goes on before its deletions are delivered."""
        self._by_uid: dict[str, dict[str, Any]] = {}
        self._followed: set[Kind[Any, Any]] = set()

    def of(self, obj: Object[Any, Any]) -> dict[str, Any]:
        """The memo of the object; for one that is gone a dict that is not kept.

        Raises:
            TypeError: it is not an object.
            ValueError: it has no uid.
            NotCachedError: the cache does not have its kind.
        """
        given: object = obj
        if not isinstance(given, Object):
            raise TypeError(f"memo({given!r}): give an object that came from the server")
        if not obj.uid:
            raise ValueError(f"memo: {obj!r} has no uid: give an object that came from the server")
        found = self._by_uid.get(obj.uid)
        if found is not None:
            return found
        if not self._exists(obj):
            return {}
        self._follow(obj.kind)
        with self._lock:
            found = self._by_uid.setdefault(obj.uid, {})
        # Once more: a deletion that came before this one is not delivered any more, and each later
        # one finds the memo.
        if not self._exists(obj):
            self._forget([obj.uid])
        return found

    def _exists(self, obj: Object[Any, Any]) -> bool:
        try:
            present = self._client.get(obj.kind, obj.name, namespace=obj.namespace)
        except NotFound:
            return False
        return present.uid == obj.uid

    def _follow(self, kind: Kind[Any, Any]) -> None:
        with self._following:
            if kind not in self._followed:
                self._cache.add_event_handler(kind, _Deletions(self._forget))
                self._followed.add(kind)

    def _forget(self, uids: Sequence[str]) -> None:
        with self._lock:
            for uid in uids:
                self._by_uid.pop(uid, None)


@final
class _Deletions:
    """A handler of a cache that passes on the uids of deleted objects."""

    def __init__(self, forget: Callable[[Sequence[str]], None]) -> None:
        self._forget = forget

    def on_events(self, events: Sequence[Event]) -> None:
        gone = [each.object.uid for each in events if each.action is ResourceAction.DELETE]
        if gone:
            self._forget(gone)

    def on_initial_list_end(self) -> None:
        """Nothing waits for it."""
