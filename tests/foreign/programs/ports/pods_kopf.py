import asyncio
import logging
from typing import Any

import kopf
import kubernetes

log = logging.getLogger(__name__)
tasks: dict[str, asyncio.Task[None]] = {}


@kopf.on.resume("pods")
@kopf.on.create("pods")
async def watch_over(
    name: str, namespace: Any, uid: str, annotations: kopf.Annotations, **_: Any
) -> None:
    if not name.startswith("kube-"):
        log.info("%s is watched", name)
        tasks[uid] = asyncio.create_task(end(name, namespace, uid, float(annotations["lives"])))


@kopf.on.delete("pods")
async def forget(uid: str, **_: Any) -> None:
    if uid in tasks:
        tasks.pop(uid).cancel()


async def end(name: str, namespace: Any, uid: str, seconds: float) -> None:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        log.info("%s: somebody else was first", name)
    else:
        log.info("%s: its time is over", name)
        del tasks[uid]
        api = kubernetes.client.CoreV1Api()
        await asyncio.to_thread(api.delete_namespaced_pod, name, namespace)
