"""What is done below an object: scale, and actions such as evictions and bindings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from appsdk_operator.testing._server._resources import Resource, ServedVersion
from appsdk_operator.testing._server._status import (
    FieldError,
    bad_request,
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
        labels = selector.get("matchLabels", selector)
        selector = ",".join(f"{key}={labels[key]}" for key in sorted(labels))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def scaled(old: dict[str, Any], scale: Any, paths: ScalePaths, name: str) -> dict[str, Any]:
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
        problem = FieldError.invalid(
            "spec.replicas", replicas, "must be greater than or equal to 0"
        )
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
            given = obj.get("deleteOptions") or {}
            options = DeleteOptions(grace=given.get("gracePeriodSeconds"))
            await writer.delete(target, options)
        case "binding":
            node = (obj.get("target") or {}).get("name", "")

            def bind(pod: dict[str, Any]) -> dict[str, Any]:
                pod.setdefault("spec", {})["nodeName"] = node
                return pod

            await writer.update(target, bind, WriteOptions(), patch=True)
        case _:
            raise method_not_allowed()
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return msgspec.json.encode({**status, "code": 201})
