"""The OpenAPI document of version 2 as protobuf, in gnostic's messages, which kubectl asks for."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from appsdk_operator.apiserver._values.protobuf_wire import (
    FIXED64,
    VARINT,
    wire_field,
    wire_number,
    wire_tag,
)

MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
ACCEPTED: Final = (MEDIA_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
"""The names of the media type in requests: proxies refuse the ``@`` of the older one."""

_Write = Callable[[int, Any], bytes]
_Message = Mapping[str, tuple[int, _Write]]
_encode: Final = msgspec.json.Encoder().encode


def encode(document: Mapping[str, Any]) -> bytes:
    """The document as a message."""
    return _message(document, _DOCUMENT)


def _message(value: Mapping[str, Any], fields: _Message, extensions: int = 0) -> bytes:
    """A message with the known fields; ``extensions`` is the number of those that begin with x-."""
    parts: list[bytes] = []
    for name, item in value.items():
        known = fields.get(name)
        if known is not None:
            parts.append(known[1](known[0], item))
        elif extensions and name.startswith("x-"):
            parts.append(wire_field(extensions, wire_field(1, name.encode()) + _any(2, item)))
    return b"".join(parts)


# -- values ----------------------------------------------------------------------------------


# Fields of proto3 do not have their zero value on the wire.


def _text(place: int, value: str) -> bytes:
    return wire_field(place, value.encode()) if value else b""


def _texts(place: int, values: Iterable[str]) -> bytes:
    return b"".join(wire_field(place, value.encode()) for value in values)


def _whole(place: int, value: int) -> bytes:
    return _present(place, value) if value else b""


def _present(place: int, value: int) -> bytes:
    """A number or a boolean of which zero is written, too."""
    return wire_tag(place, VARINT) + wire_number(int(value))


def _double(place: int, value: float) -> bytes:
    return wire_tag(place, FIXED64) + struct.pack("<d", value) if value else b""


def _any(place: int, value: Any) -> bytes:
    """Any value: its YAML, of which JSON is a part."""
    return wire_field(place, wire_field(2, _encode(value)))


def _each(write: _Write) -> _Write:
    return lambda place, values: b"".join(write(place, value) for value in values)


def _named(write: _Write) -> _Write:
    """A map, as messages of a name and a value."""
    return lambda place, values: b"".join(
        wire_field(place, wire_field(1, name.encode()) + write(2, value))
        for name, value in values.items()
    )


def _within(write: _Write) -> _Write:
    """A value in a message of its own, as the first field."""
    return lambda place, value: wire_field(place, write(1, value))


def _submessage(fields: _Message, extensions: int = 0) -> _Write:
    return lambda place, value: wire_field(place, _message(value, fields, extensions))


# -- schemas ---------------------------------------------------------------------------------


def _schema(place: int, value: Mapping[str, Any]) -> bytes:
    return wire_field(place, _message(value, _SCHEMA, 31))


def _additional(place: int, value: Any) -> bytes:
    return wire_field(place, _present(2, value) if isinstance(value, bool) else _schema(1, value))


def _type(place: int, value: str | list[str]) -> bytes:
    return wire_field(place, _texts(1, [value] if isinstance(value, str) else value))


_LIMITS: Final = (
    *("multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength"),
    *("minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxProperties"),
    "minProperties",
)
_WRITERS: Final[Mapping[str, _Write]] = {
    "multipleOf": _double,
    "maximum": _double,
    "minimum": _double,
    "pattern": _text,
}
_SCHEMA: Final[_Message] = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "default": (5, _any),
    **{name: (place, _WRITERS.get(name, _whole)) for place, name in enumerate(_LIMITS, start=6)},
    "required": (19, _texts),
    "enum": (20, _each(_any)),
    "additionalProperties": (21, _additional),
    "type": (22, _type),
    "items": (23, _within(_schema)),
    "allOf": (24, _each(_schema)),
    "properties": (25, _within(_named(_schema))),
    "readOnly": (27, _whole),
    "example": (30, _any),
}


def _definition(place: int, value: Mapping[str, Any]) -> bytes:
    return wire_field(place, _encoded_definition(_encode(value)))


@functools.lru_cache(maxsize=4096)
def _encoded_definition(body: bytes) -> bytes:
    """The message of a definition, given its JSON, which is the same for most of them each time."""
    return _message(msgspec.json.decode(body), _SCHEMA, 31)


# -- paths -----------------------------------------------------------------------------------

_PLACES: Final = {
    # the number of the message among the kinds of parameters, of its type, and of its extensions
    "header": (1, 5, 22),
    "query": (3, 6, 23),
    "path": (4, 5, 22),
}


def _parameter(place: int, value: Mapping[str, Any]) -> bytes:
    where = value.get("in")
    if where is None:
        return wire_field(place, wire_field(2, _text(1, value["$ref"])))
    if where == "body":
        made = wire_field(1, _message(value, _BODY, 6))
    else:
        kind, type_, extensions = _PLACES[where]
        fields: _Message = {
            "required": (1, _whole),
            "in": (2, _text),
            "description": (3, _text),
            "name": (4, _text),
            "type": (type_, _text),
            "format": (type_ + 1, _text),
            "pattern": (type_ + 10, _text),
            "uniqueItems": (type_ + 14, _whole),
        }
        made = wire_field(2, wire_field(kind, _message(value, fields, extensions)))
    return wire_field(place, wire_field(1, made))


_BODY: Final[_Message] = {
    "description": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, _whole),
    "schema": (5, _schema),
}
_RESPONSE: Final[_Message] = {"description": (1, _text), "schema": (2, _within(_schema))}
_OPERATION: Final = _submessage(
    {
        "tags": (1, _texts),
        "summary": (2, _text),
        "description": (3, _text),
        "operationId": (5, _text),
        "produces": (6, _texts),
        "consumes": (7, _texts),
        "parameters": (8, _each(_parameter)),
        "responses": (9, _within(_named(_within(_submessage(_RESPONSE, 5))))),
        "schemes": (10, _texts),
        "deprecated": (11, _whole),
    },
    13,
)
_PATH: Final[_Message] = {
    "get": (2, _OPERATION),
    "put": (3, _OPERATION),
    "post": (4, _OPERATION),
    "delete": (5, _OPERATION),
    "options": (6, _OPERATION),
    "head": (7, _OPERATION),
    "patch": (8, _OPERATION),
    "parameters": (9, _each(_parameter)),
}


def _path(place: int, value: Mapping[str, Any]) -> bytes:
    return wire_field(place, _encoded_path(_encode(value)))


@functools.lru_cache(maxsize=4096)
def _encoded_path(body: bytes) -> bytes:
    return _message(msgspec.json.decode(body), _PATH, 10)


def _paths(place: int, value: Mapping[str, Any]) -> bytes:
    return wire_field(place, _named(_path)(2, value))


def _named_within(place: int, value: Mapping[str, Any]) -> bytes:
    """A security requirement: the scopes for each scheme."""
    return wire_field(place, _named(_within(_texts))(1, value))


_KEY: Final = _submessage(
    {"type": (1, _text), "name": (2, _text), "in": (3, _text), "description": (4, _text)}, 5
)
_DOCUMENT: Final[_Message] = {
    "swagger": (1, _text),
    "info": (2, _submessage({"title": (1, _text), "version": (2, _text)})),
    "paths": (8, _paths),
    "definitions": (9, _within(_named(_definition))),
    "security": (12, _each(_named_within)),
    "securityDefinitions": (
        13,
        _within(_named(lambda place, value: wire_field(place, _KEY(2, value)))),
    ),
}
