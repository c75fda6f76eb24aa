"""The annotations in which Apps record what they have handled: no change to anybody's functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from appsdk_operator.resource import Object, encode_json

RECORD_SUFFIX: Final = ".appsdk-operator.io/handled"
"""The end of their keys; before it stands the App's name."""
_MARK: Final = RECORD_SUFFIX.encode()


def may_have_records(obj: Object) -> bool:
    """False where the object surely has none; fast."""
    return _MARK in obj.raw


def without_records(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations without records."""
    return {key: annotations[key] for key in annotations if not key.endswith(RECORD_SUFFIX)}


def has_other_records(old: Object, new: Object) -> bool:
    """Whether the records of two states of an object differ."""
    if not (may_have_records(old) or may_have_records(new)):
        return False
    return _records(old) != _records(new)


def object_without_records(obj: Object) -> Object:
    """The object without its records."""
    if not may_have_records(obj):
        return obj
    data = obj.to_dict()
    metadata = data["metadata"]
    metadata["annotations"] = without_records(metadata.get("annotations") or {})
    if not metadata["annotations"]:
        del metadata["annotations"]
    return Object.from_json(obj.kind, encode_json(data))


def _records(obj: Object) -> dict[str, str]:
    return {key: text for key, text in obj.annotations.items() if key.endswith(RECORD_SUFFIX)}
