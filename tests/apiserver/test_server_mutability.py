"""Which fields of stored built-in objects may change, here and on the real server."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

_IN = "/namespaces/default/"
_CONTAINER: dict[str, Any] = {
    "name": "c",
    "image": "i",
    "env": [{"name": "A", "value": "b"}],
    "ports": [{"containerPort": 80, "name": "http"}],
    "resources": {"requests": {"cpu": "1"}},
}
_POD: dict[str, Any] = {
    "containers": [_CONTAINER],
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "nodeSelector": {"a": "b"},
    "volumes": [{"name": "v", "emptyDir": {}}],
    "securityContext": {"runAsUser": 1},
    "activeDeadlineSeconds": 100,
}
_SELECTOR: dict[str, Any] = {"matchLabels": {"a": "b"}}
_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [_CONTAINER], "nodeSelector": {"a": "b"}},
}
_TERMS: dict[str, Any] = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
}
_AFFINITY: dict[str, Any] = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _TERMS}
}
_ONCE: dict[str, Any] = {"restartPolicy": "Never", "containers": [_CONTAINER]}
_CLAIM: dict[str, Any] = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}
_TIME = "2020-01-01T00:00:00.000000Z"
_PARAMETERS = {"apiGroup": "a.io", "kind": "K", "name": "n", "scope": "Cluster"}

STORED: dict[str, tuple[str, dict[str, Any]]] = {
    "pod": (f"/api/v1{_IN}pods", {"spec": _POD}),
    "template": (f"/api/v1{_IN}podtemplates", {"template": _TEMPLATE}),
    "job": (
        f"/apis/batch/v1{_IN}jobs",
        {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": _ONCE}}},
    ),
    "suspended job": (
        f"/apis/batch/v1{_IN}jobs",
        {
            "spec": {
                "suspend": True,
                "template": {"spec": {**_ONCE, "nodeSelector": {"a": "b"}, "affinity": _AFFINITY}},
            }
        },
    ),
    "deployment": (
        f"/apis/apps/v1{_IN}deployments",
        {"spec": {"replicas": 2, "selector": _SELECTOR, "template": _TEMPLATE}},
    ),
    "replica set": (
        f"/apis/apps/v1{_IN}replicasets",
        {"spec": {"replicas": 2, "selector": _SELECTOR, "template": _TEMPLATE}},
    ),
    "daemon set": (
        f"/apis/apps/v1{_IN}daemonsets",
        {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    ),
    "stateful set": (
        f"/apis/apps/v1{_IN}statefulsets",
        {
            "spec": {
                "serviceName": "s",
                "selector": _SELECTOR,
                "template": _TEMPLATE,
                "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": _CLAIM}],
            }
        },
    ),
    "controller": (
        f"/api/v1{_IN}replicationcontrollers",
        {"spec": {"replicas": 2, "selector": {"a": "b"}, "template": _TEMPLATE}},
    ),
    "revision": (
        f"/apis/apps/v1{_IN}controllerrevisions",
        {"data": {"a": {"b": "c"}}, "revision": 3},
    ),
    "service": (
        f"/api/v1{_IN}services",
        {"spec": {"ports": [{"port": 80, "name": "p"}], "sessionAffinity": "ClientIP"}},
    ),
    "ingress class": (
        "/apis/networking.k8s.io/v1/ingressclasses",
        {"spec": {"controller": "a.io/b", "parameters": _PARAMETERS}},
    ),
    "endpoint slice": (
        f"/apis/discovery.k8s.io/v1{_IN}endpointslices",
        {"addressType": "IPv4", "endpoints": [{"addresses": ["1.2.3.4"]}]},
    ),
    "runtime class": (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "handler": "a",
            "overhead": {"podFixed": {"cpu": "1"}},
            "scheduling": {"tolerations": [{"key": "k", "operator": "Exists"}]},
        },
    ),
    "csi driver": (
        "/apis/storage.k8s.io/v1/csidrivers",
        {"spec": {"attachRequired": True, "volumeLifecycleModes": ["Persistent"]}},
    ),
    "csi node": (
        "/apis/storage.k8s.io/v1/csinodes",
        {"spec": {"drivers": [{"name": "d.io", "nodeID": "n", "allocatable": {"count": 3}}]}},
    ),
    "csi capacity": (
        f"/apis/storage.k8s.io/v1{_IN}csistoragecapacities",
        {"storageClassName": "s", "nodeTopology": _SELECTOR, "capacity": "1Gi"},
    ),
    "attachment": (
        "/apis/storage.k8s.io/v1/volumeattachments",
        {"spec": {"attacher": "a.io", "nodeName": "n", "source": {"persistentVolumeName": "p"}}},
    ),
    "storage class": (
        "/apis/storage.k8s.io/v1/storageclasses",
        {"provisioner": "a.io/b", "parameters": {"a": "b"}, "mountOptions": ["x"]},
    ),
    "claim": (
        f"/api/v1{_IN}persistentvolumeclaims",
        {"spec": {**_CLAIM, "storageClassName": "x", "volumeName": "v"}},
    ),
    "volume": (
        "/api/v1/persistentvolumes",
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/a"},
                "mountOptions": ["a"],
                "nodeAffinity": {"required": _TERMS},
            }
        },
    ),
    "quota": (
        f"/api/v1{_IN}resourcequotas",
        {
            "spec": {
                "hard": {"pods": "1"},
                "scopes": ["BestEffort"],
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}
                    ]
                },
            }
        },
    ),
    "node": (
        "/api/v1/nodes",
        {
            "spec": {
                "podCIDR": "10.0.0.0/24",
                "providerID": "p",
                "externalID": "q",
                "taints": [{"key": "k", "effect": "NoSchedule"}],
            }
        },
    ),
    "secret": (f"/api/v1{_IN}secrets", {"type": "a", "data": {"a": "eA=="}}),
    "config": (f"/api/v1{_IN}configmaps", {"data": {"a": "x"}, "immutable": True}),
    "priority": (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"value": 5, "description": "x", "preemptionPolicy": "Never"},
    ),
    "event": (
        f"/apis/events.k8s.io/v1{_IN}events",
        {
            "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
            "reason": "R",
            "note": "m",
            "eventTime": _TIME,
            "reportingController": "a.io/c",
            "reportingInstance": "i",
            "action": "A",
            "type": "Normal",
            "series": {"count": 3, "lastObservedTime": _TIME},
        },
    ),
    "binding": (
        f"/apis/rbac.authorization.k8s.io/v1{_IN}rolebindings",
        {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}},
    ),
}

# Fields that may change, by kind; a change of any other one is refused.
MUTABLE: dict[str, tuple[str, ...]] = {
    "pod": ("spec.activeDeadlineSeconds", "spec.containers.0.image"),
    "template": ("template",),
    "job": ("spec.parallelism",),
    "suspended job": (
        "spec.suspend",
        "spec.template.spec.nodeSelector",
        "spec.template.spec.affinity",
        "spec.template.spec.containers.0.resources",
    ),
    "deployment": ("spec.replicas", "spec.template"),
    "replica set": ("spec.replicas", "spec.template"),
    "daemon set": ("spec.template",),
    "stateful set": ("spec.template",),
    "controller": ("spec.replicas", "spec.template"),
    "revision": ("revision",),
    "service": ("spec.ports", "spec.sessionAffinity"),
    "ingress class": ("spec.parameters",),
    "endpoint slice": ("endpoints",),
    "runtime class": ("overhead", "scheduling"),
    "csi node": ("spec.drivers.0.allocatable", "spec.drivers.0.name"),
    "csi capacity": ("capacity",),
    "storage class": ("mountOptions",),
    "volume": ("spec.accessModes", "spec.capacity", "spec.mountOptions"),
    "quota": ("spec.hard", "spec.scopeSelector"),
    "node": ("spec.taints",),
    "secret": ("data",),
    "priority": ("description",),
    "event": ("series",),
}

# Fields of which 1.20 thinks otherwise than a current server.
NEWER: dict[str, tuple[str, ...]] = {
    "suspended job": ("spec",),
    "ingress class": ("spec.parameters.scope",),
    "csi node": ("spec.drivers.0.allocatable",),
    "stateful set": ("spec.template",),
    "event": ("",),
}


def _changes(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each leaf with other values of its type, and each field without its value (None)."""
    if at:
        yield at, None
    if isinstance(value, (dict, list)):
        for name in list(value) if isinstance(value, dict) else range(len(value)):
            yield from _changes(value[name], (*at, name))
    elif isinstance(value, bool):
        yield at, not value
    elif isinstance(value, int):
        yield at, value + 1
        yield at, value - 1
    else:
        yield at, f"{value}x"
        yield at, "other"


