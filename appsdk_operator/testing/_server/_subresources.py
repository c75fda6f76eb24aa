"""What is done below an object: scale, and actions such as evictions and bindings."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from appsdk_operator.resource._selectors import LabelSelector, SelectorError
from appsdk_operator.testing._server import _go_json, _metadata
from appsdk_operator.testing._server._resources import Resource, ServedVersion
from appsdk_operator.testing._server._status import (
    FieldError,
    StatusError,
    bad_request,
    conflict,
    internal_error,
    invalid,
    method_not_allowed,
)
from appsdk_operator.testing._server._writes import (
    DeleteOptions,
    Target,
    WriteOptions,
    Writer,
)

__all__ = ["ScalePaths", "action", "completed", "scale_of", "scale_paths", "scaled", "success"]


@attrs.frozen
class ScalePaths:
    """Where an object keeps what its scale shows."""

    replicas: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...]


_BUILTIN: Final = ScalePaths(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))


def scale_paths(served: ServedVersion) -> ScalePaths:
    """Where objects of a kind keep what their scale shows."""
    declared: Mapping[str, Any] = served.subresources.get("scale") or {}
    if not served.resource.rules.custom:
        return _BUILTIN
    return ScalePaths(
        _steps(declared.get("specReplicasPath", ".spec.replicas")),
        _steps(declared.get("statusReplicasPath", ".status.replicas")),
        _steps(declared.get("labelSelectorPath", "")),
    )


def _steps(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split(".")))


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj if path else None


def scale_of(obj: dict[str, Any], paths: ScalePaths, *, strict: bool = True) -> dict[str, Any]:
    """The ``Scale`` of an object.

    Raises:
        StatusError: 500 as on the real server, the object has no number of replicas.
    """
    replicas = _at(obj, paths.replicas)
    if replicas is None and strict:
        raise internal_error(
            f'the spec replicas field ".{".".join(paths.replicas)}" does not exist'
        )
    metadata = obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": _at(obj, paths.status) or 0}
    selector = _at(obj, paths.selector)
    if isinstance(selector, dict):
        # Replication controllers have plain labels there.
        is_plain = not selector.keys() & {"matchLabels", "matchExpressions"}
        with contextlib.suppress(SelectorError):
            selector = str(
                LabelSelector.from_mapping(selector)
                if is_plain
                else LabelSelector.from_object(selector)
            )
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def scaled(
    old: dict[str, Any], scale: Any, paths: ScalePaths, resource: Resource, name: str
) -> dict[str, Any]:
    """The object with the replicas of a ``Scale``.

    Raises:
        StatusError: 400, it is no scale of that object.
    """
    if not isinstance(scale, dict):
        raise bad_request("the object provided is unrecognized (must be of type Scale)")
    metadata = scale.get("metadata") or {}
    if metadata.get("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        why = _go_json.mismatch(replicas, "struct field ScaleSpec.spec.replicas", "int32")
        shown = msgspec.json.encode(scale).decode()
        raise invalid("", "", "", [FieldError.invalid("patch", shown, why)])
    if replicas < 0 and not resource.rules.custom:
        what = "must be greater than or equal to 0"
        problem = FieldError.invalid("spec.replicas", replicas, what)
        raise invalid("Scale", "autoscaling", name, [problem])
    if metadata.get("resourceVersion"):
        old["metadata"]["resourceVersion"] = metadata["resourceVersion"]
    place = old
    for step in paths.replicas[:-1]:
        place = place.setdefault(step, {})
    place[paths.replicas[-1]] = replicas
    return old


def success(resource: Resource, obj: dict[str, Any]) -> bytes:
    """The ``Status`` that answers a deletion."""
    details = {
        "name": obj["metadata"]["name"],
        "group": resource.group,
        "kind": resource.plural,
        "uid": obj["metadata"]["uid"],
    }
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {key: value for key, value in details.items() if value},
        }
    )


# The kinds of what is posted below objects.
_KINDS: Final = {
    "binding": ("v1", "Binding"),
    "eviction": ("policy/v1", "Eviction"),
    "token": ("authentication.k8s.io/v1", "TokenRequest"),
}


def completed(obj: dict[str, Any], name: str, namespace: str) -> dict[str, Any]:
    """What is posted to ``name`` below an object, with kind and namespace."""
    version, kind = _KINDS.get(name, ("v1", name.capitalize()))
    metadata = {**(obj.get("metadata") or {}), "namespace": namespace}
    return {"kind": kind, "apiVersion": version, **obj, "metadata": metadata}


async def action(writer: Writer, target: Target, name: str, obj: dict[str, Any]) -> bytes:
    """Carry out what is posted to ``name`` below an object.

    Raises:
        StatusError: it cannot be done.
    """
    writer.get(target)
    match name:
        case "eviction":
            await _evict(writer, target, obj)
        case "binding":
            await _bind(writer, target, obj)
        case _:
            raise method_not_allowed()
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return msgspec.json.encode({**status, "code": 201})


async def _evict(writer: Writer, target: Target, obj: dict[str, Any]) -> None:
    if (obj.get("metadata") or {}).get("name", target.name) != target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    given = obj.get("deleteOptions") or {}
    options = DeleteOptions(
        grace=given.get("gracePeriodSeconds"),
        dry_run=bool(given.get("dryRun")),
    )
    await writer.delete(target, options)


async def _bind(writer: Writer, target: Target, obj: dict[str, Any]) -> None:
    to = obj.get("target") or {}
    node, kind = to.get("name", ""), to.get("kind", "")
    problem = None
    if kind not in ("", "Node"):
        problem = FieldError.not_supported("target.kind", kind, ("Node", "<empty>"))
    elif not node:
        problem = FieldError.required("target.name")
    if problem is not None:
        raise StatusError(500, str(problem), reason="")

    def bind(pod: dict[str, Any]) -> dict[str, Any]:
        spec = pod.setdefault("spec", {})
        if spec.get("nodeName"):
            why = f'pod {target.name} is already assigned to node "{spec["nodeName"]}"'
            raise conflict("pods/binding", "", target.name, why)
        spec["nodeName"] = node
        status = pod.setdefault("status", {})
        others = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        now = _metadata.timestamp(writer.clock.time())
        status["conditions"] = [*others, {**scheduled, "lastTransitionTime": now}]
        given = (obj.get("metadata") or {}).get("annotations")
        if given:
            pod["metadata"].setdefault("annotations", {}).update(given)
        return pod

    await writer.update(target, bind, WriteOptions(), subresource="binding", patch=True)
