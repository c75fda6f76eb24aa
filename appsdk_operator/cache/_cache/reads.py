"""Reading from a cache."""

from __future__ import annotations

import threading
from typing import TypeAlias

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache._cache.errors import Remedies
from appsdk_operator.cache._cache.kind_cache import KindCache, ReadTarget
from appsdk_operator.cache._cache.query import Query, in_order, query_of
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.resource import (
    FieldSelection,
    Kind,
    LabelSelection,
    Object,
    check_kind,
    check_namespace_name,
    field_selector_of,
    label_selector_of,
)
from appsdk_operator.runtime import Clock, StopSignal, Waiters
from appsdk_operator.runtime.validation import check_count, check_text

__all__ = ["CacheReads"]

# The class below has a method called list.
Objects: TypeAlias = list[Object[SpecT, StatusT]]
ReadTargets: TypeAlias = list[ReadTarget]

_REMEDIES = Remedies(to_follow="add it with set_namespaces, or read it with a client")


class CacheReads:
    """The half of :class:`Cache` that reads."""

    _lock: threading.RLock
    _kept: dict[Kind, KindCache]
    _is_lazy: bool
    _sync_timeout: float
    _stop: StopSignal | None
    _clock: Clock
    _changed: Waiters

    def add(self, kind: Kind) -> None:
        """Keep a kind."""
        raise NotImplementedError

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT] | None:
        """The object of that name, None when there is none.

        Raises:
            NotCachedError: ``kind``, or ``namespace`` of it, is not kept, or has not synced yet.
            TimeoutError: a lazy read did not sync in time.
            ValueError: a namespace is missing, or given for a cluster-scoped kind.
        """
        # Looked at like this because reads of caches come in great numbers.
        if type(name) is not str or type(namespace) is not str:
            check_text("name", name)
            check_namespace_name(namespace)
        for place in self.places_of(kind, namespace):
            obj = place.informer.store.get(name, namespace)
            if obj is not None:
                return obj.viewed_as(kind)
        return None

    def list(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        namespace: str | None = None,
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        limit: int = 0,
    ) -> Objects[SpecT, StatusT]:
        """The objects in ``namespace`` that the selectors match, by namespace and name.

        Args:
            kind: what to list.
            namespace: where; default and ``""``: all that are followed.
            label_selector: as text, as a mapping or parsed.
            field_selector: the same for fields: values at ``metadata.name``,
                ``metadata.namespace`` and at paths that were given to :meth:`index_field`, all of
                which must be so.
            limit: at most so many, the first ones; default 0: all.

        Raises:
            NotCachedError: ``kind``, or ``namespace`` of it, is not kept, or has not synced yet.
            TimeoutError: a lazy read did not sync in time.
            ValueError: a namespace was given for a cluster-scoped kind, or the field selector is
                none that a cache can answer.
        """
        check_kind(kind)
        check_count("limit", limit)
        if limit < 0:
            raise ValueError(f"limit={limit}: use 0 for all, or more")
        check_namespace_name("" if namespace is None else namespace)
        labels, fields = label_selector_of(label_selector), field_selector_of(field_selector)
        places = self.places(kind, namespace or "")
        query = self.query(kind, namespace=namespace, label_selector=labels, field_selector=fields)
        found = [obj for place in places for obj in query.found_at(place)] if query else []
        return in_order(found, kind, limit)

    def by_index(
        self, kind: Kind[SpecT, StatusT], index: str, value: str
    ) -> Objects[SpecT, StatusT]:
        """The objects that ``index`` has under ``value``, by namespace and name.

        Raises:
            NotCachedError: ``kind`` is not kept, or has not synced yet.
            KeyError: there is no such index.
        """
        check_kind(kind)
        check_text("index", index)
        check_text("value", value)
        query = Query(indexes=[(index, value)])
        found = [obj for place in self.places(kind, "") for obj in query.found_at(place)]
        return in_order(found, kind, 0)

    # For the cached client.

    def places_of(self, kind: Kind, namespace: str) -> ReadTargets:
        """Where to read one object.

        Raises:
            as :meth:`get`.
        """
        if check_kind(kind).is_namespaced is not bool(namespace):
            raise ValueError(
                f"namespace={namespace!r}: {kind} is "
                + (
                    "namespaced, say where"
                    if kind.is_namespaced
                    else "cluster-scoped, leave it out"
                )
            )
        return self.places(kind, namespace)

    def places(self, kind: Kind, namespace: str) -> ReadTargets:
        """Where to read objects, all for the namespace ``""``; everything there has synced.

        Raises:
            as :meth:`list`.
        """
        if not check_kind(kind).is_namespaced and namespace:
            raise ValueError(f"namespace={namespace!r}: {kind} is cluster-scoped, leave it out")
        deadline = self._clock.monotonic() + self._sync_timeout
        while True:
            places = self._places(kind, namespace)
            waiting = [place for place in places if not place.informer.has_synced]
            if waiting:
                self._wait_for(waiting[0].informer, deadline)
            elif any(place.is_to_come for place in places):
                self._wait_for_change(kind, namespace, deadline)
            else:
                return places

    def place_of(self, kind: Kind, namespace: str) -> ReadTarget | None:
        """Where objects of ``namespace`` are followed, synced or not; None when nowhere."""
        with self._lock:
            kept = self._kept.get(kind)
            places = [] if kept is None else kept.places(namespace)
        return places[0] if places else None

    def follower_of(
        self, kind: Kind[SpecT, StatusT], namespace: str
    ) -> Informer[SpecT, StatusT] | None:
        """Who follows ``namespace``; also one that is about to end and may yet be called back."""
        with self._lock:
            kept = self._kept.get(kind)
            return None if kept is None else kept.follower(namespace)

    def shaper_of(self, kind: Kind, namespace: str) -> Informer | None:
        """Who decides what is kept of an object of ``namespace``."""
        with self._lock:
            kept = self._kept.get(kind)
            return None if kept is None else kept.shaper(namespace)

    def scope_selects(self, kind: Kind, obj: Object) -> bool:
        """Whether ``obj`` is one of those that are followed, by its namespace and selectors."""
        with self._lock:
            kept = self._kept.get(kind)
            scopes = [] if kept is None else kept.scopes(obj.namespace)
        return any(scope.selects(obj) for scope in scopes)

    def selects_all(self, kind: Kind, namespace: str) -> bool:
        """Whether all objects of ``namespace`` are followed: none comes or goes by its labels."""
        with self._lock:
            kept = self._kept.get(kind)
            scopes = [] if kept is None else kept.scopes(namespace)
        return all(scope.selects_all for scope in scopes)

    def query(
        self,
        kind: Kind,
        *,
        namespace: str | None,
        label_selector: LabelSelection | None,
        field_selector: FieldSelection | None,
    ) -> Query | None:
        """What a list asks for, None when nothing can be so.

        Raises:
            ValueError: the field selector is none that a cache can answer.
        """
        with self._lock:
            indexes = list(self._get(kind).indexes)
        return query_of(
            kind,
            indexes,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        )

    def _places(self, kind: Kind, namespace: str) -> ReadTargets:
        with self._lock:
            if self._is_lazy and kind not in self._kept:
                self.add(kind)
            kept = self._get(kind)
            places = kept.places(namespace)
            if not places:
                known = ", ".join(sorted(str(scope) for scope in kept.target))
                raise _REMEDIES.not_followed(
                    f"{kind} is cached in {known} only, not in namespace {namespace!r}",
                    kind,
                    namespace,
                )
        return places

    def _get(self, kind: Kind) -> KindCache:
        kept = self._kept.get(kind)
        if kept is None:
            known = ", ".join(sorted(str(k) for k in self._kept)) or "none"
            raise _REMEDIES.not_kept(f"{kind} has no informer in this cache (it keeps: {known})")
        return kept

    def _wait_for(self, informer: Informer, deadline: float) -> None:
        """A first list that is not complete would read as objects that do not exist."""
        if not self._is_lazy:
            raise _REMEDIES.not_synced(informer.health().text)
        stop = self._stop
        if stop is None:
            raise TimeoutError(
                f"the cache does not run, so {informer.kind} cannot be read: run it first"
            )
        left = deadline - self._clock.monotonic()
        if not informer.wait_for_sync(stop, max(0.0, left)) and not informer.is_frozen:
            raise TimeoutError(f"{informer.health().text}; waited {self._sync_timeout:g} s")

    def _wait_for_change(self, kind: Kind, namespace: str, deadline: float) -> None:
        """What takes over may be behind what was read and written before."""
        what = f"{kind} is being handed over to other informers"
        if not self._is_lazy:
            raise _REMEDIES.not_synced(what)

        def is_done() -> bool:
            with self._lock:
                return not any(place.is_to_come for place in self._places(kind, namespace))

        left = max(0.0, deadline - self._clock.monotonic())
        self._changed.wait(lambda: self._stop is None or is_done(), timeout=left)
        if not is_done():
            raise TimeoutError(f"{what}; waited {self._sync_timeout:g} s")
