"""A kopf operator with what kopf's own examples show: each handler leaves a trace on the server."""

from __future__ import annotations

from typing import Any

import kopf
import kubernetes

CALLS: dict[str, int] = {}


def count(uid: str) -> int:
    CALLS[uid] = CALLS.get(uid, 0) + 1
    return CALLS[uid]


@kopf.on.startup()
def connect(**_: Any) -> None:
    kubernetes.config.load_config()  # type: ignore[no-untyped-call]


@kopf.on.create("kopfexamples")
def greeted(spec: kopf.Spec, **_: Any) -> Any:
    return {"size": spec.get("size", 0)}  # which becomes a status


@kopf.on.create("kopfexamples", labels={"has": "child"})
def make_child(name: str, namespace: Any, spec: kopf.Spec, **_: Any) -> None:
    child: Any = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-child"}}
    child["data"] = {"size": str(spec["size"])}
    kopf.adopt(child)
    kopf.label(child, {"made": "yes"})
    kubernetes.client.CoreV1Api().create_namespaced_config_map(namespace, child)


@kopf.on.create("kopfexamples", labels={"fails": "at-once"})
def fail_at_once(patch: kopf.Patch, **_: Any) -> None:
    patch.status["tried"] = True
    raise kopf.PermanentError("once and for all")


@kopf.on.create("kopfexamples", labels={"fails": "twice"})
def fail_twice(uid: str, patch: kopf.Patch, **_: Any) -> None:
    calls = count(uid)
    if calls < 3:
        raise kopf.TemporaryError(f"not at the call {calls}", delay=0.1)
    patch.status["calls"] = calls


@kopf.on.create("kopfexamples", labels={"fails": "always"}, retries=3, backoff=0.1)
def fail_always(uid: str, patch: kopf.Patch, **_: Any) -> None:
    patch.status["calls"] = count(uid)
    raise ValueError("always")


@kopf.on.create("kopfexamples", when=lambda name, **_: name.startswith("shown"))
def show(body: kopf.Body, name: str, **_: Any) -> None:
    kopf.info(body, reason="Made", message=f"{name} is there")
    kopf.event(body, type="Warning", reason="Large", message="it may be too large")


@kopf.on.field("kopfexamples", field="spec.size")
def sized(old: Any, new: Any, patch: kopf.Patch, **_: Any) -> None:
    patch.status["sized"] = f"{old} -> {new}"


@kopf.on.update("kopfexamples", field="spec.size", old=1, new=2)
def from_one_to_two(patch: kopf.Patch, **_: Any) -> None:
    patch.status["stepped"] = True


@kopf.on.update("kopfexamples", field="spec.size", value=9)
def to_or_from_nine(patch: kopf.Patch, status: kopf.Status, **_: Any) -> None:
    patch.status["nines"] = status.get("nines", 0) + 1


@kopf.timer("kopfexamples", interval=0.2, annotations={"example.com/timed": kopf.PRESENT})
def count_to_two(status: kopf.Status, patch: kopf.Patch, **_: Any) -> None:
    if status.get("ticks", 0) < 2:
        patch.status["ticks"] = status.get("ticks", 0) + 1


@kopf.on.delete("kopfexamples", field="spec.size")
def leave_a_note(name: str, namespace: Any, spec: kopf.Spec, **_: Any) -> None:
    note: Any = {"metadata": {"name": f"{name}-note"}, "data": {"size": str(spec["size"])}}
    kubernetes.client.CoreV1Api().create_namespaced_config_map(namespace, note)


@kopf.on.event("configmaps", labels={"watched": "yes"})
def echo(name: str, namespace: Any, event: kopf.RawEvent, **_: Any) -> None:
    if event["type"] == "DELETED":
        note: Any = {"metadata": {"name": f"{name}-is-gone"}}
        kubernetes.client.CoreV1Api().create_namespaced_config_map(namespace, note)
