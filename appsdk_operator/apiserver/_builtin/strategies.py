"""Strategies of built-in kinds: fields that the server sets on create, update and delete."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from appsdk_operator.apiserver._schema import builtin_types as types
from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.apiserver._values.quantity import QuantityError, amount
from appsdk_operator.apiserver._values.status import FieldError, invalid

_Object = dict[str, Any]


def with_empty_status(
    group: str, prepare_create: Callable[[_Object], None]
) -> Callable[[_Object], None]:
    """Give new objects of a group the empty status of their kind before ``prepare_create``."""

    def prepare(obj: _Object) -> None:
        version = obj["apiVersion"].rpartition("/")[2]
        status = types.empty_status(group, version, obj["kind"])
        if status is not None:
            obj["status"] = status
        prepare_create(obj)

    return prepare


# -- namespaces and nodes --------------------------------------------------------------------


def admit_namespace(new: _Object, _old: _Object | None) -> None:
    """Set the label of the name."""
    metadata = new["metadata"]
    if metadata.get("name"):
        metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]


def create_namespace(obj: _Object) -> None:
    """Set the label, the phase, and the finalizer that waits for the content."""
    admit_namespace(obj, None)  # a generated name is known only now
    spec = obj.setdefault("spec", {}) or {}
    obj["spec"] = spec
    if "kubernetes" not in (spec.get("finalizers") or ()):
        spec["finalizers"] = [*(spec.get("finalizers") or ()), "kubernetes"]
    obj["status"] = {"phase": "Active"}


def update_namespace(new: _Object, old: _Object) -> None:
    """Keep the finalizers, which only the subresource changes."""
    if "spec" in old:
        new["spec"] = {**(new.get("spec") or {}), "finalizers": old["spec"].get("finalizers", [])}


def delete_namespace(obj: _Object) -> bool:
    """Set the phase; the namespace stays until it is empty."""
    obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return bool((obj.get("spec") or {}).get("finalizers"))


_NOT_READY: Final = "node.kubernetes.io/not-ready"


def admit_node(new: _Object, old: _Object | None) -> None:
    """Add the not-ready taint to a new node."""
    if old is not None:
        return
    spec = new.setdefault("spec", {})
    taints = spec.setdefault("taints", [])
    if not any(taint.get("key") == _NOT_READY for taint in taints):
        taints.append({"key": _NOT_READY, "effect": "NoSchedule"})


# -- pods and workloads ----------------------------------------------------------------------

_QUICK: Final = 300


def create_pod(obj: _Object) -> None:
    """Set the status and the QoS class of a new pod."""
    spec = obj["spec"]
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
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


def keep_priority(new: _Object, old: _Object) -> None:
    """Set the priority of a changed pod that does not mention it."""
    for name in ("priority", "preemptionPolicy"):
        if name in old["spec"]:
            new["spec"].setdefault(name, old["spec"][name])


def only_ephemeral_containers(new: _Object, old: _Object) -> _Object:
    """What ``pods/ephemeralcontainers`` changes."""
    kept = {name: value for name, value in old["spec"].items() if name != "ephemeralContainers"}
    given = new["spec"].get("ephemeralContainers")
    return {**old, "spec": {**kept, "ephemeralContainers": given} if given else kept}


def only_container_resources(new: _Object, old: _Object) -> _Object:
    """What ``pods/resize`` changes: the resources of the containers, by name."""
    spec = dict(old["spec"])
    for field in ("containers", "initContainers"):
        if field in spec:
            given = {each.get("name"): each for each in new["spec"].get(field) or ()}
            spec[field] = [_resized(each, given.get(each["name"], each)) for each in spec[field]]
    return {**old, "spec": spec}


def _resized(before: _Object, given: _Object) -> _Object:
    names = ("resources", "resizePolicy")
    kept = {name: value for name, value in before.items() if name not in names}
    return {**kept, **{name: given[name] for name in names if name in given}}


def add_tolerations(spec: _Object) -> None:
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
    _keep("ownerReferences", new["metadata"], old["metadata"])


def _keep(name: str, new: _Object, old: _Object) -> None:
    new.pop(name, None)
    if name in old:
        new[name] = old[name]


_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


def create_daemon_set(obj: _Object) -> None:
    """Set the template generation to 1."""
    obj["metadata"].setdefault("annotations", {})[_TEMPLATE_GENERATION] = "1"


def update_daemon_set(new: _Object, old: _Object) -> None:
    """Raise the template generation when the template changes."""
    before = old["metadata"].get("annotations", {}).get(_TEMPLATE_GENERATION, "1")
    changed = new["spec"].get("template") != old["spec"].get("template")
    number = parse_integer(before)
    count = 1 if number is None else number + changed
    new["metadata"].setdefault("annotations", {})[_TEMPLATE_GENERATION] = str(count)


def create_job(obj: _Object) -> None:
    """Generate the selector and the labels of the pod template."""
    spec, metadata = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return
    labels = spec["template"]["metadata"].setdefault("labels", {})
    # As on the real server, what was copied from the template by default gets these labels, too.
    is_default = metadata.get("labels", labels) == labels
    unique = "batch.kubernetes.io/controller-uid"
    made = {
        unique: metadata["uid"],
        "batch.kubernetes.io/job-name": metadata.get("name", ""),
        "controller-uid": metadata["uid"],
        "job-name": metadata.get("name", ""),
    }
    for name, value in made.items():
        labels.setdefault(name, value)
    if is_default:
        metadata["labels"] = dict(labels)
    selector = spec.get("selector") or {}
    matched = {**(selector.get("matchLabels") or {}), unique: metadata["uid"]}
    spec["selector"] = {**selector, "matchLabels": matched}


def update_deployment_status(new: _Object, old: _Object) -> None:
    """Keep the labels in a status update."""
    _keep("labels", new["metadata"], old["metadata"])


def create_stateful_set(obj: _Object) -> None:
    """Drop the field of a disabled feature."""
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


def update_request(new: _Object, old: _Object) -> None:
    """Keep the spec of a CertificateSigningRequest."""
    new["spec"] = old["spec"]


def only_request_status(new: _Object, old: _Object) -> _Object:
    """What the status of a CertificateSigningRequest changes: all but the decision.

    Raises:
        StatusError: 422, it changes the decision.
    """
    _check_decisions(new, old, decides=False)
    return _only_status(new, old)


def only_request_approval(new: _Object, old: _Object) -> _Object:
    """What the approval of a CertificateSigningRequest changes: its conditions.

    Raises:
        StatusError: 422, it takes a decision back.
    """
    _check_decisions(new, old, decides=True)
    merged = _only_status(new, old)
    _keep("certificate", merged["status"], old.get("status") or {})
    return merged


def _only_status(new: _Object, old: _Object) -> _Object:
    return {**old, "metadata": new["metadata"], "status": dict(new.get("status") or {})}


def _check_decisions(new: _Object, old: _Object, *, decides: bool) -> None:
    errors = []
    for type_ in ("Approved", "Denied", "Failed"):
        given, before = (
            [
                each
                for each in (part.get("status") or {}).get("conditions") or ()
                if each.get("type") == type_
            ]
            for part in (new, old)
        )
        verb = ""
        if len(given) < len(before):
            verb = "remove"
        elif len(given) > len(before):
            verb = "" if decides or type_ == "Failed" else "add"
        elif given != before:
            verb = "modify"
        if verb:
            why = f'updates may not {verb} a condition of type "{type_}"'
            errors.append(FieldError.forbidden("status.conditions", why))
    if errors:
        kind, group = "CertificateSigningRequest", "certificates.k8s.io"
        raise invalid(kind, group, new["metadata"]["name"], errors)


def only_namespace_finalizers(new: _Object, old: _Object) -> _Object:
    """What ``namespaces/finalize`` changes."""
    merged = {**new, "status": old.get("status")}
    return {name: value for name, value in merged.items() if value is not None}


# -- configuration ---------------------------------------------------------------------------


def admit_secret(obj: _Object, _old: _Object | None) -> None:
    """Move ``stringData`` to ``data``."""
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if isinstance(plain, dict):
        data = obj.setdefault("data", {})
        for name, value in plain.items():
            data[name] = base64.b64encode(str(value).encode()).decode()


# -- volumes ---------------------------------------------------------------------------------

_PROTECTION: Final = {
    "PersistentVolume": "kubernetes.io/pv-protection",
    "PersistentVolumeClaim": "kubernetes.io/pvc-protection",
}


def admit_volume(new: _Object, old: _Object | None) -> None:
    """Set the protection finalizer of a new volume or claim."""
    finalizers = new["metadata"].setdefault("finalizers", []) if old is None else None
    if finalizers is not None and _PROTECTION[new["kind"]] not in finalizers:
        finalizers.append(_PROTECTION[new["kind"]])


def create_volume(obj: _Object) -> None:
    """Set the time of a new volume's phase."""
    obj["status"]["lastPhaseTransitionTime"] = obj["metadata"].get("creationTimestamp")


def delete_volume(obj: _Object) -> bool:
    """Drop the protection finalizer of a volume or claim: no controller would remove it."""
    finalizers = obj["metadata"].pop("finalizers", ())
    kept = [name for name in finalizers if name != _PROTECTION[obj["kind"]]]
    if kept:
        obj["metadata"]["finalizers"] = kept
    return False
