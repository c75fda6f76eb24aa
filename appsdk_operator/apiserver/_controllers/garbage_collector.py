"""The garbage collector, the namespace controller and the CRD finalizer of a real cluster.

Deletes dependents of deleted owners (background, foreground and orphan), the content of a deleted
namespace, and the objects of a deleted CustomResourceDefinition. Finalizers are respected. As on a
real cluster it works asynchronously: in later iterations of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, final

from appsdk_operator.apiserver._crds.crds import CLEANUP
from appsdk_operator.apiserver._registry.deletion import FOREGROUND, ORPHAN
from appsdk_operator.apiserver._registry.write_requests import Origin
from appsdk_operator.apiserver._registry.writes import (
    DeleteOptions,
    Target,
    WriteOptions,
    Writer,
)
from appsdk_operator.apiserver._storage.resources import Catalog, Resource
from appsdk_operator.apiserver._storage.storage import Collection, Event, Record, Storage
from appsdk_operator.apiserver._values.status import RefusedError, StatusError
from appsdk_operator.apiserver._values.users import AUTHENTICATED, User, service_account_groups

__all__ = ["GarbageCollector"]

# Tasks per iteration of the event loop.
_PER_TURN: Final = 64
# Seconds before a deletion that a webhook denied is tried again.
_RETRY: Final = 1.0


def _account(name: str) -> User:
    username = f"system:serviceaccount:kube-system:{name}"
    return User(username, groups=(*service_account_groups("kube-system"), AUTHENTICATED))


# The service accounts of the controllers of a real cluster.
_GARBAGE_COLLECTOR: Final = _account("generic-garbage-collector")
_NAMESPACE_CONTROLLER: Final = _account("namespace-controller")

_Task: TypeAlias = tuple[str, Collection, str]
_Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@final
class GarbageCollector:
    """Reacts to every change and deletes objects that have lost their owner or namespace."""

    def __init__(self, storage: Storage, catalog: Catalog, writer: Writer) -> None:
        """It does nothing before :meth:`resume`."""
        self._storage = storage
        self._catalog = catalog
        self._writer = writer
        self._dependents: dict[str, dict[tuple[Collection, str], None]] = {}
        self._tasks: dict[_Task, None] = {}
        self._refused: dict[_Task, None] = {}
        """The tasks that are tried again after a while."""
        self._spawn: _Spawn | None = None
        self._work: asyncio.Task[None] | None = None

    def resume(self, spawn: _Spawn) -> None:
        """Work through queued tasks, in asyncio tasks that ``spawn`` starts."""
        self._spawn = spawn
        self._work = None
        self._wake()

    def pause(self) -> None:
        """Only queue tasks, until :meth:`resume`."""
        self._spawn = None
        # The timers end with the event loop.
        self._tasks.update(self._refused)
        self._refused.clear()

    def on_event(self, collection: Collection, event: Event) -> None:
        """Queue the tasks that follow from a change."""
        record, previous = event.record, event.previous
        gone = event.type == "DELETED"
        self._index(collection, record, previous, gone=gone)
        if gone:
            for dependent, key in self._dependents.get(record.uid, ()):
                self._add("examine", dependent, key)
            self._after_deletion(collection, record)
            return
        if record.owners:
            self._add("examine", collection, record.key)
        if record.deleting:
            self._add("deleting", collection, record.key)

    def _index(
        self, collection: Collection, record: Record, previous: Record | None, *, gone: bool
    ) -> None:
        now = () if gone else record.owners
        before = previous.owners if previous is not None else ()
        if now == before:
            return
        entry = (collection, record.key)
        for uid in before:
            found = self._dependents.get(uid)
            if found is not None:
                found.pop(entry, None)
                if not found:
                    del self._dependents[uid]
        for uid in now:
            self._dependents.setdefault(uid, {})[entry] = None

    def _after_deletion(self, collection: Collection, record: Record) -> None:
        """Queue the owners, the namespace and the definition that may have waited for it."""
        for owner in record.decode()["metadata"].get("ownerReferences") or ():
            found = self._owner(owner, record.namespace)
            if isinstance(found, tuple):
                self._add("deleting", found[0].collection, found[1].key)
        if record.namespace:
            self._add("deleting", self._storage.collection("namespaces"), record.namespace)
        definitions = self._storage.collection("customresourcedefinitions.apiextensions.k8s.io")
        if collection.name in definitions.records:
            self._add("deleting", definitions, collection.name)

    def _add(self, what: str, collection: Collection, key: str) -> None:
        self._tasks[what, collection, key] = None
        self._wake()

    def _wake(self) -> None:
        if self._spawn is not None and self._tasks and self._work is None:
            self._work = self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._spawn is not None and self._tasks:
                for task in list(self._tasks)[:_PER_TURN]:
                    self._tasks.pop(task, None)
                    try:
                        await self._carry_out(*task)
                    except asyncio.CancelledError:
                        self._tasks[task] = None  # left to do when the server runs again
                        raise
                await asyncio.sleep(0)
        finally:
            self._work = None

    async def _carry_out(self, what: str, collection: Collection, key: str) -> None:
        record = collection.records.get(key)
        resource = self._catalog.of_collection(collection)
        if record is None or resource is None:
            return
        # The object may be invalid under the present schema, or have changed in the meantime. As
        # with the real controllers, it stays until its next change.
        with contextlib.suppress(StatusError):
            try:
                if what == "examine":
                    await self._examine(resource, record)
                else:
                    await self._continue_deletion(resource, record)
            except RefusedError:
                self._refused[what, collection, key] = None
                again = functools.partial(self._try_again, what, collection, key)
                asyncio.get_running_loop().call_later(_RETRY, again)

    def _try_again(self, what: str, collection: Collection, key: str) -> None:
        task = (what, collection, key)
        if task in self._refused:
            del self._refused[task]
            self._add(*task)

    # -- dependents --------------------------------------------------------------------------

    def _owner(self, reference: dict[str, Any], namespace: str) -> tuple[Resource, Record] | bool:
        """The owner of a reference; False when it is gone, True when its kind is unknown."""
        served = self._catalog.find_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if served is None:
            return True
        resource = served.resource
        record = resource.collection.records.get(resource.key(namespace, reference.get("name", "")))
        if record is None or record.uid != reference.get("uid"):
            return False
        return resource, record

    async def _examine(self, resource: Resource, record: Record) -> None:
        """Delete a dependent without owners left; else remove the references to absent ones."""
        references = record.decode()["metadata"].get("ownerReferences") or []
        if record.deleting or not references:
            return
        gone: list[dict[str, Any]] = []
        waited_for = False
        for reference in references:
            found = self._owner(reference, record.namespace)
            if isinstance(found, tuple) and found[1].deleting and FOREGROUND in found[1].finalizers:
                waited_for = True
                gone.append(reference)
            elif not found:
                gone.append(reference)
        if not gone:
            return
        if len(gone) < len(references):
            await self._remove_items(resource, record, "ownerReferences", gone.__contains__)
            return
        foreground = FOREGROUND in record.finalizers or (
            waited_for and bool(self._dependents.get(record.uid))
        )
        policy = "Orphan" if ORPHAN in record.finalizers else "Background"
        await self._delete(resource, record, "Foreground" if foreground else policy)

    # -- objects that are being deleted ------------------------------------------------------

    async def _continue_deletion(self, resource: Resource, record: Record) -> None:
        if not record.deleting:
            return
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
            references = held.decode()["metadata"].get("ownerReferences") or []
            blocked |= any(
                reference.get("uid") == record.uid and reference.get("blockOwnerDeletion")
                for reference in references
            )
            self._add("examine", dependent.collection, held.key)
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
        left = False
        refused: RefusedError | None = None
        for other in self._catalog:
            if not other.namespaced or "delete" not in other.verbs:
                continue
            for held in list(other.collection.scan(f"{record.name}/")):
                try:
                    if not held.deleting:
                        await self._delete_content(other, held)
                except RefusedError as error:
                    refused = error
                left |= held.key in other.collection.records
        if refused is not None:
            raise refused
        if left:
            return
        if resource.collection.records.get(record.key) is not record:
            self._add("deleting", resource.collection, record.key)
            return
        obj = record.decode()
        if record.finalizers:
            if obj["spec"].pop("finalizers", None):
                self._storage.put(resource.collection, record.key, obj)
            return
        self._storage.remove(resource.collection, record.key)

    async def _empty_definition(self, resource: Resource, record: Record) -> None:
        spec = record.decode()["spec"]
        defined = self._catalog.resource(spec["group"], spec["names"]["plural"])
        if defined is not None and defined.strategy.custom:
            for held in list(defined.collection.records.values()):
                if not held.deleting:
                    options = DeleteOptions(propagation="Background", uid=held.uid)
                    await self._writer.delete(self._target(defined, held), options)
            if defined.collection.records:
                return
        await self._drop_finalizer(resource, record, CLEANUP)

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

        # Writes to CRDs are internal and skip admission.
        is_own = resource.qualified_name == "customresourcedefinitions.apiextensions.k8s.io"
        origin = None if is_own else Origin(_GARBAGE_COLLECTOR)
        options = WriteOptions(field_validation="Ignore", origin=origin)
        await self._writer.update(self._target(resource, record), changed, options, patch=True)

    async def _drop_finalizer(self, resource: Resource, record: Record, name: str) -> None:
        await self._remove_items(resource, record, "finalizers", name.__eq__)
