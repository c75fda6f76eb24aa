"""Table columns of services, endpoints, ingresses, nodes and volumes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._builtin.tables.columns import (
    Object,
    TableColumn,
    columns,
    condition_of,
    get,
    join_first,
    labels_text,
    reference_text,
)


def _cluster_ip(service: Object) -> Any:
    addresses = get(service, "spec", "clusterIPs")
    return addresses[0] if addresses else get(service, "spec", "clusterIP")


def _addresses(balancer: Object) -> str:
    found = balancer.get("ingress") or ()
    return ",".join(each.get("ip") or each.get("hostname", "") for each in found)


def _external_ip(service: Object) -> str:
    external = ",".join(get(service, "spec", "externalIPs", default=()))
    match get(service, "spec", "type"):
        case "ExternalName":
            return str(get(service, "spec", "externalName", default=""))
        case "LoadBalancer":
            found = _addresses(get(service, "status", "loadBalancer", default={}))
            return ",".join(filter(None, (found, external))) or "<pending>"
        case _:
            return external or "<none>"


def _service_port(port: Object) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol', '')}"


def _endpoints(subsets: Iterable[Object]) -> str:
    found = []
    for subset in subsets:
        addresses = [each.get("ip", "") for each in subset.get("addresses") or ()]
        ports = [port.get("port") for port in subset.get("ports") or ()]
        for port in ports or [None]:
            found += [ip if port is None else f"{ip}:{port}" for ip in addresses]
    return join_first(found)


def _slice_ports(ports: Iterable[Object]) -> str:
    return join_first([str(port["port"]) for port in ports if port.get("port") is not None])


def _slice_addresses(endpoints: Iterable[Object]) -> str:
    return join_first([ip for each in endpoints for ip in each.get("addresses") or ()])


def _hosts(rules: Iterable[Object]) -> str:
    return join_first([rule["host"] for rule in rules if rule.get("host")])


def _class_parameters(found: Object) -> str:
    group = f".{found['apiGroup']}" if found.get("apiGroup") else ""
    return f"{found.get('kind', '')}{group}/{found.get('name', '')}"


def _node_state(node: Object) -> str:
    condition = condition_of(node, "Ready")
    state = {"True": "Ready", "": "Unknown"}.get(condition.get("status", ""), "NotReady")
    return f"{state},SchedulingDisabled" if get(node, "spec", "unschedulable") else state


def _node_roles(labels: Mapping[str, str]) -> str:
    roles = set()
    for label, value in labels.items():
        if label.startswith("node-role.kubernetes.io/") and label.partition("/")[2]:
            roles.add(label.partition("/")[2])
        elif label == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles))


def _node_address(kind: str) -> Callable[[Iterable[Object]], Any]:
    return lambda found: next((each["address"] for each in found if each["type"] == kind), None)


_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(found: Collection[str]) -> str:
    return ",".join(short for name, short in _MODES.items() if name in found)


def _phase(obj: Object) -> Any:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return get(obj, "status", "phase")


def _bound(claim: Object, *path: str) -> Any:
    """What a claim shows of its volume."""
    return get(claim, "status", *path) if get(claim, "spec", "volumeName") else None


def _claim_modes(claim: Object) -> str:
    return _modes(_bound(claim, "accessModes") or ())


def _claim_class(claim: Object) -> Any:
    annotations = claim["metadata"].get("annotations") or {}
    beta = annotations.get("volume.beta.kubernetes.io/storage-class")
    return beta or get(claim, "spec", "storageClassName")


COLUMNS: Final[dict[str, tuple[TableColumn, ...]]] = {
    "endpoints": columns("Name", ("Endpoints=subsets||<none>", _endpoints), "Age"),
    "endpointslices.discovery.k8s.io": columns(
        "Name, AddressType=addressType",
        ("Ports=ports||<unset>", _slice_ports),
        ("Endpoints=endpoints||<unset>", _slice_addresses),
        "Age",
    ),
    "ingressclasses.networking.k8s.io": columns(
        "Name, Controller=spec.controller",
        ("Parameters=spec.parameters|<none>", _class_parameters),
        "Age",
    ),
    "ingresses.networking.k8s.io": columns(
        "Name, Class=spec.ingressClassName|<none>",
        ("Hosts=spec.rules||*", _hosts),
        ("Address=status.loadBalancer", _addresses),
        ("Ports=spec.tls|80", lambda tls: "80, 443" if tls else "80"),
        "Age",
    ),
    "nodes": columns(
        "Name",
        ("Status", _node_state),
        ("Roles=metadata.labels||<none>", _node_roles),
        "Age, Version=status.nodeInfo.kubeletVersion",
        ("*Internal-IP=status.addresses|<none>", _node_address("InternalIP")),
        ("*External-IP=status.addresses|<none>", _node_address("ExternalIP")),
        "*OS-Image=status.nodeInfo.osImage||<unknown>",
        "*Kernel-Version=status.nodeInfo.kernelVersion||<unknown>",
        "*Container-Runtime=status.nodeInfo.containerRuntimeVersion||<unknown>",
    ),
    "persistentvolumeclaims": columns(
        "Name",
        ("Status", _phase),
        "Volume=spec.volumeName",
        ("Capacity", lambda claim: _bound(claim, "capacity", "storage")),
        ("Access Modes", _claim_modes),
        ("StorageClass", _claim_class),
        "VolumeAttributesClass=status.currentVolumeAttributesClassName|<unset>",
        "Age, *VolumeMode=spec.volumeMode|<unset>",
    ),
    "persistentvolumes": columns(
        "Name, Capacity=spec.capacity.storage",
        ("Access Modes=spec.accessModes", _modes),
        "Reclaim Policy=spec.persistentVolumeReclaimPolicy",
        ("Status", _phase),
        ("Claim=spec.claimRef", functools.partial(reference_text, first="namespace")),
        "StorageClass=spec.storageClassName",
        "VolumeAttributesClass=spec.volumeAttributesClassName|<unset>",
        "Reason=status.reason, Age, *VolumeMode=spec.volumeMode|<unset>",
    ),
    "services": columns(
        "Name, Type=spec.type",
        ("Cluster-IP=||<none>", _cluster_ip),
        ("External-IP", _external_ip),
        ("Port(s)=spec.ports||<none>", lambda ports: ",".join(map(_service_port, ports))),
        "Age",
        ("*Selector=spec.selector||<none>", labels_text),
    ),
}
