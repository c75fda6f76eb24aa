import logging
from typing import Any

import kopf
import kubernetes
from kopf.testing import KopfRunner

log = logging.getLogger("tested_kopf")  # kopf gives a module another name


@kopf.on.create("widgets")
def greet(name: str, **_: Any) -> str:
    log.info("hello, %s", name)
    return "hello"


def main(namespace: str) -> None:
    """The operator's test, on a server."""
    registry = type(kopf.get_default_registry())()
    command = ["run", "--standalone", "--quiet", "-n", namespace, __file__]
    with KopfRunner(command, registry=registry, timeout=60) as runner:
        widgets = "example.com", "v1", namespace, "widgets"
        api = kubernetes.client.CustomObjectsApi()
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "web"}}
        api.create_namespaced_custom_object(*widgets, widget)
        watch: Any = kubernetes.watch.Watch()  # type: ignore[no-untyped-call]
        for change in watch.stream(api.list_namespaced_custom_object, *widgets, timeout_seconds=60):
            if change["object"].get("status"):
                break
    assert runner.exit_code == 0
    assert api.get_namespaced_custom_object(*widgets, "web")["status"] == {"greet": "hello"}
