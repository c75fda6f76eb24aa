"""Label and field selectors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.resource._selectors import (
    FieldSelector,
    LabelSelector,
    Operator,
    Requirement,
    SelectorError,
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("a=b", "a=b"),
        ("a==b", "a=b"),
        (" a = b , c != d ", "a=b,c!=d"),
        ("e in (y, x)", "e in (x,y)"),
        ("f notin (z)", "f notin (z)"),
        ("g", "g"),
        ("! h", "!h"),
        ("a=", "a="),
        ("a in (,b)", "a in (,b)"),
        ("n>5,m<3", "m<3,n>5"),
        ("example.com/a=b", "example.com/a=b"),
        ("in=in", "in=in"),
        ("b,a", "a,b"),
    ],
)
def test_a_selector_prints_in_the_form_of_the_server(text: str, canonical: str) -> None:
    selector = LabelSelector.parse(text)
    assert str(selector) == canonical
    assert LabelSelector.parse(canonical) == selector


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("a=b", {"a": "b"}, True),
        ("a=b", {}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (x,y)", {"a": "y"}, True),
        ("a in (x,y)", {"a": "z"}, False),
        ("a notin (x)", {}, True),
        ("a notin (x)", {"a": "x"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("!a", {"b": ""}, True),
        ("a>5", {"a": "6"}, True),
        ("a>5", {"a": "5"}, False),
        ("a<5", {"a": "4"}, True),
        ("a<5", {"a": "many"}, False),
        ("a<5", {}, False),
        ("a=b,c", {"a": "b"}, False),
        ("", {"anything": "goes"}, True),
    ],
)
def test_a_selector_matches_as_the_server_does(
    text: str, labels: dict[str, str], matches: bool
) -> None:
    assert LabelSelector.parse(text).matches(labels) is matches


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("a=b,", "expected a label key"),
        ("=b", "expected a label key"),
        ("a b", "expected one of = == != in notin < >"),
        ("a in x", "expected '('"),
        ("a in (x", "expected ',' or ')'"),
        ("a in (x y)", "expected ',' or ')'"),
        ("a=b c", "expected ',' or the end"),
        ("-a", "starting and ending with a letter or digit"),
        ("a=-b", "starting and ending with a letter or digit"),
        ("a=" + "x" * 64, "up to 63"),
        ("Example.com/a", "use a DNS name before the '/'"),
        ("a>many", "use an integer"),
        ("a=(", "expected a value"),
    ],
)
def test_a_selector_that_is_none_is_refused_with_the_remedy(text: str, remedy: str) -> None:
    with pytest.raises(SelectorError) as refused:
        LabelSelector.parse(text)
    assert remedy in str(refused.value)


def test_a_selector_is_made_of_labels() -> None:
    selector = LabelSelector.from_mapping({"b": "2", "a": "1"})
    assert str(selector) == "a=1,b=2"
    assert not selector.empty
    assert LabelSelector.from_mapping({}).empty


def test_a_selector_is_made_of_a_kubernetes_object() -> None:
    selector = LabelSelector.from_object(
        {
            "matchLabels": {"a": "1"},
            "matchExpressions": [
                {"key": "b", "operator": "In", "values": ["x", "y"]},
                {"key": "c", "operator": "NotIn", "values": ["z"]},
                {"key": "d", "operator": "Exists"},
                {"key": "e", "operator": "DoesNotExist", "values": []},
            ],
        }
    )
    assert str(selector) == "a=1,b in (x,y),c notin (z),d,!e"
    assert LabelSelector.from_object({}).empty
    assert LabelSelector.from_object(None).empty


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ({"labels": {}}, "use matchLabels and matchExpressions"),
        ({"matchExpressions": [{"key": "a", "operator": "Like"}]}, "use In, NotIn, Exists"),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "needs at least one value"),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]},
            "takes no values",
        ),
        ({"matchLabels": {"a": 1}}, "write '1'"),
    ],
)
def test_an_object_that_is_no_selector_is_refused_with_the_remedy(
    value: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(SelectorError) as refused:
        LabelSelector.from_object(value)
    assert remedy in str(refused.value)


def test_equality_takes_one_value() -> None:
    with pytest.raises(SelectorError, match="exactly one value"):
        Requirement("a", Operator.EQUALS, ("x", "y"))


KEYS = st.from_regex(r"[a-z]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True)
VALUES = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,5}[A-Za-z0-9])?)?", fullmatch=True)
REQUIREMENTS = st.one_of(
    st.builds(
        Requirement,
        KEYS,
        st.sampled_from([Operator.EQUALS, Operator.NOT_EQUALS]),
        st.tuples(VALUES),
    ),
    st.builds(
        Requirement,
        KEYS,
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(VALUES, min_size=1, max_size=3, unique=True).map(tuple),
    ),
    st.builds(Requirement, KEYS, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
)
SELECTORS = st.lists(REQUIREMENTS, max_size=4).map(lambda found: LabelSelector(tuple(found)))


@given(SELECTORS)
def test_what_is_printed_reads_back(selector: LabelSelector) -> None:
    assert LabelSelector.parse(str(selector)) == selector


@given(SELECTORS, st.dictionaries(KEYS, VALUES, max_size=4))
def test_a_selector_is_all_of_its_requirements(
    selector: LabelSelector, labels: dict[str, str]
) -> None:
    each = [requirement.matches(labels) for requirement in selector.requirements]
    assert selector.matches(labels) is all(each)


POD = {
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {"nodeName": "a,b", "hostNetwork": True, "empty": None},
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("metadata.name=p", True),
        ("metadata.name==p,metadata.namespace!=n", False),
        ("metadata.name!=q", True),
        (r"spec.nodeName=a\,b", True),
        ("spec.hostNetwork=true", True),
        ("spec.missing=", True),
        ("spec.empty=", True),
        ("spec.missing=x", False),
        ("metadata.name.deeper=", True),
    ],
)
def test_a_field_selector_matches_nested_fields(text: str, matches: bool) -> None:
    selector = FieldSelector.parse(text)
    assert selector.matches(POD) is matches
    assert FieldSelector.parse(str(selector)) == selector


def test_a_field_selector_asks_a_function_too() -> None:
    selector = FieldSelector.from_mapping({"a.b": "x=y"})
    assert str(selector) == r"a.b=x\=y"
    assert selector.paths == ("a.b",)
    assert selector.matches({"a.b": "x=y"}.__getitem__)


@pytest.mark.parametrize("text", ["metadata.name", "=x", "a.b,c=d"])
def test_a_field_selector_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SelectorError, match="write path=value"):
        FieldSelector.parse(text)


@given(st.dictionaries(KEYS, st.text(max_size=8), max_size=3))
def test_a_printed_field_selector_reads_back(fields: dict[str, str]) -> None:
    selector = FieldSelector.from_mapping(fields)
    assert FieldSelector.parse(str(selector)) == selector
