"""The operator's own objects: namespace, account, Deployment, disruption budget."""

from __future__ import annotations

from typing import Any, Final

from appsdk_operator.app import ENVIRONMENT
from appsdk_operator.manager import HealthServerOptions
from appsdk_operator.project._manifests.tree import Commented, Node
from appsdk_operator.project._manifests.values import PORTS, Deployed, Values, manifest

_USER: Final = 65532
"""Above the ids of people and distributions; the Dockerfile has it as well."""


def namespace(deployed: Deployed, values: Values) -> dict[str, Node]:
    """The namespace, in which only restricted pods run."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": values.namespace,
            "labels": {**deployed.labels, "pod-security.kubernetes.io/enforce": "restricted"},
        },
    }


def deployment(deployed: Deployed, values: Values) -> dict[str, Node]:
    """The Deployment."""
    return manifest(
        "apps/v1",
        "Deployment",
        deployed,
        values,
        spec={
            "replicas": values.replicas,
            "selector": {"matchLabels": deployed.labels},
            "strategy": _strategy(deployed),
            "template": {
                "metadata": {"labels": deployed.labels, "annotations": values.pod_annotations},
                "spec": _pod(deployed, values),
            },
        },
    )


def _strategy(deployed: Deployed) -> Node:
    if not deployed.is_alone:
        return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    comment = "Nothing elects a leader, so that the old pod has to end before the new one starts."
    return Commented({"type": "Recreate"}, (comment,))


def _pod(deployed: Deployed, values: Values) -> dict[str, Node]:
    volumes: list[Node] = [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}]
    if deployed.certificates in ("cert-manager", "secret"):
        secret = {"secretName": deployed.secret, "defaultMode": 0o440}
        volumes.append({"name": "webhooks-tls", "secret": secret})
    return {
        "serviceAccountName": deployed.name,
        "imagePullSecrets": values.pull_secrets,
        "priorityClassName": values.priority_class,
        "nodeSelector": values.node_selector,
        "tolerations": values.tolerations,
        "affinity": values.affinity,
        "topologySpreadConstraints": [
            _spread("kubernetes.io/hostname", deployed),
            _spread("topology.kubernetes.io/zone", deployed),
        ],
        "terminationGracePeriodSeconds": Commented(
            deployed.grace, ("The App's graceful_shutdown_timeout, and some seconds to exit.",)
        ),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(deployed, values)],
        "volumes": volumes,
    }


def _spread(key: str, deployed: Deployed) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": deployed.labels},
    }


def _container(deployed: Deployed, values: Values) -> dict[str, Node]:
    mounts: list[Node] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - in a pod
    if deployed.certificates in ("cert-manager", "secret"):
        mounts.append(
            {
                "name": "webhooks-tls",
                "mountPath": deployed.certificate_folder,
                "readOnly": True,
            }
        )
    health = deployed.app.options.health_server or HealthServerOptions()
    return {
        "name": "operator",
        "image": values.image,
        "imagePullPolicy": values.pull_policy,
        "args": _arguments(deployed, values),
        "env": _environment(deployed, values),
        "ports": _ports(deployed),
        # Longer than the checks may take, so that the answer names the one that hangs.
        "livenessProbe": _probe(health.liveness_path, health, period=20),
        "readinessProbe": _probe(health.readiness_path, health, period=10),
        "resources": values.resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _environment(deployed: Deployed, values: Values) -> Node:
    if not deployed.makes_certificates:
        return values.environment
    service = Commented(
        {"name": ENVIRONMENT["webhook_service"], "value": deployed.service},
        (f"The operator makes the certificates for this Service, in {deployed.secret}.",),
    )
    return [service, values.environment]


def _arguments(deployed: Deployed, values: Values) -> list[Node]:
    found: list[Node] = [
        "run",
        deployed.target,
        values.log_level,
        values.log_format,
        f"--metrics-address=:{PORTS['metrics']}",
        f"--probe-address=:{PORTS['probes']}",
    ]
    if deployed.has_webhooks and deployed.has_server_options:
        found.append(f"--webhook-address=:{PORTS['webhooks']}")
    if deployed.is_elected:
        found.append("--leader-election")
    elif deployed.app.options.leader_election is not None:
        found.append("--no-leader-election")
    found.append(values.extra_arguments)
    return found


def _ports(deployed: Deployed) -> list[dict[str, Any]]:
    return [
        {"name": name, "containerPort": port, "protocol": "TCP"}
        for name, port in PORTS.items()
        if name != "webhooks" or deployed.has_webhooks
    ]


def _probe(path: str, health: HealthServerOptions, *, period: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "probes"},
        "periodSeconds": period,
        "timeoutSeconds": int(health.check_timeout) + 1,
    }


def disruption_budget(deployed: Deployed, values: Values) -> dict[str, Node]:
    """The budget that keeps all but one pod while nodes are drained."""
    return manifest(
        "policy/v1",
        "PodDisruptionBudget",
        deployed,
        values,
        spec={"maxUnavailable": 1, "selector": {"matchLabels": deployed.labels}},
    )
