"""Strategies of built-in kinds: fields that the server sets on create, update and delete."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from appsdk_operator.apiserver._builtin import types
from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.apiserver._values.quantity import QuantityError, amount

__all__ = [
    "create_autoscaler",
    "create_claim",
    "create_daemon_set",
    "create_job",
    "create_lease",
    "create_namespace",
    "create_node",
    "create_pod",
    "create_priority_class",
    "create_secret",
    "create_stateful_set",
    "create_volume",
    "delete_claim",
    "delete_namespace",
    "delete_volume",
    "empty_status",
    "update_daemon_set",
    "update_deployment_status",
    "update_lease",
    "update_namespace",
    "update_pod",
    "update_pod_status",
    "update_secret",
    "update_stateful_set",
]

_Object = dict[str, Any]


def empty_status(definition: str) -> Callable[[_Object], None]:
    """A strategy that gives new objects the empty status of a definition."""

    def prepare(obj: _Object) -> None:
        obj["status"] = types.empty(definition)

    return prepare


# -- namespaces and nodes --------------------------------------------------------------------


def create_namespace(obj: _Object) -> None:
    """Set the label, the phase, and the finalizer that waits for the content."""
    metadata = obj["metadata"]
    metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata.get("name", "")
    spec = obj.setdefault("spec", {}) or {}
    obj["spec"] = spec
    if "kubernetes" not in (spec.get("finalizers") or ()):
        spec["finalizers"] = [*(spec.get("finalizers") or ()), "kubernetes"]
    obj["status"] = {"phase": "Active"}


def update_namespace(new: _Object, old: _Object) -> None:
    """Keep the finalizers, which only the subresource changes, and the name label."""
    metadata = new["metadata"]
    metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata.get("name", "")
    if "spec" in old:
        new["spec"] = {**(new.get("spec") or {}), "finalizers": old["spec"].get("finalizers", [])}


def delete_namespace(obj: _Object) -> bool:
    """Set the phase; the namespace stays until it is empty."""
    obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return bool((obj.get("spec") or {}).get("finalizers"))


_NOT_READY: Final = "node.kubernetes.io/not-ready"


def create_node(obj: _Object) -> None:
    """Add the not-ready taint."""
    spec = obj.setdefault("spec", {})
    taints = spec.setdefault("taints", [])
    if not any(taint.get("key") == _NOT_READY for taint in taints):
        taints.append({"key": _NOT_READY, "effect": "NoSchedule"})


# -- pods and workloads ----------------------------------------------------------------------

_QUICK: Final = 300


def create_pod(obj: _Object) -> None:
    """Set the default tolerations, the status and the QoS class of a new pod."""
    spec = obj["spec"]
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    _add_tolerations(spec)
    status: _Object = {"phase": "Pending", "qosClass": _qos_class(spec)}
    obj["status"] = status
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": None,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def update_pod(new: _Object, old: _Object) -> None:
    """Keep the priority, and set the default tolerations, as for a new pod."""
    spec, before = new["spec"], old["spec"]
    for name in ("priority", "preemptionPolicy"):
        if name in before:
            spec.setdefault(name, before[name])
    _add_tolerations(spec)


def _add_tolerations(spec: _Object) -> None:
    """Tolerate for some minutes that the node of a pod is not ready or cannot be reached."""
    tolerations = spec.get("tolerations", [])
    missing = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _QUICK}
        for key in (_NOT_READY, "node.kubernetes.io/unreachable")
        if not any(
            toleration.get("key", "") in ("", key)
            and toleration.get("effect", "") in ("", "NoExecute")
            for toleration in tolerations
        )
    ]
    if missing:
        spec["tolerations"] = [*tolerations, *missing]


def _qos_class(spec: _Object) -> str:
    """The QoS class of a pod."""
    guaranteed, anything = True, False
    for container in (spec.get("containers") or []) + (spec.get("initContainers") or []):
        resources = container.get("resources") or {}
        limits, requests = (
            {
                name: amount(value)
                for name, value in (resources.get(part) or {}).items()
                if name in ("cpu", "memory") and _positive(value)
            }
            for part in ("limits", "requests")
        )
        anything = anything or bool(limits or requests)
        guaranteed = guaranteed and set(limits) == {"cpu", "memory"} and limits == requests
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(value: Any) -> bool:
    try:
        return amount(str(value)) > 0
    except QuantityError:
        return False


def update_pod_status(new: _Object, old: _Object) -> None:
    """Keep the QoS class."""
    status, before = new.get("status") or {}, old.get("status") or {}
    if not status.get("qosClass") and before.get("qosClass"):
        new["status"] = {**status, "qosClass": before["qosClass"]}
    for name in ("ownerReferences",):
        new["metadata"].pop(name, None)
        if name in old["metadata"]:
            new["metadata"][name] = old["metadata"][name]


_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


def create_daemon_set(obj: _Object) -> None:
    """Set the template generation to 1."""
    obj["metadata"].setdefault("annotations", {})[_TEMPLATE_GENERATION] = "1"
    obj["status"] = types.empty("io.k8s.api.apps.v1.DaemonSetStatus")


def update_daemon_set(new: _Object, old: _Object) -> None:
    """Raise the template generation when the template changes."""
    before = old["metadata"].get("annotations", {}).get(_TEMPLATE_GENERATION, "1")
    changed = new["spec"].get("template") != old["spec"].get("template")
    number = parse_integer(before)
    count = 1 if number is None else number + changed
    new["metadata"].setdefault("annotations", {})[_TEMPLATE_GENERATION] = str(count)


def create_job(obj: _Object) -> None:
    """Generate the selector and the labels of the pod template."""
    obj["status"] = {}
    spec, metadata = obj["spec"], obj["metadata"]
    if spec.get("manualSelector") or "uid" not in metadata:
        return  # no uid yet, while mutating webhooks run
    labels = spec["template"]["metadata"].setdefault("labels", {})
    unique = "batch.kubernetes.io/controller-uid"
    made = {
        unique: metadata["uid"],
        "batch.kubernetes.io/job-name": metadata.get("name", ""),
        "controller-uid": metadata["uid"],
        "job-name": metadata.get("name", ""),
    }
    for name, value in made.items():
        labels.setdefault(name, value)
    metadata["labels"] = {**labels, **metadata.get("labels", {})}
    selector = spec.get("selector") or {}
    matched = {**(selector.get("matchLabels") or {}), unique: metadata["uid"]}
    spec["selector"] = {**selector, "matchLabels": matched}


def update_deployment_status(new: _Object, old: _Object) -> None:
    """Keep the labels in a status update."""
    new["metadata"].pop("labels", None)
    if "labels" in old["metadata"]:
        new["metadata"]["labels"] = old["metadata"]["labels"]


def create_autoscaler(obj: _Object) -> None:
    """Set an empty status, which differs between the versions."""
    version = obj["apiVersion"].rpartition("/")[2]
    definition = f"io.k8s.api.autoscaling.{version}.HorizontalPodAutoscalerStatus"
    obj["status"] = types.empty(definition)


def create_stateful_set(obj: _Object) -> None:
    """Set the status, and drop the field of a disabled feature."""
    obj["status"] = types.empty("io.k8s.api.apps.v1.StatefulSetStatus")
    update_stateful_set(obj, obj)


def update_stateful_set(new: _Object, _old: _Object) -> None:
    """Drop the field of a disabled feature."""
    rolling = (new["spec"].get("updateStrategy") or {}).get("rollingUpdate")
    if rolling is not None:
        rolling.pop("maxUnavailable", None)


def create_priority_class(obj: _Object) -> None:
    """Set the generation, which never changes."""
    obj["metadata"]["generation"] = 1


def create_lease(obj: _Object) -> None:
    """Drop the fields of a disabled feature."""
    update_lease(obj, obj)


def update_lease(new: _Object, _old: _Object) -> None:
    """Drop the fields of a disabled feature."""
    for name in ("preferredHolder", "strategy"):
        (new.get("spec") or {}).pop(name, None)


# -- configuration ---------------------------------------------------------------------------


def create_secret(obj: _Object) -> None:
    """Move ``stringData`` to ``data``."""
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if isinstance(plain, dict):
        data = obj.setdefault("data", {})
        for name, value in plain.items():
            data[name] = base64.b64encode(str(value).encode()).decode()


def update_secret(new: _Object, _old: _Object) -> None:
    """Move ``stringData`` to ``data``."""
    create_secret(new)


# -- volumes ---------------------------------------------------------------------------------

_CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
_VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"


def create_claim(obj: _Object) -> None:
    """Set the phase and the protection finalizer of a new claim."""
    obj["status"] = {"phase": "Pending"}
    _add_protection(obj, _CLAIM_PROTECTION)


def create_volume(obj: _Object) -> None:
    """Set the phase and the protection finalizer of a new volume."""
    obj["status"] = {
        "phase": "Pending",
        "lastPhaseTransitionTime": obj["metadata"].get("creationTimestamp"),
    }
    _add_protection(obj, _VOLUME_PROTECTION)


def delete_claim(obj: _Object) -> bool:
    """Drop the protection finalizer: no controller would remove it."""
    return _remove_protection(obj, _CLAIM_PROTECTION)


def delete_volume(obj: _Object) -> bool:
    """Drop the protection finalizer: no controller would remove it."""
    return _remove_protection(obj, _VOLUME_PROTECTION)


def _add_protection(obj: _Object, finalizer: str) -> None:
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


def _remove_protection(obj: _Object, finalizer: str) -> bool:
    kept = [name for name in obj["metadata"].pop("finalizers", ()) if name != finalizer]
    if kept:
        obj["metadata"]["finalizers"] = kept
    return False
