"""Prometheus: what is scraped, and the alerts."""

from __future__ import annotations

from appsdk_operator.project._manifests.tree import Node
from appsdk_operator.project._manifests.values import Deployed, Values

__all__ = ["prometheus_rule", "service_monitor"]

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
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {
            "name": deployed.name,
            "namespace": values.namespace,
            "labels": deployed.labels,
        },
        "spec": {"selector": {"matchLabels": labels}, "endpoints": [endpoint]},
    }


def prometheus_rule(deployed: Deployed, values: Values) -> dict[str, Node]:
    """The alerts: what no operator should do for long."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": deployed.name,
            "namespace": values.namespace,
            "labels": deployed.labels,
        },
        "spec": {"groups": [{"name": deployed.name, "rules": _rules(deployed)}]},
    }


def _rules(deployed: Deployed) -> list[Node]:
    job = f'job="{deployed.name}-metrics"'
    found = [
        _rule(
            "OperatorDown",
            f"absent(up{{{job}}} == 1)",
            "5m",
            "critical",
            f"No pod of {deployed.name} answers Prometheus.",
        ),
        _rule(
            "OperatorNotSynced",
            f"sum by (pod, kind) (informer_synced{{{job}}}) "
            f"< sum by (pod, kind) (informers{{{job}}})",
            "10m",
            "warning",
            "An informer of {{ $labels.kind }} in {{ $labels.pod }} has no complete local copy: "
            "look at its log for missing permissions.",
        ),
        _rule(
            "OperatorInformerErrors",
            f"sum by (kind, cause) (rate(informer_errors_total{{{job}}}[10m])) > 0.05",
            "15m",
            "warning",
            "Informers of {{ $labels.kind }} fail again and again: {{ $labels.cause }}.",
        ),
        _rule(
            "OperatorGaveUp",
            f"sum by (kind) (increase(watcher_given_up_total{{{job}}}[15m])) > 0",
            "0m",
            "warning",
            "Calls for {{ $labels.kind }} have failed for so long that they are not retried.",
        ),
        _rule(
            "OperatorReconcileErrors",
            f"sum by (controller) (rate(controller_runtime_reconcile_errors_total{{{job}}}[10m]))"
            " > 0.1",
            "15m",
            "warning",
            "Reconciles of {{ $labels.controller }} fail again and again.",
        ),
        _rule(
            "OperatorHangs",
            f"max by (pod, name) (workqueue_longest_running_processor_seconds{{{job}}}) > 600",
            "0m",
            "warning",
            "A call of {{ $labels.name }} in {{ $labels.pod }} has run for ten minutes.",
        ),
    ]
    if deployed.is_elected:
        found.append(
            _rule(
                "OperatorHasNoLeader",
                f"sum(leader_election_master_status{{{job}}}) < 1",
                "5m",
                "critical",
                f"No replica of {deployed.name} leads, so that none works.",
            )
        )
    if deployed.has_webhooks:
        found.append(
            _rule(
                "OperatorWebhookErrors",
                "sum by (webhook) (rate(controller_runtime_webhook_requests_total"
                f'{{{job},code="500"}}[10m])) > 0',
                "10m",
                "warning",
                "The webhook {{ $labels.webhook }} fails.",
            )
        )
    if deployed.certificates == "managed":
        found.append(
            _rule(
                "OperatorCertificateExpires",
                f"min by (secret, certificate) (managed_certificates_expiry_seconds{{{job}}})"
                " < 7 * 86400",
                "1h",
                "critical",
                "The certificate {{ $labels.certificate }} in {{ $labels.secret }} is not renewed.",
            )
        )
    return found


def _rule(alert: str, expression: str, duration: str, severity: str, summary: str) -> Node:
    return {
        "alert": alert,
        "expr": expression,
        "for": duration,
        "labels": {"severity": severity},
        "annotations": {"summary": summary},
    }
