"""Metadata decoded as Go decodes it: types are checked, empty fields dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from appsdk_operator.apiserver._values import go_json

__all__ = ["MetadataError", "decode_metadata", "drop_unknown_fields"]

# The Go types of the fields.
_TEXT, _NUMBER = "string", "int64"
_FIELDS: Final = {
    "name": _TEXT,
    "generateName": _TEXT,
    "namespace": _TEXT,
    "selfLink": _TEXT,
    "uid": "types.UID",
    "resourceVersion": _TEXT,
    "generation": _NUMBER,
    "creationTimestamp": "v1.Time",
    "deletionTimestamp": "v1.Time",
    "deletionGracePeriodSeconds": _NUMBER,
    "labels": "map[string]string",
    "annotations": "map[string]string",
    "finalizers": "[]string",
    "ownerReferences": "[]v1.OwnerReference",
    "managedFields": "[]v1.ManagedFieldsEntry",
}
_PYTHON: Final[dict[str, tuple[type, ...]]] = {
    "map[string]string": (dict,),
    "[]string": (list,),
    "[]v1.OwnerReference": (list,),
    "[]v1.ManagedFieldsEntry": (list,),
    _NUMBER: (int,),
}
_OWNER: Final = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    "name": _TEXT,
    "uid": "types.UID",
    "controller": "bool",
    "blockOwnerDeletion": "bool",
}
_LISTS: Final = {
    "ownerReferences": frozenset(_OWNER),
    "managedFields": frozenset(
        {"manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"}
    ),
}


class MetadataError(ValueError):
    """Metadata that cannot be decoded. The text is Go's."""


def drop_unknown_fields(metadata: dict[str, Any]) -> list[str]:
    """Drop the fields that decoded metadata cannot have; return their paths in it, sorted."""
    unknown = [name for name in metadata if name not in _FIELDS]
    for name in unknown:
        del metadata[name]
    for name, known in _LISTS.items():
        items = metadata.get(name)
        for index, item in enumerate(items if isinstance(items, list) else []):
            others = [field for field in item or [] if field not in known]
            unknown += [f"{name}[{index}].{field}" for field in others]
            for field in others:
                del item[field]
    return sorted(unknown)


def decode_metadata(obj: dict[str, Any], *, custom: bool) -> dict[str, Any]:
    """Decode the metadata of ``obj`` in place: drop nulls and empty collections, and return it.

    Raises:
        MetadataError: a field has the wrong type.
    """
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = {}
    problem = next(_problems(metadata, custom=custom), None)
    if problem is not None:
        raise MetadataError(problem)
    obj["metadata"] = metadata = {
        key: value
        for key, value in metadata.items()
        # An empty list of managedFields resets them.
        if value is not None and value != {} and (value != [] or key == "managedFields")
    }
    return metadata


def _problems(metadata: Any, *, custom: bool) -> Iterator[str]:
    place = "ObjectMeta" if custom else "ObjectMeta.metadata"
    if not isinstance(metadata, dict):
        target = "value" if custom else "struct field"
        name = "v1.ObjectMeta" if custom else "metadata of type v1.ObjectMeta"
        yield f"json: cannot unmarshal {go_json.kind_of(metadata)} into Go {target} of type {name}"
        return
    for name, wanted in _FIELDS.items():
        value = metadata.get(name)
        if value is None:
            continue
        if not _has_go_type(value, wanted):
            yield _mismatch(value, f"{place}.{name}", wanted)
        elif isinstance(value, dict):
            yield from (
                _mismatch(item, f"{place}.{name}", _TEXT)
                for item in value.values()
                if item is not None and not isinstance(item, str)
            )
        elif name == "finalizers":
            yield from (
                _mismatch(item, f"{place}.{name}", _TEXT)
                for item in value
                if not isinstance(item, str)
            )
        elif name == "managedFields":
            yield from (
                _mismatch(item, f"{place}.{name}", "v1.ManagedFieldsEntry")
                for item in value
                if not isinstance(item, dict)
            )
        elif name == "ownerReferences":
            yield from _owner_problems(value, f"{place}.{name}", custom=custom)


def _owner_problems(owners: list[Any], place: str, *, custom: bool) -> Iterator[str]:
    inner = "OwnerReference" if custom else f"OwnerReference.{place.partition('.')[2]}"
    for owner in owners:
        if not isinstance(owner, dict):
            yield _mismatch(owner, place, "v1.OwnerReference")
            continue
        for name, wanted in _OWNER.items():
            value = owner.get(name)
            if value is not None and not _has_go_type(value, wanted):
                yield _mismatch(value, f"{inner}.{name}", wanted)


def _has_go_type(value: Any, wanted: str) -> bool:
    if wanted == "bool":
        return isinstance(value, bool)
    return isinstance(value, _PYTHON.get(wanted, (str,))) and not isinstance(value, bool)


def _mismatch(value: Any, place: str, wanted: str) -> str:
    return go_json.mismatch(value, f"struct field {place}", wanted)
