"""The objects that the replay server sends: made from templates, so that a million are quick.

A widget is a custom resource with as many text fields in its spec as its size allows, the managed
fields that ``kubectl apply`` leaves behind, and a note that makes it exactly as long as asked for.
A pod looks like one that a Deployment made and a kubelet runs.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

__all__ = [
    "FIRST_VERSION",
    "KINDS",
    "NAMESPACE",
    "KindNames",
    "Template",
    "bookmark",
    "widget_fields",
]

NAMESPACE = "default"
FIRST_VERSION = 1_000_000_000
"""The resource version of the first object: ten digits, so that all objects are equally long."""

# What is replaced in a template; each as long as what takes its place.
_INDEX = "#######"
_VERSION = "@@@@@@@@@@"
_GENERATION = 7777777


class KindNames:
    """What a kind is called, and where it is served."""

    def __init__(self, group: str, version: str, kind: str, plural: str) -> None:
        self.group = group
        self.version = version
        self.kind = kind
        self.plural = plural
        self.api_version = f"{group}/{version}" if group else version
        self.root = f"/apis/{self.api_version}" if group else f"/api/{version}"


KINDS = {
    "widgets": KindNames("example.com", "v1", "Widget", "widgets"),
    "pods": KindNames("", "v1", "Pod", "pods"),
}


@functools.cache
def widget_fields(size: int) -> int:
    """How many fields the spec of a widget of ``size`` bytes has: field0, field1, …

    >>> widget_fields(2000)
    35
    """
    count = 1
    while len(_compact(_widget(count + 1, ""))) <= size:
        count += 1
    return count


class Template:
    """Makes the objects of a kind: the same index and version give the same bytes."""

    def __init__(self, kind: str, size: int = 2000) -> None:
        """A template of ``widgets`` of ``size`` bytes, or of ``pods``, which have a size."""
        self.names = KINDS[kind]
        if kind == "widgets":
            fields = widget_fields(size)
            missing = size - len(_compact(_widget(fields, "")))
            # The generation is one digit in the first state of an object.
            missing += len(str(_GENERATION)) - 1
            obj = _widget(fields, "x" * max(missing, 0))
        else:
            obj = _pod()
        self._text = _compact(obj)
        # Lists of built-in kinds leave out of their items what the list says of all of them.
        kept = obj if self.names.group else {k: obj[k] for k in ("metadata", "spec", "status")}
        self._item = _compact(kept).replace(str(_GENERATION).encode(), b"1", 1)
        self.size = len(self.object(0, FIRST_VERSION))
        """The bytes of an object's JSON, on its own."""
        self.item_size = len(self._item)
        """The bytes of an object's JSON in a list."""

    def name(self, index: int) -> str:
        """The name of an object."""
        return f"{self.names.kind.lower()}-{index:07}"

    def index(self, name: str) -> int:
        """The object of that name.

        Raises:
            ValueError: it is none of ours.
        """
        kind, _, number = name.rpartition("-")
        if kind != self.names.kind.lower():
            raise ValueError(name)
        return int(number)

    def item(self, index: int, version: int) -> bytes:
        """An object's first state, as a list has it."""
        return _filled(self._item, index, version)

    def object(self, index: int, version: int, generation: int = 1) -> bytes:
        """An object's state, as an answer or an event has it."""
        text = self._text.replace(str(_GENERATION).encode(), b"%d" % generation, 1)
        return _filled(text, index, version)

    def event(self, kind: str, index: int, version: int, generation: int = 1) -> bytes:
        """A line of a watch."""
        obj = self.object(index, version, generation)
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), obj)

    def split_event(self, kind: str, index: int, generation: int) -> tuple[bytes, bytes]:
        """A line of a watch: what comes before and what comes after the resource version."""
        text = self.event(kind, index, FIRST_VERSION, generation)
        before, version, after = text.partition(b"%d" % FIRST_VERSION)
        assert version
        return before, after

    def items(self, start: int, stop: int) -> Iterator[bytes]:
        """The first states of these objects."""
        return (self.item(index, FIRST_VERSION + index) for index in range(start, stop))


