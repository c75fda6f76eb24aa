"""What the objects of an App's manifests are made of: values of the options, or Helm's."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping
from typing import Any, Final

import attrs

from appsdk_operator.app import App
from appsdk_operator.project._manifests.options import ManifestOptions
from appsdk_operator.project._manifests.tree import (
    OMITTED,
    Block,
    Commented,
    Each,
    Expression,
    Node,
    When,
)
from appsdk_operator.webhooks import ManagedCertificates, WebhookServerOptions

PORTS: Final[Mapping[str, int]] = {"metrics": 8080, "probes": 8081, "webhooks": 9443}
"""The ports of the container, by their names."""
PLACEHOLDER: Final = "the-namespace-of-the-release"
"""The namespace in objects that are made for a chart before Helm's expression takes its place."""
_GRACE: Final = 30.0
_LONGEST_GRACE: Final = 300
_MARGIN: Final = 10
_CERTIFICATE_FOLDER: Final = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - in a pod


@attrs.frozen(kw_only=True)
class Deployed:
    """An App, and what its options mean for manifests."""

    app: App
    options: ManifestOptions

    @property
    def name(self) -> str:
        """The name of most objects."""
        return self.app.name

    @property
    def namespace(self) -> str:
        """The namespace of the operator."""
        return self.options.namespace or self.name

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its objects, by which its pods are selected as well."""
        return {"app.kubernetes.io/name": self.name}

    @property
    def target(self) -> str:
        """What the command ``run`` gets."""
        return self.options.target or self.name.replace("-", "_")

    @property
    def is_elected(self) -> bool:
        """Whether one replica works at a time."""
        if self.options.leader_election is not None:
            return self.options.leader_election
        return self.app.options.leader_election is not None or (self.options.replicas or 1) > 1

    @property
    def replicas(self) -> int:
        """How many pods there are."""
        return self.options.replicas or (2 if self.is_elected else 1)

    @property
    def is_alone(self) -> bool:
        """Whether no two pods may run at once, because nothing elects a leader."""
        return not self.is_elected and self.replicas == 1

    @property
    def memory(self) -> str:
        """The memory limit of the container."""
        options = self.options
        limit = memory_limit(options.objects, options.object_size, options.extra_memory)
        return f"{limit}Mi"

    @property
    def grace(self) -> int:
        """Seconds between the signal to stop and the end of a pod."""
        limit = self.app.options.graceful_shutdown_timeout
        if limit is None or not 0 <= limit < math.inf:
            return _LONGEST_GRACE
        return math.ceil(limit) + _MARGIN

    @property
    def has_webhooks(self) -> bool:
        """Whether an API server calls it."""
        return bool(self.app.webhooks.rules) or self.converts

    @property
    def converts(self) -> bool:
        """Whether it converts objects of its kinds between versions."""
        return any("conversion" in crd["spec"] for crd in self.app.crds())

    @property
    def service(self) -> str:
        """The name of the Service of its webhooks."""
        return f"{self.name}-webhooks"

    @property
    def secret(self) -> str:
        """The name of the Secret with the certificate of its webhooks."""
        return f"{self.name}-webhooks-tls"

    @property
    def certificates(self) -> str:
        """Where the certificate is from; empty without webhooks."""
        if not self.has_webhooks:
            return ""
        if self.options.certificates:
            return self.options.certificates
        return "managed" if self.declares_certificates else "cert-manager"

    @property
    def declares_certificates(self) -> bool:
        """Whether the App says that it makes the certificates, and so what it needs for them."""
        server = self.app.options.webhook_server
        return isinstance(getattr(server, "certificates", None), ManagedCertificates)

    @property
    def has_server_options(self) -> bool:
        """Whether ``run`` may change the webhook server, which is none of the App's own making."""
        server = self.app.options.webhook_server
        return server is None or isinstance(server, WebhookServerOptions)

    @property
    def makes_certificates(self) -> bool:
        """Whether ``run`` needs an option to make the certificates, as the App does not."""
        server = self.app.options.webhook_server or WebhookServerOptions()
        return (
            self.certificates == "managed"
            and isinstance(server, WebhookServerOptions)
            and server.certificates is None
        )

    @property
    def certificate_folder(self) -> str:
        """Where the container expects ``tls.crt`` and ``tls.key``."""
        server = self.app.options.webhook_server
        if isinstance(server, WebhookServerOptions) and server.tls and server.tls.cert_file:
            return posixpath.dirname(server.tls.cert_file)
        return _CERTIFICATE_FOLDER


@attrs.frozen(kw_only=True)
class Values:
    """What may differ from one installation to the next."""

    namespace: Node
    image: Node
    pull_policy: Node
    pull_secrets: Node
    replicas: Node
    resources: Node
    priority_class: Node
    log_level: Node
    log_format: Node
    extra_arguments: Node
    environment: Node
    node_selector: Node
    tolerations: Node
    affinity: Node
    pod_annotations: Node
    account_annotations: Node
    monitoring_namespace: Node


def resources(deployed: Deployed) -> dict[str, Any]:
    """The resources of the container."""
    return {
        "requests": {"cpu": deployed.options.cpu, "memory": deployed.memory},
        "limits": {"memory": deployed.memory},
    }


