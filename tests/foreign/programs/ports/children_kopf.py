from typing import Any

import kopf
import kubernetes


@kopf.on.create("widgets")
def make(spec: kopf.Spec, namespace: Any, **_: Any) -> dict[str, list[str]]:
    variable = {"name": "COLOR", "value": spec.get("color", "none")}
    container = {"name": "main", "image": "busybox", "env": [variable]}
    pod: Any = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    kopf.adopt(pod)
    made: Any = kubernetes.client.CoreV1Api().create_namespaced_pod(namespace, pod)
    return {"children": [made.metadata.uid]}
