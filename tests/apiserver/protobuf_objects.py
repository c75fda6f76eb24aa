"""Objects whose fields are of every sort that protobuf has a form of its own for."""

from __future__ import annotations

from typing import Any

LABELS = {"app": "web"}
POD = {
    "containers": [
        {
            "name": "web",
            "image": "web:1",
            "args": ["-v", ""],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "ports": [{"containerPort": 80, "name": "http"}],
            "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
            "readinessProbe": {"tcpSocket": {"port": 8080}, "initialDelaySeconds": 1},
            "securityContext": {"runAsUser": 0, "privileged": False},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
    ],
    "volumes": [
        {"name": "data", "emptyDir": {}},
        {"name": "map", "configMap": {"name": "m", "items": [{"key": "k", "path": "p"}]}},
    ],
    "terminationGracePeriodSeconds": 0,
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [
        {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    ],
}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": POD}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 0, "maximum": 9, "default": 3},
                "ratio": {"type": "number", "maximum": 9.5},
                "list": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
                "any": {"type": "object", "additionalProperties": {"type": "string"}},
                "more": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            },
        }
    },
}
OBJECTS: list[tuple[str, dict[str, Any]]] = [
    (
        "/apis/apps/v1/namespaces/default/deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "labels": LABELS, "annotations": {"smile": "\U0001f600"}},
            "spec": {
                "replicas": 0,
                "selector": {
                    "matchLabels": LABELS,
                    "matchExpressions": [{"key": "x", "operator": "DoesNotExist"}],
                },
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
                "template": TEMPLATE,
            },
        },
    ),
    (
        "/api/v1/namespaces/default/pods",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": POD},
    ),
    (
        "/api/v1/namespaces/default/services",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": LABELS, "ports": [{"port": 80, "targetPort": "http"}]},
        },
    ),
    (
        "/api/v1/namespaces/default/secrets",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "finalizers": ["example.com/f"]},
            "type": "Opaque",
            "data": {"a": "AAEC/w==", "b": ""},
        },
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "l"},
            "spec": {
                "holderIdentity": "me",
                "leaseDurationSeconds": 15,
                "acquireTime": "2026-01-02T03:04:05.678901Z",
                "renewTime": "1969-12-31T23:59:59.000000Z",
                "leaseTransitions": 0,
            },
        },
    ),
    (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gadgets.protobuf.example.com"},
            "spec": {
                "group": "protobuf.example.com",
                "scope": "Namespaced",
                "names": {"plural": "gadgets", "kind": "Gadget"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": SCHEMA},
                    }
                ],
            },
        },
    ),
    (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "protobuf"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        },
    ),
    (
        "/apis/batch/v1/namespaces/default/jobs",
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {
                "backoffLimit": 0,
                "template": {"spec": {**POD, "restartPolicy": "Never"}},
            },
        },
    ),
]
IDS = [obj["kind"] for _, obj in OBJECTS]


def bare(value: Any) -> Any:
    """Without what Go's JSON writes for nothing: nulls and empty objects."""
    if isinstance(value, dict):
        found = {key: bare(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item not in (None, {}, [])}
    return [bare(item) for item in value] if isinstance(value, list) else value
