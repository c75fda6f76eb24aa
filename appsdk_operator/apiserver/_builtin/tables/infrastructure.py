"""Table rows of services, endpoints, ingresses, nodes and volumes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._builtin.tables.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    Ago,
    age_of,
    condition_of,
    get,
    join_first,
    labels_text,
    name_of,
)

__all__ = [
    "claim",
    "endpoint_slice",
    "endpoints",
    "ingress",
    "ingress_class",
    "node",
    "service",
    "volume",
]


def _addresses(ingress: Iterable[Mapping[str, Any]]) -> str:
    return ",".join(each.get("ip") or each.get("hostname", "") for each in ingress)


def _external(obj: Mapping[str, Any]) -> str:
    external = ",".join(get(obj, "spec", "externalIPs", default=()))
    match get(obj, "spec", "type"):
        case "ExternalName":
            return str(get(obj, "spec", "externalName", default=""))
        case "LoadBalancer":
            found = _addresses(get(obj, "status", "loadBalancer", "ingress", default=()))
            return ",".join(filter(None, (found, external))) or "<pending>"
        case _:
            return external or NONE


def service(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A service."""
    ports = []
    for port in get(obj, "spec", "ports", default=()):
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port.get('port')}{node}/{port.get('protocol', '')}")
    addresses = get(obj, "spec", "clusterIPs", default=())
    return [
        name_of(obj),
        get(obj, "spec", "type", default=""),
        (addresses[0] if addresses else get(obj, "spec", "clusterIP")) or NONE,
        _external(obj),
        ",".join(ports) or NONE,
        age_of(obj, ago),
        labels_text(get(obj, "spec", "selector")),
    ]


def endpoints(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """Endpoints."""
    found = []
    for subset in obj.get("subsets") or ():
        addresses = [each.get("ip", "") for each in subset.get("addresses") or ()]
        ports = [port.get("port") for port in subset.get("ports") or ()]
        for port in ports or [None]:
            found += [ip if port is None else f"{ip}:{port}" for ip in addresses]
    return [name_of(obj), join_first(found, 3) if found else NONE, age_of(obj, ago)]


def endpoint_slice(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A slice of endpoints."""
    ports = [str(port["port"]) for port in obj.get("ports") or () if port.get("port") is not None]
    found = [ip for each in obj.get("endpoints") or () for ip in each.get("addresses") or ()]
    return [
        name_of(obj),
        obj.get("addressType", ""),
        join_first(ports, 3) if ports else UNSET,
        join_first(found, 3) if found else UNSET,
        age_of(obj, ago),
    ]


def ingress(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """An ingress."""
    hosts = [rule["host"] for rule in get(obj, "spec", "rules", default=()) if rule.get("host")]
    return [
        name_of(obj),
        get(obj, "spec", "ingressClassName", default=NONE),
        join_first(hosts, 3) if hosts else "*",
        _addresses(get(obj, "status", "loadBalancer", "ingress", default=())),
        "80, 443" if get(obj, "spec", "tls") else "80",
        age_of(obj, ago),
    ]


def ingress_class(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A class of ingresses."""
    found = get(obj, "spec", "parameters")
    parameters = NONE
    if found:
        group = f".{found['apiGroup']}" if found.get("apiGroup") else ""
        parameters = f"{found.get('kind', '')}{group}/{found.get('name', '')}"
    return [
        name_of(obj),
        get(obj, "spec", "controller", default=""),
        parameters,
        age_of(obj, ago),
    ]


def node(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A node."""
    condition = condition_of(obj, "Ready")
    state = {"True": "Ready", "": "Unknown"}.get(condition.get("status", ""), "NotReady")
    if get(obj, "spec", "unschedulable"):
        state += ",SchedulingDisabled"
    roles = set()
    for label, value in (obj["metadata"].get("labels") or {}).items():
        if label.startswith("node-role.kubernetes.io/") and label.partition("/")[2]:
            roles.add(label.partition("/")[2])
        elif label == "kubernetes.io/role" and value:
            roles.add(value)
    addresses = get(obj, "status", "addresses", default=())

    def address(kind: str) -> str:
        return next((each["address"] for each in addresses if each["type"] == kind), NONE)

    info = get(obj, "status", "nodeInfo", default={})
    return [
        name_of(obj),
        state,
        ",".join(sorted(roles)) or NONE,
        age_of(obj, ago),
        info.get("kubeletVersion", ""),
        address("InternalIP"),
        address("ExternalIP"),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(found: Iterable[str]) -> str:
    return ",".join(short for name, short in _MODES.items() if name in tuple(found))


def _phase(obj: Mapping[str, Any]) -> str:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(get(obj, "status", "phase", default=""))


def claim(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A claim to a volume."""
    volume = get(obj, "spec", "volumeName", default="")
    annotations = obj["metadata"].get("annotations") or {}
    storage_class = annotations.get("volume.beta.kubernetes.io/storage-class") or get(
        obj, "spec", "storageClassName", default=""
    )
    return [
        name_of(obj),
        _phase(obj),
        volume,
        get(obj, "status", "capacity", "storage", default="") if volume else "",
        _modes(get(obj, "status", "accessModes", default=())) if volume else "",
        storage_class,
        get(obj, "status", "currentVolumeAttributesClassName", default=UNSET),
        age_of(obj, ago),
        get(obj, "spec", "volumeMode", default=UNSET),
    ]


def volume(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A volume."""
    claim = get(obj, "spec", "claimRef")
    return [
        name_of(obj),
        get(obj, "spec", "capacity", "storage", default=""),
        _modes(get(obj, "spec", "accessModes", default=())),
        get(obj, "spec", "persistentVolumeReclaimPolicy", default=""),
        _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        get(obj, "spec", "storageClassName", default=""),
        get(obj, "spec", "volumeAttributesClassName", default=UNSET),
        get(obj, "status", "reason", default=""),
        age_of(obj, ago),
        get(obj, "spec", "volumeMode", default=UNSET),
    ]
