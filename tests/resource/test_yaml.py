"""YAML in and out, as Kubernetes understands it."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given, settings

from appsdk_operator.resource import EncodeError, Kind, MutableObject, Object, dump_yaml, load_yaml
from appsdk_operator.resource._yaml import load_first
from tests.hypothesis_profiles import scaled

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


def test_documents_come_one_by_one_and_empty_ones_are_left_out() -> None:
    assert load_yaml("---\na: 1\n---\n---\n# nothing\n---\n- b\n") == [{"a": 1}, ["b"]]
    assert load_yaml(b"\xef\xbb\xbfa: \xc3\xa9\n") == [{"a": "é"}]
    assert load_yaml("") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-05-01", "2024-05-01"),
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z"),
        ("12:30", "12:30"),
        ("1:30.5", "1:30.5"),
        ("22:22", "22:22"),
        ("=", "="),
        ("0644", 420),
        ("0o17", 15),
        ("-0x1F", -31),
        ("0b101", 5),
        ("1_000", 1000),
        ("0", 0),
        ("+12", 12),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("1e3", 1000),
        ("1.5e3", 1500.0),
        ("1.0", 1.0),
        (".5", 0.5),
        ("08", 8),
        ("1.2.3", "1.2.3"),
        ("v1", "v1"),
        ("~", None),
        ("", None),
        ("true", True),
        ("off", False),
        ("'1'", "1"),
        ("100m", "100m"),
        ("1e3Mi", "1e3Mi"),
        ("-", [None]),
    ],
)
def test_plain_scalars_are_what_they_are_to_kubernetes(text: str, value: Any) -> None:
    [document] = load_yaml(f"a:\n  {text}\n")
    assert document == {"a": value}
    assert type(document["a"]) is type(value)


def test_keys_that_are_no_text_become_text_as_in_json() -> None:
    assert load_yaml("1: a\ntrue: b\n~: c\n1.5: d\n") == [
        {"1": "a", "true": "b", "null": "c", "1.5": "d"}
    ]


def test_anchors_become_values_of_their_own() -> None:
    [document] = load_yaml("a: &x {n: [1]}\nb: *x\nc: {<<: *x, m: 2}\n")
    assert document == {"a": {"n": [1]}, "b": {"n": [1]}, "c": {"n": [1], "m": 2}}
    document["a"]["n"].append(2)
    assert document["b"] == {"n": [1]}


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "(?s)not YAML.*line 1, column"),
        ("a: 1\n b: 2", "(?s)not YAML.*line 2, column"),
        ("a: \tb\n\t- c", "not YAML"),
        ("a: 1\nb: 2\na: 3", "(?s)found the key 'a' twice.*line 3, column 1"),
        ("1: a\n'1': b", "found the key '1' twice"),
        ("a: *nobody", "undefined alias"),
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("a: !!set {b}", r"\$\.a is a set, which JSON cannot carry: quote it as text"),
        ("a: [!!timestamp 2024-05-01]", r"\$\.a\[0\] is a date"),
        ("a: !!binary aGk=", r"\$\.a is a bytes"),
        ("a: .inf", r"\$\.a is inf, which JSON cannot carry"),
        ("a: [-1e400]", r"\$\.a\[0\] is -inf"),
        ("a: .nan", r"\$\.a is nan"),
        (".inf: 1", "not a finite number"),
        (r'a: "\ud800"', r"\$\.a has a surrogate without its other half"),
        (r'a: {"\udc00\ud800": 1}', r"\$\.a has a surrogate without its other half"),
        ("? [1, 2]\n: 3", "found a list as key: quote it as text"),
        ("? !!timestamp 2024-05-01\n: 3", "found a date as key"),
        (
            "a: 1\nb: !!bool maybe",
            "found a value that is no bool: quote it as text in line 2, column 4",
        ),
        ("!!bool maybe: 1", "is no bool"),
        ("a: !!timestamp yesterday", "is no timestamp"),
        ("a: !!timestamp 2024-13-01", "is no timestamp"),
        ("a: !!float ''", "is no float"),
        (
            "a: !!int secret",
            "^not YAML: found a value that is no int: quote it as text in line 1, column 4$",
        ),
        ("a: !!map b", "expected a mapping node.* line 1, column 4"),
        ("a: !!map []", "expected a mapping node.* line 1, column 4"),
        ("a: &a [*a]", "nested too deep, or contains itself"),
        ("[" * 5000, "nested too deep, or contains itself"),
        (b"\xff\xff", "not YAML"),
        ("a: \x00", "not YAML.*special characters"),
    ],
)
def test_what_is_no_yaml_of_json_values_is_refused_with_the_place(text: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_yaml(text)


def test_aliases_cannot_multiply_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appsdk_operator.resource._yaml._MAX_VALUES", 100_000)
    with pytest.raises(ValueError, match="its aliases multiply"):
        load_yaml(BOMB)


@pytest.mark.parametrize(
    "text",
    ["y", "N", "yes", "off", "1e3", "08", "0o7", "12:30", "2024-05-01", "=", "null", "~", "", "1_0",
     ".5", "1.", "0x1f", "<<", "- a", "a: b", "#c", " x ", "\n", "é", "😀", "\x07",
     "\x85", "a\u2028b"],
)  # fmt: skip
def test_text_that_a_reader_could_take_for_something_else_is_quoted(text: str) -> None:
    dumped = dump_yaml({"a": text, text: "b"})
    assert load_yaml(dumped) == [{"a": text, text: "b"}]
    assert yaml.safe_load(dumped) == {"a": text, text: "b"}
    if text in ("y", "N", "1e3", "08"):
        assert f"a: '{text}'" in dumped


def test_everything_of_ours_can_be_dumped() -> None:
    obj = Object.from_dict(WIDGET, {"metadata": {"name": "w"}, "spec": {"at": "2024-05-01"}})
    text = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: w\n"
    text += "spec:\n  at: '2024-05-01'\n"
    assert obj.to_yaml() == text
    assert obj.mutable_copy().to_yaml() == text
    assert dump_yaml(obj.spec) == "at: '2024-05-01'\n"
    shared = [1]
    assert "&" not in dump_yaml({"a": shared, "b": shared})
    draft = MutableObject.new(WIDGET, "w", spec=obj.spec)
    assert load_yaml(draft.to_yaml()) == [draft.data]


def test_what_json_cannot_carry_is_not_dumped() -> None:
    with pytest.raises(EncodeError, match=r"\$\.a\[0\] cannot be written"):
        dump_yaml({"a": [object()]})


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.from_regex(r"[-+.0-9_:eExob]{1,6}", fullmatch=True),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=scaled(200), deadline=None)
@given(data=st.dictionaries(TEXT, JSON, max_size=4))
def test_json_values_survive_the_way_through_yaml(data: dict[str, Any]) -> None:
    [loaded] = load_yaml(dump_yaml(data)) or [{}]
    assert loaded == data
    assert repr(loaded) == repr(data), "a number changed its type, or a key its place"
    # Of JSON with its escapes, too: all of it is YAML.
    assert repr(load_yaml(json.dumps(data)) or [{}]) == repr([loaded])


def test_merges_cannot_multiply_without_bound() -> None:
    many = "a: &a {" + ", ".join(f"k{n}: {n}" for n in range(1000)) + "}\n"
    text = many + "\n".join(f"b{n}: {{<<: *a}}" for n in range(1000))
    for load in (load_yaml, load_first):
        with pytest.raises(ValueError, match="its merges multiply"):
            load(text)


def test_what_is_merged_again_and_again_is_there_once() -> None:
    text = "b0: &b0 {k: 1}\n" + "\n".join(
        f"b{n}: &b{n} {{<<: [{', '.join([f'*b{n - 1}'] * 9)}]}}" for n in range(1, 12)
    )
    [document] = load_yaml(text)
    assert document == {f"b{n}": {"k": 1} for n in range(12)}
    assert load_first(text)[0] == document


@pytest.mark.parametrize(
    ("merged", "expected"),
    [
        ("{<<: *one}", {"x": 1, "name": "one"}),
        ("{<<: [*one, *two]}", {"x": 1, "name": "one", "z": 2}),
        ("{<<: [*two, *one]}", {"x": 2, "name": "two", "z": 2}),
        ("{<<: [*one, *two], name: own}", {"x": 1, "name": "own", "z": 2}),
        ("{name: own, <<: *one}", {"x": 1, "name": "own"}),
        ("{<<: *both}", {"x": 1, "name": "one", "z": 2}),
        ("{<<: [], x: 3}", {"x": 3}),
        ('{<<: {"x": 4}, x: 5}', {"x": 5}),
    ],
)
def test_of_merged_mappings_the_first_one_counts_and_own_keys_most(
    merged: str, expected: dict[str, Any]
) -> None:
    text = f"""
one: &one {{x: 1, name: one}}
two: &two {{x: 2, name: two, z: 2}}
both: &both {{<<: [*one, *two]}}
merged: {merged}
"""
    [document] = load_yaml(text)
    assert document["merged"] == expected
    assert load_first(text)[0]["merged"] == expected


@pytest.mark.parametrize("value", ["1", "[1]", "[{a: 1}, 1]", "null"])
def test_only_mappings_can_be_merged(value: str) -> None:
    for load in (load_yaml, load_first):
        with pytest.raises(ValueError, match="merge"):
            load(f"a: {{<<: {value}}}")


def test_a_first_document_that_is_no_yaml_is_an_error_with_its_line() -> None:
    for text in ("a: \x00", b"\xff\xff", b"a: \x00", "a: !!bool maybe", "a: !!int ''", "!!map b"):
        with pytest.raises(ValueError, match="line 1: "):
            load_first(text)
    with pytest.raises(ValueError, match="its aliases multiply"):
        load_first("[1, 2, 3]", most_values=3)
