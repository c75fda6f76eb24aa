"""lightkube: typed and generic resources, apply, watch, wait."""

from __future__ import annotations

import json
from typing import Any

from lightkube import ApiError, Client
from lightkube.generic_resource import create_namespaced_resource, load_in_cluster_generic_resources
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace
from lightkube.types import PatchType


def tell(what: str, about: Any) -> None:
    print(json.dumps({what: about}), flush=True)


def main() -> None:
    client = Client(field_manager="light")
    made = client.create(
        ConfigMap(metadata=ObjectMeta(name="one", namespace="default"), data={"a": "1"})
    )
    made.data["b"] = "2"
    client.replace(made)
    try:
        client.replace(made)
    except ApiError as error:
        tell("conflict", [error.status.code, error.status.reason])
    patched = client.patch(
        ConfigMap, "one", {"data": {"a": None}}, namespace="default", patch_type=PatchType.MERGE
    )
    tell("patched", patched.data)

    widgets = create_namespaced_resource("example.com", "v1", "Widget", "widgets")
    for number in range(3):
        metadata = ObjectMeta(name=f"w{number}", namespace="default", labels={"n": str(number)})
        client.create(widgets(metadata=metadata, spec={"size": number}))
    tell("listed", sorted(item.metadata.name for item in client.list(widgets, namespace="default")))
    found = client.list(widgets, namespace="*", labels={"n": ["0", "2"]})
    tell("selected", sorted(item.metadata.name for item in found))
    status = client.patch(
        widgets.Status,
        "w1",
        {"status": {"seen": 1}},
        namespace="default",
        patch_type=PatchType.MERGE,
    )
    tell("status", status.status)

    applied = client.apply(
        ConfigMap(
            apiVersion="v1",
            kind="ConfigMap",
            metadata=ObjectMeta(name="applied", namespace="default"),
            data={"x": "1"},
        )
    )
    tell("applied", [applied.data, applied.metadata.managedFields[0].manager])
    try:
        client.apply(
            ConfigMap(
                apiVersion="v1",
                kind="ConfigMap",
                metadata=ObjectMeta(name="applied", namespace="default"),
                data={"x": "2"},
            ),
            field_manager="somebody",
        )
    except ApiError as error:
        tell("apply conflict", [error.status.code, error.status.details.causes[0].field])

    seen = []
    for kind, obj in client.watch(widgets, namespace="default"):
        seen.append([kind, obj.metadata.name])
        if len(seen) == 3:
            client.delete(widgets, "w2", namespace="default")
        if kind == "DELETED":
            break
    tell("watched", seen)

    load_in_cluster_generic_resources(client)
    tell("generic", True)
    deployment = Deployment.from_dict(
        {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        }
    )
    client.create(deployment)
    scale = client.patch(Deployment.Scale, "web", {"spec": {"replicas": 3}}, namespace="default")
    tell("scaled", scale.spec.replicas)
    available = {"type": "Available", "status": "True"}
    client.patch(
        Deployment.Status, "web", {"status": {"conditions": [available]}}, namespace="default"
    )
    ready = client.wait(Deployment, "web", for_conditions=["Available"], namespace="default")
    tell("waited", ready.metadata.name)
    client.create(Namespace(metadata=ObjectMeta(name="passing")))
    client.delete(Namespace, "passing")
    tell("deleted", "passing")


if __name__ == "__main__":
    main()
