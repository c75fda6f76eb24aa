"""Subresources: scale, eviction and binding."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from appsdk_operator.apiserver._registry import subresource_bodies
from appsdk_operator.apiserver._registry.evictions import evict
from appsdk_operator.apiserver._registry.subresource_bodies import BINDING, EVICTION, SCALE
from appsdk_operator.apiserver._registry.writes import (
    Target,
    WriteOptions,
    Writer,
    precondition_failed,
)
from appsdk_operator.apiserver._schema import metadata as _metadata
from appsdk_operator.apiserver._storage.resources import Resource, ServedVersion
from appsdk_operator.apiserver._values.status import (
    FieldError,
    StatusError,
    bad_request,
    check_name,
    check_namespace,
    conflict,
    internal_error,
    invalid,
    name_missing,
)
from appsdk_operator.resource import LabelSelector, SelectorError


@attrs.frozen
class ScalePaths:
    """The paths in an object of the fields that its Scale shows."""

    replicas: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...]


_BUILTIN: Final = ScalePaths(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))


def scale_paths(served: ServedVersion) -> ScalePaths:
    """The scale paths of a resource version."""
    declared: Mapping[str, Any] = served.subresources.get("scale") or {}
    if not served.resource.strategy.custom:
        return _BUILTIN
    return ScalePaths(
        _steps(declared.get("specReplicasPath", ".spec.replicas")),
        _steps(declared.get("statusReplicasPath", ".status.replicas")),
        _steps(declared.get("labelSelectorPath", "")),
    )


def _steps(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split(".")))


def _value_at(obj: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj if path else None


def scale_of(obj: dict[str, Any], paths: ScalePaths, *, strict: bool = True) -> dict[str, Any]:
    """The ``Scale`` of an object.

    Raises:
        StatusError: 500, as on the real server: the object has no replicas.
    """
    replicas = _value_at(obj, paths.replicas)
    if replicas is None and strict:
        raise internal_error(
            f'the spec replicas field ".{".".join(paths.replicas)}" does not exist'
        )
    metadata = obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": _value_at(obj, paths.status) or 0}
    selector = _value_at(obj, paths.selector)
    if isinstance(selector, dict):
        # The selector of a ReplicationController is a plain map of labels.
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


def apply_scale(
    old: dict[str, Any], scale: Any, paths: ScalePaths, resource: Resource, name: str
) -> dict[str, Any]:
    """The object with the replicas of a ``Scale``.

    Raises:
        StatusError: 400 or 422, it is not a valid Scale of that object.
    """
    if not isinstance(scale, dict):
        raise bad_request("the object provided is unrecognized (must be of type Scale)")
    why = subresource_bodies.mismatch(scale, SCALE)
    if why:
        shown = msgspec.json.encode(scale).decode()
        raise invalid("", "", "", [FieldError.invalid("patch", shown, why)])
    metadata = scale.get("metadata") or {}
    if not metadata.get("name"):
        raise name_missing(name)
    check_name(metadata, name)
    check_namespace(metadata, old["metadata"].get("namespace"))
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0 and not resource.strategy.custom:
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


def deletion_status(resource: Resource, obj: dict[str, Any]) -> bytes:
    """The ``Status`` of a successful deletion."""
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


ACTIONS: Final = {"binding": BINDING, "eviction": EVICTION}
"""The body kinds of subresources that only take POST."""


def with_namespace(obj: dict[str, Any], target: Target) -> dict[str, Any]:
    """The body of a POST to a subresource, with the namespace of the request filled in.

    Raises:
        StatusError: 400, it names another namespace.
    """
    metadata = obj.get("metadata") or {}
    check_namespace(metadata, target.namespace)
    return {**obj, "metadata": {**metadata, "namespace": target.namespace}}


async def action(
    writer: Writer,
    target: Target,
    name: str,
    obj: dict[str, Any],
    options: WriteOptions,
    budgets: ServedVersion | None = None,
) -> bytes:
    """Carry out a POST to the subresource ``name``; ``budgets`` are PodDisruptionBudgets.

    Raises:
        StatusError: it fails.
    """
    if obj["metadata"].get("name") != target.name:
        kind = ACTIONS[name].kind
        raise bad_request(f"name in URL does not match name in {kind} object")
    writer.get(target)
    match name:
        case "eviction":
            await evict(writer, target, budgets, obj, options)
        case _:
            await _bind(writer, target, obj, options)
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return msgspec.json.encode({**status, "code": 201})


async def _bind(writer: Writer, target: Target, obj: dict[str, Any], options: WriteOptions) -> None:
    to = obj.get("target") or {}
    node, kind = to.get("name", ""), to.get("kind", "")
    problem = None
    if kind not in ("", "Node"):
        problem = FieldError.not_supported("target.kind", kind, ("Node", "<empty>"))
    elif not node:
        problem = FieldError.required("target.name")
    if problem is not None:
        raise StatusError(500, str(problem), reason="")

    async def bind(pod: dict[str, Any]) -> dict[str, Any]:
        for field, shown in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            meant, found = obj["metadata"].get(field), pod["metadata"][field]
            if meant and meant != found:
                raise precondition_failed(target, shown, meant, found)
        spec = pod.setdefault("spec", {})
        if "deletionTimestamp" in pod["metadata"]:
            why = f"pod {target.name} is being deleted, cannot be assigned to a host"
            raise conflict("pods/binding", "", target.name, why)
        if spec.get("nodeName"):
            why = f'pod {target.name} is already assigned to node "{spec["nodeName"]}"'
            raise conflict("pods/binding", "", target.name, why)
        if spec.get("schedulingGates"):
            why = f"pod {target.name} has non-empty .spec.schedulingGates"
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

    plain = WriteOptions(dry_run=options.dry_run)
    await writer.update(target, bind, plain, subresource="binding", patch=True)
