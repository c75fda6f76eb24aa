"""Decoding of built-in objects, with the results of Go's structs.

The real server decodes a built-in object into a Go struct and encodes it again. That drops unknown
fields, refuses values of the wrong type with the errors of Go's decoder, omits or writes empty
values as the struct tags say, normalizes quantities and times, and fills in defaults. Here a reader
for each definition does all of this; it is compiled on first use from the data of
:mod:`builtin_schemas`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._schema import builtin_schemas
from appsdk_operator.apiserver._schema.builtin_defaults import FILLERS, VALUES
from appsdk_operator.apiserver._values import times
from appsdk_operator.apiserver._values.go_text import GO_TYPES
from appsdk_operator.apiserver._values.quantity import QuantityError, canonical

Reader = Callable[[Any, list[str]], Any]
"""Decodes a value; appends the paths of unknown fields to the list."""

_EXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_JSON_NAMES: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}
_GO_KINDS: Final = {**GO_TYPES, list: "slice", dict: "map"}
_LIMITS: Final = {"int32": 2**31, "int64": 2**63, "uint8": 256}


class DecodeError(ValueError):
    """A value has the wrong type; the text is that of the real server's decoder."""


class _MismatchError(Exception):
    """A value has the wrong type; the path is completed while the error propagates."""

    def __init__(self, value: Any, type_: str, *, wanted: str = "", literal: bool = False) -> None:
        super().__init__()
        self.value, self.type, self.wanted, self.literal = value, type_, wanted, literal
        self.struct = ""
        self.path: list[str] = []

    def within(self, struct: str, field: str) -> None:
        """Add the struct and field that contain the value."""
        self.struct = self.struct or struct
        self.path.insert(0, field)

    def decoding(self) -> str:
        """The text of Go's JSON decoder."""
        shown = _JSON_NAMES[type(self.value)]
        if self.literal and shown == "number":
            shown = f"number {json.dumps(self.value)}"
        where = f"Go struct field {self.struct}.{'.'.join(self.path)}"
        if not self.struct:
            where = "Go value"
        return f"json: cannot unmarshal {shown} into {where} of type {self.type}"

    def converting(self) -> str:
        """The text of Kubernetes' converter from maps to structs."""
        kind = type(self.value)
        if self.wanted == "struct":
            return f"cannot restore struct from: {_GO_KINDS[kind]}"
        if self.wanted:
            return f"cannot restore {self.wanted} from {_GO_KINDS[kind]}"
        if kind in (int, float):
            return f"cannot convert {GO_TYPES[kind]} to {self.type}"
        return f"unrecognized type: {'string' if '.' in self.type else self.type}"


def has_type(group: str, version: str, kind: str) -> bool:
    """Whether the kind has a built-in type."""
    name = builtin_schemas.definition_of(group, version, kind)
    return name is not None and name in builtin_schemas.data().types


