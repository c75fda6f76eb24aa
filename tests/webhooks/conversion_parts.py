"""A kind in three versions, a conversion webhook, and servers that ask it."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import attrs

from appsdk_operator import Client
from appsdk_operator.apiserver import APIServer
from appsdk_operator.client import ApiError, ClientConfig, Conflict, TransportError
from appsdk_operator.resource import (
    ConversionError,
    Kind,
    MutableObject,
    Object,
    Versions,
    custom_resource_definition,
)
from appsdk_operator.resource.kinds import apiextensions
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import ControlPlane, install_crds, running
from appsdk_operator.webhooks import ConversionWebhook, SelfSigned, WebhookServer
from tests.waiting import eventually

CRD = apiextensions.v1.CustomResourceDefinition
_numbers = itertools.count(1)


@attrs.frozen
class Spec:
    """The spec of v1, the hub."""

    size: int = 1
    note: str = ""


@attrs.frozen
class AlphaSpec:
    """The spec of v1alpha1, which has no note."""

    size: str = "1"


@attrs.frozen
class Status:
    """The status of v1 and v1alpha1."""

    ready: bool = False


def up(old: Object[AlphaSpec, Status], new: MutableObject[Spec, Status]) -> None:
    if not old.spec.size.isdigit():
        raise ConversionError(f"spec.size {old.spec.size!r} is no number")
    new.spec = Spec(size=int(old.spec.size))


def down(old: Object[Spec, Status], new: MutableObject[AlphaSpec, Status]) -> None:
    if old.spec.size == 666:
        raise RuntimeError("password=hunter2")
    new.spec = AlphaSpec(size=str(old.spec.size))


def to_v2(old: Object[Spec], new: MutableObject) -> None:
    new.spec["width"] = new.spec.pop("size", 1)


def from_v2(old: Object, new: MutableObject[Spec]) -> None:
    spec = dict(old["spec"])
    new["spec"] = {"size": spec.pop("width", 1), **spec}


@attrs.frozen
class Widgets:
    """One kind of its own group, in three versions."""

    group: str
    v1: Kind[Spec, Status]
    v1alpha1: Kind[AlphaSpec, Status]
    v2: Kind
    versions: Versions[Spec, Status]

    @classmethod
    def make(cls) -> Widgets:
        group = f"case{next(_numbers)}.example.com"
        v1 = Kind(group=group, version="v1", kind="Widget", spec=Spec, status=Status)
        old = Kind(group=group, version="v1alpha1", kind="Widget", spec=AlphaSpec, status=Status)
        new = Kind(group=group, version="v2", kind="Widget")
        versions = (
            Versions(v1)
            .older(old, up=up, down=down, deprecated="use v1 of widgets", lossless=True)
            .newer(new, up=to_v2, down=from_v2)
        )
        return cls(group, v1, old, new, versions)

    def crd(self, **options: Any) -> MutableObject:
        columns = [{"name": "Size", "type": "string", "jsonPath": ".spec.size"}]
        by_version = {"v1": columns, "v1alpha1": columns}
        return custom_resource_definition(self.versions, printer_columns=by_version, **options)


@attrs.frozen
class Lane:
    """An API server, a conversion webhook that it can reach, and a client."""

    name: Literal["embedded", "real"]
    server: Any
    webhook: ConversionWebhook
    hooks: WebhookServer
    client: Client
    metrics: Metrics
    """Those of the webhooks."""

    def install(self, widgets: Widgets, **options: Any) -> MutableObject:
        """Have the server serve the kind, store it as told, and the webhook convert it."""
        if widgets.versions not in self.webhook.versions:
            self.webhook.add(widgets.versions)
        crd = widgets.crd(**options)
        pem = certificates().pem
        url = self.hooks.url
        install_crds(self.client, [crd], webhook_url=url, webhook_ca=pem, timeout=30.0)
        if self.name == "real":
            # Its storage is replaced some moments after its CRD.
            eventually(lambda: self._is_stored_in(options.get("storage", widgets.v1)))
        return crd

    def _is_stored_in(self, kind: Kind) -> bool:
        """Whether an object of that version is stored without a conversion."""
        draft = widget(kind, "probe", {"v1alpha1": {"size": "1"}}.get(kind.version, {}))
        before = self._conversions
        try:
            self.client.create(draft, dry_run=True)
        except (ApiError, TransportError):
            return False
        return self._conversions == before

    @property
    def _conversions(self) -> float:
        name = "controller_runtime_webhook_requests_total"
        counts = (self.metrics.value(name, webhook="/convert", code=c) for c in ("200", "500"))
        return sum(count or 0.0 for count in counts)

    def crd(self, widgets: Widgets) -> Object:
        """The CRD as the server has it."""
        return self.client.get(CRD, widgets.v1.qualified_name)

    def change_crd(self, widgets: Widgets, change: Callable[[MutableObject], None]) -> None:
        """Change the CRD, whose conditions a real server may write at the same moment."""

        def is_written() -> bool:
            draft = self.crd(widgets).mutable_copy()
            change(draft)
            try:
                self.client.update(draft)
            except Conflict:
                return False
            return True

        eventually(is_written)


@functools.cache
def certificates() -> SelfSigned:
    """The certificate of all webhook servers here."""
    return SelfSigned()


def embedded() -> APIServer:
    """The embedded server, which is to be started."""
    return APIServer(tls=True, token="let-me-in")


@contextlib.contextmanager
def lane_of(server: Any) -> Iterator[Lane]:
    """A running server with a webhook and a client, which end before it."""
    is_real = isinstance(server, ControlPlane)
    metrics = Metrics()
    hooks = WebhookServer("127.0.0.1:0", certificates=certificates(), metrics=metrics)
    webhook = ConversionWebhook()
    hooks.add("/convert", webhook)
    config = (
        server.client_config()
        if is_real
        else ClientConfig(server=server.url, token="let-me-in", ca_data=server.ca_data)
    )
    with running(hooks), Client(config, metrics=Metrics()) as client:
        name: Literal["embedded", "real"] = "real" if is_real else "embedded"
        yield Lane(name, server, webhook, hooks, client, metrics)


def widget(kind: Kind, name: str, spec: Any, **metadata: Any) -> MutableObject:
    """A widget in the namespace ``default``."""
    return MutableObject.new(kind, name, namespace="default", spec=spec, metadata=metadata)
