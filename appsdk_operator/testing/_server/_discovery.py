"""Discovery: which groups, versions and resources there are, for clients that ask."""

from __future__ import annotations

from typing import Any, Final

from appsdk_operator.testing._server._resources import Catalog, Resource, ServedVersion

__all__ = ["AGGREGATED", "VERSION", "discover", "wants_aggregated"]

VERSION: Final = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0+appsdk-operator",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "cpython",
    "platform": "linux/amd64",
}
"""What ``/version`` says: the release whose API it follows."""

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_SUB_VERBS: Final = ("get", "patch", "update")
_ACTIONS: Final = frozenset({"binding", "eviction", "token"})
_ROOTS: Final = [
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/livez",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
]


def wants_aggregated(accept: str) -> bool:
    """Whether a client takes all of discovery in one document."""
    return any(part.strip().replace(" ", "").startswith(AGGREGATED) for part in accept.split(","))


def discover(
    catalog: Catalog, path: str, *, aggregated: bool, address: str
) -> dict[str, Any] | None:
    """The discovery document at ``path``; None when there is none."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case []:
            return {"paths": _ROOTS}
        case ["api"]:
            if aggregated:
                return _aggregated(catalog, legacy=True)
            return {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [
                    {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
                ],
            }
        case ["apis"]:
            if aggregated:
                return _aggregated(catalog, legacy=False)
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
        for resource in catalog
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
        resource = each.resource
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        found.append(entry)
        for name in each.subresources:
            sub_group, sub_version, kind = _subresource_kind(resource, version, name)
            sub: dict[str, Any] = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": _verbs(name),
            }
            if (sub_group, sub_version) != (resource.group, version):
                sub |= {"group": sub_group, "version": sub_version}
            found.append(sub)
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": found,
    }


def _subresource_kind(resource: Resource, version: str, name: str) -> tuple[str, str, str]:
    known = {
        "scale": ("autoscaling", "v1", "Scale"),
        "eviction": ("policy", "v1", "Eviction"),
        "binding": ("", "v1", "Binding"),
        "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    }
    return known.get(name, (resource.group, version, resource.kind))


def _verbs(subresource: str) -> list[str]:
    if subresource in _ACTIONS:
        return ["create"]
    return ["update"] if subresource == "finalize" else list(_SUB_VERBS)


def _aggregated(catalog: Catalog, *, legacy: bool) -> dict[str, Any]:
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None}
            if group
            else {"creationTimestamp": None},
            "versions": [
                {
                    "version": version,
                    "freshness": "Current",
                    "resources": [
                        _aggregated_resource(served)
                        for served in _of_version(catalog, group, version)
                    ],
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
        "responseKind": {
            "group": resource.group,
            "version": served.version,
            "kind": resource.kind,
        },
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if served.subresources:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": dict(
                    zip(
                        ("group", "version", "kind"),
                        _subresource_kind(resource, served.version, name),
                        strict=True,
                    )
                ),
                "verbs": _verbs(name),
            }
            for name in served.subresources
        ]
    return entry
