"""The annotations in which operators record what they have handled: no change to any function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from appsdk_operator.resource import Object, encode_json

RECORD_SUFFIX: Final = ".appsdk-operator.io/handled"
"""The end of the keys of Apps; before it stands the App's name."""
_MARK: Final = RECORD_SUFFIX.encode()
_KOPF: Final = "kopf.zalando.org"
"""What the keys of operators of kopf begin with."""
_KOPF_MARKER: Final = "kopf-managed"
"""The name of the annotation by which other prefixes are known for those of kopf."""
_KOPF_MARK: Final = b"kopf"


def may_have_records(obj: Object) -> bool:
    """False where the object surely has none; fast."""
    return _MARK in obj.raw or _KOPF_MARK in obj.raw


def without_records(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations without records."""
    records = _records(annotations)
    return {key: annotations[key] for key in annotations if key not in records}


def has_other_records(old: Object, new: Object) -> bool:
    """Whether the records of two states of an object differ."""
    if not (may_have_records(old) or may_have_records(new)):
        return False
    return _records(old.annotations) != _records(new.annotations)


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


def _records(annotations: Mapping[str, str]) -> dict[str, str]:
    prefixes = {key.partition("/")[0] for key in annotations if _is_marked(key)}
    return {
        key: text
        for key, text in annotations.items()
        if key.endswith(RECORD_SUFFIX) or (prefixes and key.partition("/")[0] in prefixes)
    }


def _is_marked(key: str) -> bool:
    """Whether the prefix of the key is one of kopf's, as kopf's operators tell."""
    prefix, _, name = key.partition("/")
    return name == _KOPF_MARKER or prefix == _KOPF or prefix.endswith(f".{_KOPF}")
