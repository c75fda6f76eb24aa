"""Protobuf encoding of the built-in kinds, which Go clients prefer.

The messages and their fields come from a data file that ``hack/protobuf_messages.py`` generates
from Kubernetes' Go types. This module converts to and from the dicts of JSON; the rest of the
server knows no protobuf. Custom resources have no such encoding.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import functools
import gzip
import importlib.resources
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from appsdk_operator.apiserver._values.protobuf_wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    wire_field,
    wire_number,
    wire_tag,
)

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_FILE: Final = "protobuf_messages.json.gz"
_MAX_DEPTH: Final = 200
# The field number of the items, in the lists of all kinds.
_ITEMS: Final = 2

_ZERO: Final = ("", 0, 0.0, False, None)


class _Field(msgspec.Struct, frozen=True, array_like=True):
    """A field of a message."""

    name: str
    """Its name in JSON; empty for an embedded message, whose fields are inlined."""
    kind: str
    """Its type: ``int``, ``[]string``, ``map:quantity``, … or the name of a message."""
    omits: bool
    """Whether its JSON has ``omitempty``."""


class _Data(msgspec.Struct, frozen=True):
    kinds: list[tuple[str, str, str, str]]
    messages: dict[str, dict[int, _Field]]


@functools.cache
def _data() -> tuple[Mapping[tuple[str, str], str], Mapping[str, Mapping[int, _Field]]]:
    """The messages by ``(apiVersion, kind)``, and their fields."""
    package = importlib.resources.files("appsdk_operator.apiserver._builtin")
    packed = gzip.decompress(package.joinpath(_FILE).read_bytes())
    data = msgspec.json.decode(packed, type=_Data, strict=False)
    kinds = {
        (f"{group}/{version}" if group else version, kind): message
        for group, version, kind, message in data.kinds
    }
    return kinds, data.messages


def is_encoded(body: bytes) -> bool:
    """Whether a body is Kubernetes protobuf."""
    return body.startswith(_MAGIC)


def decode(body: bytes) -> dict[str, Any] | None:
    """The object in a body; None when its kind has no protobuf encoding.

    Raises:
        ValueError: it is not a Kubernetes protobuf message.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not begin with the prefix of Kubernetes' protobuf")
    envelope = dict(_wire(body[len(_MAGIC) :]))
    type_ = dict(_wire(_data_of(envelope.get(1, b""))))
    version, kind = _text(type_.get(1, b"")), _text(type_.get(2, b""))
    message = _data()[0].get((version, kind))
    if message is None:
        return None
    obj = _read_message(_data_of(envelope.get(2, b"")), message, 0)
    return {"apiVersion": version, "kind": kind, **obj}


def encode(obj: Mapping[str, Any]) -> bytes | None:
    """The body for an object or a list; None when its kind has no protobuf encoding.

    Raises:
        ValueError: a value does not have the type of its field.
    """
    version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    raw = encode_message(obj, version, kind)
    return None if raw is None else wrap(version, kind, raw)


def encode_message(obj: Mapping[str, Any], version: str, kind: str) -> bytes | None:
    """The message of an object, without its type; None when its kind has no protobuf encoding.

    Raises:
        ValueError: a value does not have the type of its field.
    """
    message = _data()[0].get((version, kind))
    if message is None:
        return None
    try:
        return _write_message(obj, message)
    except (TypeError, AttributeError, struct.error, binascii.Error) as error:
        raise ValueError(f"{version} {kind} cannot be written as protobuf: {error}") from None


def wrap(version: str, kind: str, message: bytes) -> bytes:
    """The body for a message of a type."""
    type_ = wire_field(1, version.encode()) + wire_field(2, kind.encode())
    return (
        _MAGIC
        + wire_field(1, type_)
        + wire_field(2, message)
        + wire_field(3, b"")
        + wire_field(4, b"")
    )


