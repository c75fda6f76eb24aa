"""Patterns in CRDs: what the API server accepts, the class decodes, or strict says so."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import re
import warnings
from typing import Annotated, Any

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
from attrs import validators
from hypothesis import HealthCheck, given, reject, settings

from appsdk_operator import Kind, custom_resource_definition
from appsdk_operator.apiserver._values.go_pattern import GoPattern
from appsdk_operator.resource._schema.go_patterns import go_pattern
from tests.hypothesis_profiles import scaled

ATOMS = st.sampled_from(
    [
        *("a", "b", "é", ".", "_", "-", "{", "}", "]", "\n", "{a}", "{,}a", "a{,3}", "^", "$"),
        *(r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\A", r"\Z", r"\b", r"\B", r"\-", r"\$"),
        *("[a-c]", "[^a]", "[]a]", "[^]a]", "[$^]", "[+--]", "[a&&b]", "[[:alpha:]]", r"[\[\]]"),
        *(r"[\d-]", r"[^\d]", r"[^\w\s]", r"[\W]", r"[^\W]", r"[\b]", r"[\12]", r"[\101-\103]"),
        *(r"\u00e9", r"\x41", r"\N{LATIN SMALL LETTER E WITH ACUTE}", r"\012", r"\0", r"\101"),
        *(r"\é", r"(a)\1", "(?#x)", "(?=a)", "(?<!a)", r"[\u00e9\x41-\x43]", r"[\N{DIGIT ONE}]"),
    ]
)
REPEATS = st.sampled_from(
    ["", "", "*", "+", "?", "*?", "{2}", "{1,2}", "{,2}", "{2,}", "{0}", "{1,2}?", "*+", "{1001}"]
)
GROUPS = st.sampled_from(["(", "(?:", "(?P<x>", "(?i:", "(?-i:", "(?s:"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(st.tuples(inner, REPEATS), min_size=1, max_size=3).map(
            lambda parts: "".join(map("".join, parts))
        )
        | st.tuples(inner, inner).map("|".join)
        | st.tuples(GROUPS, inner, st.just(")"), REPEATS).map("".join)
    ),
    max_leaves=5,
)
FLAGS = st.sampled_from(["", "", "(?i)", "(?a)", "(?m)", "(?s)(?i)", "(?x)", "(?ai)"])
TEXTS = st.text(st.sampled_from("abABcéÉ1٣2 \xa0_\n$^-{},[]:\b\0+&"), max_size=4)


def schema_of(view: Any, *, strict: bool = False, **field: Any) -> dict[str, Any]:
    """The schema of a field of this type."""
    spec = attrs.make_class("Spec", {"it": attrs.field(type=view, **field)}, frozen=True)
    spec.__annotations__ = {"it": view}
    kind = Kind(group="example.com", version="v1", kind="W", spec=spec)
    crd = custom_resource_definition(kind, strict=strict)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return dict(schema["properties"]["it"])


@settings(
    max_examples=scaled(500),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(
    FLAGS,
    PATTERNS,
    st.sampled_from(["search", "match", "fullmatch"]),
    st.lists(TEXTS, min_size=20, max_size=20),
)
def test_a_pattern_of_go_matches_no_text_that_that_of_python_does_not(
    flags: str, text: str, how: str, texts: list[str]
) -> None:
    try:
        with warnings.catch_warnings(action="ignore"):
            pattern = re.compile(flags + text)
    except (re.error, OverflowError):
        reject()
    go, is_exact = go_pattern(pattern, at_start=how != "search", at_end=how == "fullmatch")
    if go is None:
        assert not is_exact
        return
    compiled = GoPattern(go)
    for one in texts if is_exact else ():
        matches = bool(getattr(pattern, how)(one))
        if compiled.found_in(one):
            assert matches, one
        elif one.isascii() and "\n" not in one:
            assert not matches, one


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("^[a-z]+$", "^[a-z]+$"),
        (r"^\d+$", r"^\d+$"),
        (r"^(a|b)$", "^(a|b)$"),
        ("a{,3}", "a{0,3}"),
        (r"\u00e9", "é"),
        (r"^\D+\Z", r"^[^\p{Nd}]+\z"),
        ("(?a)^\\w$", r"^\w$"),
        ("(?i)(?s)a.b", "(?is)a.b"),
        (r"^\p{L}$", r"^\p{L}$"),
    ],
)
def test_what_go_reads_alike_stays_as_it_is(text: str, expected: str) -> None:
    assert go_pattern(text)[0] == expected


@pytest.mark.parametrize(
    "text",
    ["(?#why)a", "^a{1001}$", "(?:a{100}){11}", "(?x) ^ a $", "a++", r"(a)\1", "(?=a)a", "(?>a)b"],
)
def test_what_go_cannot_read_is_left_out_of_the_schema_and_named_by_strict(text: str) -> None:
    view = Annotated[str, msgspec.Meta(pattern=text)]
    assert schema_of(view) == {"type": "string"}
    with pytest.raises(ValueError, match=re.escape(f"spec.it: pattern {text!r}")):
        schema_of(view, strict=True)


@pytest.mark.parametrize("pattern", ["^a|b$", r"^c\$", "a", "a|b", "^a$", "(?m)^a$"])
@pytest.mark.parametrize("function", [re.fullmatch, re.match, re.search])
@pytest.mark.parametrize("text", ["a", "axx", "xxb", "c$", "c$xx", "b", "a\nb", "x\na"])
def test_a_validator_matches_what_the_pattern_of_its_schema_does(
    pattern: str, function: Any, text: str
) -> None:
    schema = schema_of(str, validator=validators.matches_re(pattern, func=function), strict=True)
    assert GoPattern(schema["pattern"]).found_in(text) == bool(function(pattern, text))


TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (dt.time, st.times(timezones=st.none() | st.just(dt.UTC))),
    (dt.timedelta, st.timedeltas(dt.timedelta(-99_999_999), dt.timedelta(99_999_999))),
    (decimal.Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
]


@pytest.mark.parametrize(("view", "values"), TYPES)
@settings(max_examples=scaled(200), deadline=None)
@given(data=st.data())
def test_the_pattern_of_a_type_is_of_the_texts_that_are_read_and_written(
    view: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    pattern = schema_of(view, strict=True)["pattern"]
    compiled = GoPattern(pattern)
    assert compiled.found_in(msgspec.to_builtins(data.draw(values)))
    text = data.draw(st.from_regex(pattern.removesuffix("$") + r"\Z", fullmatch=True) | st.text())
    with contextlib.suppress(msgspec.ValidationError):
        msgspec.convert(text, view)
        return
    assert not compiled.found_in(text)


@pytest.mark.parametrize(
    ("view", "field", "text"),
    [
        (dict[int, str], {}, "keys are of type int"),
        (bytes, {"validator": validators.max_len(3)}, "max_length=3"),
        (str, {"validator": validators.matches_re(r"\ba")}, r"pattern '\\\\ba'"),
    ],
)
def test_what_the_schema_does_not_say_is_named_by_strict(
    view: Any, field: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        schema_of(view, **field, strict=True)
    assert schema_of(dict[str, str], strict=True) == {
        "type": "object",
        "additionalProperties": {"type": "string"},
    }
