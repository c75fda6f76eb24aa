"""Value validation of a schema, compiled once into functions.

The order of the checks, the texts and the choice among alternatives are those of kube-openapi's
validator, which Kubernetes uses for custom resources. Every check returns how many keywords
matched: if no alternative of an ``anyOf`` fits, the errors of the best match are reported.

With an old state, unchanged values are not checked again (ratcheting).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, Final

import msgspec

from appsdk_operator.apiserver._schema.scalar_checks import (
    Check,
    composite_error,
    enum_check,
    error_field,
    invalid_value,
    number_checks,
    string_checks,
)
from appsdk_operator.apiserver._values import string_formats
from appsdk_operator.apiserver._values.go_text import go_quote
from appsdk_operator.apiserver._values.status import FieldError

__all__ = ["ABSENT", "Check", "compile_validation", "correlate", "go_type", "json_equal"]

ABSENT: Final = object()
"""The marker for a missing old value."""

_canonical: Final = msgspec.json.Encoder(order="sorted").encode
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_TYPES: Final[dict[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
_GO_FORMATS: Final[dict[type, str]] = {int: "int64", float: "float64"}
_RATCHETED: Final = 4


def go_type(value: Any) -> str:
    """The JSON type of a value, as the validator names it."""
    return "null" if value is None else _TYPES[type(value)]


def json_equal(value: Any, other: Any) -> bool:
    """Whether two JSON values are equal; 1, 1.0 and True are three values."""
    return bool(value == other) and (
        type(value) is str is type(other) or _canonical(value) == _canonical(other)
    )


def _wrong_type(path: str, wanted: str, found: str) -> FieldError:
    return FieldError(
        "FieldValueTypeInvalid",
        error_field(path),
        f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"',
    )


def compile_validation(schema: Mapping[str, Any]) -> Check:
    """Compile the check of all value validations in ``schema``."""
    types: tuple[str, ...] = (schema["type"],) if schema.get("type") else ()
    if schema.get(_INT_OR_STRING):
        types = ("integer", "string")
    format_ = _formats_in_force(schema.get("format") or "", types)
    # Compiled once for all types: else each level of alternatives would multiply the work by six.
    combinations = tuple(_combinations(schema))
    checks_by_type = {
        kind: _checks_for_type(kind, schema, types, format_, combinations) for kind in _TYPES
    }
    nullable = bool(schema.get("nullable")) or not types
    listed = ",".join(types)
    check_enum = enum_check(schema["enum"]) if schema.get("enum") else None

    def check(value: Any, old: Any, path: str, errors: list[FieldError]) -> int:
        if value is None:  # of which the type and the enum alone are looked at
            if not nullable:
                errors.append(_wrong_type(path, listed, "null"))
            if check_enum is not None:
                check_enum(value, old, path, errors)
            return int(nullable)
        count, checks = checks_by_type[type(value)]
        for keyword_check in checks:
            count += keyword_check(value, old, path, errors)
        return count

    return check


def _formats_in_force(name: str, types: tuple[str, ...]) -> str:
    """The format, if it applies to the type; ``""`` otherwise."""
    wanted = types[0] if len(types) == 1 else ""
    if wanted == "integer":
        return name if name in ("int32", "int64") else ""
    if wanted == "number":
        return name if name in ("float", "double") else ""
    if wanted in ("", "string"):
        return name if string_formats.is_known(name) else ""
    return ""


def _checks_for_type(
    kind: type,
    schema: Mapping[str, Any],
    types: tuple[str, ...],
    format_: str,
    combinations: tuple[Check, ...],
) -> tuple[int, tuple[Check, ...]]:
    """The keywords that match every value of a Python type, and the checks for the others."""
    matches = 4 + (2 if types or format_ else 0)
    checks: list[Check] = []
    if (type_check := _type_check(kind, types, format_)) is not None:
        matches -= 1
        checks.append(type_check)
    checks += combinations
    if kind is str:
        matches += 1
        checks += string_checks(schema, format_)
    elif kind is int or kind is float:
        matches += 2
        checks += number_checks(schema, types, format_)
    elif kind is list:
        matches += 2
        checks += _array_checks(schema)
    if schema.get("enum"):
        checks.append(enum_check(schema["enum"]))
    if kind is dict:
        matches += 1
        checks += _object_checks(schema)
    return matches, tuple(checks)


def _type_check(kind: type, types: tuple[str, ...], format_: str) -> Check | None:
    found = _TYPES[kind]
    fits = not types or found in types or (found == "integer" and "number" in types)
    may_be_integer = kind is float and "integer" in types
    if fits and not (types == () and format_ and kind is not str):
        return None
    texts = kind is str or kind is list
    numeric = "number" in types or "integer" in types
    if format_ and texts and not numeric:
        return None
    wanted, shown = ",".join(types), found
    if format_ and not texts:
        wanted, shown = format_, _GO_FORMATS.get(kind, "")

    def check(value: Any, _old: Any, path: str, errors: list[FieldError]) -> int:
        if may_be_integer and value.is_integer() and abs(value) <= 2**53:
            return 1
        errors.append(_wrong_type(path, wanted, shown))
        return 0

    return check


# -- alternatives --------------------------------------------------------------------------


def _combinations(schema: Mapping[str, Any]) -> Iterable[Check]:
    if schema.get("anyOf"):
        yield _any_of([compile_validation(part) for part in schema["anyOf"]])
    if schema.get("oneOf"):
        yield _one_of([compile_validation(part) for part in schema["oneOf"]])
    if schema.get("allOf"):
        yield _all_of([compile_validation(part) for part in schema["allOf"]])
    if isinstance(schema.get("not"), Mapping):
        yield _not(compile_validation(schema["not"]))


def _any_of(parts: list[Check]) -> Check:
    def check(value: Any, old: Any, path: str, errors: list[FieldError]) -> int:
        best: list[FieldError] = []
        most = -1
        for part in parts:
            found: list[FieldError] = []
            count = part(value, old, path, found)
            if not found:
                return count
            if count > most:
                best, most = found, count
        errors.append(
            composite_error(f"{go_quote(path)} must validate at least one schema (anyOf)")
        )
        errors += best
        return most

    return check


def _one_of(parts: list[Check]) -> Check:
    def check(value: Any, old: Any, path: str, errors: list[FieldError]) -> int:
        best: list[FieldError] = []
        most, valid, matched = -1, 0, 0
        for part in parts:
            found: list[FieldError] = []
            count = part(value, old, path, found)
            if not found:
                valid += 1
                matched = matched or count
            elif not valid and count > most:
                best, most = found, count
        if valid == 1:
            return matched
        which = f"Found {valid} valid alternatives" if valid else "Found none valid"
        errors.append(
            composite_error(
                f"{go_quote(path)} must validate one and only one schema (oneOf). {which}"
            )
        )
        if not valid:
            errors += best
            return most
        return 0

    return check


def _all_of(parts: list[Check]) -> Check:
    def check(value: Any, old: Any, path: str, errors: list[FieldError]) -> int:
        valid = count = 0
        for part in parts:
            found: list[FieldError] = []
            count += part(value, old, path, found)
            valid += not found
            errors += found
        if valid != len(parts):
            more = "" if valid else ". None validated"
            errors.append(
                composite_error(f"{go_quote(path)} must validate all the schemas (allOf){more}")
            )
        return count

    return check


def _not(part: Check) -> Check:
    def check(value: Any, old: Any, path: str, errors: list[FieldError]) -> int:
        found: list[FieldError] = []
        part(value, old, path, found)
        if not found:
            errors.append(composite_error(f"{go_quote(path)} must not validate the schema (not)"))
        return 0

    return check


# -- lists and objects ---------------------------------------------------------------------


def correlate(schema: Mapping[str, Any], old: Any) -> Callable[[Any], Any] | None:
    """A function from items to their old values, for lists with keys; None for others."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return None
    names = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    known: dict[bytes, Any] = {}
    for item in old:
        if isinstance(item, dict):
            known.setdefault(_canonical([item.get(name) for name in names]), item)

    def find(item: Any) -> Any:
        if not isinstance(item, dict):
            return ABSENT
        return known.get(_canonical([item.get(name) for name in names]), ABSENT)

    return find


