"""The operator as the program of a pod: ``python -m examples.cronjob.program``.

With ``--manifests`` it prints what has to be applied before: the CRD and the webhook
configurations. A Service ``webhooks`` in its namespace leads to port 9443 of its pods.
"""

from __future__ import annotations

import argparse
from typing import Final

from appsdk_operator import ClientConfig, MutableObject, custom_resource_definition
from appsdk_operator.manager import (
    HealthServerOptions,
    LeaderElection,
    Manager,
    MetricsServerOptions,
)
from appsdk_operator.webhooks import (
    ManagedCertificates,
    Webhooks,
    WebhookServerOptions,
    webhook_configurations,
)

from .controller import add_controller
from .conversion import VERSIONS
from .webhooks import add_webhooks

__all__ = ["main", "make_manager", "manifests"]

NAMESPACE: Final = "cronjob-system"
SERVICE: Final = "webhooks"
SECRET: Final = "webhooks-tls"  # noqa: S105 - its name


def make_manager(
    config: ClientConfig,
    *,
    webhooks: str = ":9443",
    health: str = ":8081",
    metrics: str = ":8080",
) -> Manager:
    """The whole operator: all replicas answer for the webhooks, and one of them starts jobs.

    Args:
        config: the cluster.
        webhooks: where to serve the webhooks.
        health: where to serve the probes.
        metrics: where to serve the metrics.
    """
    certificates = ManagedCertificates(SERVICE, SECRET, namespace=NAMESPACE, inject=manifests())
    manager = Manager(
        config,
        leader_election=LeaderElection(
            id="cronjob-operator", namespace=NAMESPACE, release_on_cancel=True
        ),
        health_server=HealthServerOptions(address=health),
        metrics_server=MetricsServerOptions(address=metrics),
        webhook_server=WebhookServerOptions(address=webhooks, certificates=certificates),
    )
    add_controller(manager, manager.client, manager.event_recorder("cronjob-controller"))
    add_webhooks(manager)
    return manager


def manifests() -> list[MutableObject]:
    """What the API server has to know of the operator; the certificates inject themselves."""
    service = (NAMESPACE, SERVICE)
    webhooks = Webhooks()
    add_webhooks(webhooks)
    return [
        custom_resource_definition(VERSIONS, service=service),
        *webhook_configurations(webhooks, name="cronjob-operator", service=service),
    ]


def main() -> None:
    """Run until SIGTERM, or print the manifests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--manifests", action="store_true", help="print them instead")
    if parser.parse_args().manifests:
        print("---\n".join(each.to_yaml() for each in manifests()), end="")
    else:
        make_manager(ClientConfig.load()).run(handle_signals=True)


if __name__ == "__main__":
    main()
