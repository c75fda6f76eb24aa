"""CEL types declared from schemas, and the conversion of JSON values to these types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    DeclType,
    list_of,
    map_of,
    object_type,
)
from appsdk_operator.apiserver._cel.values import (
    CelError,
    Duration,
    MapList,
    NullsHidden,
    SetList,
    Timestamp,
)
from appsdk_operator.apiserver._values.string_formats import decode_base64, parse_duration

MAX_REQUEST: Final = 3 * 1024 * 1024
_RESERVED: Final = {
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for"),
    *("function", "if", "import", "let", "loop", "package", "namespace", "return", "var"),
    *("void", "while"),
}
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_NAME: Final = {"type": "string"}
_META: Final = {"type": "object", "properties": {"name": _NAME, "generateName": _NAME}}
_TIMES: Final = {"duration": (DURATION, 3, 32), "date": (TIMESTAMP, 12, 12)}
_DATE_TIME: Final = (TIMESTAMP, 21, 32)


def escape_field_name(name: str) -> str:
    """The name of a field in expressions; ``""`` if expressions cannot name it."""
    if not re.fullmatch(r"[A-Za-z_./-][A-Za-z0-9_./-]*", name):
        return ""
    if name in _RESERVED:
        return f"__{name}__"
    words = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
    return re.sub(r"__|[-./]", lambda found: words[found[0]], name)


def with_object_metadata(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with the type and metadata fields that every rule can read."""
    properties = {**(schema.get("properties") or {})}
    properties |= {"apiVersion": _NAME, "kind": _NAME, "metadata": _META}
    return {**schema, "type": "object", "properties": properties}


def schema_decl_type(
    schema: Mapping[str, Any], *, root: bool, path: str = "self"
) -> DeclType | None:
    """The declared type of values of a schema; None if rules cannot read them."""
    if schema.get(_INT_OR_STRING):
        limit = schema.get("maxLength")
        return DeclType(DYN, MAX_REQUEST - 2 if limit is None else max(limit, 0) * 4, 1)
    if root:
        schema = with_object_metadata(schema)
    match schema.get("type"):
        case "array":
            return _array(schema, path)
        case "object":
            return _object(schema, path)
        case "string":
            return _string(schema)
        case "boolean":
            return DeclType(BOOL, 0, 4)
        case "number":
            return DeclType(DOUBLE, 0, 1)
        case "integer":
            return DeclType(INT, 0, 1)
        case _:
            return None


def _array(schema: Mapping[str, Any], path: str) -> DeclType | None:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return None
    element = schema_decl_type(items, root=bool(items.get(_EMBEDDED)), path=f"{path}.@idx")
    if element is None:
        return None
    limit = schema.get("maxItems")
    most = (MAX_REQUEST - 2) // (element.min_size + 1) if limit is None else max(limit, 0)
    return DeclType(list_of(element.type), most, 2, element)


def _object(schema: Mapping[str, Any], path: str) -> DeclType | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        root = bool(additional.get(_EMBEDDED))
        value = schema_decl_type(additional, root=root, path=f"{path}.@elem")
        if value is None:
            return None
        limit = schema.get("maxProperties")
        most = (MAX_REQUEST - 2) // (value.min_size + 6) if limit is None else max(limit, 0)
        key = DeclType(STRING, 0, 2)
        return DeclType(map_of(STRING, value.type), most, 2, value, key)
    fields: dict[str, DeclType] = {}
    keys: dict[str, str] = {}
    size = 2
    required = schema.get("required") or ()
    for name, child in (schema.get("properties") or {}).items():
        found = schema_decl_type(child, root=bool(child.get(_EMBEDDED)), path=f"{path}.{name}")
        if found is None:
            continue
        if shown := escape_field_name(name):
            fields[shown], keys[shown] = found, name
        if name in required and child.get("default") is None:
            size += len(name.encode()) + found.min_size + 4
    made = DeclType(DYN, 0, size, fields=fields, keys=keys)
    made.type = object_type(path, made)
    return made


def _string(schema: Mapping[str, Any]) -> DeclType:
    name, limit = schema.get("format"), schema.get("maxLength")
    if name == "byte":
        return DeclType(BYTES, MAX_REQUEST - 2 if limit is None else max(limit, 0), 2)
    if name in _TIMES or name == "date-time":
        type_, least, most = _TIMES.get(str(name), _DATE_TIME)
        return DeclType(type_, most, least)
    if limit is not None:
        most = max(limit, 0) * 4
    elif schema.get("enum"):
        most = max(len(v.encode()) if isinstance(v, str) else 0 for v in schema["enum"])
    else:
        most = MAX_REQUEST - 2
    return DeclType(STRING, most, 2)


# -- values --------------------------------------------------------------------------------

CelConverter = Callable[[Any], Any]
"""From a JSON value to a CEL value."""


def cel_converter(schema: Mapping[str, Any]) -> CelConverter | None:
    """The conversion of JSON values of a schema to CEL values; None if they are the same."""
    if schema.get(_INT_OR_STRING):
        return None
    match schema.get("type"):
        case "string":
            return _STRING_CONVERTERS.get(schema.get("format") or "")
        case "number":
            return _or_null(float)
        case "array":
            return _list_converter(schema)
        case "object":
            return _object_converter(schema)
        case _:
            return None


def _or_null(convert: Callable[[Any], Any]) -> CelConverter:
    def call(value: Any) -> Any:
        try:
            return None if value is None else convert(value)
        except (CelError, ValueError, TypeError):
            return value

    return call


_STRING_CONVERTERS: Final[dict[str, CelConverter]] = {
    "byte": _or_null(decode_base64),
    "duration": _or_null(lambda text: Duration(parse_duration(text))),
    "date": _or_null(lambda text: Timestamp.parse(f"{text}T00:00:00Z")),
    "date-time": _or_null(Timestamp.parse),
}


def _list_converter(schema: Mapping[str, Any]) -> CelConverter | None:
    items = schema.get("items")
    each = cel_converter(items) if isinstance(items, Mapping) else None
    kind = schema.get("x-kubernetes-list-type")
    names = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    if each is None and kind not in ("set", "map"):
        return None

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        made = [each(item) for item in value] if each is not None else value
        if kind == "set":
            return SetList(made)
        return MapList(made, names) if kind == "map" else made

    return convert


def _object_converter(schema: Mapping[str, Any]) -> CelConverter | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        each = cel_converter(additional)
        if each is None:
            return None
        return lambda value: (
            {name: each(item) for name, item in value.items()} if isinstance(value, dict) else value
        )
    properties = schema.get("properties") or {}
    made = {
        name: convert
        for name, child in properties.items()
        if (convert := cel_converter(child)) is not None
    }
    if not made and not any(child.get("nullable") for child in properties.values()):
        return None

    def convert_fields(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        changed = {name: made[name](item) for name, item in value.items() if name in made}
        fields = {**value, **changed}
        return NullsHidden(fields) if None in fields.values() else fields

    return convert_fields
