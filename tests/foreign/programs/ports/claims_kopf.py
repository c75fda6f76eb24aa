from typing import Any

import kopf
import kubernetes


@kopf.on.create("widgets")
def provide(spec: kopf.Spec, name: str, namespace: Any, **_: Any) -> dict[str, str]:
    if not spec.get("size"):
        raise kopf.PermanentError("spec.size: none")
    claim: Any = {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": spec["size"]}},
            "storageClassName": "growing",
        },
    }
    kopf.adopt(claim)
    api = kubernetes.client.CoreV1Api()
    made: Any = api.create_namespaced_persistent_volume_claim(namespace, claim)
    return {"claim": made.metadata.name}


@kopf.on.update("widgets", field="spec.size")
def resize(spec: kopf.Spec, status: kopf.Status, namespace: Any, **_: Any) -> None:
    change = {"spec": {"resources": {"requests": {"storage": spec["size"]}}}}
    api = kubernetes.client.CoreV1Api()
    api.patch_namespaced_persistent_volume_claim(status["provide"]["claim"], namespace, change)


@kopf.on.update("widgets", field="metadata.labels")
def relabel(diff: kopf.Diff, status: kopf.Status, namespace: Any, **_: Any) -> None:
    labels = {path[0]: new for _, path, _, new in diff}
    change = {"metadata": {"labels": labels}}
    api = kubernetes.client.CoreV1Api()
    api.patch_namespaced_persistent_volume_claim(status["provide"]["claim"], namespace, change)
