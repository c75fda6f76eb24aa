"""The API server without its socket: storage, what is served, and the controllers behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

from appsdk_operator.apiserver._admission import webhook_configurations
from appsdk_operator.apiserver._admission.admission import Admission
from appsdk_operator.apiserver._auth import rbac_objects
from appsdk_operator.apiserver._auth.accounts import AccountTokens
from appsdk_operator.apiserver._builtin import kinds
from appsdk_operator.apiserver._controllers.collector import Collector
from appsdk_operator.apiserver._crds.conversion_webhooks import Conversions
from appsdk_operator.apiserver._crds.crds import Definitions, definition_strategy
from appsdk_operator.apiserver._managed_fields.entries import SERVER
from appsdk_operator.apiserver._registry.writes import Target, WriteOptions, Writer
from appsdk_operator.apiserver._storage.resources import Catalog, Resource, ServedVersion
from appsdk_operator.apiserver._storage.storage import Collection, Event, Storage
from appsdk_operator.apiserver._storage.watch import WatchHub
from appsdk_operator.apiserver._values.run_sync import run_sync
from appsdk_operator.apiserver._values.status import already_exists
from appsdk_operator.apiserver._webhooks.calls import Caller
from appsdk_operator.runtime import Clock

__all__ = ["Core"]

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


@final
class Core:
    """Everything that outlives a restart of the server."""

    def __init__(
        self, *, clock: Clock, history: int, services: Mapping[str, str] | None = None
    ) -> None:
        """A fresh cluster: the built-in kinds and the namespaces every cluster has."""
        self.clock = clock
        self.storage: Storage = Storage(history=history)
        self.catalog: Catalog = Catalog()
        self.writer: Writer = Writer(self.storage, self.catalog, clock)
        self.caller: Caller = Caller(services)
        self.admission: Admission = Admission(self.storage, self.caller)
        self.writer.gate = self.admission
        self.hub: WatchHub | None = None
        self.collector: Collector = Collector(self.storage, self.catalog, self.writer)
        self.accounts: AccountTokens = AccountTokens(self.storage, clock)
        self.followers: list[Callable[[Collection, Event], None]] = []
        overrides = {
            "customresourcedefinitions.apiextensions.k8s.io": definition_strategy(clock),
            **rbac_objects.RULES,
            **webhook_configurations.RULES,
        }
        kinds.install(self.catalog, self.storage, overrides)
        self._definitions = Definitions(
            self.storage, self.catalog, clock, self._withdrawn, self.writer.fields
        )
        self._definitions_collection = self.served(
            "apiextensions.k8s.io", "v1", "customresourcedefinitions"
        ).resource.collection
        conversions = Conversions(
            self.catalog, self._definitions_collection, self.caller, self._withdrawn
        )
        self.followers.append(conversions.notice)
        self.storage.on_event = self._on_event
        for name in _NAMESPACES:
            labels = {"kubernetes.io/metadata.name": name}
            namespace = {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            self.create("", "v1", "namespaces", namespace, manager=SERVER)

    def served(self, group: str, version: str, plural: str) -> ServedVersion:
        """A resource that is certainly served.

        Raises:
            LookupError: it is not.
        """
        found = self.catalog.find(group, version, plural)
        if found is None:
            raise LookupError(f"{plural}.{version}.{group} is not served: apply its CRD first")
        return found

    def create(
        self, group: str, version: str, plural: str, obj: dict[str, Any], manager: str | None = None
    ) -> None:
        """Create a cluster-wide object; nobody is asked."""
        served = self.served(group, version, plural)
        obj["apiVersion"] = served.api_version
        options = WriteOptions(field_validation="Ignore", manager=manager)
        run_sync(self.writer.create(Target(served), obj, options))

    def create_definitions(self, crds: Iterable[Mapping[str, Any]]) -> None:
        """Serve what CustomResourceDefinitions define."""
        for crd in crds:
            name = crd.get("metadata", {}).get("name", "")
            if name in self._definitions_collection.records:
                raise already_exists("customresourcedefinitions", "apiextensions.k8s.io", name)
            plural = "customresourcedefinitions"
            self.create("apiextensions.k8s.io", "v1", plural, _copy(crd))

    def attach(self, loop: asyncio.AbstractEventLoop) -> WatchHub:
        """Deliver events and clear away on ``loop``."""
        self.hub = WatchHub(self.storage, loop)
        self.collector.resume(loop.create_task)
        return self.hub

    async def detach(self) -> None:
        """Keep the state and do nothing with it."""
        self.collector.pause()
        await self.caller.close()
        self.hub = None

    def _on_event(self, collection: Collection, event: Event) -> None:
        if self.hub is not None:
            self.hub.schedule_flush(collection)
        self.collector.notice(collection, event)
        self.admission.notice(collection)
        if collection is self._definitions_collection:
            self._definitions.notice(event)
        for follow in self.followers:
            follow(collection, event)

    def _withdrawn(self, resource: Resource) -> None:
        if self.hub is not None:
            self.hub.end_collection(resource.collection)


def _copy(value: Any) -> Any:
    """A deep copy in plain dicts and lists, so that what the caller gave stays the caller's."""
    if isinstance(value, Mapping):
        return {str(key): _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    return value
