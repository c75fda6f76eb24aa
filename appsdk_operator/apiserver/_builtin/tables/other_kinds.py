"""Table rows of events, roles, configuration, and the remaining kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appsdk_operator.apiserver._builtin.tables.cells import (
    NONE,
    UNSET,
    Ago,
    Cells,
    age_of,
    condition_of,
    containers_of,
    get,
    labels_text,
    name_of,
    number,
    selector_text,
)

__all__ = [
    "api_service",
    "binding",
    "created_at",
    "data",
    "event",
    "fields",
    "pod_template",
    "quota",
    "revision",
    "signing_request",
    "storage_class",
    "with_selector",
]


def event(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """An event, of either group."""
    first, last = obj.get("firstTimestamp"), obj.get("lastTimestamp")
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    first = first or obj.get("deprecatedFirstTimestamp")
    last = last or obj.get("deprecatedLastTimestamp")
    count = obj.get("count") or obj.get("deprecatedCount") or 0
    since = ago(first or obj.get("eventTime"))
    series = obj.get("series")
    seen = ago(series.get("lastObservedTime") if series else last) if series or last else since
    component = source.get("component") or obj.get("reportingComponent", "")
    component = component or obj.get("reportingController", "")
    host = source.get("host") or obj.get("reportingInstance", "")
    kind, name = about.get("kind", "").lower(), about.get("name", "")
    return [
        seen,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{name}" if kind else name,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        (obj.get("message") or obj.get("note") or "").strip(),
        since,
        series.get("count", 0) if series else count or 1,
        name_of(obj),
    ]


def quota(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A quota."""
    hard, used = get(obj, "status", "hard", default={}), get(obj, "status", "used", default={})
    requests: list[str] = []
    limits: list[str] = []
    for name in sorted(hard):
        part = f"{name}: {used.get(name, '0')}/{hard[name]}"
        (limits if name.startswith("limits.") else requests).append(part)
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, ago)]


def binding(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A binding of a role."""
    reference, subjects = obj.get("roleRef") or {}, obj.get("subjects") or ()

    def named(kind: str) -> str:
        return ", ".join(each.get("name", "") for each in subjects if each.get("kind") == kind)

    accounts = ", ".join(
        f"{each.get('namespace', '')}/{each.get('name', '')}"
        for each in subjects
        if each.get("kind") == "ServiceAccount"
    )
    role = f"{reference.get('kind', '')}/{reference.get('name', '')}"
    return [name_of(obj), role, age_of(obj, ago), named("User"), named("Group"), accounts]


def api_service(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """An API service."""
    service = get(obj, "spec", "service")
    condition = condition_of(obj, "Available")
    status = condition.get("status", "Unknown")
    if status != "True" and condition.get("reason"):
        status += f" ({condition['reason']})"
    where = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    return [name_of(obj), where, status, age_of(obj, ago)]


def revision(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A controller revision."""
    controller = NONE
    for each in obj["metadata"].get("ownerReferences") or ():
        if each.get("controller"):
            group = str(each.get("apiVersion", "")).rpartition("/")[0]
            kind = str(each.get("kind", "")).lower()
            controller = f"{kind}.{group}/{each['name']}" if group else f"{kind}/{each['name']}"
    return [name_of(obj), controller, number(obj, "revision"), age_of(obj, ago)]


def signing_request(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A request for a certificate."""
    kinds = [each.get("type") for each in get(obj, "status", "conditions", default=())]
    state = "Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"
    if "Failed" in kinds:
        state += ",Failed"
    if get(obj, "status", "certificate"):
        state += ",Issued"
    seconds = get(obj, "spec", "expirationSeconds")
    return [
        name_of(obj),
        age_of(obj, ago),
        get(obj, "spec", "signerName", default=NONE),
        get(obj, "spec", "username", default=""),
        NONE if seconds is None else ago(seconds),
        state,
    ]


def fields(*paths: str) -> Cells:
    """Cells: the name and the values at ``paths``; ``|`` gives a fallback, ``#`` counts items."""

    def cells(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
        made: list[Any] = [name_of(obj)]
        for path in paths:
            where, _, nothing = path.partition("|")
            if where == "age":
                made.append(age_of(obj, ago))
                continue
            found = get(obj, *where.removeprefix("#").split("."))
            if where.startswith("#"):
                made.append(len(found or ()))
            elif found is None or found == "":
                made.append({"false": False, "0": 0}.get(nothing, nothing))
            else:
                made.append(found)
        return made

    return cells


def data(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A config map or secret."""
    count = len(obj.get("data") or {}) + len(obj.get("binaryData") or {})
    if "type" in obj:
        return [name_of(obj), obj["type"], count, age_of(obj, ago)]
    return [name_of(obj), count, age_of(obj, ago)]


def created_at(obj: Mapping[str, Any], _ago: Ago) -> list[Any]:
    """A kind without columns of its own."""
    return [name_of(obj), obj["metadata"].get("creationTimestamp", "")]


def with_selector(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A network policy."""
    return [
        name_of(obj),
        selector_text(get(obj, "spec", "podSelector", default={})),
        age_of(obj, ago),
    ]


def pod_template(obj: Mapping[str, Any], _ago: Ago) -> list[Any]:
    """A PodTemplate."""
    template = obj.get("template")
    return [
        name_of(obj),
        *containers_of(template),
        labels_text(get(template, "metadata", "labels")),
    ]


def storage_class(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A class of storage."""
    is_default = "storageclass.kubernetes.io/is-default-class"
    annotations = obj["metadata"].get("annotations") or {}
    name = name_of(obj) + (" (default)" if annotations.get(is_default) == "true" else "")
    return [
        name,
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", UNSET),
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, ago),
    ]
