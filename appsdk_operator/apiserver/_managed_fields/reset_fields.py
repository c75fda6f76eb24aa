"""Reset fields: the fields that a write cannot set, and so cannot own.

The table is that of the real server's strategies: an update of an object resets its status, an
update of the status resets everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from appsdk_operator.apiserver._managed_fields import field_sets
from appsdk_operator.apiserver._managed_fields.field_sets import FieldSet
from appsdk_operator.apiserver._managed_fields.ownership import FieldFilters
from appsdk_operator.apiserver._storage.resources import Resource, ServedVersion

_SPEC: Final[FieldSet] = {"f:spec": {}}
_STATUS: Final[FieldSet] = {"f:status": {}}
_ALL_BUT_STATUS: Final[FieldSet] = {"f:metadata": {}, "f:spec": {}}

_EXCLUDED: Final[Mapping[tuple[str, str], FieldSet]] = {
    ("certificatesigningrequests.certificates.k8s.io", ""): {"f:spec": {}, "f:status": {}},
    ("certificatesigningrequests.certificates.k8s.io", "status"): {
        "f:spec": {},
        "f:status": {"f:conditions": {}},
    },
    ("certificatesigningrequests.certificates.k8s.io", "approval"): {
        "f:spec": {},
        "f:status": {"f:certificate": {}},
    },
    ("deployments.apps", "status"): {"f:spec": {}, "f:metadata": {"f:labels": {}}},
    ("pods", "status"): {
        "f:spec": {},
        "f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}},
    },
    **{
        (name, "status"): _ALL_BUT_STATUS
        for name in (
            "apiservices.apiregistration.k8s.io",
            "devicetaintrules.resource.k8s.io",
            "flowschemas.flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
            "resourceclaims.resource.k8s.io",
            "servicecidrs.networking.k8s.io",
            "storageversionmigrations.storagemigration.k8s.io",
            "storageversions.internal.apiserver.k8s.io",
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            "volumeattachments.storage.k8s.io",
        )
    },
}

_CONTAINERS: Final = ("f:containers", "f:initContainers")
_RESIZED: Final = ("f:resources", "f:resizePolicy")


def field_filters(resource: Resource, served: ServedVersion, subresource: str) -> FieldFilters:
    """By version, a filter that keeps the fields which a write can set."""
    if resource.strategy.custom:
        return _custom_filters(resource, served, subresource)
    place = (resource.qualified_name, subresource)
    excluded = _EXCLUDED.get(place)
    if excluded is None and not served.has_status:
        return {}
    if excluded is None:
        excluded = _SPEC if subresource == "status" else _STATUS
    keep = _INCLUDING.get(place) or _without(excluded)
    return {version.api_version: keep for version in resource.versions.values()}


def _custom_filters(resource: Resource, served: ServedVersion, subresource: str) -> FieldFilters:
    if subresource == "status":
        return {
            version.api_version: _KEEPS_STATUS
            for version in resource.versions.values()
            if version.has_status
        }
    return {served.api_version: _KEEPS_ALL_BUT_STATUS} if served.has_status else {}


def _without(excluded: FieldSet) -> Callable[[FieldSet], FieldSet]:
    return lambda fields: field_sets.difference_below(fields, excluded)


def _only_ephemeral(fields: FieldSet) -> FieldSet:
    spec = fields.get("f:spec", {})
    name = "f:ephemeralContainers"
    return _spec({name: spec[name]} if name in spec else {}, fields)


def _only_resized(fields: FieldSet) -> FieldSet:
    spec = fields.get("f:spec", {})
    selected: FieldSet = {}
    for name in _CONTAINERS:
        found: FieldSet = {}
        for element, node in spec.get(name, {}).items():
            parts = {part: node[part] for part in _RESIZED if part in node}
            if element != field_sets.SELF and parts:
                found[element] = (
                    {field_sets.SELF: {}, **parts} if field_sets.SELF in node else parts
                )
        if found:
            selected[name] = found
    return _spec(selected, fields)


def _spec(selected: FieldSet, fields: FieldSet) -> FieldSet:
    if not selected:
        return {}
    return {
        "f:spec": {field_sets.SELF: {}, **selected}
        if field_sets.SELF in fields["f:spec"]
        else selected
    }


_KEEPS_STATUS: Final = _without(_ALL_BUT_STATUS)
_KEEPS_ALL_BUT_STATUS: Final = _without(_STATUS)
_INCLUDING: Final = {
    ("pods", "ephemeralcontainers"): _only_ephemeral,
    ("pods", "resize"): _only_resized,
}
