"""Label and field selectors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.resource import FieldSelector, LabelSelector, SelectorError
from appsdk_operator.resource._selectors import Operator, Requirement


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


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: LabelSelector("app=web"), "LabelSelector.parse('app=web')"),
        (lambda: LabelSelector({"app": "web"}), "LabelSelector.from_mapping({'app': 'web'})"),
        (lambda: LabelSelector(("app=web",)), "'app=web' is not a Requirement"),
        (lambda: LabelSelector.parse(None), "give the selector as text"),
        (lambda: LabelSelector.from_mapping("app=web"), "give a mapping"),
        (lambda: LabelSelector.from_object(["app"]), "give a mapping"),
        (lambda: LabelSelector.from_object({"matchExpressions": ["app"]}), "'app' in matchExpr"),
        (lambda: LabelSelector.from_object({5: 1}), "5 is not a field"),
        (lambda: LabelSelector.from_mapping({"app": None}), "or '!app'"),
        (lambda: Requirement("a", Operator.IN, "xyz"), "give a tuple of values"),
        (lambda: Requirement("a", Operator.IN, ([],)), "give a tuple of texts"),
        (lambda: Requirement("a", Operator.IN, 5), "give a tuple of texts"),
        (lambda: Requirement("a", "In", ("x",)), "use Operator.EQUALS"),
        (lambda: FieldSelector("a=b"), "FieldSelector.parse('a=b')"),
        (lambda: FieldSelector(("a=b",)), "'a=b' is not a condition"),
        (lambda: FieldSelector.parse(5), "give the selector as text"),
        (lambda: FieldSelector.from_mapping(["a"]), "give a mapping"),
    ],
)
def test_what_is_made_of_something_else_is_refused_with_the_remedy(make: Any, remedy: str) -> None:
    with pytest.raises((TypeError, SelectorError)) as refused:
        make()
    assert remedy in str(refused.value)


@pytest.mark.parametrize("number", ["1_0", "+", "9" * 20, "0x1"])
def test_an_order_is_one_of_integers_as_servers_read_them(number: str) -> None:
    with pytest.raises(SelectorError):
        LabelSelector.parse(f"a>{number}")
    assert not LabelSelector.parse("a>0").matches({"a": number})


def test_equality_takes_one_value() -> None:
    with pytest.raises(SelectorError, match="exactly one value"):
        Requirement("a", Operator.EQUALS, ("x", "y"))


KEYS = st.one_of(
    st.from_regex(r"[a-z]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True),
    st.from_regex(r"[a-z]{1,3}(\.[a-z]{1,3})?/[A-Za-z0-9]([-_.]{0,2}[A-Z])?", fullmatch=True),
    st.sampled_from(["in", "notin", "x.y/in", "gt"]),
)
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
    st.builds(
        Requirement,
        KEYS,
        st.sampled_from([Operator.GREATER_THAN, Operator.LESS_THAN]),
        st.integers(0, 2**63 - 1).map(str).map(lambda number: (number,)),
    ),
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


# Anything that a mapping may have, near what means something in a selector.
ANY = st.one_of(st.text('ab!=,<>()/. \\"\n\u00a0', max_size=5), st.text(max_size=3), VALUES, KEYS)


@given(st.dictionaries(ANY, ANY, max_size=2), st.dictionaries(ANY, ANY, max_size=3))
def test_a_mapping_of_labels_means_equality_or_is_refused(
    asked: dict[str, str], labels: dict[str, str]
) -> None:
    try:
        text = str(LabelSelector.from_mapping(asked))
    except SelectorError as error:
        text, refused = "", str(error)
    if not text and asked:
        assert any(repr(key) in refused for key in asked)
        return
    labels = {**asked, **labels}
    assert LabelSelector.parse(text).matches(labels) is (asked.items() <= labels.items())


@given(st.dictionaries(ANY, ANY, max_size=2), st.dictionaries(ANY, ANY, max_size=3))
def test_a_mapping_of_fields_means_equality_or_is_refused(
    asked: dict[str, str], others: dict[str, str]
) -> None:
    try:
        text = str(FieldSelector.from_mapping(asked))
    except SelectorError as error:
        text, refused = "", str(error)
    if not text and asked:
        assert any(repr(path) in refused for path in asked)
        return
    fields = {**asked, **others}
    means = all(fields[path] == value for path, value in asked.items())
    assert FieldSelector.parse(text).matches(lambda path: fields.get(path, "")) is means


@given(ANY)
def test_any_text_is_refused_or_reads_back_as_printed(text: str) -> None:
    for form in (LabelSelector, FieldSelector):
        try:
            selector = form.parse(text)
        except SelectorError:
            continue
        assert form.parse(str(selector)) == selector


@given(st.dictionaries(KEYS, st.text(max_size=8), max_size=3))
def test_a_printed_field_selector_reads_back(fields: dict[str, str]) -> None:
    selector = FieldSelector.from_mapping(fields)
    assert FieldSelector.parse(str(selector)) == selector