def read(
    group: str, version: str, kind: str, obj: Any, *, converting: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Decode ``obj``; return the result and the paths of unknown fields.

    Args:
        group: the kind's group.
        version: the version that ``obj`` is in.
        kind: the kind.
        obj: JSON values; they are not changed.
        converting: whether errors read like those for objects that were patched in memory.

    Raises:
        DecodeError: a value has the wrong type.
        KeyError: the kind is unknown.
    """
    name = builtin_schemas.data().kinds[group, version, kind]
    return read_definition(name, obj, converting=converting)


def read_definition(
    name: str, obj: Any, *, converting: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Decode ``obj`` as a definition, like :func:`read`.

    Raises:
        DecodeError: a value has the wrong type.
    """
    unknown: list[str] = []
    try:
        made: dict[str, Any] = _struct(name)(obj, unknown)
    except _MismatchError as error:
        text = error.converting() if converting else error.decoding()
        raise DecodeError(text) from None
    return made, unknown


def empty(name: str) -> Any:
    """The encoding of a definition's zero value, defaults included.

    >>> empty("io.k8s.api.core.v1.ServiceStatus")
    {'loadBalancer': {}}
    """
    return _struct(name)({}, [])


def empty_status(group: str, version: str, kind: str) -> Any:
    """The empty status of a kind; None for a kind without one.

    >>> empty_status("", "v1", "Service"), empty_status("", "v1", "ConfigMap")
    ({'loadBalancer': {}}, None)

    Raises:
        KeyError: the kind is unknown.
    """
    data = builtin_schemas.data()
    name = _reference(
        data.schemas[data.kinds[group, version, kind]]["properties"].get("status", {})
    )
    return empty(name) if name else None


# -- values ----------------------------------------------------------------------------------


def _text(type_: str) -> Reader:
    def read_text(value: Any, _unknown: list[str]) -> Any:
        if type(value) is not str:
            raise _MismatchError(value, type_)
        return value

    return read_text


def _flag(type_: str) -> Reader:
    def read_flag(value: Any, _unknown: list[str]) -> Any:
        if type(value) is not bool:
            raise _MismatchError(value, type_)
        return value

    return read_flag


def _whole(type_: str, limit: int) -> Reader:
    def read_whole(value: Any, _unknown: list[str]) -> Any:
        if type(value) is not int or not -limit <= value < limit:
            raise _MismatchError(value, type_, literal=True)
        return value

    return read_whole


def _number(type_: str) -> Reader:
    def read_number(value: Any, _unknown: list[str]) -> Any:
        if type(value) not in (int, float):
            raise _MismatchError(value, type_)
        return value

    return read_number


def _read_bytes(value: Any, _unknown: list[str]) -> Any:
    if type(value) is not str:
        raise _MismatchError(value, "[]uint8")
    text = value.replace("\n", "").replace("\r", "")
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DecodeError(f"illegal base64 data at input byte {_bad_byte(value)}") from None
    return text


def _bad_byte(text: str) -> int:
    allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    body = text.rstrip("=")
    for index, char in enumerate(body):
        if char not in allowed and char not in "\r\n":
            return index
    padding, spare = len(text) - len(body), len(body) % 4
    # Go reports the offset of a short group, of early padding, or of data after the padding.
    if not padding:
        return len(text) - spare
    if spare < 2:
        return len(body)
    return min(len(text), len(body) + 4 - spare)


def _read_anything(value: Any, _unknown: list[str]) -> Any:
    return value


def _read_int_or_string(value: Any, _unknown: list[str]) -> Any:
    if type(value) is str:
        return value
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise _MismatchError(value, "int32", literal=True)
    return value


def _read_quantity(value: Any, _unknown: list[str]) -> Any:
    try:
        return canonical(value if type(value) is not bool else "true")
    except QuantityError as error:
        raise DecodeError(str(error)) from None


def _read_time(value: Any, _unknown: list[str]) -> Any:
    return _parsed(value, times.normalize_time)


def _read_precise_time(value: Any, _unknown: list[str]) -> Any:
    return _parsed(value, times.normalize_micro_time)


def _parsed(value: Any, parse: Callable[[str], str | None]) -> Any:
    if type(value) is not str:
        raise _MismatchError(value, "string")
    try:
        return parse(value)
    except ValueError as error:
        raise DecodeError(str(error)) from None


def _read_schema(value: Any, unknown: list[str]) -> Any:
    return _struct(f"{_EXTENSIONS}JSONSchemaProps")(value, unknown)


def _read_schema_or_flag(value: Any, unknown: list[str]) -> Any:
    if type(value) not in (dict, bool):
        raise DecodeError("boolean or JSON schema expected")
    return _read_schema(value, unknown) if type(value) is dict else value


def _schema_or_list(type_: str, item: Reader) -> Reader:
    def read_schema_or_list(value: Any, unknown: list[str]) -> Any:
        if type(value) is list:
            # Go knows an empty list no more than a value of another type.
            return _list(f"[]{type_}", item, dict)(value, unknown) or None
        return _read_schema(value, unknown) if type(value) is dict else None

    return read_schema_or_list


_SPECIAL: Final[dict[str, Reader]] = {
    f"{_EXTENSIONS}JSON": _read_anything,
    f"{_EXTENSIONS}JSONSchemaPropsOrArray": _schema_or_list("v1.JSONSchemaProps", _read_schema),
    f"{_EXTENSIONS}JSONSchemaPropsOrBool": _read_schema_or_flag,
    f"{_EXTENSIONS}JSONSchemaPropsOrStringArray": _schema_or_list("string", _text("string")),
    f"{_META}FieldsV1": _read_anything,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _read_anything,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _read_int_or_string,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _read_quantity,
    f"{_META}Time": _read_time,
    f"{_META}MicroTime": _read_precise_time,
    f"{_META}Duration": _text("string"),
}


# -- collections -----------------------------------------------------------------------------


def _list(type_: str, item: Reader, empty: Callable[[], Any]) -> Reader:
    def read_list(value: Any, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise _MismatchError(value, type_, wanted="slice")
        made = []
        for index, member in enumerate(value):
            if member is None:
                made.append(empty())
                continue
            before = len(unknown)
            made.append(item(member, unknown))
            for at in range(before, len(unknown)):
                unknown[at] = f"[{index}]{_joint(unknown[at])}"
        return made

    return read_list


def _map(type_: str, item: Reader, empty: Callable[[], Any]) -> Reader:
    def read_map(value: Any, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise _MismatchError(value, type_, wanted="map")
        made = {}
        for key, member in value.items():
            if member is None:
                made[key] = empty()
                continue
            before = len(unknown)
            made[key] = item(member, unknown)
            for at in range(before, len(unknown)):
                unknown[at] = f"{key}{_joint(unknown[at])}"
        return made

    return read_map


def _joint(path: str) -> str:
    return path if path.startswith("[") else f".{path}"


# -- structs ---------------------------------------------------------------------------------

_structs: Final[dict[str, Reader]] = {}


def _struct(name: str) -> Reader:
    """The reader of a definition, compiled once."""
    known = _structs.get(name)
    if known is not None:
        return known
    if name in _SPECIAL:
        return _SPECIAL[name]
    data = builtin_schemas.data()
    if name not in data.types:
        return _read_anything
    fields: dict[str, tuple[str, type | None, Reader]] = {}
    always: list[tuple[str, Callable[[], Any]]] = []
    reader = _struct_reader(name, fields, always)
    # Set before its fields are compiled: definitions may be recursive.
    _structs[name] = reader
    properties = data.schemas[name].get("properties", {})
    for field, entry in data.types[name].items():
        letter, type_ = entry[0], entry[1:].lstrip("*")
        node = properties.get(field)
        if node is None:
            continue
        leaf = {"string": str, "boolean": bool}.get(node.get("type", ""))
        if node.get("format") == "byte":
            leaf = None
        # A pointer field keeps an empty value.
        kept = "p" if letter == "n" and entry[1] == "*" else letter
        fields[field] = (kept, leaf, _reader(node, type_))
        if letter in "an":
            always.append((field, _zero(node) if letter == "a" else _null))
    return reader


def _struct_reader(
    name: str,
    fields: Mapping[str, tuple[str, type | None, Reader]],
    always: list[tuple[str, Callable[[], Any]]],
) -> Reader:
    path, _, struct = name.rpartition(".")
    type_ = f"{path.rpartition('.')[2]}.{struct}"
    values, fill = {**_published(name), **VALUES.get(name, {})}, FILLERS.get(name)

    def read_struct(value: Any, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise _MismatchError(value, type_, wanted="struct")
        made: dict[str, Any] = {}
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                unknown.append(key)
                continue
            if item is None:
                continue
            letter, leaf, reader = field
            if type(item) is not leaf:
                before = len(unknown)
                try:
                    item = reader(item, unknown)
                except _MismatchError as error:
                    error.within(struct, key)
                    raise
                for at in range(before, len(unknown)):
                    unknown[at] = f"{key}{_joint(unknown[at])}"
            if item or letter in "pa":
                made[key] = item
        for key, default in values.items():
            if key not in made or (not made[key] and fields[key][0] == "a"):
                made[key] = default
        for key, make in always:
            if key not in made:
                made[key] = make()
        if fill is not None:
            fill(made)
        return made

    return read_struct


def _published(name: str) -> dict[str, Any]:
    """The defaults in the schema of fields that Go would omit."""
    data = builtin_schemas.data()
    return {
        field: node["default"]
        for field, node in data.schemas[name].get("properties", {}).items()
        if not isinstance(node.get("default", {}), (dict, list))
        and (data.types[name].get(field, "a")[0] in "pn" or node["default"])
    }


def _reader(node: Mapping[str, Any], type_: str) -> Reader:
    reference = _reference(node)
    if reference:
        return _struct(reference)
    kind = node.get("type", "")
    if kind == "array":
        items = node["items"]
        return _list(type_, _reader(items, type_.removeprefix("[]").lstrip("*")), _zero(items))
    if kind == "object":
        items = node.get("additionalProperties")
        if not isinstance(items, Mapping):
            return _read_anything
        return _map(type_, _reader(items, type_.partition("]")[2].lstrip("*")), _zero(items))
    if kind == "integer":
        limit = _LIMITS.get(node.get("format", ""), 2**63)
        return _whole(type_ or str(node.get("format", "int64")), limit)
    if node.get("format") == "byte":
        return _read_bytes
    makers = {"string": _text, "boolean": _flag, "number": _number}
    names = {"string": "string", "boolean": "bool", "number": "float64"}
    return makers[kind](type_ or names[kind]) if kind in makers else _read_anything


def _reference(node: Mapping[str, Any]) -> str:
    found = node.get("$ref") or next((part.get("$ref") for part in node.get("allOf", ())), "")
    return str(found or "")


def _null() -> Any:
    return None


def _zero(node: Mapping[str, Any]) -> Callable[[], Any]:
    """The zero value of a field, as Go encodes it."""
    reference = _reference(node)
    if reference:
        if reference in _SPECIAL:
            zero = {"Quantity": "0", "IntOrString": 0}.get(reference.rpartition(".")[2])
            return lambda: zero
        if not builtin_schemas.data().types.get(reference):
            return _null
        return lambda: _struct(reference)({}, [])
    kinds: dict[str, Any] = {"string": "", "boolean": False, "integer": 0, "number": 0}
    value = kinds.get(node.get("type", ""))
    return lambda: value