def bookmark(api_version: str, kind: str, version: int) -> bytes:
    """The line that ends the initial events of a watch."""
    obj = {
        "kind": kind,
        "apiVersion": api_version,
        "metadata": {
            "resourceVersion": str(version),
            "creationTimestamp": None,
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    }
    return _compact({"type": "BOOKMARK", "object": obj}) + b"\n"


def _filled(text: bytes, index: int, version: int) -> bytes:
    text = text.replace(_INDEX.encode(), b"%07d" % index)
    return text.replace(_VERSION.encode(), b"%d" % version)


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _metadata(name: str, fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": f"{name}-{_INDEX}",
        "namespace": NAMESPACE,
        "uid": f"7b1cf4c2-2f2a-4f0e-9d0e-00000{_INDEX}",
        "resourceVersion": _VERSION,
        "generation": _GENERATION,
        "creationTimestamp": "2024-01-01T00:00:00Z",
        **more,
        "managedFields": [
            {
                "manager": "kubectl",
                "operation": "Apply",
                "apiVersion": "example.com/v1" if name == "widget" else "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            }
        ],
    }


def _widget(fields: int, note: str) -> dict[str, Any]:
    managed: dict[str, Any] = {"f:spec": {f"f:field{number}": {} for number in range(fields)}}
    spec = {f"field{number}": f"value {number}/{_INDEX}" for number in range(fields)}
    # What changes from event to event.
    spec["field0"] = f"seen at {_VERSION}"
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": _metadata(
            "widget", managed, labels={"app": "widget"}, annotations={"note": note}
        ),
        "spec": spec,
    }


def _pod() -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/name": "shop",
        "app.kubernetes.io/component": "checkout",
        "app.kubernetes.io/managed-by": "Helm",
        "pod-template-hash": "6d4b75cb6d",
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "shop-checkout-6d4b75cb6d",
        "uid": "0c7c1f0e-6f0b-4a38-8d9f-5f3f0a5a9a11",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    names = ("checkout", "proxy")
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": _metadata(
            "pod",
            _pod_fields(names),
            labels=labels,
            annotations={
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9102",
            },
            ownerReferences=[owner],
        ),
        "spec": _pod_spec(names),
        "status": _pod_status(names),
    }


def _pod_fields(names: tuple[str, ...]) -> dict[str, Any]:
    container: dict[str, Any] = {
        "f:image": {},
        "f:imagePullPolicy": {},
        "f:name": {},
        "f:ports": {".": {}, 'k:{"containerPort":8080,"protocol":"TCP"}': {".": {}}},
        "f:resources": {".": {}, "f:limits": {".": {}, "f:memory": {}}, "f:requests": {".": {}}},
        "f:livenessProbe": {".": {}, "f:httpGet": {".": {}, "f:path": {}, "f:port": {}}},
        "f:volumeMounts": {".": {}, 'k:{"mountPath":"/etc/shop"}': {".": {}, "f:name": {}}},
    }
    return {
        "f:metadata": {"f:labels": {".": {}, "f:app.kubernetes.io/name": {}}},
        "f:spec": {
            "f:containers": {f'k:{{"name":"{name}"}}': container for name in names},
            "f:dnsPolicy": {},
            "f:restartPolicy": {},
            "f:serviceAccountName": {},
            "f:volumes": {".": {}, 'k:{"name":"config"}': {".": {}, "f:configMap": {}}},
        },
    }


def _pod_spec(names: tuple[str, ...]) -> dict[str, Any]:
    def container(name: str) -> dict[str, Any]:
        return {
            "name": name,
            "image": f"registry.example.com/shop/{name}:2.14.3",
            "args": ["--config=/etc/shop/config.yaml", "--log-format=json", f"--name={name}"],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "env": [
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "REGION", "value": "eu-central-1"},
                {"name": "DATABASE_URL", "value": "postgres://shop@db.shop.svc:5432/shop"},
            ],
            "resources": {
                "limits": {"memory": "512Mi"},
                "requests": {"cpu": "250m", "memory": "256Mi"},
            },
            "volumeMounts": [
                {"name": "config", "readOnly": True, "mountPath": "/etc/shop"},
                {
                    "name": "kube-api-access-x7k2p",
                    "readOnly": True,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                },
            ],
            "livenessProbe": {
                "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
                "timeoutSeconds": 1,
                "periodSeconds": 10,
                "failureThreshold": 3,
            },
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }

    return {
        "volumes": [
            {"name": "config", "configMap": {"name": "shop-config", "defaultMode": 420}},
            {"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420}},
        ],
        "containers": [container(name) for name in names],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "shop",
        "nodeName": "node-17.example.com",
        "securityContext": {"runAsNonRoot": True, "fsGroup": 1000},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _pod_status(names: tuple[str, ...]) -> dict[str, Any]:
    conditions = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "message": f"seen at {_VERSION}",
        "conditions": [
            {
                "type": name,
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": "2024-01-01T00:00:07Z",
            }
            for name in conditions
        ],
        "hostIP": "10.0.17.4",
        "podIP": "10.244.17.93",
        "podIPs": [{"ip": "10.244.17.93"}],
        "startTime": "2024-01-01T00:00:00Z",
        "containerStatuses": [
            {
                "name": name,
                "state": {"running": {"startedAt": "2024-01-01T00:00:05Z"}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": f"registry.example.com/shop/{name}:2.14.3",
                "imageID": f"registry.example.com/shop/{name}@sha256:{'3b1f' * 16}",
                "containerID": f"containerd://{'90ac' * 14}a{_INDEX}",
                "started": True,
            }
            for name in names
        ],
        "qosClass": "Burstable",
    }