def _changed(obj: Any, at: tuple[Any, ...], value: Any) -> Any:
    obj = copy.deepcopy(obj)
    inner = obj
    for name in at[:-1]:
        inner = inner[name]
    if value is None:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return obj


def _is_in(path: str, fields: tuple[str, ...]) -> bool:
    return any(not field or f"{path}.".startswith(f"{field}.") for field in fields)


def _stored(api: Any, kind: str) -> tuple[str, Any]:
    path, body = STORED[kind]
    name = kind.replace(" ", "-")
    made = api.create(path, {"metadata": {"name": name}, **body})
    assert made.status == 201, made.body
    return f"{path}/{name}", made.body


@pytest.mark.parametrize("kind", STORED)
def test_what_is_not_mutable_stays(api: Any, kind: str) -> None:
    path, stored = _stored(api, kind)
    accepted = set()
    for at, value in _changes(STORED[kind][1]):
        reply = api.update(f"{path}?dryRun=All", _changed(stored, at, value))
        assert reply.status in (200, 400, 422), reply.body
        # What comes back as a default was not changed.
        if reply.status == 200 and value is not None:
            accepted.add(".".join(map(str, at)))
    assert {field for field in accepted if not _is_in(field, MUTABLE.get(kind, ()))} == set()


@pytest.mark.real
@pytest.mark.parametrize("kind", STORED)
def test_the_real_server_lets_the_same_fields_change(api: Any, real_api: Any, kind: str) -> None:
    if real_api.get(STORED[kind][0]).status == 404:
        return  # an older server does not have the kind; a skip would look like no server at all
    both = [(one, *_stored(one, kind)) for one in (api, real_api)]
    other = []
    for at, value in _changes(STORED[kind][1]):
        found = []
        for one, path, stored in both:
            try:
                reply = one.update(f"{path}?dryRun=All", _changed(stored, at, value))
                found.append(reply.status == 200)
            except (KeyError, IndexError):
                continue  # a field that an older server does not have
        if len(set(found)) > 1 and not _is_in(".".join(map(str, at)), NEWER.get(kind, ())):
            other.append((at, value, found))
    assert other == []
