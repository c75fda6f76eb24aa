"""The API server without HTTP: storage, catalog of resources, admission, and controllers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import msgspec

from appsdk_operator.apiserver._admission import webhook_configurations
from appsdk_operator.apiserver._admission.admission import WebhookAdmission
from appsdk_operator.apiserver._admission.compilation import CompileAhead
from appsdk_operator.apiserver._auth import rbac_objects
from appsdk_operator.apiserver._auth.service_account_tokens import ServiceAccountTokens
from appsdk_operator.apiserver._builtin import decoding, kinds
from appsdk_operator.apiserver._builtin.priorities import SYSTEM_CLASSES
from appsdk_operator.apiserver._builtin.service_addresses import ServiceAddresses
from appsdk_operator.apiserver._controllers.garbage_collector import GarbageCollector
from appsdk_operator.apiserver._controllers.kubernetes_service import KubernetesService
from appsdk_operator.apiserver._crds import compiled_schemas
from appsdk_operator.apiserver._crds.conversion_webhooks import ConversionWebhooks
from appsdk_operator.apiserver._crds.crds import CRDController, crd_strategy
from appsdk_operator.apiserver._managed_fields.entries import SERVER
from appsdk_operator.apiserver._registry.writes import Target, WriteOptions, Writer
from appsdk_operator.apiserver._storage.first_writes import FirstWrites
from appsdk_operator.apiserver._storage.resources import Catalog, Resource, ServedVersion
from appsdk_operator.apiserver._storage.storage import Collection, Event, Storage
from appsdk_operator.apiserver._storage.watch import WatchHub
from appsdk_operator.apiserver._values.run_sync import run_sync
from appsdk_operator.apiserver._values.status import already_exists
from appsdk_operator.apiserver._webhooks.webhook_client import WebhookClient
from appsdk_operator.runtime import Clock

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


@final
class Core:
    """The state of a cluster; it outlives a restart of the server."""

    def __init__(
        self, *, clock: Clock, history: int, services: Mapping[str, str] | None = None
    ) -> None:
        """A new cluster with the built-in kinds and the namespaces that every cluster has."""
        self.clock = clock
        self.storage: Storage = Storage(history=history)
        self.catalog: Catalog = Catalog()
        self.writer: Writer = Writer(self.storage, self.catalog, clock)
        self.webhook_client: WebhookClient = WebhookClient(services)
        self.admission: WebhookAdmission = WebhookAdmission(self.storage, self.webhook_client)
        self._compile_ahead = CompileAhead(self.admission)
        self.writer.admission = self._compile_ahead
        schemas = compiled_schemas.SHARED
        self.hub: WatchHub | None = None
        self.garbage_collector: GarbageCollector = GarbageCollector(
            self.storage, self.catalog, self.writer
        )
        self.service_account_tokens: ServiceAccountTokens = ServiceAccountTokens(
            self.storage, clock
        )
        self.event_handlers: list[Callable[[Collection, Event], None]] = []
        self._crds_strategy = crd_strategy(clock, schemas)
        overrides = {
            "customresourcedefinitions.apiextensions.k8s.io": self._crds_strategy,
            **rbac_objects.STRATEGIES,
            **webhook_configurations.STRATEGIES,
        }
        addresses = ServiceAddresses()
        kinds.install(self.catalog, self.storage, addresses, overrides)
        self.event_handlers.append(addresses.on_event)
        self._crd_controller = CRDController(
            self.storage, self.catalog, clock, self._end_watches, self.writer.fields, schemas
        )
        self._crds = self.served(
            "apiextensions.k8s.io", "v1", "customresourcedefinitions"
        ).resource.collection
        conversion_webhooks = ConversionWebhooks(self.catalog, self._crds, self.webhook_client)
        self.event_handlers.append(conversion_webhooks.on_event)
        self._service = KubernetesService(self.create_own, self.served)
        self.storage.on_event = self._on_event
        self.first_writes: FirstWrites = FirstWrites(self.storage, clock, self.writer.rng)
        self.first_writes.write(b"objects of every cluster", self._create_objects)

    def _create_objects(self) -> None:
        """Create the objects that every cluster has."""
        for name in _NAMESPACES:
            labels = {"kubernetes.io/metadata.name": name}
            self.create_own("", "v1", "namespaces", {"metadata": {"name": name, "labels": labels}})
        for priority_class in SYSTEM_CLASSES:
            self.create_own("scheduling.k8s.io", "v1", "priorityclasses", priority_class)

    def served(self, group: str, version: str, plural: str) -> ServedVersion:
        """The served version of a resource.

        Raises:
            LookupError: it is not served.
        """
        found = self.catalog.find(group, version, plural)
        if found is None:
            raise LookupError(f"{plural}.{version}.{group} is not served: apply its CRD first")
        return found

    def create(
        self,
        group: str,
        version: str,
        plural: str,
        obj: dict[str, Any],
        namespace: str = "",
        *,
        manager: str | None = None,
    ) -> None:
        """Create an object, without authorization or admission."""
        served = self.served(group, version, plural)
        obj["apiVersion"] = served.api_version
        options = WriteOptions(field_validation="Ignore", manager=manager)
        run_sync(self.writer.create(Target(served, namespace), obj, options))

    def create_own(
        self, group: str, version: str, plural: str, obj: Mapping[str, Any], namespace: str = ""
    ) -> None:
        """Create an object that every cluster has; its kind and its defaults are filled in."""
        served = self.served(group, version, plural)
        obj = {"kind": served.resource.kind, "apiVersion": served.api_version, **_copy(obj)}
        decoding.fit(served, obj)
        self.create(group, version, plural, obj, namespace, manager=SERVER)

    def create_definitions(self, crds: Iterable[Mapping[str, Any]]) -> None:
        """Create CustomResourceDefinitions, which serves their resources."""
        definitions = [_copy(crd) for crd in crds]
        if definitions:
            key = b"definitions:" + msgspec.json.encode(definitions)
            self.first_writes.write(key, lambda: self._create_definitions(definitions))

    def _create_definitions(self, crds: list[dict[str, Any]]) -> None:
        for crd in crds:
            name = crd.get("metadata", {}).get("name", "")
            if name in self._crds.records:
                raise already_exists("customresourcedefinitions", "apiextensions.k8s.io", name)
            self.create("apiextensions.k8s.io", "v1", "customresourcedefinitions", crd)

    def compile_definitions(self, crds: Iterable[Mapping[str, Any]]) -> None:
        """Compile CustomResourceDefinitions for :meth:`create_definitions`, in any thread."""
        compile_ahead = self._crds_strategy.compile_ahead
        assert compile_ahead is not None
        for crd in crds:
            # What is malformed is refused by the creation, which says why.
            with contextlib.suppress(Exception):
                compile_ahead(_copy(crd), None)

    def attach(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> WatchHub:
        """Run watches and controllers on ``loop``, for a server on ``host`` and ``port``."""
        self.hub = WatchHub(self.storage, loop)
        self._compile_ahead.start()
        self.garbage_collector.resume(loop.create_task)
        self._service.resume(host, port, loop)
        if port:
            self._service.create_missing()
        else:  # the only port that many servers have
            self.first_writes.write(f"service {host}".encode(), self._service.create_missing)
        return self.hub

    async def detach(self) -> None:
        """Stop watches and controllers; the state stays."""
        self.garbage_collector.pause()
        self._compile_ahead.stop()
        self._service.pause()
        await self.webhook_client.close()
        self.hub = None

    def _on_event(self, collection: Collection, event: Event) -> None:
        if self.hub is not None:
            self.hub.schedule_flush(collection)
        self.garbage_collector.on_event(collection, event)
        self._service.on_event(collection, event)
        self.admission.on_event(collection)
        if collection is self._crds:
            if self.first_writes.is_repeating:
                self._crd_controller.on_repeated_event(event)
            else:
                self._crd_controller.on_event(event)
        for handle in self.event_handlers:
            handle(collection, event)

    def _end_watches(self, resource: Resource) -> None:
        if self.hub is not None:
            self.hub.end_collection(resource.collection)


def _copy(value: Any) -> Any:
    """A deep copy in plain dicts and lists; the caller may change the original."""
    if isinstance(value, Mapping):
        return {str(key): _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    return value
