"""JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.resource import (
    JsonPatch,
    Kind,
    MergePatch,
    MutableObject,
    PatchError,
    PatchTestFailed,
    apply_json_patch,
    apply_merge_patch,
    create_merge_patch,
)
from appsdk_operator.resource._json.values import same
from appsdk_operator.resource._patches.strategic import (
    BUILTIN_MERGE_KEYS,
    MergeKeys,
    MergeRule,
    apply_strategic_merge_patch,
)

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


# The examples of RFC 6902, appendix A.
@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"foo": "bar"}, [("add", "/baz", "qux")], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [("add", "/foo/1", "qux")], {"foo": ["bar", "qux", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, [("remove", "/baz")], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [("remove", "/foo/1")], {"foo": ["bar", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, [("replace", "/baz", "boo")], {"baz": "boo", "foo": "bar"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [("move", "/qux/thud", "/foo/waldo")],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        (
            {"foo": ["all", "grass", "cows", "eat"]},
            [("move", "/foo/3", "/foo/1")],
            {"foo": ["all", "cows", "eat", "grass"]},
        ),
        (
            {"baz": "qux", "foo": ["a", 2, "c"]},
            [("test", "/baz", "qux"), ("test", "/foo/1", 2)],
            {"baz": "qux", "foo": ["a", 2, "c"]},
        ),
        ({"foo": "bar"}, [("add", "/child", {"a": {}})], {"foo": "bar", "child": {"a": {}}}),
        ({"/": 9, "~1": 10}, [("test", "/~01", 10)], {"/": 9, "~1": 10}),
        ({"foo": ["bar"]}, [("add", "/foo/-", ["abc", "def"])], {"foo": ["bar", ["abc", "def"]]}),
        ({"a": {"b": 1}}, [("copy", "/c", "/a")], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": 1}, [("add", "", [1])], [1]),
        ({"a": 1}, [("replace", "", 2)], 2),
        ({"a": 1}, [("move", "/a", "/a")], {"a": 1}),
        ({"a/b": 1, "m~n": 2}, [("replace", "/a~1b", 3), ("remove", "/m~0n")], {"a/b": 3}),
        ({"": 1}, [("replace", "/", 2)], {"": 2}),
        ({"a": [1, 2]}, [("replace", "/a/1", 3)], {"a": [1, 3]}),
        ({"a": [{"b": 1}]}, [("add", "/a/0/c", 2)], {"a": [{"b": 1, "c": 2}]}),
        ({"a": 1}, [("test", "/a", 1.0)], {"a": 1}),
    ],
)
def test_a_json_patch_does_what_the_rfc_says(document: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(document)
    assert apply_json_patch(document, operations(patch)) == result
    assert document == before


def operations(patch: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for op, path, *value in patch:
        operation: dict[str, Any] = {"op": op, "path": path}
        if value:
            operation["from" if op in ("move", "copy") else "value"] = value[0]
        made.append(operation)
    return made


@pytest.mark.parametrize(
    ("document", "operation", "text"),
    [
        ({"foo": "bar"}, {"op": "add", "path": "/baz/bat", "value": "qux"}, "there is no 'baz'"),
        ({"foo": []}, {"op": "add", "path": "/foo/1", "value": 1}, "beyond the end"),
        ({"foo": [1]}, {"op": "remove", "path": "/foo/01"}, "is not an index"),
        ({"foo": [1]}, {"op": "remove", "path": "/foo/-"}, "is not an index"),
        ({"foo": [1]}, {"op": "replace", "path": "/foo/" + "9" * 5000, "value": 1}, "beyond"),
        ({"foo": 1}, {"op": "replace", "path": "/bar", "value": 1}, "there is no 'bar'"),
        ({"foo": 1}, {"op": "remove", "path": "/bar"}, "there is no 'bar'"),
        ({"foo": 1}, {"op": "remove", "path": "/foo/bar"}, "neither an object nor a list"),
        ({"foo": 1}, {"op": "add", "path": "/foo/bar", "value": 1}, "neither an object nor a list"),
        ({"foo": {"a": 1}}, {"op": "move", "from": "/foo", "path": "/foo/b"}, "into itself"),
        ({}, {"op": "add", "path": "/a"}, "'value' is missing"),
        ({}, {"op": "copy", "path": "/a"}, "'from' is missing"),
        ({}, {"op": "add", "value": 1}, "'path' is missing"),
        ({}, {"op": "grow", "path": "/a"}, "'grow' is not an operation: use one of add, remove"),
        ({}, {"op": ["add"], "path": "/a"}, "is not an operation"),
        ({}, {"op": "add", "path": "a", "value": 1}, "a path starts with '/'"),
        ({}, {"op": "add", "path": 5, "value": 1}, "a path is text"),
        ({}, "add", "is not an object"),
    ],
)
def test_an_operation_that_cannot_be_done_is_told_with_its_place(
    document: Any, operation: Any, text: str
) -> None:
    first = {"op": "test", "path": "", "value": document}
    with pytest.raises(PatchError) as failed:
        apply_json_patch(document, [first, operation])
    assert str(failed.value).startswith("operation 1")
    assert text in str(failed.value)
    assert not isinstance(failed.value, PatchTestFailed)


@pytest.mark.parametrize(
    ("document", "path", "value"),
    [
        ({"baz": "qux"}, "/baz", "bar"),
        ({"a": 10}, "/a", "10"),
        ({"a": 1}, "/a", True),
        ({"a": [1]}, "/a", [1, 2]),
        ({"a": {"b": 0}}, "/a", {"b": False}),
    ],
)
def test_a_failed_test_is_an_error_of_its_own(document: Any, path: str, value: Any) -> None:
    with pytest.raises(PatchTestFailed, match="operation 0"):
        apply_json_patch(document, [{"op": "test", "path": path, "value": value}])


@pytest.mark.parametrize("patch", [{"op": "add"}, "text", 5])
def test_a_json_patch_is_a_list(patch: Any) -> None:
    with pytest.raises(PatchError, match="is a list of operations"):
        apply_json_patch({}, patch)


# The examples of RFC 7386, appendix A.
@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_the_rfc_says(document: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(document)
    assert apply_merge_patch(document, patch) == result
    assert document == before


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return value


@given(JSON.map(without_nulls), JSON.map(without_nulls))
def test_a_made_merge_patch_leads_from_old_to_new(old: Any, new: Any) -> None:
    patch = create_merge_patch(old, new)
    made = apply_merge_patch(old, patch)
    assert repr(made) == repr(new) or made == new


@given(st.dictionaries(st.text(max_size=2), JSON, max_size=3))
def test_nothing_changed_is_an_empty_patch(value: dict[str, Any]) -> None:
    assert create_merge_patch(value, copy.deepcopy(value)) == {}


def test_a_change_of_type_is_a_change() -> None:
    assert create_merge_patch({"a": 1}, {"a": True}) == {"a": True}


@given(JSON, st.lists(st.tuples(st.sampled_from(["/a", "/b", "/a/0", "/a/-", ""]), JSON)))
def test_a_json_patch_never_changes_its_document(document: Any, adds: Any) -> None:
    before = copy.deepcopy(document)
    patch = [{"op": "add", "path": path, "value": value} for path, value in adds]
    with contextlib.suppress(PatchError):
        apply_json_patch(document, patch)
    assert repr(document) == repr(before)


POD: dict[str, Any] = {
    "metadata": {"finalizers": ["a"], "labels": {"x": "1"}},
    "spec": {
        "containers": [
            {"name": "a", "image": "x", "ports": [{"containerPort": 80, "name": "web"}]},
            {"name": "b", "image": "y", "env": [{"name": "E", "value": "1"}]},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "k"}],
    },
}


@pytest.mark.parametrize(
    ("patch", "path", "result"),
    [
        (
            {"spec": {"containers": [{"name": "b", "image": "z"}]}},
            "spec.containers",
            [
                POD["spec"]["containers"][0],
                {"name": "b", "image": "z", "env": [{"name": "E", "value": "1"}]},
            ],
        ),
        (
            {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
            "spec.containers",
            [POD["spec"]["containers"][1]],
        ),
        (
            {"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}},
            "spec.containers",
            [{"name": "c"}],
        ),
        (
            {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 81}]}]}},
            "spec.containers.0.ports",
            [{"containerPort": 81}, {"containerPort": 80, "name": "web"}],
        ),
        (
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
                    "containers": [{"name": "c"}],
                }
            },
            "spec.containers",
            [{"name": "c"}, POD["spec"]["containers"][1], POD["spec"]["containers"][0]],
        ),
        (
            {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
            "spec.containers",
            [POD["spec"]["containers"][1], POD["spec"]["containers"][0]],
        ),
        ({"metadata": {"finalizers": ["b", "a"]}}, "metadata.finalizers", ["b", "a"]),
        (
            {
                "metadata": {
                    "$deleteFromPrimitiveList/finalizers": ["a"],
                    "finalizers": ["c"],
                }
            },
            "metadata.finalizers",
            ["c"],
        ),
        ({"metadata": {"labels": {"x": None, "y": "2"}}}, "metadata.labels", {"y": "2"}),
        ({"metadata": {"labels": {"$patch": "replace", "z": "3"}}}, "metadata.labels", {"z": "3"}),
        ({"metadata": {"labels": {"$patch": "delete"}}}, "metadata.labels", {}),
        (
            {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {}}]}},
            "spec.volumes",
            [{"name": "v", "secret": {}}],
        ),
        ({"spec": {"tolerations": [{"key": "l"}]}}, "spec.tolerations", [{"key": "l"}]),
        ({"spec": {"$patch": "merge", "nodeName": "n"}}, "spec.nodeName", "n"),
    ],
)
def test_a_strategic_patch_merges_what_belongs_together(
    patch: dict[str, Any], path: str, result: Any
) -> None:
    before = copy.deepcopy(POD)
    value: Any = apply_strategic_merge_patch(POD, patch)
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    assert value == result
    assert before == POD


@pytest.mark.parametrize(
    ("patch", "text"),
    [
        ({"spec": {"$patch": "grow"}}, "use merge, replace or delete"),
        ({"spec": {"containers": [{"image": "x"}]}}, "has no 'name'"),
        ({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "nfs": {}}]}}, "nfs"),
        ({"spec": {"volumes": [{"name": "v", "$retainKeys": 5}]}}, "not a list of names"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": 5}}, "is not a list"),
        ({"metadata": {"$setElementOrder/finalizers": 5}}, "is not a list"),
        (
            {"metadata": {"$setElementOrder/finalizers": ["a"], "finalizers": ["b"]}},
            "metadata.finalizers are not in the order of $setElementOrder/finalizers",
        ),
        (
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
                    "containers": [{"name": "b"}, {"name": "a"}],
                }
            },
            "spec.containers are not in the order",
        ),
    ],
)
def test_a_strategic_patch_that_makes_no_sense_is_refused(patch: Any, text: str) -> None:
    with pytest.raises(PatchError) as refused:
        apply_strategic_merge_patch(POD, patch)
    assert text in str(refused.value)


@given(st.permutations("abcd"), st.permutations("abcd"), *[st.integers(0, 4)] * 2, st.booleans())
def test_an_order_is_obeyed_or_the_patch_is_refused(
    order: list[str], added: list[str], ordered: int, listed: int, is_keyed: bool
) -> None:
    order, added = order[:ordered], added[:listed]

    def items(names: Iterable[str]) -> list[Any]:
        return [{"uid": name} if is_keyed else name for name in names]

    field = "ownerReferences" if is_keyed else "finalizers"
    patch = {"$setElementOrder/" + field: items(order), field: items(added)}
    try:
        found = apply_strategic_merge_patch(
            {"metadata": {field: items("ab")}}, {"metadata": patch}
        )["metadata"][field]
    except PatchError:
        assert order
        assert [name for name in order if name in added] != added
        return
    assert [one for one in found if one in items(order)] == [
        one for one in items(order) if one in found
    ]
    assert all(one in found for one in items([*"ab", *added]))


def test_a_service_is_merged_by_port_and_its_neighbours_are_not() -> None:
    service = {"spec": {"ports": [{"port": 80, "name": "a"}]}}
    patched = apply_strategic_merge_patch(service, {"spec": {"ports": [{"port": 81}]}})
    assert patched["spec"]["ports"] == [{"port": 81}, {"port": 80, "name": "a"}]
    policy = {"spec": {"ingress": [{"ports": [{"port": 80}]}]}}
    ingress = [{"ports": [{"port": 81}]}]
    patched = apply_strategic_merge_patch(policy, {"spec": {"ingress": ingress}})
    assert patched["spec"]["ingress"] == ingress


def test_owner_references_and_conditions_are_told_apart_by_their_keys() -> None:
    old = {
        "metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}]},
    }
    new = apply_strategic_merge_patch(
        old,
        {
            "metadata": {"ownerReferences": [{"uid": "2", "name": "b"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        },
    )
    assert [owner["uid"] for owner in new["metadata"]["ownerReferences"]] == ["2", "1"]
    assert new["status"]["conditions"] == [{"type": "Ready", "status": "True", "reason": "x"}]


def test_the_table_of_merge_keys_can_be_changed() -> None:
    keys = BUILTIN_MERGE_KEYS.updated({"spec.containers": MergeRule(merges=False)})
    assert keys.rule(("spec", "containers")) is None
    assert MergeKeys({}).rule(("spec", "containers")) is None
    patch = {"spec": {"containers": [{"name": "c"}]}}
    patched = apply_strategic_merge_patch(POD, patch, keys)
    assert patched["spec"]["containers"] == [{"name": "c"}]


@given(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), JSON)
def test_without_keys_a_strategic_patch_is_a_merge_patch(
    document: dict[str, Any], value: Any
) -> None:
    patch = {"a": value}
    merged = apply_merge_patch(document, patch)
    strategic = apply_strategic_merge_patch(document, patch, MergeKeys({}))
    assert repr(strategic) == repr(merged)


@given(*[st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)] * 2)
def test_a_merge_patch_leads_from_one_object_to_the_other_or_is_refused(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    before, after = (MutableObject.new(WIDGET, "w", spec=spec) for spec in (old, new))
    try:
        patch = MergePatch.between(before, after)
    except ValueError:
        with pytest.raises(ValueError, match=r"^/spec/.* is null or contains a null"):
            MergePatch.between(before, after)
        assert "None" in repr(new)
        return
    assert same(apply_merge_patch(before.to_dict(), patch.fields), after.to_dict())


@pytest.mark.parametrize("text", ["<lambda>", "a=1&b=2", "\u2028 and \u2029", "é\n\t\x1f\x7f"])
def test_a_test_of_a_text_has_the_bytes_that_the_api_server_compares(text: str) -> None:
    operations = [{"op": "test", "path": "/data/a<b", "value": text}]
    body = JsonPatch(operations).body()
    assert json.loads(body) == operations
    assert not {*body.decode()} & {*"&<>\u2028\u2029"}
