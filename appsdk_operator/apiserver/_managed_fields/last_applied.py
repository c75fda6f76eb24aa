"""The last-applied annotation of kubectl, and migration from client-side to server-side apply."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from appsdk_operator.apiserver._managed_fields import field_sets, merging, typed_values
from appsdk_operator.apiserver._managed_fields.field_sets import FieldSet
from appsdk_operator.apiserver._managed_fields.ownership import TypedObject

_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
_LIMIT: Final = 256 * 1024
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def _last_applied(obj: dict[str, Any]) -> str:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(_ANNOTATION) or "")


def allowed_by_last_applied(obj: dict[str, Any], live: TypedObject) -> FieldSet | None:
    """The fields that kubectl set by client-side apply and that are unchanged since.

    Args:
        obj: the object.
        live: the same object with its shape.

    Returns:
        None if the annotation is missing or has another version.
    """
    text = _last_applied(obj)
    if not text:
        return None
    try:
        last = msgspec.json.decode(text)
        if last.get("apiVersion") != live.api_version:
            return None
        merging.check(live.value, live.shape)
        merging.check(last, live.shape)
    except (msgspec.MsgspecError, AttributeError, merging.TypedError):
        return None
    fields = typed_values.field_set(last, live.shape)
    found = typed_values.compare(last, live.value, live.shape)
    for changed in (found.modified, found.added, found.removed):
        fields = field_sets.difference(fields, changed)
    return fields


def keep_last_applied(obj: dict[str, Any], config: dict[str, Any]) -> None:
    """Update the annotation, if there is one, with the applied configuration, as kubectl does."""
    if not _last_applied(obj):
        return
    metadata = dict(config.get("metadata") or {})
    if metadata.get("annotations"):
        given = metadata["annotations"]
        metadata["annotations"] = {
            name: value for name, value in given.items() if name != _ANNOTATION
        }
    text = _encode({**config, "metadata": metadata}).decode() + "\n"
    annotations = {**obj["metadata"]["annotations"], _ANNOTATION: text}
    if sum(len(name) + len(value.encode()) for name, value in annotations.items()) > _LIMIT:
        del annotations[_ANNOTATION]
    obj["metadata"]["annotations"] = annotations
