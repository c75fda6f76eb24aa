"""The few protobuf bodies that kubectl sends for kinds it has commands of its own for.

The server speaks JSON. But ``kubectl create namespace`` and its like send protobuf and take JSON
back, so the messages of those few kinds are read here; all others are answered with 415.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["MEDIA_TYPE", "decode"]

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"

# A message is described by its fields: number, name, and what the value is. A list of one thing is
# a repeated field, a string names another message, "map:" and what its values are a map.
_Fields = dict[int, tuple[str, Any]]

_MESSAGES: Final[dict[str, _Fields]] = {
    "ObjectMeta": {
        1: ("name", "text"),
        2: ("generateName", "text"),
        3: ("namespace", "text"),
        5: ("uid", "text"),
        6: ("resourceVersion", "text"),
        7: ("generation", "number"),
        8: ("creationTimestamp", "time"),
        11: ("labels", "map:text"),
        12: ("annotations", "map:text"),
        13: ("ownerReferences", ["OwnerReference"]),
        14: ("finalizers", ["text"]),
    },
    "OwnerReference": {
        1: ("kind", "text"),
        3: ("name", "text"),
        4: ("uid", "text"),
        5: ("apiVersion", "text"),
        6: ("controller", "flag"),
        7: ("blockOwnerDeletion", "flag"),
    },
    "Namespace": {1: ("metadata", "ObjectMeta"), 2: ("spec", "NamespaceSpec")},
    "NamespaceSpec": {1: ("finalizers", ["text"])},
    "ConfigMap": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "map:text"),
        3: ("binaryData", "map:bytes"),
        4: ("immutable", "flag"),
    },
    "Secret": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "map:bytes"),
        3: ("type", "text"),
        4: ("stringData", "map:text"),
        5: ("immutable", "flag"),
    },
    "ServiceAccount": {1: ("metadata", "ObjectMeta"), 4: ("automountServiceAccountToken", "flag")},
    "SelfSubjectAccessReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "AccessReviewSpec")},
    "AccessReviewSpec": {
        1: ("resourceAttributes", "ResourceAttributes"),
        2: ("nonResourceAttributes", "NonResourceAttributes"),
    },
    "ResourceAttributes": {
        1: ("namespace", "text"),
        2: ("verb", "text"),
        3: ("group", "text"),
        4: ("version", "text"),
        5: ("resource", "text"),
        6: ("subresource", "text"),
        7: ("name", "text"),
    },
    "NonResourceAttributes": {1: ("path", "text"), 2: ("verb", "text")},
    "Unknown": {1: ("type", "TypeMeta"), 2: ("raw", "raw")},
    "TypeMeta": {1: ("apiVersion", "text"), 2: ("kind", "text")},
}
_SENT: Final = ("Namespace", "ConfigMap", "Secret", "ServiceAccount", "SelfSubjectAccessReview")


def decode(body: bytes) -> dict[str, Any] | None:
    """The object in a body; None when it is of a kind that is not read in this form.

    Raises:
        ValueError: it is no protobuf message of Kubernetes.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not begin as protobuf of Kubernetes does")
    envelope = _message(body[len(_MAGIC) :], "Unknown")
    type_ = envelope.get("type", {})
    if type_.get("kind") not in _SENT:
        return None
    return {**type_, **_message(envelope.get("raw", b""), type_["kind"])}


def _message(data: bytes, name: str) -> dict[str, Any]:
    fields = _MESSAGES[name]
    found: dict[str, Any] = {}
    for number, value in _wire(data):
        if number not in fields:
            continue
        field, kind = fields[number]
        if isinstance(kind, list):
            found.setdefault(field, []).append(_value(value, kind[0]))
        elif kind.startswith("map:"):
            key, item = _entry(value, kind.removeprefix("map:"))
            found.setdefault(field, {})[key] = item
        else:
            decoded = _value(value, kind)
            # Go writes empty texts of fields that JSON leaves out.
            if decoded != "":
                found[field] = decoded
    return found


def _entry(data: Any, kind: str) -> tuple[str, Any]:
    parts = dict(_wire(_bytes(data)))
    return _value(parts.get(1, b""), "text"), _value(parts.get(2, b""), kind)


def _value(value: int | bytes, kind: str) -> Any:
    match kind:
        case "number":
            return value
        case "flag":
            return bool(value)
        case "text":
            return _bytes(value).decode()
        case "raw":
            return _bytes(value)
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "time":
            seconds = dict(_wire(_bytes(value))).get(1)
            if not isinstance(seconds, int):
                return None
            return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case _:
            return _message(_bytes(value), kind)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes are due")
    return value


def _wire(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The numbers and values of the fields of a message, as they come."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, position = _varint(data, position)
        if size is None or position + size > len(data):
            raise ValueError("the message is cut short")
        yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number is cut short")
