"""Prometheus: what is scraped, and the alerts."""

from __future__ import annotations

from appsdk_operator.project._manifests.alerts import RUNBOOKS, Part, alert_rules
from appsdk_operator.project._manifests.tree import Node
from appsdk_operator.project._manifests.values import Deployed, Values, manifest

_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path


def service_monitor(deployed: Deployed, values: Values) -> dict[str, Node]:
    """The ServiceMonitor of the metrics Service."""
    server = deployed.app.options.metrics_server
    endpoint: dict[str, Node] = {"port": "metrics", "path": "/metrics"}
    if server is not None and server.tls is not None:
        endpoint["scheme"] = "https"
        if server.tls.cert_file is None:
            # It makes its certificate by itself, which nobody can verify.
            endpoint["tlsConfig"] = {"insecureSkipVerify": True}
    if server is not None and server.filter_provider is not None:
        endpoint["bearerTokenFile"] = _TOKEN
    labels = {**deployed.labels, "app.kubernetes.io/component": "metrics"}
    return manifest(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        deployed,
        values,
        spec={"selector": {"matchLabels": labels}, "endpoints": [endpoint]},
    )


def prometheus_rule(deployed: Deployed, values: Values) -> dict[str, Node]:
    """The alerts: what no operator should do for long."""
    return manifest(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        deployed,
        values,
        spec={"groups": [{"name": deployed.name, "rules": _rules(deployed)}]},
    )


def _rules(deployed: Deployed) -> list[dict[str, Node]]:
    parts: list[Part] = []
    if deployed.is_elected:
        parts.append("leader election")
    if deployed.has_webhooks:
        parts.append("webhooks")
    server = deployed.app.options.metrics_server
    if deployed.certificates or (server is not None and server.tls is not None):
        parts.append("certificates")
    return alert_rules(
        f"{deployed.name}-metrics", parts=parts, runbooks=deployed.options.runbooks or RUNBOOKS
    )
