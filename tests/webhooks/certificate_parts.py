"""Tools for tests of managed certificates: a webhook that allows everything, and configurations."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from appsdk_operator.client import Client
from appsdk_operator.manager import HTTPResponse, HTTPServer
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import running
from appsdk_operator.webhooks import ManagedCertificates

NAMESPACE, SERVICE, SECRET = "widgets", "hooks", "hooks-tls"
Secret = kinds.core.v1.Secret
Validating = kinds.admissionregistration.v1.ValidatingWebhookConfiguration
Mutating = kinds.admissionregistration.v1.MutatingWebhookConfiguration
CRD = kinds.apiextensions.v1.CustomResourceDefinition
APIService = kinds.apiregistration.v1.APIService
ConfigMap = kinds.core.v1.ConfigMap
OURS = {"service": {"namespace": NAMESPACE, "name": SERVICE, "path": "/validate"}}


def allow(request: Any) -> HTTPResponse:
    """Allow whatever is reviewed."""
    review = json.loads(request.body)
    answer = {
        "apiVersion": review["apiVersion"],
        "kind": review["kind"],
        "response": {"uid": review["request"]["uid"], "allowed": True},
    }
    return HTTPResponse(body=json.dumps(answer).encode(), content_type="application/json")


def hooks_server(certificates: Any, *, seen: list[Any] | None = None, **options: Any) -> HTTPServer:
    """A server that allows everything on any path, and notes the requests in ``seen``."""
    server = HTTPServer(
        "127.0.0.1:0", name="hooks", certificates=certificates, metrics=Metrics(), **options
    )

    def answer(request: Any) -> HTTPResponse:
        if seen is not None:
            seen.append(request)
        return allow(request)

    server.add_handler("/", answer, methods=["POST"], is_prefix=True)
    return server


def managed(client: Any, **options: Any) -> ManagedCertificates:
    options.setdefault("inject", [(Validating, "widgets")])
    options.setdefault("metrics", Metrics())
    options.setdefault("namespace", NAMESPACE)
    return ManagedCertificates(SERVICE, SECRET, client=client, **options)


def webhook(name: str = "v1.widgets.test", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "clientConfig": dict(OURS),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"hooks": "yes"}},
        **fields,
    }


def create_namespace(client: Client) -> None:
    """The namespace in which the webhooks are called."""
    metadata = {"name": NAMESPACE, "labels": {"hooks": "yes"}}
    client.create(MutableObject(kinds.core.v1.Namespace, {"metadata": metadata}))


def configuration(
    *webhooks: dict[str, Any], kind: Any = Validating, name: str = "widgets"
) -> MutableObject:
    return MutableObject.new(kind, name, webhooks=list(webhooks) or [webhook()])


def gadgets() -> MutableObject:
    """A CRD with a conversion webhook."""
    schema = {"openAPIV3Schema": {"type": "object"}}
    return MutableObject.new(
        CRD,
        "gadgets.test.example",
        spec={
            "group": "test.example",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": schema},
                {"name": "v2", "served": True, "storage": False, "schema": schema},
            ],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": dict(OURS)},
            },
        },
    )


def metrics_service() -> MutableObject:
    """An APIService of the same service."""
    return MutableObject.new(
        APIService,
        "v1.metrics.test",
        spec={
            "group": "metrics.test",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"namespace": NAMESPACE, "name": SERVICE},
        },
    )


def bundle_of(
    client: Client, index: int = 0, kind: Any = Validating, name: str = "widgets"
) -> bytes:
    config = client.get(kind, name).to_dict()["webhooks"][index]["clientConfig"]
    return base64.b64decode(config.get("caBundle") or "")


def secret_data(client: Client) -> dict[str, bytes]:
    data = client.get(Secret, SECRET, namespace=NAMESPACE).to_dict().get("data") or {}
    return {key: base64.b64decode(value) for key, value in data.items()}


@contextmanager
def served(certificates: ManagedCertificates, **options: Any) -> Iterator[HTTPServer]:
    """A server with these certificates that runs, and is ready."""
    server = hooks_server(certificates, **options)
    with ExitStack() as exits:
        stop = exits.enter_context(running(server))
        assert certificates.wait_until_ready(stop, 60.0), certificates.health().text
        yield server