def encode_list(head: Mapping[str, Any], items: Iterable[bytes]) -> bytes | None:
    """The body for a list whose items are messages; None when it has no protobuf encoding.

    Raises:
        ValueError: a value does not have the type of its field.
    """
    version, kind = head["apiVersion"], head["kind"]
    raw = encode_message(head, version, kind)
    if raw is None:
        return None
    parts = [raw]
    for item in items:
        parts += (wire_tag(_ITEMS, BYTES), wire_number(len(item)), item)
    return wrap(version, kind, b"".join(parts))


# -- reading ---------------------------------------------------------------------------------


def _read_message(data: bytes, name: str, depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise ValueError("the message is nested too deeply")
    fields = _data()[1][name]
    found: dict[str, Any] = {}
    for number, value in _wire(data):
        field = fields.get(number)
        if field is None:
            continue
        kind = field.kind
        if kind.startswith("[]"):
            found.setdefault(field.name, []).extend(_read_repeated(value, kind[2:], depth))
        elif kind.startswith("map:"):
            entry = dict(_wire(_data_of(value)))
            item = _read(entry.get(2, b""), kind[4:], depth)
            found.setdefault(field.name, {})[_text(entry.get(1, b""))] = item
        elif not field.name:
            found.update(_read_message(_data_of(value), kind, depth + 1))
        else:
            decoded = _read(value, kind, depth)
            # Go's protobuf has the zeros of fields that are not pointers; its JSON omits most.
            if decoded is not None and not (field.omits and decoded in _ZERO):
                found[field.name] = decoded
    return found


def _read_repeated(value: int | bytes, kind: str, depth: int) -> list[Any]:
    if kind in ("int", "bool") and isinstance(value, bytes):
        numbers, position = [], 0
        while position < len(value):
            number, position = _varint(value, position)
            numbers.append(_read(number, kind, depth))
        return numbers
    return [_read(value, kind, depth)]


def _read(value: int | bytes, kind: str, depth: int) -> Any:
    if kind == "string":
        return _text(value)
    if kind == "int":
        return _signed(value)
    if kind == "bool":
        return bool(_signed(value))
    read = _READERS.get(kind)
    data = _data_of(value)
    if read is not None:
        return read(data)
    if kind.startswith("items:"):
        return [_read(item, kind[6:], depth + 1) for _, item in _wire(data)]
    if kind in _SCHEMAS:
        return _read_schema(data, kind, depth)
    return _read_message(data, kind, depth + 1)


def _read_time(data: bytes) -> str | None:
    seconds = dict(_wire(data)).get(1)
    return None if seconds is None else f"{_moment(seconds):%Y-%m-%dT%H:%M:%SZ}"


def _read_micro_time(data: bytes) -> str | None:
    parts = dict(_wire(data))
    if 1 not in parts:
        return None
    microseconds = _signed(parts.get(2, 0)) // 1000
    return f"{_moment(parts[1]):%Y-%m-%dT%H:%M:%S}.{microseconds:06}Z"


def _moment(seconds: int | bytes) -> dt.datetime:
    try:
        return dt.datetime.fromtimestamp(_signed(seconds), dt.UTC)
    except (OverflowError, OSError) as error:
        raise ValueError(f"a time is out of range: {error}") from None


def _read_int_or_string(data: bytes) -> int | str:
    parts = dict(_wire(data))
    if _signed(parts.get(1, 0)):
        return _text(parts.get(3, b""))
    return _signed(parts.get(2, 0))


def _read_json(data: bytes) -> Any:
    raw = _data_of(dict(_wire(data)).get(1, b""))
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError as error:
        raise ValueError(f"a field is not JSON: {error}") from None


def _read_schema(data: bytes, kind: str, depth: int) -> Any:
    """A schema, or its alternative: a list of schemas, a boolean, or a list of names."""
    place, other = _SCHEMAS[kind]
    parts = list(_wire(data))
    for number, value in parts:
        if number == place:
            return _read_message(_data_of(value), _SCHEMA, depth + 1)
    found = [_read(value, other, depth + 1) for number, value in parts if number != place]
    return (found[-1] if found else False) if other == "bool" else found


_SCHEMA: Final = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaProps"
# The field number of the schema, and the type of the alternative.
_SCHEMAS: Final = {
    "schemaorarray": (1, _SCHEMA),
    "schemaorbool": (2, "bool"),
    "schemaorstrings": (1, "string"),
}
_READERS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "bytes": lambda data: base64.b64encode(data).decode(),
    "time": _read_time,
    "microtime": _read_micro_time,
    "quantity": lambda data: _text(dict(_wire(data)).get(1, b"")),
    "intorstring": _read_int_or_string,
    "json": _read_json,
    "double": lambda data: struct.unpack("<d", data.ljust(8, b"\0"))[0],
}


