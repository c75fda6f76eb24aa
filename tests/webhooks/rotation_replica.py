"""One replica of an operator with webhooks, as a program: ``python -m … KUBECONFIG NAMESPACE``.

Prints ``ready PORT`` once its webhooks can be called. Reads commands from its standard input:
``rotate`` begins a rotation; its end, like SIGTERM, stops the replica.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from appsdk_operator import Manager
from appsdk_operator.client import ClientConfig
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import StopSignal
from appsdk_operator.webhooks import ManagedCertificates, WebhookServer, webhook_for

ConfigMap = kinds.core.v1.ConfigMap
PROPAGATION = 1.0


def certificates(namespace: str, client: Any = None) -> ManagedCertificates:
    """The same for all replicas; and for the test, which asks them for the rules."""
    registration = kinds.admissionregistration.v1
    return ManagedCertificates(
        "hooks",
        "hooks-tls",
        namespace=namespace,
        inject=[
            (registration.MutatingWebhookConfiguration, "load"),
            (registration.ValidatingWebhookConfiguration, "load"),
        ],
        # The API server does not run in the cluster: it calls a URL.
        names=["127.0.0.1"],
        propagation=PROPAGATION,
        client=client,
    )


def default(obj: MutableObject) -> None:
    """Mark that the webhook was here."""
    obj.setdefault("data", {})["seen"] = "yes"


def check(_: Any, new: Any) -> None:
    """Allow what the other webhook has seen."""
    if (new.get("data") or {}).get("seen") != "yes":
        raise ValueError("not seen")


def main() -> None:
    """Run until the end of the standard input or a signal."""
    source = certificates(sys.argv[2])
    server = WebhookServer(
        "127.0.0.1:0", certificates=source, shutdown_delay=1.0, shutdown_timeout=20.0
    )
    manager = Manager(ClientConfig.load(sys.argv[1]), webhook_server=server)
    webhook_for(manager, ConfigMap).default(default).validate(update=check).complete()
    stop = StopSignal()

    def obey() -> None:
        if server.wait_until_ready(stop, 120.0):
            sys.stdout.write(f"ready {server.port}\n")
            sys.stdout.flush()
        for line in sys.stdin:
            if line.strip() == "rotate":
                source.rotate()
        stop.set()

    reader = threading.Thread(target=obey, daemon=True)
    reader.start()
    manager.run(stop, handle_signals=True)


if __name__ == "__main__":
    main()
