import logging
from typing import Any

import kopf
import kubernetes

log = logging.getLogger(__name__)


@kopf.on.startup()
async def begin(**_: Any) -> None:
    log.info("begins")


@kopf.on.startup()
async def connect(retry: int, **_: Any) -> None:
    log.info("connects")
    if retry < 2:
        raise kopf.TemporaryError("nobody is there yet", delay=0.05)


@kopf.on.cleanup()
async def end(**_: Any) -> None:
    log.info("ends")


@kopf.on.create("widgets")
def report(body: kopf.Body, **_: Any) -> dict[str, int]:
    kopf.info(body, reason="Seen", message="a new widget")
    kopf.event(body, type="Warning", reason="Measured", message="it may grow")
    return {"percent": 100}


@kopf.on.create("widgets", backoff=0.05)
def try_twice(retry: int, **_: Any) -> dict[str, int]:
    log.info("tries")
    if not retry:
        raise OSError("not at once")
    return {"percent": 100}


@kopf.on.create("widgets")
def make_pod(namespace: Any, **_: Any) -> None:
    container = {"name": "main", "image": "busybox"}
    pod: Any = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    kopf.adopt(pod)
    kopf.label(pod, {"made": "yes"})
    kubernetes.client.CoreV1Api().create_namespaced_pod(namespace, pod)


@kopf.on.update("widgets", field="spec")
def update(diff: kopf.Diff, **_: Any) -> None:
    for _how, path, old, new in diff:
        log.info("%s: %s, %s", ".".join(path), old, new)


@kopf.on.field("widgets", field="spec.sizes")
def sizes(old: Any, new: Any, **_: Any) -> None:
    log.info("from %s to %s", old, new)


@kopf.on.delete("widgets")
def delete(**_: Any) -> None:
    log.info("deletes")


@kopf.on.event("pods", labels={"made": "yes"})
def pod_changes(event: kopf.RawEvent, **_: Any) -> None:
    log.info("a pod of ours is %s", "gone" if event["type"] == "DELETED" else "there")