def resources_comment(deployed: Deployed) -> tuple[str, ...]:
    """Where the resources are from."""
    options = deployed.options
    held = f"{options.objects} objects of {options.object_size} bytes"
    return (
        f"Memory for {held} in informers, and {options.extra_memory} MiB for what is the",
        "operator's own. No CPU limit: it would slow the operator down on an idle node.",
    )


def for_kustomize(deployed: Deployed) -> Values:
    """The values of the options; overlays change the rest."""
    options = deployed.options
    return Values(
        namespace=deployed.namespace,
        image=image_of(deployed),
        pull_policy=OMITTED,
        pull_secrets=OMITTED,
        replicas=deployed.replicas,
        resources=Commented(resources(deployed), resources_comment(deployed)),
        priority_class=options.priority_class or OMITTED,
        log_level="--log-level=info",
        log_format="--log-format=json",
        extra_arguments=OMITTED,
        environment=OMITTED,
        node_selector=OMITTED,
        tolerations=OMITTED,
        affinity=OMITTED,
        pod_annotations=OMITTED,
        account_annotations=OMITTED,
        monitoring_namespace=options.monitoring_namespace,
    )


def for_chart() -> Values:
    """Expressions of Helm for the keys of :func:`defaults`."""

    def optional(path: str) -> When:
        return When(path, Block(path))

    return Values(
        namespace=Expression("{{ .Release.Namespace }}"),
        image=Expression('"{{ .Values.image.repository }}:{{ .Values.image.tag }}"'),
        pull_policy=When(".Values.image.pullPolicy", Expression("{{ .Values.image.pullPolicy }}")),
        pull_secrets=optional(".Values.imagePullSecrets"),
        replicas=Expression("{{ .Values.replicas }}"),
        resources=Block(".Values.resources"),
        priority_class=When(
            ".Values.priorityClassName", Expression("{{ .Values.priorityClassName }}")
        ),
        log_level=Expression('"--log-level={{ .Values.log.level }}"'),
        log_format=Expression('"--log-format={{ .Values.log.format }}"'),
        extra_arguments=Each(".Values.extraArguments"),
        environment=optional(".Values.environment"),
        node_selector=optional(".Values.nodeSelector"),
        tolerations=optional(".Values.tolerations"),
        affinity=optional(".Values.affinity"),
        pod_annotations=optional(".Values.podAnnotations"),
        account_annotations=optional(".Values.serviceAccount.annotations"),
        monitoring_namespace=Expression("{{ .Values.monitoring.namespace }}"),
    )


def defaults(deployed: Deployed) -> dict[str, Any]:
    """The values of the chart."""
    repository, tag, digest = image_parts(image_of(deployed))
    # The template joins repository and tag by a colon, so a digest counts as part of the tag.
    tag = f"{tag or 'latest'}@{digest}" if digest else tag or "latest"
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": ""},
        "imagePullSecrets": [],
        "replicas": deployed.replicas,
        "resources": resources(deployed),
        "priorityClassName": deployed.options.priority_class,
        "log": {"level": "info", "format": "json"},
        "extraArguments": [],
        "environment": [],
        "nodeSelector": {},
        "tolerations": [],
        "affinity": {},
        "podAnnotations": {},
        "serviceAccount": {"annotations": {}},
        "crds": {"install": True, "keep": True},
        "userRoles": {"create": True},
        "podDisruptionBudget": {"create": deployed.replicas > 1},
        "networkPolicy": {"create": True},
        "monitoring": {"create": False, "namespace": deployed.options.monitoring_namespace},
    }


def image_of(deployed: Deployed) -> str:
    """The image of the operator's container."""
    return deployed.options.image or f"{deployed.name}:latest"


def image_parts(image: str) -> tuple[str, str, str]:
    """The name of an image, its tag and its digest; what it does not have is empty."""
    named, _, digest = image.partition("@")
    folder, slash, last = named.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{folder}{slash}{name}", tag, digest


def manifest(
    api_version: str,
    kind: str,
    deployed: Deployed,
    values: Values,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    spec: Node,
) -> dict[str, Node]:
    """An object in the operator's namespace, by default with its name and its labels."""
    metadata = {
        "name": name or deployed.name,
        "namespace": values.namespace,
        "labels": labels or deployed.labels,
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


_PROCESS: Final = 33.4e6
"""Bytes of a process with an informer and a watcher, without objects: docs/performance.md."""
_PER_OBJECT: Final = 550
"""Bytes that an object takes beyond its JSON: a line through the table of docs/performance.md."""
_ROOM: Final = 0.9
"""The share of the limit that is used, as in that table."""
_STEP: Final = 32
_MIB: Final = 1 << 20


def memory_limit(objects: int, object_size: int, extra: int = 0) -> int:
    """The memory limit of a container, in MiB, in steps of 32.

    Args:
        objects: the objects that its informers hold.
        object_size: their size, in bytes of JSON.
        extra: MiB for what the operator's own functions import and keep.

    >>> memory_limit(35_000, 2_000)
    160
    """
    needed = (_PROCESS + objects * (object_size + _PER_OBJECT)) / _ROOM + extra * _MIB
    return math.ceil(needed / _MIB / _STEP) * _STEP
