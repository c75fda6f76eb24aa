"""The configurations that name a webhook's service: reads and writes their ``caBundle``."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, final
from urllib.parse import urlsplit

import attrs

from appsdk_operator.client import JsonPatch
from appsdk_operator.resource import Kind, MutableObject, Object, json_pointer, kinds
from appsdk_operator.webhooks._certificates.content import Certificate
from appsdk_operator.webhooks._certificates.issuing import certified_name, read_authorities
from appsdk_operator.webhooks._certificates.plan import Target

ANNOTATION: Final = "cert-manager.io/inject-ca-from"

_Clients = Callable[[Mapping[str, Any]], Iterator[tuple[str, Mapping[str, Any]]]]


def _webhooks(obj: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for index, webhook in enumerate(_list(obj.get("webhooks"))):
        yield f"/webhooks/{index}/clientConfig", _dict(_dict(webhook).get("clientConfig"))


def _conversion(obj: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    webhook = _dict(_dict(_dict(obj.get("spec")).get("conversion")).get("webhook"))
    yield "/spec/conversion/webhook/clientConfig", _dict(webhook.get("clientConfig"))


def _api_service(obj: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "/spec", _dict(obj.get("spec"))


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


_KINDS: Final[dict[Kind, _Clients]] = {
    kinds.admissionregistration.v1.MutatingWebhookConfiguration: _webhooks,
    kinds.admissionregistration.v1.ValidatingWebhookConfiguration: _webhooks,
    kinds.apiextensions.v1.CustomResourceDefinition: _conversion,
    kinds.apiregistration.v1.APIService: _api_service,
}


@final
@attrs.frozen
class CertificateTarget:
    """A configuration whose ``caBundle`` is managed."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"

    def read(
        self, obj: Object, service: tuple[str, str], names: frozenset[str], annotation: str
    ) -> Target:
        """The target, as the plan needs it.

        Args:
            obj: the configuration.
            service: namespace and name of the service.
            names: a ``url`` with one of these hosts is ours, too.
            annotation: the value that cert-manager's annotation should have; ``""``: any.
        """
        clients = [client for _, client in self._own(obj, service, names)]
        bundles = [_bundle_of(client) for client in clients]
        metadata = obj.to_dict().get("metadata", {})
        problem = "" if bundles else f"{self} names no service {'/'.join(service)}"
        present = _dict(metadata.get("annotations")).get(ANNOTATION)
        return Target(
            name=str(self),
            # An APIService has no generation, and its resource version changes with its status.
            version=f"{obj.uid} {metadata.get('generation') or _digest(clients)}",
            problem=problem,
            bundles=tuple(bundle for bundle, _ in bundles),
            is_clean=all(is_clean for _, is_clean in bundles),
            is_annotated=not annotation or present == annotation,
        )

    def patch(
        self,
        obj: Object,
        bundles: Sequence[Sequence[Certificate]],
        service: tuple[str, str],
        names: frozenset[str],
    ) -> JsonPatch:
        """The patch that sets the bundles in the version of ``obj`` and in no other."""
        operations: list[dict[str, Any]] = []
        for (path, client), bundle in zip(self._own(obj, service, names), bundles, strict=True):
            text = base64.b64encode(b"".join(each.pem for each in bundle)).decode()
            if client.get("caBundle") != text:
                operations.append({"op": "add", "path": f"{path}/caBundle", "value": text})
        return JsonPatch([_same_version(obj), *operations])

    def annotation_patch(self, obj: Object, value: str) -> JsonPatch:
        """The patch that sets cert-manager's annotation."""
        path = "/metadata/annotations"
        operations: list[dict[str, Any]] = [_same_version(obj)]
        if not _dict(obj.to_dict().get("metadata")).get("annotations"):
            operations.append({"op": "add", "path": path, "value": {}})
        key = json_pointer([ANNOTATION])
        operations.append({"op": "add", "path": path + key, "value": value})
        return JsonPatch(operations)

    def _own(
        self, obj: Object, service: tuple[str, str], names: frozenset[str]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for path, client in _KINDS[self.kind](obj.to_dict()):
            named = _dict(client.get("service"))
            url = client.get("url")
            if (named.get("namespace"), named.get("name")) == service or (
                isinstance(url, str) and certified_name(_host(url)) in names
            ):
                yield path, client


def as_target(value: object) -> CertificateTarget:
    """A target from a pair of kind and name, or from an object.

    Raises:
        TypeError, ValueError: the text says what to give.
    """
    if isinstance(value, CertificateTarget):
        return value
    if isinstance(value, (Object, MutableObject)):
        value = value.kind, value.name
    if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Kind)):
        raise TypeError(
            f"inject: {value!r}: give a pair of kind and name, such as "
            "(kinds.admissionregistration.v1.ValidatingWebhookConfiguration, 'widgets')"
        )
    kind, name = value
    if kind not in _KINDS:
        names = ", ".join(each.kind for each in _KINDS)
        raise ValueError(f"inject: {kind} has no caBundle: use {names}")
    if not isinstance(name, str) or not name:
        raise ValueError(f"inject: {name!r} is not a name of a {kind.kind}")
    return CertificateTarget(kind, name)


def _same_version(obj: Object) -> dict[str, Any]:
    return {"op": "test", "path": "/metadata/resourceVersion", "value": obj.resource_version}


def _digest(clients: Sequence[Mapping[str, Any]]) -> str:
    texts = [str(client.get("caBundle")) for client in clients]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _bundle_of(client: Mapping[str, Any]) -> tuple[tuple[Certificate, ...], bool]:
    """The authorities in a ``caBundle``, and whether there is nothing else in it."""
    text = client.get("caBundle") or ""
    try:
        pem = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return (), False
    found = read_authorities(pem)
    # Each once, and nothing but them: white space apart.
    written = b"".join(each.pem for each in found)
    return found, b"".join(pem.split()) == b"".join(written.split())
