"""Errors of fields, with texts recorded from k8s.io/apimachinery v0.36.3."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any

import attrs
import pytest

from appsdk_operator.resource import OMITTED, FieldError, FieldPath, field

SPEC = field("spec")


class Policy(enum.StrEnum):
    NEVER = "Never"
    ALWAYS = "Always"


@attrs.frozen
class Port:
    protocol: str
    number: int | None = None
    name: str | None = None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (field("spec"), "spec"),
        (field("spec")["jobs"][0]["name"], "spec.jobs[0].name"),
        (field("spec", "jobs", 0, "name"), "spec.jobs[0].name"),
        (field("metadata")["labels"].key("app.kubernetes.io/name"), None),
        (field("metadata")["labels"].key(""), "metadata.labels[]"),
        (field("spec")["a.b"], "spec.a.b"),
        (field("spec")[0][1], "spec[0][1]"),
    ],
)
def test_a_path_is_printed_as_kubernetes_prints_it(path: FieldPath, text: str | None) -> None:
    assert str(path) == (text or "metadata.labels[app.kubernetes.io/name]")
    assert path == FieldPath(str(path))
    assert hash(path) == hash(FieldPath(str(path)))


@pytest.mark.parametrize("step", [None, 1.0, True, ("a",), b"a", slice(1)])
def test_a_step_of_a_path_is_a_name_or_an_index(step: Any) -> None:
    with pytest.raises(TypeError, match="give a field's name as text, or an index"):
        SPEC[step]


def test_a_name_is_not_empty() -> None:
    for call in (lambda: SPEC[""], lambda: field("")):
        with pytest.raises(ValueError, match=r"path\.key"):
            call()


def test_a_path_has_no_items_to_go_through() -> None:
    with pytest.raises(TypeError):
        list(SPEC)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        _ = "a" in SPEC  # type: ignore[operator]


@pytest.mark.parametrize(
    ("error", "reason", "text"),
    [
        (SPEC.invalid("x", "no"), "Invalid", 'Invalid value: "x": no'),
        (SPEC.invalid("x", ""), "Invalid", 'Invalid value: "x"'),
        (SPEC.invalid(OMITTED, "no"), "Invalid", "Invalid value: no"),
        (SPEC.required(), "Required", "Required value"),
        (SPEC.required("a port"), "Required", "Required value: a port"),
        (SPEC.forbidden("no"), "Forbidden", "Forbidden: no"),
        (
            SPEC.not_supported("c", ["b", "a"]),
            "NotSupported",
            'Unsupported value: "c": supported values: "b", "a"',
        ),
        (
            SPEC.not_supported("c", {"b", "a"}),
            "NotSupported",
            'Unsupported value: "c": supported values: "a", "b"',
        ),
        (
            SPEC.not_supported("c", Policy),
            "NotSupported",
            'Unsupported value: "c": supported values: "Never", "Always"',
        ),
        (
            SPEC.not_supported(3, [1, 2]),
            "NotSupported",
            'Unsupported value: 3: supported values: "1", "2"',
        ),
        (SPEC.not_supported("c", []), "NotSupported", 'Unsupported value: "c"'),
        (SPEC.duplicate({"b": 1, "a": 2}), "Duplicate", 'Duplicate value: {"a":2,"b":1}'),
        (SPEC.not_found("x"), "NotFound", 'Not found: "x"'),
        (SPEC.type_invalid(1, "must be text"), "TypeInvalid", "Invalid value: 1: must be text"),
        (SPEC.too_long("x", 63), "TooLong", "Too long: may not be more than 63 bytes"),
        (SPEC.too_long("x", 1), "TooLong", "Too long: may not be more than 1 byte"),
        (SPEC.too_long("x", None), "TooLong", "Too long: value is too long"),
        (
            SPEC.too_long("x", 2, unit="characters"),
            "TooLong",
            "Too long: may not be more than 2 characters",
        ),
        (SPEC.too_short("x", 3), "TooShort", "Too short: must be at least 3 characters"),
        (SPEC.too_short("x", None), "TooShort", "Too short: value is too short"),
        (SPEC.too_many(5, 4), "TooMany", "Too many: 5: must have at most 4 items"),
        (SPEC.too_many(2, 1), "TooMany", "Too many: 2: must have at most 1 item"),
        (SPEC.too_many(1, 0), "TooMany", "Too many: 1: must have at most 0 items"),
        (SPEC.too_many(None, 4), "TooMany", "Too many: must have at most 4 items"),
        (SPEC.too_many(5, None), "TooMany", "Too many: 5: has too many items"),
        (SPEC.too_few(0, 1), "TooFew", "Too few: 0: must have at least 1 item"),
        (SPEC.too_few(0, None), "TooFew", "Too few: 0: has too few items"),
        (SPEC.internal(OSError("disk")), "InternalError", "Internal error: disk"),
    ],
)
def test_errors_have_the_words_of_kubernetes(error: FieldError, reason: str, text: str) -> None:
    assert error.reason in (f"FieldValue{reason}", reason)
    assert error.message == text
    assert error.field == "spec"
    assert str(error) == f"spec: {text}"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (2**70, str(2**70)),
        (1.0, "1"),
        (1234567.5, "1.2345675e+06"),
        (1e-5, "1e-05"),
        ([1234567.5, 1e-5, 1e-7, 1e21], "[1234567.5,0.00001,1e-7,1e+21]"),
        (-0.0, "-0"),
        (float("inf"), "+Inf"),
        ('a"\\\n\x00\x7f\u200bé😀', '"a\\"\\\\\\n\\x00\\x7f\\u200bé😀"'),
        (['<&>"\u2028\x00\x7f'], '["\\u003c\\u0026\\u003e\\"\\u2028\\u0000\x7f"]'),
        ([], "[]"),
        ({}, "{}"),
        ((1, "a"), '[1,"a"]'),
        (Policy.NEVER, '"Never"'),
        (Port("TCP", 80), '{"protocol":"TCP","number":80}'),
        ([Port("TCP")], '[{"protocol":"TCP"}]'),
        (b"ab", '"YWI="'),
        (dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC), '"2024-05-01T10:00:00Z"'),
        (OSError("a"), "a"),
    ],
)
def test_values_look_as_go_prints_them(value: Any, shown: str) -> None:
    assert SPEC.invalid(value, "no").message == f"Invalid value: {shown}: no"


def test_values_of_any_depth_are_shown() -> None:
    value: Any = 1
    for _ in range(20_000):
        value = [value]
    assert SPEC.duplicate(value).message == f"Duplicate value: {'[' * 20_000}1{']' * 20_000}"


def test_supported_values_are_no_text() -> None:
    with pytest.raises(TypeError, match="supported is text"):
        SPEC.not_supported("a", "abc")


def test_errors_are_values() -> None:
    assert SPEC.required() == SPEC.required()
    assert len({SPEC.required(), SPEC.required(), SPEC.required("a")}) == 2
    with pytest.raises(AttributeError):
        SPEC.required().field = "a"  # type: ignore[misc]


def test_a_value_that_contains_itself_is_shown_as_python_does() -> None:
    value: list[object] = []
    value.append(value)
    assert str(field("spec").invalid(value, "no")) == "spec: Invalid value: [[...]]: no"
