"""Value validation of strings, numbers and enums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._values import string_formats
from appsdk_operator.apiserver._values.go_pattern import GoPatternError, go_pattern
from appsdk_operator.apiserver._values.go_text import go_float, go_json, go_quote
from appsdk_operator.apiserver._values.status import FieldError

Check = Callable[[Any, Any, str, list[FieldError]], int]
"""Called with value, old value, path and errors to extend; returns how many keywords matched."""


def error_field(path: str) -> str:
    """The field that errors name for a path; ``<nil>`` for the root."""
    return path.removeprefix(".") or "<nil>"


def invalid_value(path: str, value: Any, detail: str) -> FieldError:
    """The error of an invalid value at a path."""
    return FieldError.invalid(error_field(path), value, detail)


def composite_error(detail: str) -> FieldError:
    """The error of a combination such as ``anyOf``, which names no field."""
    return FieldError("FieldValueInvalid", "<nil>", f'Invalid value: "": {detail}')


def string_checks(schema: Mapping[str, Any], format_: str) -> Iterable[Check]:
    """The checks of strings: lengths, pattern and format."""
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    pattern = schema.get("pattern")
    if longest is not None or shortest or pattern:
        yield _text_check(longest, shortest, pattern)
    if format_:

        def check_format(value: str, _old: Any, path: str, errors: list[FieldError]) -> int:
            if not string_formats.is_valid(format_, value):
                detail = f"{path} in body must be of type {format_}: {go_quote(value)}"
                message = f"Invalid value: {go_quote(value)}: {detail}"
                errors.append(FieldError("FieldValueTypeInvalid", error_field(path), message))
            return 1

        yield check_format


def _text_check(longest: int | None, shortest: int | None, pattern: str | None) -> Check:
    problem = ""
    found_in = None
    if pattern:
        try:
            found_in = go_pattern(pattern).found_in
        except GoPatternError as error:
            problem = f", but pattern is invalid: {error}"

    def check(value: str, _old: Any, path: str, errors: list[FieldError]) -> int:
        if longest is not None and len(value) > longest:
            message = f"Too long: may not be more than {longest} byte{'s' * (longest != 1)}"
            errors.append(FieldError("FieldValueTooLong", error_field(path), message))
        elif shortest and len(value) < shortest:
            detail = f"{path} in body should be at least {shortest} chars long"
            errors.append(invalid_value(path, value, detail))
        elif pattern and (found_in is None or not found_in(value)):
            detail = f"{path} in body should match '{pattern}{problem}'"
            errors.append(invalid_value(path, value, detail))
        return 0

    return check


_FLOAT32: Final = 3.4028234663852886e38
_RANGES: Final = {"int32": 2**31, "int64": 2**63, "": 2**63}


def number_checks(
    schema: Mapping[str, Any], types: tuple[str, ...], format_: str
) -> Iterable[Check]:
    """The checks of numbers: range of the type, bounds and ``multipleOf``."""
    declared = types[0] if len(types) == 1 else ""
    if declared == "integer" or format_ == "float":
        yield _range_check(declared, format_)
    factor = schema.get("multipleOf")
    if factor is not None:

        def check_factor(value: float, _old: Any, path: str, errors: list[FieldError]) -> int:
            if isinstance(value, int) and factor < 1:
                # The real server divides integers by the integral part of the factor.
                detail = f"factor MultipleOf declared for {path} must be positive: 0"
                errors.append(invalid_value(path, 0, detail))
            elif not _divides(factor, value):
                detail = f"{path} in body should be a multiple of {_number(factor)}"
                errors.append(invalid_value(path, value, detail))
            return 0

        yield check_factor
    if schema.get("minimum") is not None:
        exclusive = bool(schema.get("exclusiveMinimum"))
        yield _bound_check(schema["minimum"], exclusive=exclusive, lower=True)
    if schema.get("maximum") is not None:
        exclusive = bool(schema.get("exclusiveMaximum"))
        yield _bound_check(schema["maximum"], exclusive=exclusive, lower=False)


def _range_check(declared: str, format_: str) -> Check:
    limit = _RANGES.get(format_, 0)
    with_format = f"with format {format_}" if format_ else "(default format)"

    def check(value: float, _old: Any, path: str, errors: list[FieldError]) -> int:
        if declared == "integer":
            fits = float(value).is_integer() and -limit <= value < limit
        else:
            fits = abs(value) <= _FLOAT32
        if not fits:
            errors.append(
                composite_error(f"Checked value must be of type {declared} {with_format} in {path}")
            )
        return 0

    return check


def _divides(factor: float, value: float) -> bool:
    if isinstance(value, int):
        return value % int(factor) == 0
    quotient = value * (1 / factor) if factor < 1 else value / factor
    nearest = round(quotient)
    return abs(quotient - nearest) <= 1e-9 * max(1.0, abs(quotient)) and abs(quotient) <= 2**53


def _bound_check(bound: float, *, exclusive: bool, lower: bool) -> Check:
    words = "greater than" if lower else "less than"
    if not exclusive:
        words += " or equal to"
    sign = 1 if lower else -1

    def check(value: float, _old: Any, path: str, errors: list[FieldError]) -> int:
        # The real server compares integers with the integral part of the bound.
        limit = int(bound) if isinstance(value, int) else bound
        over = (value - limit) * sign
        if over < 0 or (exclusive and over == 0):
            errors.append(
                invalid_value(path, value, f"{path} in body should be {words} {_number(limit)}")
            )
        return 0

    return check


def _number(value: float) -> str:
    return go_float(value) if type(value) is float else str(value)


def enum_check(allowed: list[Any]) -> Check:
    """The check that a value is in the list of an ``enum``."""
    texts = [item if isinstance(item, str) else go_json(item) for item in allowed]
    plain = frozenset(item for item in allowed if isinstance(item, str))

    def check(value: Any, _old: Any, path: str, errors: list[FieldError]) -> int:
        if type(value) is str:
            found = value in plain
        else:  # null is in no enum, also if the enum has it
            found = value is not None and any(
                value == item and isinstance(value, bool) == isinstance(item, bool)
                for item in allowed
            )
        if not found:
            errors.append(FieldError.not_supported(error_field(path), value, texts))
        return 0

    return check
