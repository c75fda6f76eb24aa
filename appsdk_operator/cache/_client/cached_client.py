"""A client that reads from a cache and always sees its own writes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, final

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache._cache.cache import Cache
from appsdk_operator.cache._cache.errors import NotCachedError, Remedies
from appsdk_operator.cache._cache.options import kind_tuple
from appsdk_operator.cache._cache.query import Query, sorted_objects
from appsdk_operator.cache._cache.routing import ReadTarget
from appsdk_operator.cache._client.overlay import (
    Overlay,
    Written,
    WrittenObject,
    hides,
    resolved,
)
from appsdk_operator.cache._informer.informer import Informer, access_to
from appsdk_operator.cache._informer.watch_state import next_order
from appsdk_operator.client import (
    AlreadyExists,
    Call,
    ClientError,
    ClientLike,
    ClientWrapper,
    ConnectionLost,
    DryRunClient,
    Forward,
    NotFound,
    ResultT,
    Timeout,
    error_from_status,
)
from appsdk_operator.resource import (
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
    from appsdk_operator.client import GetOptions, ListOptions


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
        * A read never blocks, except in a lazy cache for the first sync.
        * Once a write through this client has returned, no read through it returns an older state
          of the object, or an object that the write deleted. An overlay over the local copy holds
          the written object, exactly until the informer has reached its resource version. Later
          changes by others show as soon as the informer has them.
        * Objects that the cache does not follow (another namespace, other labels) do not show.

    Caveats:
        * Events, and reads of the cache itself, do not use the overlay.
        * For a deletion without ``uid``, the client assumes the object that a read would have
          returned before. An object that the cache has not seen yet may still show until the watch
          delivers its deletion.
        * After a write whose answer was lost (``ConnectionLost``, ``Timeout``), and after an
          ``AlreadyExists`` for what the cache does not show, the client reads the object once, so
          that later reads show it. Where that fails, too, reads may be older than the write.
        * The client compares resource versions as numbers (KEP-5504). If they are not numbers, or
          if the watch has not delivered more than ``overlay_limit`` writes, reads may be older than
          writes.

    Wrap it (:class:`~appsdk_operator.client.NamespacedClient`,
    :class:`~appsdk_operator.client.DryRunClient`, …) rather than the client inside. Thread-safe.
    The idea is java-operator-sdk's; controller-runtime waits instead.
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
        """A client that reads from ``cache``.

        Args:
            client: writes, and reads kinds that are ``uncached``.
            cache: the cache to read from; this client does not run it.
            uncached: kinds to read from the server, whether or not the cache holds them.
            overlay_limit: the most written objects to remember; default 10,000.
            metrics: the metrics that it writes to, until :meth:`close`; default: none.

        Raises:
            TypeError: ``uncached`` is not a list of kinds.
            ValueError: ``overlay_limit`` is less than 1.
        """
        super().__init__(client)
        check_instance("cache", cache, Cache, "Cache(client)")
        check_count("overlay_limit", overlay_limit, 1)
        check_environment(metrics=metrics)
        self.cache = cache
        """The cache to read from."""
        self.remedies: Remedies = Remedies()
        """The advice in errors of reads that the cache cannot answer."""
        self._uncached = frozenset(kind_tuple("uncached", uncached))
        self._overlay = Overlay(overlay_limit, self.cache.informer_of)
        self._is_dry = _is_dry(client)
        self._retire = metrics.add_source(self._samples) if metrics else lambda: None

    @property
    def live(self) -> ClientLike:
        """The client that reads from the server."""
        return self.inner

    def close(self) -> None:
        """Write no more metrics; closes neither the client nor the cache."""
        self._retire()

    # Reading.

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[GetOptions]
    ) -> Object[SpecT, StatusT]:
        """The object from the cache, or as last written.

        Raises:
            NotFound: there is no such object.
            NotCachedError: the cache does not hold ``kind``, or ``namespace`` of it, or not yet.
            ValueError: a namespace is missing, or given for a cluster-scoped kind.
        """
        if kind in self._uncached:
            return super().get(kind, name, **options)
        namespace: str = options.get("namespace", "")
        key = ObjectKey(namespace, name)
        while True:
            try:
                targets = self.cache.object_read_targets(kind, namespace)
            except NotCachedError as error:
                raise self.remedies.for_client(error) from None
            if not targets:  # the namespace has ended
                raise _not_found(kind, name)
            (target,) = targets
            obj = self._resolved(kind, key, target.informer)
            # Again after a switchover: the old informer is behind, and the overlay is not for it.
            if not access_to(target.informer).is_frozen:
                break
            if [target] == self.cache.object_read_targets(kind, namespace):
                break
        if obj is None:
            raise _not_found(kind, name)
        return obj.viewed_as(kind)

    def list(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[ListOptions]
    ) -> Iterator[Object[SpecT, StatusT]]:
        """The objects from the cache, or as last written, sorted by namespace and name.

        ``limit``, a client's number of objects per page, is ignored.

        Raises:
            NotCachedError: the cache does not hold ``kind``, or the namespace of it, or not yet.
            ValueError: the field selector cannot be answered from the indexes.
        """
        if kind in self._uncached:
            return super().list(kind, **options)
        namespace: str = options.get("namespace", "")
        check_namespace_name(namespace)
        labels = label_selector_of(options.get("label_selector"))
        fields = field_selector_of(options.get("field_selector"))
        self._read_targets(kind, namespace)
        query = self.cache.query(
            kind, namespace=namespace, label_selector=labels, field_selector=fields
        )
        return iter(self._found(kind, query, query.namespace) if query else [])

    def by_index(
        self, kind: Kind[SpecT, StatusT], index: str, value: str
    ) -> Objects[SpecT, StatusT]:
        """The objects that ``index`` of the cache has under ``value``, by namespace and name.

        Raises:
            NotCachedError: the cache does not hold ``kind``, or not yet.
            KeyError: there is no such index.
        """
        check_text("index", index)
        check_text("value", value)
        return self._found(kind, Query(indexes=[(index, value)]), "")

    def wait_until_seen(self, obj: Object, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait until the informer has reached the resource version of ``obj``; for users of events.

        Args:
            obj: the object that a write returned.
            stop: ends the wait.
            timeout: the longest to wait, in seconds of the cache's clock; default: no limit.

        Returns:
            False when stopped, after ``timeout`` seconds, or when the informer has ended.

        Raises:
            NotFollowedError: the cache does not follow objects of this kind in this namespace.
        """
        target = self.cache.read_target(obj.kind, obj.namespace)
        if target is None:
            fact = f"{obj.kind.qualified_name} is not followed in namespace {obj.namespace!r}"
            raise self.remedies.not_followed(fact, obj.kind, obj.namespace)
        return target.informer.wait_for_version(obj.resource_version, stop, timeout)

    def _read_targets(self, kind: Kind, namespace: str) -> ReadTargets:
        try:
            return self.cache.read_targets(kind, namespace)
        except NotCachedError as error:
            raise self.remedies.for_client(error) from None

    def _resolved(
        self, kind: Kind[SpecT, StatusT], key: ObjectKey, informer: Informer[SpecT, StatusT]
    ) -> Object[SpecT, StatusT] | None:
        written = self._overlay.current(kind, key, informer)
        if written:
            return resolved(written, key, informer)
        return informer.store.get(key.name, key.namespace)

    def _found(
        self, kind: Kind[SpecT, StatusT], query: Query, namespace: str
    ) -> Objects[SpecT, StatusT]:
        while True:
            targets = self._read_targets(kind, namespace)
            found = self._found_in(kind, query, targets)
            # Again after a switchover: the old informer is behind, and the overlay is not for it.
            if not any(access_to(target.informer).is_frozen for target in targets):
                return found
            if targets == self._read_targets(kind, namespace):
                return found

    def _found_in(
        self, kind: Kind[SpecT, StatusT], query: Query, targets: ReadTargets
    ) -> Objects[SpecT, StatusT]:
        overlaid: dict[ObjectKey, tuple[Written, Informer]] = {}
        for key in self._overlay.keys(kind):
            informer = self.cache.informer_of(kind, key.namespace)
            if informer is not None and any(
                target.informer is informer and target.covers(key.namespace) for target in targets
            ):
                written = self._overlay.current(kind, key, informer)
                if written:
                    overlaid[key] = written, informer
        found: Objects = []
        for target in targets:
            for obj in query.objects_in(target):
                if obj.key not in overlaid or not hides(overlaid[obj.key][0], obj):
                    found.append(obj)
                    overlaid.pop(obj.key, None)
        for key, (_, informer) in overlaid.items():
            shown = self._resolved(kind, key, informer)
            if shown is not None and query.matches(shown, informer.store):
                found.append(shown)
        return sorted_objects(found, kind, 0)

    # Writing.

    def _send(self, call: Call[ResultT], forward: Forward[ResultT]) -> ResultT:
        """Forward a call, and add the outcome of a write to the overlay."""
        if not call.is_write or self._is_dry or call.options.get("dry_run"):
            return forward(call)
        try:
            return self._write(call, forward)
        except (AlreadyExists, ConnectionLost, Timeout) as error:
            self._look(call, is_there=isinstance(error, AlreadyExists))
            raise

    def _write(self, call: Call[ResultT], forward: Forward[ResultT]) -> ResultT:
        if call.verb == "delete":
            known = self._known(call.kind, ObjectKey(call.namespace, call.name))
            answer = forward(call)
            self._note_deleted(call, answer, known)
        elif call.verb == "delete_collection":
            present = self._present(call.kind, call.namespace)
            answer = forward(call)
            self._note_remaining(call.kind, call.namespace, present)
        else:
            # What a subresource returns may be older than its call.
            is_new = call.verb == "create" and not call.subresource
            before = next_order() if is_new else None
            answer = forward(call)
            self._note(call.kind, answer, before)
        return answer

    def _look(self, call: Call[Any], *, is_there: bool) -> None:
        """Read what a write whose answer was lost has left: later reads show that, too.

        The one that is tried again comes upon its own object, before the watch has delivered it:
        ``is_there``.
        """
        kind, key = call.kind, ObjectKey(call.namespace, call.name)
        if not key.name or self.cache.informer_of(kind, key.namespace) is None:
            return
        known = self._known(kind, key)
        if is_there and known is not None:
            return
        try:
            self._add_written(kind, super().get(kind, key.name, namespace=key.namespace))
        except NotFound:
            if known is not None:
                self._add_deletion(kind, key, known.uid, self._last_version(known))
        except (ClientError, DecodeError, OSError) as error:
            _log.debug("cannot look what became of %r: %s", call, error)

    # The overlay.

    def _note(self, kind: Kind, answer: object, created_after: int | None = None) -> None:
        """Add the answer of a write; that of a subresource may be something else."""
        if not isinstance(answer, Object) or answer.kind != kind:
            return
        if _is_deleted(answer):
            self._add_deletion(kind, answer.key, answer.uid, answer.resource_version)
        else:
            self._add_written(kind, answer, created_after)

    def _note_deleted(self, call: Call[Any], answer: object, known: Object | None) -> None:
        kind, key = call.kind, ObjectKey(call.namespace, call.name)
        if isinstance(answer, Object):
            if answer.is_deleting and not _is_deleted(answer):
                self._add_written(kind, answer)
            else:
                self._add_deletion(kind, answer.key, answer.uid, answer.resource_version)
            return
        uid: str = call.options.get("uid", "")
        if known is not None:
            # If another object was deleted, then this one was deleted earlier.
            self._add_deletion(kind, key, known.uid, self._last_version(known))
        if uid and (known is None or uid != known.uid):
            version: str = call.options.get("resource_version", "")
            self._add_deletion(kind, key, uid, version)

    def _note_remaining(self, kind: Kind, namespace: str, known: Objects) -> None:
        """List once, to find out which of the known objects a collection delete has deleted."""
        if not known:
            return
        version = ""
        token: str | None = ""
        left: dict[str, Object | None] = {}
        try:
            while token is not None:
                page = self.list_page(kind, namespace=namespace, continue_token=token)
                version = version or page.resource_version
                left.update((obj.uid, obj) for obj in page.items)
                for item in page.undecodable:
                    if not item.uid:
                        return  # it may be any of them
                    left[item.uid] = None
                token = page.continue_token or None
        except (ClientError, DecodeError, OSError) as error:
            _log.warning(
                "deleted %s in namespace %s, but could not list what is left. Reads from the cache "
                "show the deleted objects until the watch reports the deletions: %s",
                kind.qualified_name,
                namespace,
                error,
            )
            return
        for obj in known:
            if obj.uid not in left:
                # Not in the version of the list: another object of this name may be older.
                self._add_deletion(kind, obj.key, obj.uid, obj.resource_version, version)
            elif (found := left[obj.uid]) is not None:
                self._add_written(kind, found)

    def _present(self, kind: Kind, namespace: str) -> Objects:
        """What reads of a namespace would return, also before the first sync."""
        informer = self.cache.informer_of(kind, namespace)
        if informer is None:
            return []
        keys = {obj.key for obj in informer.store.list(namespace=namespace or None)}
        keys |= {key for key in self._overlay.keys(kind) if key.namespace == namespace}
        return [obj for obj in (self._known(kind, key) for key in keys) if obj is not None]

    def _known(self, kind: Kind[SpecT, StatusT], key: ObjectKey) -> Object[SpecT, StatusT] | None:
        """What a read would return, also before the first sync."""
        informer = self.cache.informer_of(kind, key.namespace)
        return None if informer is None else self._resolved(kind, key, informer)

    def _last_version(self, deleted: Object) -> str:
        """The last version of a deleted object that the watch may deliver; ``""`` if unknown."""
        # With selectors, it may have left the selection and come back in a later version.
        is_known = self.cache.selects_all(deleted.kind, deleted.namespace)
        return deleted.resource_version if is_known else ""

    def _add_written(self, kind: Kind, obj: Object, created_after: int | None = None) -> None:
        self.cache.note_written(obj)
        informer = self.cache.informer_of(kind, obj.namespace)
        if informer is None or not obj.resource_version.isdigit():
            return
        stored: Object | None = None
        if self.cache.selects(kind, obj):
            next_informer = self.cache.next_informer_of(kind, obj.namespace) or informer
            stored = access_to(next_informer).transformed(obj)
        written = WrittenObject(uid=obj.uid, version=obj.resource_version, object=stored)
        self._overlay.add(kind, obj.key, written, created_after=created_after)

    def _add_deletion(
        self, kind: Kind, key: ObjectKey, uid: str, version: str, deleted_version: str = ""
    ) -> None:
        """Note the deletion of an object.

        Args:
            kind: its kind.
            key: its key.
            uid: its uid; without one, nothing is noted.
            version: a resource version that it had; ``""`` if unknown.
            deleted_version: one after its deletion; default: ``version``, the deletion's own.
        """
        informer = self.cache.informer_of(kind, key.namespace)
        if informer is None or not uid or (version and not version.isdigit()):
            return
        written = WrittenObject(
            uid=uid,
            version=version,
            is_deleted=True,
            deleted_version=deleted_version or version,
        )
        self._overlay.add(kind, key, written)

    def _samples(self) -> Samples:
        counts = dict.fromkeys(self.cache.kinds, 0)
        counts.update(self._overlay.counts())
        return [
            *(Sample(_OVERLAY, (str(kind),), count) for kind, count in counts.items()),
            Sample(_DROPPED, (), self._overlay.dropped),
        ]


def _is_deleted(obj: Object) -> bool:
    """Whether the answer shows an object that is deleted for good, without finalizers."""
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
