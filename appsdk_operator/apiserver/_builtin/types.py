"""Objects of built-in kinds as Go reads and writes them.

The real server decodes a built-in object into a Go struct and encodes it again. So fields that the
struct does not have go, values of other types are refused in the words of Go's decoder, empty
values disappear or are written as the struct's tags have it, quantities and times take the one form
they are written in, and defaults are filled in. Here a reader is compiled from the data of
:mod:`builtin_schemas` for each definition when it is first needed, and does all of that at once.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._builtin.defaults import FILLERS, VALUES
from appsdk_operator.apiserver._schema import builtin_schemas
from appsdk_operator.apiserver._values import times
from appsdk_operator.apiserver._values.go_text import GO_TYPES
from appsdk_operator.apiserver._values.quantity import QuantityError, canonical

__all__ = ["DecodeError", "empty", "read", "reads"]

Reader = Callable[[Any, list[str]], Any]
"""From a value to what is kept of it; the paths of unknown fields are added to the list."""

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
    """A value that does not fit; the text is that of the real server's decoder."""


class _MismatchError(Exception):
    """A value of the wrong type, on its way up to the object it is in."""

    def __init__(self, value: Any, type_: str, *, wanted: str = "", literal: bool = False) -> None:
        super().__init__()
        self.value, self.type, self.wanted, self.literal = value, type_, wanted, literal
        self.struct = ""
        self.path: list[str] = []

    def within(self, struct: str, field: str) -> None:
        """Note where the value was found."""
        self.struct = self.struct or struct
        self.path.insert(0, field)

    def decoding(self) -> str:
        """What Go's JSON decoder says."""
        shown = _JSON_NAMES[type(self.value)]
        if self.literal and shown == "number":
            shown = f"number {json.dumps(self.value)}"
        where = f"Go struct field {self.struct}.{'.'.join(self.path)}"
        if not self.struct:
            where = "Go value"
        return f"json: cannot unmarshal {shown} into {where} of type {self.type}"

    def converting(self) -> str:
        """What Kubernetes says where it has a map and makes a struct of it."""
        kind = type(self.value)
        if self.wanted == "struct":
            return f"cannot restore struct from: {_GO_KINDS[kind]}"
        if self.wanted:
            return f"cannot restore {self.wanted} from {_GO_KINDS[kind]}"
        if kind in (int, float):
            return f"cannot convert {GO_TYPES[kind]} to {self.type}"
        return f"unrecognized type: {'string' if '.' in self.type else self.type}"


def reads(group: str, version: str, kind: str) -> bool:
    """Whether objects of that kind are known well enough to be read."""
    name = builtin_schemas.definition_of(group, version, kind)
    return name is not None and name in builtin_schemas.data().types


def read(
    group: str, version: str, kind: str, obj: Any, *, converting: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """What the server keeps of ``obj``, and the paths of the fields that the kind does not have.

    Args:
        group: the kind's group.
        version: the version that ``obj`` is in.
        kind: the kind.
        obj: JSON values; they are left as they are.
        converting: whether errors are in the words for objects that were patched in memory.

    Raises:
        DecodeError: a value has a type that does not fit.
        KeyError: no such kind.
    """
    unknown: list[str] = []
    reader = _struct(builtin_schemas.data().kinds[group, version, kind])
    try:
        made: dict[str, Any] = reader(obj, unknown)
    except _MismatchError as error:
        text = error.converting() if converting else error.decoding()
        raise DecodeError(text) from None
    return made, unknown


def empty(name: str) -> Any:
    """What is written of a definition of which nothing was set, defaults included.

    >>> empty("io.k8s.api.core.v1.ServiceStatus")
    {'loadBalancer': {}}
    """
    return _struct(name)({}, [])


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
    # Go points at the group that is too short, at padding too soon, or at what comes after it.
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


def _parsed(value: Any, parse: Callable[[str], str]) -> Any:
    if type(value) is not str:
        raise _MismatchError(value, "string")
    try:
        return parse(value)
    except ValueError as error:
        raise DecodeError(str(error)) from None


def _read_schema(value: Any, unknown: list[str]) -> Any:
    """A schema, where something shorter may stand in its place."""
    return (
        _struct(f"{_EXTENSIONS}JSONSchemaProps")(value, unknown) if type(value) is dict else value
    )


_SPECIAL: Final[dict[str, Reader]] = {
    f"{_EXTENSIONS}JSON": _read_anything,
    f"{_EXTENSIONS}JSONSchemaPropsOrArray": _read_schema,
    f"{_EXTENSIONS}JSONSchemaPropsOrBool": _read_schema,
    f"{_EXTENSIONS}JSONSchemaPropsOrStringArray": _read_schema,
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
    """The reader of a definition; compiled once."""
    known = _structs.get(name)
    if known is not None:
        return known
    if name in _SPECIAL:
        return _SPECIAL[name]
    data = builtin_schemas.data()
    if name not in data.types or not data.types[name]:
        return _read_anything
    fields: dict[str, tuple[str, type | None, Reader]] = {}
    always: list[tuple[str, Callable[[], Any]]] = []
    reader = _struct_reader(name, fields, always)
    # Before its fields: definitions may contain themselves.
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
        # What a pointer points to is kept even when it is empty.
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
    """The defaults that the schema itself tells of, where Go would leave the field out."""
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
    """What Go writes for a field that was never set."""
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
