"""Constraints of values in schemas: validators of attrs, msgspec.Meta, annotated_types, pydantic.

Each is recognised by its attributes, without an import of its library.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import msgspec

from appsdk_operator.resource._schema.go_patterns import go_pattern
from appsdk_operator.resource._schema.markers import Marker, Rule
from appsdk_operator.resource._typed.class_fields import FieldName

_BOUNDS: Final = {
    "ge": ("minimum", False),
    "gt": ("minimum", True),
    "le": ("maximum", False),
    "lt": ("maximum", True),
}
_COMPARISONS: Final = {">=": "ge", ">": "gt", "<=": "le", "<": "lt"}
# Of pydantic: they say how a value is read, not which values there are.
_SILENT: Final = frozenset(
    {"Strict", "FailFast", "Discriminator", "Unit", "Timezone", "DocInfo", "Doc", "FieldInfo"}
)
# Of these a schema has one; others are in its allOf.
_BOTH: Final = frozenset({"pattern", "multipleOf", "oneOf", "anyOf", "not"})
_LENGTHS: Final = {"string": "Length", "array": "Items", "object": "Properties"}


def merge(schema: dict[str, Any], found: Mapping[str, Any]) -> None:
    """Add constraints to a schema; of two limits the narrower one stays, of others both."""
    # A limit is there before the flag that excludes it.
    for name, value in sorted(found.items(), key=lambda one: one[0].startswith("exclusive")):
        present = schema.get(name)
        if name in ("minimum", "maximum") and present is not None:
            is_narrower = value > present if name == "minimum" else value < present
            exclusive = "exclusive" + name.capitalize()
            if not is_narrower and not (value == present and found.get(exclusive)):
                continue
            schema.pop(exclusive, None)
        elif name.startswith("exclusive"):
            limit = name[9:].lower()
            if (limit in found and schema.get(limit) != found[limit]) or (present and not value):
                continue
        elif present is not None and name.startswith("min"):
            value = max(value, present)
        elif present is not None and name.startswith("max"):
            value = min(value, present)
        elif name == "enum" and present is not None:
            value = [one for one in value if one in present]
        elif name == "required" and present is not None:
            value = [*present, *(one for one in value if one not in present)]
        elif name in _BOTH and present not in (None, value):
            name, value = "allOf", [*schema.get("allOf", ()), {name: value}]
        elif name in ("allOf", "x-kubernetes-validations") and present is not None:
            value = [*present, *value]
        schema[name] = value


def add_validator(schema: dict[str, Any], validator: Any) -> list[str]:
    """Add what a validator of attrs demands; returns those that a schema cannot say."""
    kind = type(validator).__name__
    if validator is None or getattr(validator, "is_in_schema", False):
        return []
    if kind == "_AndValidator":
        return [text for one in validator._validators for text in add_validator(schema, one)]  # noqa: SLF001
    if kind == "_OptionalValidator":
        return add_validator(schema, validator.validator)
    if kind == "_InstanceOfValidator":  # the type says it
        return []
    if kind == "_NumberValidator":
        operation = _COMPARISONS.get(validator.compare_op)
        if operation is not None:
            return _bound(schema, operation, validator.bound)
    elif kind == "_MaxLengthValidator":
        return _length(schema, "max", validator.max_length)
    elif kind == "_MinLengthValidator":
        return _length(schema, "min", validator.min_length)
    elif kind == "_MatchesReValidator":
        how = getattr(validator.match_func, "__name__", "fullmatch")
        return _pattern(
            schema, validator.pattern, at_start=how != "search", at_end=how == "fullmatch"
        )
    elif kind == "_InValidator":
        options = validator.options
        if isinstance(options, range) and options.step == 1 and schema.get("type") == "integer":
            merge(schema, {"minimum": options.start, "maximum": options.stop - 1})
            return []
        # attrs makes a tuple of a set, in an order that depends on hashes.
        if isinstance(getattr(validator, "_original_options", options), (set, frozenset)):
            options = sorted(options, key=str)
        values = [] if isinstance(options, str) else list(options)
        if values and all(isinstance(one, (str, int, float)) for one in values):
            merge(schema, {"enum": values})
            return []
    elif kind == "_DeepIterable" and schema.get("type") == "array":
        lost = add_validator(schema["items"], validator.member_validator)
        return lost + add_validator(schema, validator.iterable_validator)
    elif kind == "_DeepMapping" and isinstance(schema.get("additionalProperties"), dict):
        lost = add_validator(schema["additionalProperties"], validator.value_validator)
        lost += add_validator(schema, validator.mapping_validator)
        keys = validator.key_validator
        return lost + ([f"validator {_name(keys)} of keys"] if not _is_type_check(keys) else [])
    return [f"validator {_name(validator)}"]


def _is_type_check(validator: Any) -> bool:
    return validator is None or type(validator).__name__ == "_InstanceOfValidator"


def add_constraint(schema: dict[str, Any], marker: Any) -> list[str]:
    """Add what one annotation demands; returns what a schema cannot say of it."""
    if isinstance(marker, Rule):
        merge(schema, {"x-kubernetes-validations": [marker.as_json()]})
        return []
    if isinstance(marker, Marker):
        merge(schema, marker.schema())
        return []
    if isinstance(marker, FieldName | str) or type(marker).__name__ in _SILENT:
        return []
    if isinstance(marker, msgspec.Meta):
        return _meta(schema, marker)
    if isinstance(marker, Iterable):  # annotated_types.Interval and Len, pydantic's constraints
        return [text for one in marker for text in add_constraint(schema, one)]
    known, lost = _limits(schema, marker)
    general = getattr(marker, "__dict__", {})
    if not known and "pattern" in general and isinstance(general["pattern"], str | re.Pattern):
        return _pattern(schema, general["pattern"])
    if known or type(marker).__name__ == "PydanticGeneralMetadata":
        return lost
    return [_name(marker)]


def _limits(schema: dict[str, Any], marker: Any) -> tuple[bool, list[str]]:
    """Add limits of annotated_types, and of pydantic, whose names are the same.

    Returns:
        Whether there are any, and those that the schema cannot say.
    """
    is_known = False
    lost: list[str] = []
    for name in _BOUNDS:
        if (value := getattr(marker, name, None)) is not None:
            lost += _bound(schema, name, value)
            is_known = True
    for attribute, side in (("min_length", "min"), ("max_length", "max")):
        if (value := getattr(marker, attribute, None)) is not None:
            lost += _length(schema, side, value)
            is_known = True
    if (value := getattr(marker, "multiple_of", None)) is not None:
        merge(schema, {"multipleOf": value})
        is_known = True
    return is_known, lost


def _meta(schema: dict[str, Any], meta: msgspec.Meta) -> list[str]:
    lost = _limits(schema, meta)[1]
    if meta.description:
        schema["description"] = meta.description
    if meta.pattern is not None:
        lost += _pattern(schema, meta.pattern)
    if meta.extra_json_schema:
        schema.update(meta.extra_json_schema)
    return lost


def _pattern(
    schema: dict[str, Any],
    pattern: str | re.Pattern[str],
    *,
    at_start: bool = False,
    at_end: bool = False,
) -> list[str]:
    found, is_exact = go_pattern(pattern, at_start=at_start, at_end=at_end)
    if found is not None:
        merge(schema, {"pattern": found})
    return [] if is_exact else [f"pattern {getattr(pattern, 'pattern', pattern)!r}"]


def _bound(schema: dict[str, Any], name: str, value: Any) -> list[str]:
    if not isinstance(value, int | float) or schema.get("type") not in ("integer", "number"):
        return [f"{name}={value!r}"]
    if not math.isfinite(value):  # which JSON has no values beyond
        return []
    field, is_exclusive = _BOUNDS[name]
    found: dict[str, Any] = {field: value}
    if is_exclusive:
        found["exclusive" + field.capitalize()] = True
    merge(schema, found)
    return []


def _length(schema: dict[str, Any], side: str, value: int) -> list[str]:
    what = _LENGTHS.get(str(schema.get("type")))
    if what is None or schema.get("format") == "byte":  # whose text is longer than the bytes
        return [f"{side}_length={value!r}"]
    merge(schema, {side + what: value})
    return []


def _name(value: Any) -> str:
    if attrs.has(type(value)):
        return repr(value)
    inner = getattr(value, "func", None)  # a pydantic validator holds its function
    named = inner if callable(inner) else value
    return str(getattr(named, "__qualname__", None) or repr(named))
