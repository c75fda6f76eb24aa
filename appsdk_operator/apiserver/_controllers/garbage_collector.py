"""The garbage collector, the namespace controller and the CRD finalizer of a real cluster.

Deletes dependents of deleted owners (background, foreground and orphan), the content of a deleted
namespace, and the objects of a deleted CustomResourceDefinition. Finalizers are respected. As on a
real cluster it works asynchronously: in later iterations of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias, final

from appsdk_operator.apiserver._crds.crds import CLEANUP
from appsdk_operator.apiserver._registry.deletion import FOREGROUND, ORPHAN
from appsdk_operator.apiserver._registry.write_requests import Change, Origin
from appsdk_operator.apiserver._registry.writes import (
    DeleteOptions,
    Target,
    WriteOptions,
    Writer,
)
from appsdk_operator.apiserver._storage.resources import Catalog, Resource
from appsdk_operator.apiserver._storage.storage import Collection, Event, Record, Storage
from appsdk_operator.apiserver._values.status import StatusError
from appsdk_operator.apiserver._values.users import AUTHENTICATED, User, service_account_groups
from appsdk_operator.runtime import get_logger

log: Final = get_logger("appsdk_operator.testing.server")

# Objects per iteration of the event loop.
_PER_TURN: Final = 64
# Seconds before an object that could not be settled is looked at again.
_RETRY: Final = 1.0


def _account(name: str) -> User:
    username = f"system:serviceaccount:kube-system:{name}"
    return User(username, groups=(*service_account_groups("kube-system"), AUTHENTICATED))


# The service accounts of the controllers of a real cluster.
_GARBAGE_COLLECTOR: Final = _account("generic-garbage-collector")
_NAMESPACE_CONTROLLER: Final = _account("namespace-controller")

_Place: TypeAlias = tuple[Collection, str]
"""A collection, and the key of an object in it."""
_Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class _ForeignOwnerError(Exception):
    """A cluster-scoped object names an owner of a namespaced kind, which cannot be looked up."""


def _identity(obj: dict[str, Any], name: str) -> tuple[str, str, str]:
    """The group, kind and name of an object, or of the owner that a reference names."""
    return obj.get("apiVersion", "").rpartition("/")[0], obj.get("kind", ""), name


@final
class GarbageCollector:
    """Deletes objects that have lost their owner or namespace.

    A change queues the object, its owners and, if it is gone, what may have waited for that. Each
    queued object is settled: what its state asks for is done. Settling a settled object does
    nothing, and what fails is tried again.
    """

    def __init__(self, storage: Storage, catalog: Catalog, writer: Writer) -> None:
        """It does nothing before :meth:`resume`."""
        self._storage = storage
        self._catalog = catalog
        self._writer = writer
        self._places: dict[str, _Place] = {}
        """Where the object with a uid is."""
        self._dependents: dict[str, dict[_Place, None]] = {}
        self._absent: dict[str, tuple[str, str, str]] = {}
        """Group, kind and name by uid of deleted objects that have dependents left. Their kind
        may be gone, too."""
        self._queue: dict[_Place, None] = {}
        self._failed: dict[_Place, None] = {}
        """The objects that are queued again after a while."""
        self._spawn: _Spawn | None = None
        self._work: asyncio.Task[None] | None = None

    def resume(self, spawn: _Spawn) -> None:
        """Settle what is queued, in asyncio tasks that ``spawn`` starts."""
        self._spawn = spawn
        self._work = None
        self._wake()

    def pause(self) -> None:
        """Only queue objects, until :meth:`resume`."""
        self._spawn = None
        # The timers end with the event loop.
        self._queue.update(self._failed)
        self._failed.clear()

    def on_event(self, collection: Collection, event: Event) -> None:
        """Queue the objects that a change concerns."""
        record, previous = event.record, event.previous
        gone = event.type == "DELETED"
        before = previous.owners if previous is not None else ()
        self._index((collection, record.key), () if gone else record.owners, before)
        for uid in {*before, *record.owners}:
            self._add_deleting(self._places.get(uid))
        if gone:
            self._places.pop(record.uid, None)
            self._after_deletion(collection, record)
            return
        self._places[record.uid] = (collection, record.key)
        if record.owners or record.deleting:
            self._add((collection, record.key))

    def _index(self, place: _Place, now: tuple[str, ...], before: tuple[str, ...]) -> None:
        if now == before:
            return
        for uid in before:
            found = self._dependents.get(uid)
            if found is not None:
                found.pop(place, None)
                if not found:
                    del self._dependents[uid]
                    self._absent.pop(uid, None)
        for uid in now:
            self._dependents.setdefault(uid, {})[place] = None

    def _after_deletion(self, collection: Collection, record: Record) -> None:
        """Queue the dependents, and the namespace and the definition that may have waited."""
        dependents = self._dependents.get(record.uid)
        if dependents:
            self._absent[record.uid] = _identity(record.decode(), record.name)
            for place in dependents:
                self._add(place)
        if record.namespace and not any(collection.scan(f"{record.namespace}/")):
            self._add_deleting((self._storage.collection("namespaces"), record.namespace))
        if not collection.records:
            definitions = self._storage.collection("customresourcedefinitions.apiextensions.k8s.io")
            self._add_deleting((definitions, collection.name))

    def _add_deleting(self, place: _Place | None) -> None:
        """Queue an object that is being deleted."""
        record = place[0].records.get(place[1]) if place is not None else None
        if place is not None and record is not None and record.deleting:
            self._add(place)

    def _add(self, place: _Place) -> None:
        self._queue[place] = None
        self._wake()

    def _wake(self) -> None:
        if self._spawn is not None and self._queue and self._work is None:
            self._work = self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._spawn is not None and self._queue:
                for place in list(self._queue)[:_PER_TURN]:
                    self._queue.pop(place, None)
                    try:
                        await self._settle(place)
                    except StatusError:
                        self._add_later(place)
                    except asyncio.CancelledError:
                        self._queue[place] = None  # left to do when the server runs again
                        raise
                    except Exception:  # a bug of the server must not end it for all objects
                        log.exception("%s of %s was not settled", place[1], place[0].name)
                        self._add_later(place)
                await asyncio.sleep(0)
        finally:
            self._work = None

    def _add_later(self, place: _Place) -> None:
        """Queue an object again after a while: a webhook refused, or it is not valid now."""
        if self._spawn is None:
            self._queue[place] = None
        elif place not in self._failed:
            self._failed[place] = None
            asyncio.get_running_loop().call_later(_RETRY, self._try_again, place)

    def _try_again(self, place: _Place) -> None:
        if place in self._failed:
            del self._failed[place]
            self._add(place)

    async def _settle(self, place: _Place) -> None:
        """Do what the state of an object asks for.

        Raises:
            StatusError: something failed; settling again may succeed.
        """
        collection, key = place
        record = collection.records.get(key)
        resource = self._catalog.of_collection(collection)
        if record is None or resource is None:
            return
        try:
            if record.deleting:
                await self._continue_deletion(resource, record)
            elif record.owners:
                await self._examine(resource, record)
        except StatusError:
            if collection.records.get(key) is record:
                raise
            self._add(place)  # it changed meanwhile

    # -- dependents --------------------------------------------------------------------------

    def _is_gone(self, reference: dict[str, Any], dependent: Record) -> bool:
        """Whether the owner of a reference is gone; False if its kind is unknown.

        Raises:
            _ForeignOwnerError: the owner cannot be looked up.
        """
        uid = reference.get("uid", "")
        served = self._catalog.find_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if served is None:
            return self._absent.get(uid) == _identity(reference, reference.get("name", ""))
        resource = served.resource
        if resource.namespaced and not dependent.namespace:
            raise _ForeignOwnerError
        key = resource.key(dependent.namespace, reference.get("name", ""))
        record = resource.collection.records.get(key)
        return record is None or record.uid != uid

    def _waits_for_dependents(self, uid: str) -> bool:
        """Whether the object with this uid is being deleted in the foreground."""
        place = self._places.get(uid)
        record = place[0].records.get(place[1]) if place is not None else None
        return record is not None and record.deleting and FOREGROUND in record.finalizers

    async def _examine(self, resource: Resource, record: Record) -> None:
        """Delete a dependent without owners left; else remove the references to absent ones."""
        references = record.decode()["metadata"].get("ownerReferences") or []
        gone: list[dict[str, Any]] = []
        waited_for = False
        for reference in references:
            try:
                if self._is_gone(reference, record):
                    gone.append(reference)
                elif self._waits_for_dependents(reference.get("uid", "")):
                    waited_for = True
                    gone.append(reference)
            except _ForeignOwnerError:
                return  # as on the real server, the object is left alone
        if not gone:
            return
        if len(gone) < len(references):
            await self._remove_items(resource, record, "ownerReferences", gone.__contains__)
            return
        has_dependents = bool(self._dependents.get(record.uid))
        if waited_for and has_dependents:
            await self._unblock_cycle(resource, record)
        foreground = FOREGROUND in record.finalizers or (waited_for and has_dependents)
        policy = "Orphan" if ORPHAN in record.finalizers else "Background"
        await self._delete(resource, record, "Foreground" if foreground else policy)

    async def _unblock_cycle(self, resource: Resource, record: Record) -> None:
        """Let the owners of an object not wait for it if one of them may be its dependent."""
        dependents = self._dependents_of(record)
        if any(held.deleting and FOREGROUND in held.finalizers for _, held in dependents):

            async def unblock(obj: dict[str, Any]) -> dict[str, Any]:
                for reference in obj["metadata"].get("ownerReferences") or ():
                    reference["blockOwnerDeletion"] = False
                return obj

            await self._update(resource, record, unblock)

    # -- objects that are being deleted ------------------------------------------------------

    async def _continue_deletion(self, resource: Resource, record: Record) -> None:
        if ORPHAN in record.finalizers:
            await self._orphan(resource, record)
        elif FOREGROUND in record.finalizers:
            await self._foreground(resource, record)
        if resource.qualified_name == "namespaces":
            await self._empty_namespace(resource, record)
        elif CLEANUP in record.finalizers:
            await self._empty_definition(resource, record)

    async def _orphan(self, resource: Resource, record: Record) -> None:
        for dependent, held in self._dependents_of(record):
            await self._remove_items(
                dependent,
                held,
                "ownerReferences",
                lambda reference: reference.get("uid") == record.uid,
            )
        await self._drop_finalizer(resource, record, ORPHAN)

    async def _foreground(self, resource: Resource, record: Record) -> None:
        blocked = False
        for dependent, held in self._dependents_of(record):
            blocked |= record.uid in held.blocked
            if not held.deleting:
                self._add((dependent.collection, held.key))
        if not blocked:
            await self._drop_finalizer(resource, record, FOREGROUND)

    def _dependents_of(self, record: Record) -> list[tuple[Resource, Record]]:
        found: list[tuple[Resource, Record]] = []
        for collection, key in self._dependents.get(record.uid, ()):
            dependent = self._catalog.of_collection(collection)
            held = collection.records.get(key)
            if dependent is not None and held is not None:
                found.append((dependent, held))
        return found

    async def _empty_namespace(self, resource: Resource, record: Record) -> None:
        left = await self._delete_all(
            (other, held)
            for other in self._catalog
            if other.namespaced and "delete" in other.verbs
            for held in list(other.collection.scan(f"{record.name}/"))
        )
        if left:
            return
        if resource.collection.records.get(record.key) is not record:
            self._add((resource.collection, record.key))
            return
        obj = record.decode()
        finalizers = obj["spec"].get("finalizers") or []
        kept = [name for name in finalizers if name != "kubernetes"]
        if not kept and not record.finalizers:
            self._storage.remove(resource.collection, record.key)
        elif kept != finalizers:
            obj["spec"]["finalizers"] = kept
            self._storage.put(resource.collection, record.key, obj)

    async def _empty_definition(self, resource: Resource, record: Record) -> None:
        spec = record.decode()["spec"]
        defined = self._catalog.resource(spec["group"], spec["names"]["plural"])
        if defined is not None and defined.strategy.custom:
            content = list(defined.collection.records.values())
            if await self._delete_all((defined, held) for held in content):
                return
        await self._drop_finalizer(resource, record, CLEANUP)

    async def _delete_all(self, content: Iterable[tuple[Resource, Record]]) -> bool:
        """Delete the content of a namespace or definition; return whether some is left.

        Raises:
            StatusError: the last failure, after the others were deleted.
        """
        left = False
        failure: StatusError | None = None
        for resource, held in content:
            try:
                if not held.deleting:
                    await self._delete_content(resource, held)
            except StatusError as error:
                failure = error
            left |= held.key in resource.collection.records
        if failure is not None:
            raise failure
        return left

    # -- writes ------------------------------------------------------------------------------

    @staticmethod
    def _target(resource: Resource, record: Record) -> Target:
        served = resource.versions[resource.storage_version]
        return Target(served, record.namespace, record.name)

    async def _delete(self, resource: Resource, record: Record, policy: str) -> None:
        sent = {"preconditions": {"uid": record.uid}, "propagationPolicy": policy}
        origin = Origin(_GARBAGE_COLLECTOR, sent)
        options = DeleteOptions(propagation=policy, uid=record.uid, origin=origin)
        await self._writer.delete(self._target(resource, record), options)

    async def _delete_content(self, resource: Resource, record: Record) -> None:
        options = DeleteOptions(
            propagation="Background",
            # There is no kubelet that would end the grace period of a pod.
            grace=0,
            uid=record.uid,
            one_of_many=True,
            origin=Origin(_NAMESPACE_CONTROLLER, {"propagationPolicy": "Background"}),
        )
        await self._writer.delete(self._target(resource, record), options)

    async def _remove_items(
        self, resource: Resource, record: Record, name: str, unwanted: Callable[[Any], bool]
    ) -> None:
        async def changed(obj: dict[str, Any]) -> dict[str, Any]:
            metadata = obj["metadata"]
            metadata[name] = [item for item in metadata.get(name) or () if not unwanted(item)]
            return obj

        await self._update(resource, record, changed)

    async def _update(self, resource: Resource, record: Record, change: Change) -> None:
        # Writes to CRDs are internal and skip admission.
        is_own = resource.qualified_name == "customresourcedefinitions.apiextensions.k8s.io"
        origin = None if is_own else Origin(_GARBAGE_COLLECTOR)
        options = WriteOptions(field_validation="Ignore", origin=origin)
        await self._writer.update(self._target(resource, record), change, options, patch=True)

    async def _drop_finalizer(self, resource: Resource, record: Record, name: str) -> None:
        await self._remove_items(resource, record, "finalizers", name.__eq__)
