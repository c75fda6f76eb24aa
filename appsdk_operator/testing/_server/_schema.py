"""Structural schemas of custom resources: drop what they do not name, fill in defaults, validate.

The three work on plain JSON values and in this order, as the real server's do. Message forms are
those of its ``openAPIV3Schema`` validation. CEL rules (``x-kubernetes-validations``) are kept and
not evaluated.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from appsdk_operator.testing._server import _formats
from appsdk_operator.testing._server._status import FieldError

__all__ = ["apply_defaults", "prune", "validate"]

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_OF_AN_OBJECT: Final = ("apiVersion", "kind", "metadata")

_TYPE_NAMES: Final[dict[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


def prune(obj: dict[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Drop from ``obj`` every field the schema does not name; the paths of those that went."""
    dropped: list[str] = []
    _prune(obj, {**schema, _EMBEDDED: True}, "", dropped)
    return dropped


def _prune(value: Any, schema: Mapping[str, Any], path: str, dropped: list[str]) -> None:
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                _prune(item, items, f"{path}[{index}]", dropped)
        elif not schema.get(_PRESERVE):
            for index, item in enumerate(value):
                _prune(item, {}, f"{path}[{index}]", dropped)
        return
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    embedded = schema.get(_EMBEDDED)
    preserve = schema.get(_PRESERVE) or additional is True
    for key in list(value):
        at = f"{path}.{key}" if path else key
        if embedded and key in _OF_AN_OBJECT:
            continue
        if key in properties:
            _prune(value[key], properties[key], at, dropped)
        elif isinstance(additional, dict):
            _prune(value[key], additional, at, dropped)
        elif not preserve:
            del value[key]
            dropped.append(at)


def apply_defaults(value: Any, schema: Mapping[str, Any]) -> None:
    """Fill in the schema's defaults wherever the object around them is there."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for key, child in properties.items():
            if "default" in child and (
                key not in value or (value[key] is None and not child.get("nullable"))
            ):
                value[key] = copy.deepcopy(child["default"])
            if key in value:
                apply_defaults(value[key], child)
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            for key, item in value.items():
                if key not in properties:
                    apply_defaults(item, additional)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            apply_defaults(item, schema["items"])


def validate(obj: dict[str, Any], schema: Mapping[str, Any]) -> list[FieldError]:
    """Everything in ``obj`` that breaks the schema, in the schema's order."""
    return list(_validate(obj, schema, ""))


