import asyncio
import logging
import threading
from typing import Any

import kopf
import kubernetes

log = logging.getLogger(__name__)
greeted = threading.Event()


@kopf.on.create("widgets")
def greet(name: str, memo: Any, **_: Any) -> None:
    log.info(memo.greeting, name)
    greeted.set()


@kopf.on.delete("widgets")
def part(name: str, memo: Any, **_: Any) -> None:
    log.info(memo.farewell, name)


def operate(namespace: str, ready: threading.Event, stop: threading.Event) -> None:
    operator = kopf.operator(
        namespaces=[namespace],
        standalone=True,
        memo=kopf.Memo(greeting="hello, %s", farewell="good bye, %s"),
        ready_flag=ready,
        stop_flag=stop,
    )
    asyncio.run(operator)


def main(namespace: str) -> None:
    """A program that has something else to do, too."""
    ready, stop = threading.Event(), threading.Event()
    thread = threading.Thread(target=operate, args=(namespace, ready, stop))
    thread.start()
    ready.wait()
    widgets = "example.com", "v1", namespace, "widgets"
    api: Any = kubernetes.client.CustomObjectsApi()
    for name in ("first", "second"):
        greeted.clear()
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}
        api.create_namespaced_custom_object(*widgets, widget)
        greeted.wait()
        api.delete_namespaced_custom_object(*widgets, name)
        left = api.list_namespaced_custom_object(*widgets)
        if left["items"]:
            since = {"resource_version": left["metadata"]["resourceVersion"]}
            watch: Any = kubernetes.watch.Watch()  # type: ignore[no-untyped-call]
            for change in watch.stream(api.list_namespaced_custom_object, *widgets, **since):
                if change["type"] == "DELETED":
                    break
    stop.set()
    thread.join()
