"""How others reach the operator: Services and the NetworkPolicy."""

from __future__ import annotations

from appsdk_operator.project._manifests.tree import Commented, Node
from appsdk_operator.project._manifests.values import Deployed, Values, manifest


def metrics_service(deployed: Deployed, values: Values) -> dict[str, Node]:
    """The Service of the metrics."""
    labels = {**deployed.labels, "app.kubernetes.io/component": "metrics"}
    return _service(deployed, values, f"{deployed.name}-metrics", labels, "metrics", 8080)


def webhook_service(deployed: Deployed, values: Values) -> dict[str, Node]:
    """The Service that API servers call."""
    return _service(deployed, values, deployed.service, deployed.labels, "webhooks", 443)


def _service(
    deployed: Deployed, values: Values, name: str, labels: dict[str, str], port: str, number: int
) -> dict[str, Node]:
    spec: dict[str, Node] = {
        "selector": deployed.labels,
        "ports": [{"name": port, "port": number, "targetPort": port, "protocol": "TCP"}],
    }
    return manifest("v1", "Service", deployed, values, name=name, labels=labels, spec=spec)


def network_policy(deployed: Deployed, values: Values) -> dict[str, Node]:
    """The policy of what may connect to its pods; what they connect to is not limited."""
    scraper = {
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": values.monitoring_namespace}
        }
    }
    ingress: list[Node] = [
        Commented(
            {"from": [scraper], "ports": [{"port": "metrics", "protocol": "TCP"}]},
            ("Prometheus. The kubelet's probes are allowed anyway.",),
        )
    ]
    if deployed.has_webhooks:
        ingress.append(
            Commented(
                {"ports": [{"port": "webhooks", "protocol": "TCP"}]},
                ("API servers; no selector is for them.",),
            )
        )
    return manifest(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        deployed,
        values,
        spec={
            "podSelector": {"matchLabels": deployed.labels},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    )