def _array_checks(schema: Mapping[str, Any]) -> Iterable[Check]:
    if isinstance(schema.get("items"), Mapping):
        check = compile_validation(schema["items"])

        def check_items(value: list[Any], old: Any, path: str, errors: list[FieldError]) -> int:
            count = 0
            find = correlate(schema, old) if old is not ABSENT else None
            for index, item in enumerate(value):
                before = find(item) if find is not None else ABSENT
                if before is not ABSENT and json_equal(item, before):
                    count += _RATCHETED
                else:
                    count += check(item, before, f"{path}[{index}]", errors)
            return count

        yield check_items
    yield from _size_check(schema.get("minItems"), schema.get("maxItems"), "items")


def _size_check(least: int | None, most: int | None, parts: str) -> Iterable[Check]:
    if not least and most is None:
        return

    def check(value: Sized, _old: Any, path: str, errors: list[FieldError]) -> int:
        count = len(value)
        if least and count < least:
            detail = f"{path} in body should have at least {least} {parts}"
            errors.append(invalid_value(path, count, detail))
        if most is not None and count > most:
            message = f"Too many: {count}: must have at most {most} item{'s' * (most != 1)}"
            errors.append(FieldError("FieldValueTooMany", error_field(path), message))
        return 0

    yield check


def _object_checks(schema: Mapping[str, Any]) -> Iterable[Check]:
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    yield from _size_check(least, most, "properties")
    known = {
        name: compile_validation(child) for name, child in (schema.get("properties") or {}).items()
    }
    additional = schema.get("additionalProperties")
    if known or isinstance(additional, Mapping) or additional is False:
        other = compile_validation(additional) if isinstance(additional, Mapping) else None
        yield _fields_check(known, other, closed=additional is False)
    names: list[str] = schema.get("required") or []
    required = tuple(names)
    if required:
        wanted = frozenset(required)

        def check_required(
            value: dict[str, Any], _old: Any, path: str, errors: list[FieldError]
        ) -> int:
            if not value.keys() >= wanted:
                errors += [
                    FieldError.required(error_field(f"{path}.{name}"))
                    for name in required
                    if name not in value
                ]
            return 0

        yield check_required


def _fields_check(known: dict[str, Check], other: Check | None, *, closed: bool) -> Check:
    def check_fields(value: dict[str, Any], old: Any, path: str, errors: list[FieldError]) -> int:
        count = 0
        before = old if old is not ABSENT and isinstance(old, dict) else None
        for name, item in value.items():
            check = known.get(name)
            if check is not None:
                at = f"{path}.{name}" if path else name
            elif other is not None:
                check, at = other, f"{path}.{name}"
            else:
                if closed:
                    detail = f"{path}.{name} in body is a forbidden property"
                    errors.append(invalid_value(path, "", detail))
                continue
            was = ABSENT
            if before is not None and (path or name not in ("apiVersion", "kind")):
                was = before.get(name, ABSENT)
                if was is not ABSENT and json_equal(item, was):
                    count += _RATCHETED
                    continue
            count += check(item, was, at, errors)
        return count

    return check_fields
