"""Discovery documents: groups, versions and resources."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from appsdk_operator.apiserver._http.accepted_types import JSON_TYPES, accepted_types
from appsdk_operator.apiserver._http.health import CHECKS
from appsdk_operator.apiserver._registry.pod_connections import CONNECTIONS
from appsdk_operator.apiserver._storage.resources import Catalog, Resource, ServedVersion

VERSION: Final = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.0+appsdk-operator",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "cpython",
    "platform": "linux/amd64",
}
"""The answer of ``/version``: the release whose API the server follows."""

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_CUSTOM_VERBS: Final = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)
_SUB_VERBS: Final = ("get", "patch", "update")
_ACTIONS: Final = frozenset({"binding", "eviction", "token"})
_OTHER_KINDS: Final = {
    "scale": ("autoscaling", "v1", "Scale"),
    "eviction": ("policy", "v1", "Eviction"),
    "binding": ("", "v1", "Binding"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    **{name: ("", "v1", kind) for name, kind in CONNECTIONS.items()},
}
# Resources that the real server stores in another group or version than its first.
_STORED_AS: Final = {
    "customresourcedefinitions.apiextensions.k8s.io": ("apiextensions.k8s.io", "v1beta1"),
    "events.events.k8s.io": ("", "v1"),
}
_ROOTS: Final = (
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/version",
)


def wants_aggregated(accept: str) -> bool:
    """Whether a client prefers aggregated discovery to plain JSON."""
    [(_, wanted)] = accepted_types(AGGREGATED)
    given = next((given for name, given in accepted_types(accept) if name in JSON_TYPES), {})
    return wanted.items() <= given.items()


def roots(catalog: Catalog) -> list[str]:
    """All paths, for the index page."""
    found: list[str] = list(_ROOTS)
    for group, versions in catalog.groups().items():
        if group:
            found.append(f"/apis/{group}")
            found += [f"/apis/{group}/{version}" for version in versions]
    for endpoint, checks in CHECKS.items():
        found.append(f"/{endpoint}")
        found += [f"/{endpoint}/{check}" for check in checks]
    return sorted(found)


def discover(catalog: Catalog, path: str, *, address: str) -> dict[str, Any] | None:
    """The discovery document at ``path``; None when there is none."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api"]:
            return {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [
                    {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
                ],
            }
        case ["apis"]:
            groups = [_group(name, v) for name, v in catalog.groups().items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", version]:
            return _resources(catalog, "", version)
        case ["apis", group]:
            versions = catalog.groups().get(group)
            if versions is None:
                return None
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}
        case ["apis", group, version]:
            return _resources(catalog, group, version)
        case _:
            return None


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def _of_version(catalog: Catalog, group: str, version: str) -> list[ServedVersion]:
    return [
        resource.versions[version]
        for resource in sorted(catalog, key=lambda resource: resource.plural)
        if resource.group == group
        and version in resource.versions
        and resource.versions[version].served
    ]


def _resources(catalog: Catalog, group: str, version: str) -> dict[str, Any] | None:
    served = _of_version(catalog, group, version)
    if not served:
        return None
    found: list[dict[str, Any]] = []
    for each in served:
        found += _entries(each)
    head = {"kind": "APIResourceList", "apiVersion": "v1"}
    if not group:
        # Historical: the core group lacks it.
        del head["apiVersion"]
    return {
        **head,
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": found,
    }


def _entries(served: ServedVersion) -> Iterator[dict[str, Any]]:
    """A resource and its subresources, each as an ``APIResource``."""
    resource = served.resource
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _verbs(resource),
        **_names(resource),
    }
    if "list" in resource.verbs and "create" in resource.verbs:
        entry["storageVersionHash"] = _storage_hash(resource)
    yield entry
    for name in _subresources(served):
        sub: dict[str, Any] = {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": _sub_verbs(name),
        }
        group, version, kind = _OTHER_KINDS.get(
            name, (resource.group, served.version, resource.kind)
        )
        if (group, version) != (resource.group, served.version):
            sub |= {"group": group, "version": version}
        yield {**sub, "kind": kind}


def _verbs(resource: Resource) -> list[str]:
    return list(_CUSTOM_VERBS if resource.strategy.custom else resource.verbs)


def _names(resource: Resource) -> dict[str, Any]:
    names: dict[str, Any] = {}
    if resource.short_names:
        names["shortNames"] = list(resource.short_names)
    if resource.categories:
        names["categories"] = list(resource.categories)
    return names


def _storage_hash(resource: Resource) -> str:
    """The hash that changes with the storage version of a resource."""
    group, version = _STORED_AS.get(
        resource.qualified_name, (resource.group, resource.storage_version)
    )
    text = f"{group}/{version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _subresources(served: ServedVersion) -> Iterable[str]:
    if served.resource.strategy.custom:
        return (name for name in ("status", "scale") if name in served.subresources)
    return sorted(served.subresources)


def _sub_verbs(subresource: str) -> list[str]:
    if subresource in _ACTIONS:
        return ["create"]
    if subresource in CONNECTIONS:
        return ["create", "get"]
    return ["update"] if subresource == "finalize" else list(_SUB_VERBS)


def aggregated(catalog: Catalog, *, legacy: bool) -> dict[str, Any]:
    """Aggregated discovery, of the core group or of all others."""
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {
                    "version": version,
                    "resources": [
                        _aggregated_resource(served)
                        for served in _of_version(catalog, group, version)
                    ],
                    "freshness": "Current",
                }
                for version in versions
            ],
        }
        for group, versions in catalog.groups().items()
        if bool(group) is not legacy
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(served: ServedVersion) -> dict[str, Any]:
    resource = served.resource
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": _response_kind(served, ""),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _verbs(resource),
        **_names(resource),
    }
    subresources = [
        {
            "subresource": name,
            "responseKind": _response_kind(served, name),
            "verbs": _sub_verbs(name),
        }
        for name in _subresources(served)
    ]
    return {**entry, "subresources": subresources} if subresources else entry


def _response_kind(served: ServedVersion, subresource: str) -> dict[str, str]:
    """The kind of a response; built-in kinds leave out their own group and version."""
    resource = served.resource
    own = (resource.group, served.version, resource.kind)
    group, version, kind = _OTHER_KINDS.get(subresource, own)
    if not resource.strategy.custom and (group, version) == own[:2]:
        group = version = ""
    return {"group": group, "version": version, "kind": kind}
