"""Whether a schema is structural, as Kubernetes requires of custom resources.

Every field has a type outside of ``anyOf``, ``allOf``, ``oneOf`` and ``not``; schemas inside of
these only validate fields that are declared outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._schema.pruning import EMBEDDED, PRESERVE
from appsdk_operator.apiserver._values.go_pattern import GoPatternError, go_pattern
from appsdk_operator.apiserver._values.status import FieldError

INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_EITHER: Final = [{"type": "integer"}, {"type": "string"}]
_ROOT, _ITEM, _FIELD = "the root", "array items", "object fields"
_Schema = Mapping[str, Any]


def has_unsupported_fields(schema: Any) -> bool:
    """Whether the schema has a keyword that custom resources do not support."""
    if not isinstance(schema, Mapping):
        return False
    if any(schema.get(name) for name in ("id", "$schema", "$ref", "patternProperties")):
        return True
    if any(name in schema for name in ("dependencies", "additionalItems")):
        return True
    if schema.get("definitions") or isinstance(schema.get("items"), list):
        return True
    return schema.get(PRESERVE) is False or any(map(has_unsupported_fields, _parts(schema)))


def _parts(schema: _Schema) -> Iterator[Any]:
    yield from (schema.get("properties") or {}).values()
    for name in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(name) or ()
    yield from (schema.get(name) for name in ("items", "additionalProperties", "not"))


def structural_problems(schema: _Schema, path: str) -> list[FieldError]:
    """The reasons why the schema at ``path`` is not structural, sorted by text."""
    errors = list(_invariants(schema, _ROOT, path))
    errors += _completeness_problems(schema, schema, path, path)
    return sorted(errors, key=str)


def _invariants(schema: _Schema, level: str, path: str) -> Iterator[FieldError]:
    type_ = schema.get("type") or ""
    items, additional = schema.get("items"), schema.get("additionalProperties")
    properties = schema.get("properties") or {}
    if type_ == "array" and not isinstance(items, Mapping):
        yield FieldError.required(f"{path}.items", "must be specified")
    if isinstance(items, Mapping):
        yield from _invariants(items, _ITEM, f"{path}.items")
    for name, child in properties.items():
        yield from _invariants(child, _FIELD, f"{path}.properties[{name}]")
    if additional is not None:
        if level == _ROOT:
            at = f"{path}.additionalProperties"
            yield FieldError.forbidden(at, "must not be used at the root")
        if isinstance(additional, Mapping):
            yield from _invariants(additional, _FIELD, f"{path}.additionalProperties")
    yield from _extensions(schema, path)
    yield from _validations(
        schema,
        path,
        skip_any=schema.get("anyOf") == _EITHER,
        skip_first=_starts_with_either(schema),
    )
    yield from _type(schema, type_, level, path)
    yield from _object_problems(schema, level, path)


def _starts_with_either(schema: _Schema) -> bool:
    parts: list[_Schema] = schema.get("allOf") or []
    return bool(parts) and parts[0].get("anyOf") == _EITHER


def _extensions(schema: _Schema, path: str) -> Iterator[FieldError]:
    if schema.get(INT_OR_STRING):
        for name in (PRESERVE, EMBEDDED):
            if schema.get(name):
                detail = f"must be false if {INT_OR_STRING} is true"
                yield FieldError.invalid(f"{path}.{name}", value=True, detail=detail)


def _type(schema: _Schema, type_: str, level: str, path: str) -> Iterator[FieldError]:
    at = f"{path}.type"
    if schema.get(EMBEDDED) and type_ != "object":
        detail = f"must be object if {EMBEDDED} is true"
        yield FieldError.invalid(at, type_, detail) if type_ else FieldError.required(at, detail)
    elif not type_ and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        where = f"at {level}" if level == _ROOT else f"for specified {level}"
        yield FieldError.required(at, f"must not be empty {where}")
    if schema.get(EMBEDDED) and schema.get("additionalProperties") is not None:
        detail = f"must not be used if {EMBEDDED} is set"
        yield FieldError.forbidden(f"{path}.additionalProperties", detail)
    if level == _ROOT and type_ and type_ != "object":
        yield FieldError.invalid(at, type_, "must be object at the root")


def _object_problems(schema: _Schema, level: str, path: str) -> Iterator[FieldError]:
    """The errors of type and metadata fields in the schema of an object."""
    properties = schema.get("properties") or {}
    is_object = level == _ROOT or bool(schema.get(EMBEDDED))
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        child = properties.get(name)
        if is_object and child is not None and child.get("type") != wanted:
            at = f"{path}.properties[{name}].type"
            yield FieldError.invalid(at, child.get("type") or "", f"must be {wanted}")
    if level == _ROOT and "metadata" in properties and not _names_only(properties["metadata"]):
        yield FieldError.forbidden(
            f"{path}.properties[metadata]",
            "must not specify anything other than name and generateName, but metadata is "
            "implicitly specified",
        )
    if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not properties:
        detail = f"must not be empty if {EMBEDDED} is true without {PRESERVE}"
        yield FieldError.required(f"{path}.properties", detail)


def _names_only(metadata: _Schema) -> bool:
    rest = {k: v for k, v in metadata.items() if k not in ("type", "default", "properties") and v}
    return not rest and set(metadata.get("properties") or ()) <= {"name", "generateName"}


# -- inside of value validations -----------------------------------------------------------


def _validations(
    schema: _Schema, path: str, *, skip_any: bool = False, skip_first: bool = False
) -> Iterator[FieldError]:
    for name in ("anyOf", "allOf", "oneOf"):
        if name == "anyOf" and skip_any:
            continue
        for index, part in enumerate(schema.get(name) or ()):
            skip = name == "allOf" and skip_first and index == 0
            yield from _nested(part, f"{path}.{name}[{index}]", skip_any=skip)
    if isinstance(schema.get("not"), Mapping):
        yield from _nested(schema["not"], f"{path}.not")
    pattern = schema.get("pattern")
    if pattern:
        try:
            go_pattern(pattern)
        except GoPatternError as error:
            detail = f"must be a valid regular expression, but isn't: {error}"
            yield FieldError.invalid(f"{path}.pattern", pattern, detail)


_FORBIDDEN: Final = {
    "type": "must be empty to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    PRESERVE: "must be false to be structural",
    EMBEDDED: "must be false to be structural",
    INT_OR_STRING: "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}


def _nested(schema: _Schema, path: str, *, skip_any: bool = False) -> Iterator[FieldError]:
    yield from _validations(schema, path, skip_any=skip_any)
    if isinstance(schema.get("items"), Mapping):
        yield from _nested(schema["items"], f"{path}.items")
    properties = schema.get("properties") or {}
    for name, child in properties.items():
        yield from _nested(child, f"{path}.properties[{name}]")
    if schema.get("additionalProperties") not in (None, False):
        at = f"{path}.additionalProperties"
        yield FieldError.forbidden(at, "must be undefined to be structural")
    for name, detail in _FORBIDDEN.items():
        value = schema.get(name)
        if value is not None and (value or name == "default"):
            yield FieldError.forbidden(f"{path}.{name}", detail)
    if "metadata" in properties:
        at = f"{path}.properties[metadata]"
        yield FieldError.forbidden(at, "must not be specified in a nested context")


# -- completeness --------------------------------------------------------------------------


def _completeness_problems(
    validation: _Schema, schema: _Schema | None, path: str, inside: str
) -> Iterator[FieldError]:
    """The fields that value validations use and the schema around them does not declare."""
    parts = [
        (f"{inside}.{name}[{index}]", part)
        for name in ("allOf", "anyOf", "oneOf")
        for index, part in enumerate(validation.get(name) or ())
    ]
    if isinstance(validation.get("not"), Mapping):
        parts.append((f"{inside}.not", validation["not"]))
    for at, part in parts:
        yield from _nested_completeness(part, schema, path, at)


def _nested_completeness(
    nested: _Schema, schema: _Schema | None, path: str, inside: str
) -> Iterator[FieldError]:
    if schema is None:
        yield FieldError.required(path, f"because it is defined in {inside}")
        return
    yield from _completeness_problems(nested, schema, path, inside)
    if isinstance(nested.get("items"), Mapping):
        items = schema.get("items")
        known = items if isinstance(items, Mapping) else None
        yield from _nested_completeness(nested["items"], known, f"{path}.items", f"{inside}.items")
    properties = schema.get("properties") or {}
    for name, child in (nested.get("properties") or {}).items():
        at, within = f"{path}.properties[{name}]", f"{inside}.properties[{name}]"
        if name in properties:
            yield from _nested_completeness(child, properties[name], at, within)
        else:
            yield FieldError.required(at, f"because it is defined in {within}")
