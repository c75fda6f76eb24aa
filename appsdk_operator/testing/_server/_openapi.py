"""OpenAPI documents: enough for kubectl to explain, validate and patch what is served.

Custom resources are described by their schemas. Built-in kinds are described as objects that may
hold anything, so that no client refuses what the server takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from appsdk_operator.testing._server._resources import Catalog, ServedVersion

__all__ = ["document"]

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_INFO: Final = {"title": "Kubernetes", "version": "v1.32.0"}
_GVK: Final = "x-kubernetes-group-version-kind"


def document(catalog: Catalog, path: str) -> dict[str, Any] | None:
    """The document at ``path``, None when there is none."""
    if path == "/openapi/v2":
        return _v2(catalog)
    if path == "/openapi/v3":
        return {"paths": {prefix: _link(prefix) for prefix in _prefixes(catalog)}}
    prefix = path.removeprefix("/openapi/v3/")
    wanted = _prefixes(catalog).get(prefix)
    return None if wanted is None else _v3(wanted, prefix)


def _link(prefix: str) -> dict[str, str]:
    return {"serverRelativeURL": f"/openapi/v3/{prefix}"}


def _served(catalog: Catalog) -> Iterable[ServedVersion]:
    for resource in catalog:
        for served in resource.versions.values():
            if served.served:
                yield served


def _prefixes(catalog: Catalog) -> dict[str, list[ServedVersion]]:
    found: dict[str, list[ServedVersion]] = {}
    for served in _served(catalog):
        group = served.resource.group
        prefix = f"apis/{group}/{served.version}" if group else f"api/{served.version}"
        found.setdefault(prefix, []).append(served)
    return found


def _name(served: ServedVersion) -> str:
    group = served.resource.group or "core"
    reverse = ".".join(reversed(group.split("."))) if "." in group else f"io.k8s.api.{group}"
    return f"{reverse}.{served.version}.{served.resource.kind}"


def _schema(served: ServedVersion, reference: str) -> dict[str, Any]:
    kind: dict[str, Any] = {
        "group": served.resource.group,
        "version": served.version,
        "kind": served.resource.kind,
    }
    described = served.schema if served.schema is not None else {"type": "object"}
    schema: dict[str, Any] = _plain(described)
    text = {"type": "string"}
    properties = {
        "apiVersion": text,
        "kind": text,
        **(schema.get("properties") or {}),
        "metadata": {"$ref": f"{reference}{_META}.ObjectMeta"},
    }
    if served.schema is None:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return {**schema, "properties": properties, _GVK: [kind]}


def _plain(schema: Any) -> Any:
    """The part of a schema that OpenAPI 2 has words for, too."""
    if isinstance(schema, Mapping):
        kept = {
            name: _plain(value)
            for name, value in schema.items()
            if name not in ("nullable", "oneOf", "anyOf", "not", "x-kubernetes-validations")
        }
        if kept.get("x-kubernetes-preserve-unknown-fields"):
            kept.pop("properties", None)
        return kept
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    return schema


def _object_meta() -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    texts = {"type": "object", "additionalProperties": text}
    return {
        "type": "object",
        "description": "ObjectMeta is metadata that all persisted resources must have.",
        "properties": {
            "name": text,
            "generateName": text,
            "namespace": text,
            "uid": text,
            "resourceVersion": text,
            "selfLink": text,
            "generation": {"type": "integer", "format": "int64"},
            "creationTimestamp": {"type": "string", "format": "date-time"},
            "deletionTimestamp": {"type": "string", "format": "date-time"},
            "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
            "labels": texts,
            "annotations": texts,
            "finalizers": {
                "type": "array",
                "items": text,
                "x-kubernetes-patch-strategy": "merge",
            },
            "ownerReferences": {
                "type": "array",
                "items": {"type": "object"},
                "x-kubernetes-patch-merge-key": "uid",
                "x-kubernetes-patch-strategy": "merge",
            },
            "managedFields": {"type": "array", "items": {"type": "object"}},
        },
    }


def _paths(served: ServedVersion) -> list[str]:
    resource = served.resource
    base = (
        f"/apis/{resource.group}/{served.version}" if resource.group else f"/api/{served.version}"
    )
    collection = f"{base}/{resource.plural}"
    if resource.namespaced:
        collection = f"{base}/namespaces/{{namespace}}/{resource.plural}"
    return [collection, f"{collection}/{{name}}"]


def _operations(served: ServedVersion, parameter: dict[str, Any]) -> dict[str, Any]:
    kind = {
        "group": served.resource.group,
        "version": served.version,
        "kind": served.resource.kind,
    }
    names = ("dryRun", "fieldManager", "fieldValidation")
    parameters = [{"name": name, "in": "query", **parameter} for name in names]
    collection, item = _paths(served)

    def operation(action: str) -> dict[str, Any]:
        return {
            "x-kubernetes-action": action,
            _GVK: kind,
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
        }

    return {
        collection: {"post": operation("post"), "get": operation("list")},
        item: {
            "get": operation("get"),
            "put": operation("put"),
            "patch": operation("patch"),
            "delete": operation("delete"),
        },
    }


def _v2(catalog: Catalog) -> dict[str, Any]:
    reference = "#/definitions/"
    paths: dict[str, Any] = {}
    definitions: dict[str, Any] = {f"{_META}.ObjectMeta": _object_meta()}
    for served in _served(catalog):
        definitions[_name(served)] = _schema(served, reference)
        paths |= _operations(served, {"type": "string"})
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}


def _v3(wanted: list[ServedVersion], prefix: str) -> dict[str, Any]:
    reference = "#/components/schemas/"
    paths: dict[str, Any] = {f"/{prefix}/": {"get": {"responses": {"200": {"description": "OK"}}}}}
    schemas: dict[str, Any] = {f"{_META}.ObjectMeta": _object_meta()}
    for served in wanted:
        schemas[_name(served)] = _schema(served, reference)
        paths |= _operations(served, {"schema": {"type": "string"}})
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": paths,
        "components": {"schemas": schemas},
    }
