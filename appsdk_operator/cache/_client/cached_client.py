"""A client that reads from a cache, and never reads less than what it wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, final

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache._cache.cache import Cache
from appsdk_operator.cache._cache.errors import NotCachedError, Remedies
from appsdk_operator.cache._cache.kind_cache import ReadTarget
from appsdk_operator.cache._cache.query import Query, in_order
from appsdk_operator.cache._client.overlay import Entry, Overlay
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.cache._options import kind_tuple
from appsdk_operator.client import (
    ClientError,
    ClientLike,
    ClientWrapper,
    DryRunClient,
    Patch,
    SubresourceLike,
    SubresourceWrapper,
    error_from_status,
)
from appsdk_operator.resource import (
    AnyObject,
    DecodeError,
    Kind,
    Object,
    ObjectKey,
    check_namespace_name,
    field_selector_of,
    label_selector_of,
)
from appsdk_operator.runtime import Family, Metrics, Sample, StopSignal, get_logger
from appsdk_operator.runtime.validation import (
    check_count,
    check_environment,
    check_instance,
    check_text,
)

if TYPE_CHECKING:
    from appsdk_operator.client import (
        ApplyOptions,
        DeleteCollectionOptions,
        DeleteOptions,
        ListOptions,
        PatchOptions,
        SubresourceApplyOptions,
        SubresourceCreateOptions,
        SubresourceUpdateOptions,
        WriteOptions,
    )

__all__ = ["CachedClient"]

_log = get_logger("appsdk_operator.cache")
# The class below has a method called list.
Objects: TypeAlias = list[Object[SpecT, StatusT]]
ReadTargets: TypeAlias = list[ReadTarget]
Samples: TypeAlias = list[Sample]

_OVERLAY = Family(
    "cache_overlay_objects",
    "gauge",
    "Objects that were written and have not come back through a watch yet.",
    ("kind",),
)
_DROPPED = Family(
    "cache_overlay_dropped_total",
    "counter",
    "Written objects that were given up before they came back, because there were too many.",
)


@final
class CachedClient(ClientWrapper):
    """Reads from a cache, and writes to the server.

    Guarantees:
        * A read never waits, but in a lazy cache for the first sync.
        * After a write through this client has returned, no read through it gives anything older
          than what the write returned, and none an object that it deleted: what was written is
          laid over the local copy until the informer has seen that version of the server, and not
          longer. What others did to the object meanwhile shows as soon as the informer has it.
        * What the cache would not hold (another namespace, other labels) does not show.

    Caveats:
        * Events and the cache's own reads know nothing of what is laid over.
        * A deletion without ``uid`` is known to be that of the object which a read would have given
          before. Of one that the cache had never shown, the watch may bring the last news.
        * A write whose answer was lost lays nothing over.
        * Resource versions are compared as numbers (KEP-5504); where they are none, and beyond
          ``overlay_limit`` writes that have not come back, reads are the cache's own.

    Wrap it (:class:`~appsdk_operator.client.NamespacedClient`,
    :class:`~appsdk_operator.client.DryRunClient`, …) rather than what it wraps. Thread-safe. The
    idea is java-operator-sdk's; controller-runtime waits instead.
    """

    def __init__(
        self,
        client: ClientLike,
        cache: Cache,
        *,
        uncached: Collection[Kind] = (),
        overlay_limit: int = 10_000,
        metrics: Metrics | None = None,
    ) -> None:
        """A client of ``cache``.

        Args:
            client: writes, and reads what is not read from the cache.
            cache: what is read from; it runs elsewhere.
            uncached: kinds to be read from the server, kept by the cache or not.
            overlay_limit: the most written objects to remember; default 10,000.
            metrics: where it publishes, until :meth:`close`; default: nowhere.

        Raises:
            TypeError: ``uncached`` is a single kind, or has what is none.
            ValueError: ``overlay_limit`` is less than 1.
        """
        super().__init__(client)
        check_instance("cache", cache, Cache, "Cache(client)")
        check_count("overlay_limit", overlay_limit, 1)
        check_environment(metrics=metrics)
        self.cache = cache
        """What is read from."""
        self.remedies: Remedies = Remedies()
        """What errors advise where a read is none of the cache's."""
        self._uncached = frozenset(kind_tuple("uncached", uncached))
        self._overlay = Overlay(overlay_limit, self._informer_of)
        self._is_dry = _is_dry(client)
        self._retire = metrics.add_source(self._samples) if metrics else lambda: None

    @property
    def live(self) -> ClientLike:
        """The client that reads from the server."""
        return self.inner

    def close(self) -> None:
        """Publish no more metrics; neither client nor cache are closed."""
        self._retire()

    # Reading.

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT]:
        """The object as the cache has it, or as it was written.

        Raises:
            NotFound: there is none.
            NotCachedError: the cache does not keep ``kind``, or not there, or not yet.
            ValueError: a namespace is missing, or given for a cluster-scoped kind.
        """
        if kind in self._uncached:
            return self.inner.get(kind, name, namespace=namespace)
        key = ObjectKey(namespace, name)
        while True:
            try:
                (place,) = self.cache.places_of(kind, namespace)
            except NotCachedError as error:
                raise self.remedies.for_client(error) from None
            obj = self._resolved(kind, key, place.informer)
            # One that was relieved meanwhile is behind, and what is laid over is not for it.
            if not place.informer.is_frozen or [place] == self.cache.places_of(kind, namespace):
                break
        if obj is None:
            raise _not_found(kind, name)
        return obj.viewed_as(kind)

    def list(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[ListOptions]
    ) -> Iterator[Object[SpecT, StatusT]]:
        """The objects as the cache has them, or as they were written, by namespace and name.

        ``limit`` is a client's number of objects a page, and means nothing here.

        Raises:
            NotCachedError: the cache does not keep ``kind``, or not there, or not yet.
            ValueError: the field selector is none that a cache can answer.
        """
        if kind in self._uncached:
            return self.inner.list(kind, **options)
        namespace: str = options.get("namespace", "")
        check_namespace_name(namespace)
        labels = label_selector_of(options.get("label_selector"))
        fields = field_selector_of(options.get("field_selector"))
        self._places(kind, namespace)
        query = self.cache.query(
            kind, namespace=namespace, label_selector=labels, field_selector=fields
        )
        return iter(self._found(kind, query, namespace) if query else [])

    def by_index(
        self, kind: Kind[SpecT, StatusT], index: str, value: str
    ) -> Objects[SpecT, StatusT]:
        """The objects that ``index`` of the cache has under ``value``, by namespace and name.

        Raises:
            NotCachedError: the cache does not keep ``kind``, or not yet.
            KeyError: there is no such index.
        """
        check_text("index", index)
        check_text("value", value)
        return self._found(kind, Query(indexes=[(index, value)]), "")

    def wait_until_seen(self, obj: Object, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait until the informer has come as far as ``obj``, for those who want events too.

        Args:
            obj: what a write returned.
            stop: ends the wait.
            timeout: the longest to wait, in seconds of the cache's clock; default: no limit.

        Returns:
            False when stopped, after ``timeout`` seconds, or when the informer has ended.

        Raises:
            NotFollowedError: the cache does not keep objects of this kind in this namespace.
        """
        place = self.cache.place_of(obj.kind, obj.namespace)
        if place is None:
            fact = f"{obj.kind} is not followed in namespace {obj.namespace!r}"
            raise self.remedies.not_followed(fact, obj.kind, obj.namespace)
        return place.informer.wait_for_version(obj.resource_version, stop, timeout)

    def _places(self, kind: Kind, namespace: str) -> ReadTargets:
        try:
            return self.cache.places(kind, namespace)
        except NotCachedError as error:
            raise self.remedies.for_client(error) from None

    def _resolved(
        self, kind: Kind[SpecT, StatusT], key: ObjectKey, informer: Informer[SpecT, StatusT]
    ) -> Object[SpecT, StatusT] | None:
        entry = self._overlay.get(kind, key)
        if entry is None:
            return informer.store.get(key.name, key.namespace)
        if entry.is_over(key, informer):
            self._overlay.drop(kind, key, entry)
            return informer.store.get(key.name, key.namespace)
        return entry.resolved(key, informer)

    def _found(
        self, kind: Kind[SpecT, StatusT], query: Query, namespace: str
    ) -> Objects[SpecT, StatusT]:
        while True:
            places = self._places(kind, namespace)
            found = self._found_at(kind, query, places)
            # One that was relieved meanwhile is behind, and what is laid over is not for it.
            if not any(place.informer.is_frozen for place in places):
                return found
            if places == self._places(kind, namespace):
                return found

    def _found_at(
        self, kind: Kind[SpecT, StatusT], query: Query, places: ReadTargets
    ) -> Objects[SpecT, StatusT]:
        informers = {place.informer for place in places}
        written: dict[ObjectKey, tuple[Entry, Informer]] = {}
        for key, entry in self._overlay.of_kind(kind).items():
            informer = self._informer_of(kind, key.namespace)
            if informer is None or informer not in informers:
                continue
            if entry.is_over(key, informer):
                self._overlay.drop(kind, key, entry)
            else:
                written[key] = entry, informer
        found: Objects = []
        for place in places:
            for obj in query.found_at(place):
                if obj.key not in written or not written[obj.key][0].hides(obj):
                    found.append(obj)
                    written.pop(obj.key, None)
        for key, (_, informer) in written.items():
            made = self._resolved(kind, key, informer)
            if made is not None and query.matches(made, informer.store):
                found.append(made)
        return in_order(found, kind, 0)

    # Writing.

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.create`."""
        mark = self._overlay.mark()
        answer = self.inner.create(obj, **options)
        return self.note(obj.kind, answer, options, created_after=mark)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.update`."""
        return self.note(obj.kind, self.inner.update(obj, **options), options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.patch`."""
        return self.note(kind, self.inner.patch(kind, name, patch, **options), options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[ApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.apply`."""
        return self.note(obj.kind, self.inner.apply(obj, **options), options)

    def delete(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[DeleteOptions]
    ) -> Object[SpecT, StatusT] | None:
        """As :meth:`Client.delete`."""
        key = ObjectKey(options.get("namespace", ""), name)
        known = self._known(kind, key)
        answer = self.inner.delete(kind, name, **options)
        if self._is_noted(kind, options):
            uid, version = options.get("uid", ""), options.get("resource_version", "")
            if answer is not None and not _is_gone(answer) and answer.is_deleting:
                self._lay(kind, answer)
            elif answer is not None:
                self._lay_gone(kind, answer.key, answer.uid, answer.resource_version)
            else:
                if known is not None:
                    # If it is not the one that was deleted, then it was gone before.
                    self._lay_gone(kind, key, known.uid, self._last_version(known))
                if uid and (known is None or uid != known.uid):
                    self._lay_gone(kind, key, uid, version)
        return answer

    def delete_collection(self, kind: Kind, **options: Unpack[DeleteCollectionOptions]) -> None:
        """As :meth:`Client.delete_collection`; lists what is left, once, to know what is gone."""
        namespace: str = options.get("namespace", "")
        informer = self._informer_of(kind, namespace)
        known: Objects = []
        if informer is not None and self._is_noted(kind, options):
            keys = {obj.key for obj in informer.store.list(namespace=namespace or None)}
            keys |= {k for k in self._overlay.of_kind(kind) if k.namespace == namespace}
            known = [o for o in (self._known(kind, key) for key in keys) if o is not None]
        self.inner.delete_collection(kind, **options)
        if known:
            try:
                self._note_rest(kind, namespace, known)
            except (ClientError, DecodeError, OSError) as error:
                _log.warning(
                    "%s in %r were deleted, but cannot be listed: until the watch brings it, reads "
                    "show what was there: %s",
                    kind,
                    namespace,
                    error,
                )

    def subresource(self, name: str) -> SubresourceLike:
        """A subresource; what comes back as the object itself is laid over as well."""
        return _CachedSubresource(self.inner.subresource(name), self)

    # What was written.

    def note(
        self,
        kind: Kind[SpecT, StatusT],
        answer: Object[SpecT, StatusT],
        options: Any,
        *,
        created_after: int | None = None,
    ) -> Object[SpecT, StatusT]:
        """For subresources: remember what a write made; returns it."""
        if answer.kind == kind and self._is_noted(kind, options):
            if _is_gone(answer):
                self._lay_gone(kind, answer.key, answer.uid, answer.resource_version)
            else:
                self._lay(kind, answer, created_after)
        return answer

    def _note_rest(self, kind: Kind, namespace: str, known: Objects) -> None:
        version, token = "", ""
        left: dict[str, Object] = {}
        while True:
            page = self.inner.list_page(kind, namespace=namespace, continue_token=token)
            version = version or page.resource_version
            left.update((obj.uid, obj) for obj in page.items)
            token = page.continue_token
            if not token:
                break
        for obj in known:
            if obj.uid in left:
                self._lay(kind, left[obj.uid])
            else:
                self._lay_gone(kind, obj.key, obj.uid, version)

    def _is_noted(self, kind: Kind, options: Any) -> bool:
        return not (self._is_dry or options.get("dry_run") or kind in self._uncached)

    def _known(self, kind: Kind[SpecT, StatusT], key: ObjectKey) -> Object[SpecT, StatusT] | None:
        """What a read would give, before the first sync too."""
        informer = None if kind in self._uncached else self._informer_of(kind, key.namespace)
        return None if informer is None else self._resolved(kind, key, informer)

    def _last_version(self, deleted: Object) -> str:
        """The last version that the informer may bring of it; ``""`` when that is not known."""
        # One that left the selection and came back, meanwhile, would show once more.
        is_known = self.cache.selects_all(deleted.kind, deleted.namespace)
        return deleted.resource_version if is_known else ""

    def _lay(self, kind: Kind, obj: Object, created_after: int | None = None) -> None:
        informer = self._informer_of(kind, obj.namespace)
        if informer is None or not obj.resource_version.isdigit():
            return
        kept: Object | None = None
        if self.cache.scope_selects(kind, obj):
            shaper = self.cache.shaper_of(kind, obj.namespace) or informer
            kept = shaper.transformed(obj)
        entry = Entry(
            informer=informer, rewinds=informer.rewinds, version=obj.resource_version, object=kept
        )
        self._overlay.lay(kind, obj.key, entry, created_after=created_after)

    def _lay_gone(self, kind: Kind, key: ObjectKey, uid: str, version: str) -> None:
        informer = self._informer_of(kind, key.namespace)
        if informer is None or not uid or (version and not version.isdigit()):
            return
        entry = Entry(
            informer=informer,
            rewinds=informer.rewinds,
            version=version,
            gone=(uid,),
            gone_version=version,
        )
        self._overlay.lay(kind, key, entry)

    def _informer_of(
        self, kind: Kind[SpecT, StatusT], namespace: str
    ) -> Informer[SpecT, StatusT] | None:
        return self.cache.follower_of(kind, namespace)

    def _samples(self) -> Samples:
        counts = dict.fromkeys(self.cache.kinds, 0)
        counts.update(self._overlay.counts())
        return [
            *(Sample(_OVERLAY, (str(kind),), count) for kind, count in counts.items()),
            Sample(_DROPPED, (), self._overlay.dropped),
        ]


class _CachedSubresource(SubresourceWrapper):
    def __init__(self, inner: SubresourceLike, client: CachedClient) -> None:
        super().__init__(inner)
        self._client = client

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceCreateOptions]
    ) -> Object[SpecT, StatusT]:
        return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceUpdateOptions]
    ) -> Object[SpecT, StatusT]:
        kind = options.get("parent") or obj.kind
        return self._client.note(kind, self.inner.update(obj, **options), options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        return self._client.note(kind, self.inner.patch(kind, name, patch, **options), options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceApplyOptions]
    ) -> Object[SpecT, StatusT]:
        kind = options.get("parent") or obj.kind
        return self._client.note(kind, self.inner.apply(obj, **options), options)


def _is_gone(obj: Object) -> bool:
    """Whether the answer shows an object that nothing holds any longer."""
    if not obj.is_deleting or obj.finalizers or obj.metadata.get("deletionGracePeriodSeconds"):
        return False
    if obj.is_metadata_only:
        return True
    spec = obj.get("spec")
    # Namespaces have finalizers of their own.
    return not (hasattr(spec, "get") and spec.get("finalizers"))


def _is_dry(client: object) -> bool:
    while client is not None:
        if isinstance(client, DryRunClient):
            return True
        client = getattr(client, "inner", None)
    return False


def _not_found(kind: Kind, name: str) -> Exception:
    message = f'{kind.qualified_name} "{name}" not found'
    details = {"name": name, "kind": kind.plural}
    if kind.group:
        details["group"] = kind.group
    return error_from_status(
        {"code": 404, "reason": "NotFound", "message": message, "details": details}
    )
