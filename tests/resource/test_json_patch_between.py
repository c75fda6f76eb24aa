"""The JSON patch between two values: complete, minimal, and bounded for large values."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appsdk_operator.resource import (
    EncodeError,
    JsonPatch,
    Kind,
    MutableObject,
    Object,
    apply_json_patch,
    decode_json,
    encode_json,
    json_pointer,
    pointer_steps,
)
from appsdk_operator.resource._json.diff import _common_by_edits, _Values

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


@attrs.frozen
class Port:
    number: int
    name: str | None = None


KEYS = st.text("ab/~é😀", max_size=3) | st.text(max_size=5) | st.sampled_from(["name", "key", "-"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers()
    | st.sampled_from([2**63, 2**64, -(2**80), 10**300])
    | st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e308, 5e-324, 1e22])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["a", "b"])
)
# Copies: the edits below change values in place.
FEW = st.sampled_from(
    [0, 1, 1.0, True, None, "a", {}, [], {"name": "a"}, {"name": "a", "x": 1}]
).map(copy.deepcopy)


def values(leaves: st.SearchStrategy[Any] = LEAVES | FEW) -> st.SearchStrategy[Any]:
    """JSON of any form."""
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=20,
    )


@st.composite
def changes(draw: st.DrawFn) -> tuple[Any, Any]:
    """A value and what a few edits make of it."""
    before = draw(values())
    after = [copy.deepcopy(before)]
    for _ in range(draw(st.integers(0, 5))):
        place: Any = after
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], (dict, list)) and draw(st.integers(0, 3)):
                place = place[key]
                continue
            break
        if place is after:
            after[0] = draw(values())
        elif isinstance(place, list):
            begin = draw(st.integers(0, len(place)))
            end = draw(st.integers(begin, min(len(place), begin + 2)))
            place[begin:end] = draw(st.lists(values(), max_size=2))
        else:
            place[draw(KEYS | st.sampled_from([*place, "a"]))] = draw(values())
    return before, after[0]


REPEATED = st.lists(st.sampled_from("abc"), max_size=12)
PAIRS = (
    changes()
    | st.tuples(values(), values())
    | st.tuples(st.lists(FEW), st.lists(FEW))
    | st.tuples(REPEATED, REPEATED)
)


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values with the types of their numbers."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def operations(before: Any, after: Any) -> list[dict[str, Any]]:
    return list(JsonPatch.between(before, after).operations)  # type: ignore[arg-type]


@given(PAIRS)
@example(([0], [0, 1])).via("an append")
@example(({"": {"/~": 1}}, {"": {"/~": 2}})).via("a path of escapes")
@example(({"a": 1, "b": 1.0, "c": -0.0}, {"a": True, "b": 1, "c": 0.0})).via("equal numbers")
@example(([1, 1.0, 0.0, True], [1.0, True, -0.0, 1])).via("equal numbers of a list")
@example(([0.0], [-0.0])).via("zeros of a list")
@example(([{"name": "a"}, {"name": "b", "x": 1}], [{"name": "b", "x": 2}])).via("a named item")
def test_the_patch_makes_the_one_value_of_the_other(pair: tuple[Any, Any]) -> None:
    before, after = pair
    kept = copy.deepcopy(pair)
    patch = JsonPatch.between(before, after)
    # Not only with the values of this process: with those that arrive.
    made = apply_json_patch(before, decode_json(patch.body()))
    assert same(made, after)
    assert same(list(pair), list(kept))
    assert patch == JsonPatch.between(before, after)
    assert bool(patch.operations) is not same(before, after)
    assert {operation["op"] for operation in patch.operations} <= {"add", "remove", "replace"}


@given(PAIRS)
def test_no_operation_writes_what_was_there_already(pair: tuple[Any, Any]) -> None:
    document, after = pair
    for operation in operations(*pair):
        changed = apply_json_patch(document, [operation])
        assert not same(changed, document)
        document = changed
    assert same(document, after)


@given(values())
def test_the_size_of_a_value_is_that_of_its_text(value: Any) -> None:
    assert _Values().size(value) == len(encode_json(value))


@given(PAIRS)
def test_the_patch_of_a_list_is_no_longer_than_the_list(pair: tuple[Any, Any]) -> None:
    before, after = [pair[0]], [pair[1]]
    made = operations(before, after)
    whole = [{"op": "replace", "path": "", "value": after}]
    assert len(made) <= 1 or len(encode_json(made)) <= len(encode_json(whole))


def differing_members(before: Any, after: Any) -> int:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return int(not same(before, after))
    return sum(
        1 if key not in before or key not in after else differing_members(before[key], after[key])
        for key in {*before, *after}
    )


@given(st.tuples(*[st.dictionaries(KEYS, values(LEAVES.filter(lambda _: True)))] * 2))
def test_each_differing_member_of_an_object_takes_one_operation(pair: tuple[Any, Any]) -> None:
    before, after = (_without_lists(value) for value in pair)
    assert len(operations(before, after)) == differing_members(before, after)


def _without_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_lists(item) for key, item in value.items()}
    return str(value) if isinstance(value, list) else value


def longest_common(a: list[Any], b: list[Any]) -> int:
    lengths = [0] * (len(b) + 1)
    for one in a:
        diagonal = 0
        for j, other in enumerate(b, 1):
            diagonal, lengths[j] = (
                lengths[j],
                diagonal + 1 if same(one, other) else max(lengths[j], lengths[j - 1]),
            )
    return lengths[-1]


@given(st.lists(FEW | LEAVES) | REPEATED, st.lists(FEW | LEAVES) | REPEATED)
@example(["p", "x", "q"], ["x", "r", "x"]).via("an item that has two equal ones")
def test_as_many_items_as_possible_stay_where_they_are(a: list[Any], b: list[Any]) -> None:
    # A long item that stays: no list is shorter as a whole.
    before, after = (["x" * 10_000, *([item, "x"] for item in items)] for items in (a, b))
    made = operations(before, after)
    kept = longest_common(before, after)
    assert max(len(before), len(after)) - kept <= len(made) <= len(before) + len(after) - 2 * kept


@given(REPEATED, REPEATED)
def test_both_algorithms_find_a_longest_common_subsequence(a: list[str], b: list[str]) -> None:
    found = _common_by_edits(a, b)
    assert found is not None
    assert len(found) == longest_common(a, b)
    assert all(a[i] == b[j] for i, j in found)


@given(values(), LEAVES, st.data())
def test_one_changed_leaf_takes_one_operation(value: Any, leaf: Any, data: st.DataObject) -> None:
    document = {"spec": value}
    before: Any = copy.deepcopy(document)
    place: Any = document
    key: Any = "spec"
    while isinstance(place[key], (dict, list)) and place[key]:
        place = place[key]
        key = data.draw(st.sampled_from([*place] if isinstance(place, dict) else range(len(place))))
    place[key] = leaf
    assert len(operations(before, document)) == int(not same(before, document))


@given(st.lists(values(), max_size=8), values(), st.data())
def test_one_added_or_removed_item_takes_one_operation(
    items: list[Any], item: Any, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(items)))
    more = [*items[:at], item, *items[at:]]
    [added] = operations({"a": items}, {"a": more})
    [removed] = operations({"a": more}, {"a": items})
    assert (added["op"], removed["op"]) == ("add", "remove")
    assert same(added["value"], item)


# -- What it looks like ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        (1, 2, [("replace", "", 2)]),
        ([], {}, [("replace", "", {})]),
        (None, None, []),
        ({"a": None}, {}, [("remove", "/a")]),
        ({}, {"a": None}, [("add", "/a", None)]),
        ({"a": {}}, {"a": []}, [("replace", "/a", [])]),
        ({"a": 0.0}, {"a": -0.0}, [("replace", "/a", -0.0)]),
        ({"a": 2**64}, {"a": 2**64 + 1}, [("replace", "/a", 2**64 + 1)]),
        ({"a": [1, 2, 3]}, {"a": [1, 3]}, [("remove", "/a/1")]),
        ({"a": [1, 3]}, {"a": [1, 2, 3]}, [("add", "/a/1", 2)]),
        ({"a": [1]}, {"a": [1, 2]}, [("add", "/a/-", 2)]),
        ({"a": [1, 2, 3]}, {"a": [1, 4, 3]}, [("replace", "/a/1", 4)]),
        ({"a": [True, 1]}, {"a": [1, True]}, [("replace", "/a", [1, True])]),
        (
            {"c": [{"name": "web", "image": "a:1", "args": ["x"] * 30}]},
            {
                "c": [
                    {"name": "proxy", "image": "p:1"},
                    {"name": "web", "image": "a:2", "args": ["x"] * 30},
                ]
            },
            [
                ("add", "/c/0", {"name": "proxy", "image": "p:1"}),
                ("replace", "/c/1/image", "a:2"),
            ],
        ),
        (
            {"m": {"labels": {"a": "1", "b": "2"}}},
            {"m": {"labels": {"c": "3"}}},
            # The map would be shorter, and would take away what others have added to it.
            [("remove", "/m/labels/a"), ("remove", "/m/labels/b"), ("add", "/m/labels/c", "3")],
        ),
        ({"a": ["x", "y", "z"]}, {"a": ["p", "q"]}, [("replace", "/a", ["p", "q"])]),
    ],
)
def test_the_patch_says_what_changed(before: Any, after: Any, patch: list[Any]) -> None:
    made = [tuple(operation.values()) for operation in operations(before, after)]
    assert repr(made) == repr(patch)


# -- Objects and numbers ---------------------------------------------------------------------


def test_objects_of_each_form_can_be_compared() -> None:
    before = Object.from_dict(WIDGET, {"metadata": {"name": "a"}, "spec": {"size": 1}})
    draft = before.mutable_copy()
    draft["spec"]["size"] = 2
    expected = [{"op": "replace", "path": "/spec/size", "value": 2}]
    for one in (before, before.mutable_copy(), before.to_dict()):
        for other in (draft, draft.freeze(), draft.to_dict()):
            patch = JsonPatch.between(one, other)
            assert patch.operations == expected
    draft["spec"]["tags"] = [("a", "b")]
    assert operations(before, draft)[1]["value"] == [["a", "b"]]


def test_fields_of_typed_values_that_are_none_are_absent() -> None:
    before = {"spec": {"port": {"number": 1}}}
    for after in ({"spec": {"port": Port(2)}}, MutableObject(WIDGET, {"spec": {"port": Port(2)}})):
        expected = [{"op": "replace", "path": "/spec/port/number", "value": 2}]
        assert operations(before, after) == expected


def test_later_changes_do_not_reach_the_patch() -> None:
    after = MutableObject.new(WIDGET, "a", spec={"tags": ["x"]})
    patch = JsonPatch.between(MutableObject.new(WIDGET, "a"), after)
    body = patch.body()
    after["spec"]["tags"].append("y")
    assert patch.body() == body


def test_numbers_that_did_not_change_keep_their_text() -> None:
    # Decoded, 1.00000000000000000001 is 1.0, and -0 is 0.
    raw = (
        b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},'
        b'"spec":{"n":[1.00000000000000000001,-0,1e2],"s":1}}'
    )
    before = Object.from_json(WIDGET, raw)
    draft = before.mutable_copy()
    draft["spec"]["n"].insert(0, 2**70)
    assert JsonPatch.between(before, draft).body() == (
        b'[{"op":"add","path":"/spec/n/0","value":1180591620717411303424}]'
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800", object()])
def test_a_value_that_json_cannot_carry_is_refused_with_its_path(value: Any) -> None:
    with pytest.raises(EncodeError, match=r"\$\.spec\.a"):
        JsonPatch.between({}, {"spec": {"a": value}})


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["a"] = loop
    with pytest.raises(EncodeError, match="contains itself"):
        JsonPatch.between({}, loop)


def test_a_lock_is_a_test_of_the_version_that_was_read() -> None:
    metadata = {"name": "a", "resourceVersion": "7"}
    before = Object.from_dict(WIDGET, {"metadata": metadata, "spec": {"a": 1}})
    after = before.mutable_copy()
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert JsonPatch.between(before, after, optimistic_lock=True).operations == [test]
    after["spec"]["a"] = 2
    patch = JsonPatch.between(before, after, optimistic_lock=True)
    assert patch.is_guarded
    assert [operation["op"] for operation in patch.operations] == ["test", "replace"]
    for bare in ({}, {"metadata": {}}, {"metadata": {"resourceVersion": ""}}, [1], 1):
        with pytest.raises(ValueError, match="needs the resource version"):
            JsonPatch.between(bare, {}, optimistic_lock=True)


# -- Bounds ----------------------------------------------------------------------------------

MANY = 100_000
"""Items for which a quadratic algorithm would outlast the time-out of a test."""


@pytest.mark.parametrize(
    ("before", "after", "most", "is_whole"),
    [
        (range(MANY), [*range(50), "x", *range(50, MANY - 9)], 10, False),
        ([0] * MANY, [*[0] * 500, 1, *[0] * (MANY - 500)], 1, False),
        ([0, 1] * (MANY // 2), [*([0, 1] * 9), 1, *([0, 1] * (MANY // 2 - 12)), 0], 8, False),
        ([0] * MANY, [1] * MANY, 1, True),
        ([0, 1] * (MANY // 2), [1, 0, 0] * (MANY // 3), 1, True),
        (range(MANY), range(MANY, 0, -1), 1, True),
        ([{"name": str(i), "n": 0} for i in range(MANY)], [{"name": "x"}], 1, True),
        (
            [{"name": str(i % 7), "n": i, "text": "x" * 90} for i in range(20_000)],
            [{"name": str(i % 7), "n": i if i % 9 else -1, "text": "x" * 90} for i in range(20_000)]
            + [{"name": "last"}],
            20_000 // 9 + 2,
            False,
        ),
    ],
    ids=["distinct", "equal", "two", "others", "repeated", "reversed", "fewer", "named"],
)
def test_lists_of_many_items_take_no_quadratic_time(
    before: Any, after: Any, most: int, is_whole: bool
) -> None:
    before, after = {"a": list(before)}, {"a": list(after)}
    made = operations(before, after)
    assert len(made) <= most
    assert ("/a" in [operation["path"] for operation in made]) is is_whole
    # Applied at once, as thousands of copies of a long list would take long.
    if len(made) < 20:
        assert same(apply_json_patch(before, made), after)


def test_one_changed_item_of_many_equal_names_is_the_only_change() -> None:
    before = [{"name": "a", "n": i % 3} for i in range(10_000)]
    after = copy.deepcopy(before)
    after[7_000]["n"] = 9
    assert operations(before, after) == [{"op": "replace", "path": "/7000/n", "value": 9}]


def test_a_patch_has_no_more_operations_than_an_api_server_takes() -> None:
    # So long that it would not be replaced for the length of its changes.
    text = {"text": "x" * 1_000_000}
    before: dict[str, Any] = {"a": {**dict.fromkeys(map(str, range(10_001)), 1), **text}, "b": 1}
    after: dict[str, Any] = {"a": {**dict.fromkeys(map(str, range(10_001)), 2), **text}, "b": 2}
    assert [made["path"] for made in operations(before, after)] == ["/a", "/b"]
    after["a"]["0"], after["b"] = before["a"]["0"], before["b"]
    assert len(operations(before, after)) == 10_000


DEEP = 240


@pytest.mark.parametrize("nested", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_deep_values_are_compared(nested: Any) -> None:
    before, after = 1, 2
    for _ in range(DEEP):
        before, after = nested(before), nested(after)
    [made] = operations(before, after)
    assert made["op"] == "replace"
    assert made["path"].count("/") == DEEP
    assert same(apply_json_patch(before, [made]), after)
    assert operations(before, before) == []


@pytest.mark.parametrize(
    "nested",
    [
        lambda inner, n: {"a": inner, "n": n},
        lambda inner, n: [n, inner],
        lambda inner, n: [{"a": inner, "n": n}],
    ],
)
def test_changes_on_hundreds_of_levels_do_not_grow_with_their_paths(nested: Any) -> None:
    before: Any = None
    after: Any = None
    for _ in range(DEEP):
        before, after = nested(before, 1), nested(after, 2)
    patch = JsonPatch.between(before, after)
    assert len(patch.body()) <= len(encode_json(after)) + 65_536 + 100
    assert len(patch.operations) <= 10_000
    assert same(apply_json_patch(before, patch.operations), after)


def test_values_that_msgspec_decodes_are_patched_as_they_are() -> None:
    raw = msgspec.json.encode({"a": [1, 2.5, "x", None, True]})
    assert operations(decode_json(raw), {"a": [1, 2.5, "x", None]}) == [
        {"op": "remove", "path": "/a/4"}
    ]


@given(st.lists(st.text("ab/~01é", max_size=5), max_size=5))
def test_a_pointer_leads_back_to_its_steps(steps: list[str]) -> None:
    assert pointer_steps(json_pointer(steps)) == steps


def test_a_pointer_that_nothing_of_ours_has_made_is_read_as_written() -> None:
    assert pointer_steps("") == []
    assert pointer_steps("/") == [""]
    assert pointer_steps("/~01/~2~/a~1b") == ["~1", "~2~", "a/b"]