def _text(value: int | bytes) -> str:
    return _data_of(value).decode()


def _data_of(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a field has a number instead of bytes")
    return value


def _signed(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a field has bytes instead of a number")
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value


def _wire(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The field numbers and values of a message, in order."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(kind)
        if kind == BYTES:
            size, position = _varint(data, position)
        if size is None or position + size > len(data):
            raise ValueError("the message is truncated or has a field of an unknown wire type")
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
    raise ValueError("a number is truncated or too long")


# -- writing ---------------------------------------------------------------------------------


def _write_message(obj: Mapping[str, Any], name: str) -> bytes:
    written = []
    for number, field in _data()[1][name].items():
        if not field.name:
            inner = _write_message(obj, field.kind)
            if inner:
                written.append(wire_field(number, inner))
            continue
        value = obj.get(field.name)
        if value is None:
            continue
        kind = field.kind
        if kind.startswith("[]"):
            written += [_write(number, item, kind[2:]) for item in value]
        elif kind.startswith("map:"):
            written += [
                wire_field(number, wire_field(1, key.encode()) + _write(2, item, kind[4:]))
                for key, item in value.items()
            ]
        else:
            written.append(_write(number, value, kind))
    return b"".join(written)


def _write(number: int, value: Any, kind: str) -> bytes:
    if kind == "string":
        return wire_field(number, value.encode())
    if kind in ("int", "bool"):
        return wire_tag(number, VARINT) + wire_number(int(value))
    if kind == "double":
        return wire_tag(number, FIXED64) + struct.pack("<d", value)
    write = _WRITERS.get(kind)
    if write is not None:
        return wire_field(number, write(value))
    if kind.startswith("items:"):
        return wire_field(number, b"".join(_write(1, item, kind[6:]) for item in value))
    if kind in _SCHEMAS:
        return wire_field(number, _write_schema(value, kind))
    return wire_field(number, _write_message(value, kind))


def _write_time(value: str | None) -> bytes:
    if value is None:
        return b""
    moment = dt.datetime.fromisoformat(value)
    seconds = (moment.replace(microsecond=0) - _EPOCH) // dt.timedelta(seconds=1)
    return (
        wire_tag(1, VARINT)
        + wire_number(seconds)
        + wire_tag(2, VARINT)
        + wire_number(moment.microsecond * 1000)
    )


def _write_int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return wire_tag(1, VARINT) + wire_number(1) + wire_field(3, value.encode())
    return wire_tag(1, VARINT) + wire_number(0) + wire_tag(2, VARINT) + wire_number(value)


def _write_schema(value: Any, kind: str) -> bytes:
    place, other = _SCHEMAS[kind]
    if isinstance(value, Mapping):
        allows = _write(1, True, "bool") if other == "bool" else b""
        return allows + wire_field(place, _write_message(value, _SCHEMA))
    items = [value] if other == "bool" else value
    return b"".join(_write(3 - place, item, other) for item in items)


_EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)
_WRITERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "bytes": base64.b64decode,
    "time": _write_time,
    "microtime": _write_time,
    "quantity": lambda value: wire_field(1, str(value).encode()),
    "intorstring": _write_int_or_string,
    "json": lambda value: wire_field(1, msgspec.json.encode(value)),
}
