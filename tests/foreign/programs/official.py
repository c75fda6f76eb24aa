"""The official client: typed and dynamic requests, watch, informer, election."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock


def tell(what: str, about: Any) -> None:
    print(json.dumps({what: about}), flush=True)


def typed_requests() -> None:
    core, apps = client.CoreV1Api(), client.AppsV1Api()
    tell("version", client.VersionApi().get_code().git_version)
    made = core.create_namespaced_config_map(
        "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="one"), data={"a": "1"})
    )
    made.data["b"] = "2"
    written = core.replace_namespaced_config_map("one", "default", made)
    try:
        core.replace_namespaced_config_map("one", "default", made)
    except client.ApiException as error:
        tell("conflict", [error.status, json.loads(error.body)["reason"]])
    patched = core.patch_namespaced_config_map("one", "default", {"data": {"a": None}})
    tell(
        "patched",
        [patched.data, written.metadata.resource_version != made.metadata.resource_version],
    )
    found = core.list_namespaced_config_map("default", limit=1)
    tell("listed", [item.metadata.name for item in found.items])
    labels = {"app": "web"}
    container = client.V1Container(name="web", image="web:1")
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
    )
    apps.create_namespaced_deployment(
        "default",
        client.V1Deployment(
            metadata=client.V1ObjectMeta(name="web"),
            spec=client.V1DeploymentSpec(
                replicas=2, selector=client.V1LabelSelector(match_labels=labels), template=template
            ),
        ),
    )
    scale = apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 5}})
    tell("scaled", scale.spec.replicas)
    status = apps.patch_namespaced_deployment_status(
        "web", "default", {"status": {"observedGeneration": 2, "replicas": 5}}
    )
    tell("status", status.status.replicas)
    core.delete_namespaced_config_map("one", "default")
    try:
        core.read_namespaced_config_map("one", "default")
    except client.ApiException as error:
        tell("gone", error.status)
    utils.create_from_dict(
        client.ApiClient(),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}},
        namespace="default",
    )
    tell("secret", core.read_namespaced_secret("s", "default").data)


def custom_objects() -> None:
    custom = client.CustomObjectsApi()
    where = ("example.com", "v1", "default", "widgets")
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    custom.create_namespaced_custom_object(*where, {**body, "spec": {"size": 1}})
    custom.patch_namespaced_custom_object(*where, "w", {"spec": {"size": 2}})
    custom.patch_namespaced_custom_object_status(*where, "w", {"status": {"seen": 2}})
    found = custom.get_namespaced_custom_object(*where, "w")
    tell("custom", [found["spec"], found["status"], found["metadata"]["generation"]])
    try:
        custom.patch_namespaced_custom_object(*where, "w", {"spec": {"size": -1}})
    except client.ApiException as error:
        tell("invalid", json.loads(error.body)["details"]["causes"][0]["field"])


def dynamic_client() -> None:
    api = dynamic.DynamicClient(client.ApiClient())
    widgets = api.resources.get(api_version="example.com/v1", kind="Widget")
    applied = widgets.server_side_apply(
        body={
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": "applied", "namespace": "default"},
            "spec": {"size": 7},
        },
        field_manager="official",
    )
    tell("applied", [applied.spec.size, applied.metadata.managedFields[0].manager])
    names = sorted(item.metadata.name for item in widgets.get(namespace="default").items)
    tell("dynamic", names)
    seen = []
    for event in widgets.watch(namespace="default", timeout=30):
        seen.append([event["type"], event["object"].metadata.name])
        if len(seen) == len(names):
            break
    tell("dynamic watch", sorted(seen))


def watches() -> None:
    core = client.CoreV1Api()
    stream = watch.Watch()
    start = core.list_namespaced_config_map("default").metadata.resource_version
    for name in ("x", "y"):
        core.create_namespaced_config_map(
            "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name))
        )
    seen = []
    for event in stream.stream(
        core.list_namespaced_config_map, "default", resource_version=start, timeout_seconds=30
    ):
        seen.append([event["type"], event["object"].metadata.name])
        if len(seen) == 2:
            stream.stop()
    tell("watched", seen)


def informer() -> None:
    from kubernetes import informer as informers

    core = client.CoreV1Api()
    seen: list[list[str]] = []
    changed = threading.Condition()

    def note(what: str) -> Any:
        def handler(obj: Any) -> None:
            with changed:
                seen.append([what, obj.metadata.name])
                changed.notify_all()

        return handler

    shared = informers.SharedInformer(core.list_namespaced_config_map, namespace="default")
    for what in ("ADDED", "MODIFIED", "DELETED"):
        shared.add_event_handler(what, note(what))
    shared.start()
    with changed:
        changed.wait_for(lambda: len(seen) >= 2, 30)
    core.patch_namespaced_config_map("x", "default", {"data": {"k": "v"}})
    core.delete_namespaced_config_map("y", "default")
    with changed:
        changed.wait_for(lambda: len(seen) >= 4, 30)
    tell("informed", sorted(seen))
    shared.stop()


def election() -> None:
    is_done = threading.Event()

    def lead() -> None:
        lease = client.CoordinationV1Api().read_namespaced_lease("election", "default")
        tell("leads", lease.spec.holder_identity)
        is_done.set()

    lock = LeaseLock("election", "default", "official")
    options = electionconfig.Config(
        lock,
        lease_duration=4,
        renew_deadline=3,
        retry_period=1,
        onstarted_leading=lead,
        onstopped_leading=None,
    )
    candidate = leaderelection.LeaderElection(options)
    threading.Thread(target=candidate.run, daemon=True).start()
    if not is_done.wait(30):
        raise SystemExit("never led")


if __name__ == "__main__":
    config.load_kube_config()
    typed_requests()
    custom_objects()
    dynamic_client()
    watches()
    informer()
    election()
    # The election's thread never ends, and must not print while the interpreter does.
    os._exit(0)