def _validate(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if value is None:
        if schema.get("nullable") or not (schema.get("type") or schema.get(_INT_OR_STRING)):
            return
        yield _wrong_type(value, schema.get("type") or "integer,string", path)
        return
    if (problem := _check_type(value, schema, path)) is not None:
        yield problem
        return
    if isinstance(value, dict):
        yield from _validate_object(value, schema, path)
    elif isinstance(value, list):
        yield from _validate_array(value, schema, path)
    elif isinstance(value, str):
        yield from _validate_string(value, schema, path)
    elif not isinstance(value, bool):
        yield from _validate_number(value, schema, path)
    if "enum" in schema and not any(_same(value, allowed) for allowed in schema["enum"]):
        yield FieldError.not_supported(path, value, map(_as_text, schema["enum"]))
    yield from _validate_combinations(value, schema, path)


def _check_type(value: Any, schema: Mapping[str, Any], path: str) -> FieldError | None:
    if schema.get(_INT_OR_STRING):
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return None
        return _wrong_type(value, "integer,string", path)
    wanted = schema.get("type")
    if not wanted:
        return None
    found = _TYPE_NAMES[type(value)]
    if found == wanted or (found == "integer" and wanted == "number"):
        return None
    if found == "number" and wanted == "integer" and value == int(value):
        return None
    return _wrong_type(value, wanted, path)


def _wrong_type(value: Any, wanted: str, path: str) -> FieldError:
    found = _TYPE_NAMES[type(value)]
    return FieldError.invalid(
        path or "<nil>", found, f'{path} in body must be of type {wanted}: "{found}"'
    )


def _validate_object(
    value: dict[str, Any], schema: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for key in schema.get("required") or ():
        if key not in value:
            yield FieldError.required(f"{path}.{key}" if path else key)
    for key, item in value.items():
        at = f"{path}.{key}" if path else key
        if key in properties:
            # The server checks the metadata of the object itself with its own rules.
            if path or key != "metadata":
                yield from _validate(item, properties[key], at)
        elif isinstance(additional, dict):
            yield from _validate(item, additional, at)
    if schema.get(_EMBEDDED):
        for key in ("apiVersion", "kind"):
            if not value.get(key):
                yield FieldError.required(f"{path}.{key}", "must not be empty")
    count = len(value)
    if count > schema.get("maxProperties", count):
        limit = schema["maxProperties"]
        yield FieldError.invalid(
            path, count, f"{path} in body should have at most {limit} properties"
        )
    if count < schema.get("minProperties", 0):
        limit = schema["minProperties"]
        yield FieldError.invalid(
            path, count, f"{path} in body should have at least {limit} properties"
        )


def _validate_array(value: list[Any], schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    count = len(value)
    if count > schema.get("maxItems", count):
        limit = schema["maxItems"]
        yield FieldError.invalid(path, count, f"{path} in body should have at most {limit} items")
    if count < schema.get("minItems", 0):
        limit = schema["minItems"]
        yield FieldError.invalid(path, count, f"{path} in body should have at least {limit} items")
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            yield from _validate(item, items, f"{path}[{index}]")
    yield from _validate_list_type(value, schema, path)


def _validate_list_type(
    value: list[Any], schema: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("set", "map"):
        return
    names = schema.get("x-kubernetes-list-map-keys") or ()
    seen: set[str] = set()
    for index, item in enumerate(value):
        shown = item
        if kind == "map":
            if not isinstance(item, dict):
                continue
            shown = {name: item[name] for name in names if name in item}
        identity = repr(shown)
        if identity in seen:
            yield FieldError.duplicate(f"{path}[{index}]", shown)
        seen.add(identity)


def _validate_string(value: str, schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    count = len(value)
    pattern = schema.get("pattern")
    problem = ""
    # One of these at a time, as the real server has it.
    if count > schema.get("maxLength", count):
        problem = f"should be at most {schema['maxLength']} chars long"
    elif count < schema.get("minLength", 0):
        problem = f"should be at least {schema['minLength']} chars long"
    elif pattern and not _compiled(pattern).search(value):
        problem = f"should match '{pattern}'"
    if problem:
        yield FieldError.invalid(path, value, f"{path} in body {problem}")
    name = schema.get("format")
    if name and not _formats.is_valid(name, value):
        yield FieldError.invalid(path, value, f'{path} in body must be of type {name}: "{value}"')


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _validate_number(value: float, schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    maximum, minimum = schema.get("maximum"), schema.get("minimum")
    if maximum is not None:
        exclusive = schema.get("exclusiveMaximum")
        if value >= maximum if exclusive else value > maximum:
            words = "less than" if exclusive else "less than or equal to"
            yield FieldError.invalid(path, value, f"{path} in body should be {words} {maximum}")
    if minimum is not None:
        exclusive = schema.get("exclusiveMinimum")
        if value <= minimum if exclusive else value < minimum:
            words = "greater than" if exclusive else "greater than or equal to"
            yield FieldError.invalid(path, value, f"{path} in body should be {words} {minimum}")
    factor = schema.get("multipleOf")
    if factor and abs(value / factor - round(value / factor)) > 1e-9:
        yield FieldError.invalid(path, value, f"{path} in body should be a multiple of {factor}")
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        yield FieldError.invalid(
            path, value, f"Checked value must be of type {schema['format']}: {value}"
        )


def _validate_combinations(
    value: Any, schema: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    for part in schema.get("allOf") or ():
        yield from _validate(value, part, path)
    name = path or "<nil>"
    if schema.get("anyOf"):
        found = [list(_validate(value, part, path)) for part in schema["anyOf"]]
        if all(found):
            yield FieldError.invalid(
                name, _shown(value), f"{path} in body must validate at least one schema (anyOf)"
            )
            yield from min(found, key=len)
    if schema.get("oneOf"):
        found = [list(_validate(value, part, path)) for part in schema["oneOf"]]
        valid = sum(not problems for problems in found)
        if valid != 1:
            which = "Found none valid" if not valid else f"Found {valid} valid alternatives"
            yield FieldError.invalid(
                name,
                _shown(value),
                f"{path} in body must validate one and only one schema (oneOf). {which}",
            )
            if not valid:
                yield from min(found, key=len)
    if schema.get("not") and not list(_validate(value, schema["not"], path)):
        yield FieldError.invalid(
            name, _shown(value), f"{path} in body must not validate the schema (not)"
        )


def _shown(value: Any) -> Any:
    return "" if isinstance(value, (dict, list)) else value


def _same(value: Any, other: Any) -> bool:
    # 1, 1.0 and True are equal in Python and three things in JSON.
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)
