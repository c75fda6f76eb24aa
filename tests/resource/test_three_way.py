"""The three-way merge of an object's states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.resource import MergeClash, merge_changes
from tests.hypothesis_profiles import scaled

Path = tuple[str, ...]

LEAVES = st.one_of(st.integers(0, 2), st.sampled_from(["a", True, 1.0]), st.just([1]))
FIELDS = st.recursive(
    LEAVES, lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=3), max_leaves=6
)
STATES = st.dictionaries(st.sampled_from(["spec", "data", "status"]), FIELDS, max_size=3)


def places(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Each value with its path; of an object that it is one."""
    yield path, "{}" if isinstance(value, dict) else repr(value)
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from places(inner, (*path, name))


def changes(base: Any, state: Any) -> dict[Path, str | None]:
    before, after = dict(places(base)), dict(places(state))
    paths = before.keys() | after.keys()
    return {path: after.get(path) for path in paths if before.get(path) != after.get(path)}


def touch(one: Path, other: Path) -> bool:
    return one[: len(other)] == other or other[: len(one)] == one


@given(STATES, STATES, STATES)
@settings(max_examples=scaled(1000))
def test_a_merge_has_all_changes_of_both_sides_or_names_the_fields_that_clash(
    base: Any, ours: Any, theirs: Any
) -> None:
    mine, others = changes(base, ours), changes(base, theirs)
    try:
        merged = merge_changes(base, ours, theirs)
    except MergeClash:
        assert any(
            touch(one, other) and (one != other or mine[one] != others[other])
            for one in mine
            for other in others
        )
        return
    assert changes(base, merged) == mine | others
    assert all(mine[path] == others[path] for path in mine.keys() & others.keys())


@given(STATES, STATES)
def test_the_changes_of_one_side_alone_are_that_side(base: Any, state: Any) -> None:
    assert merge_changes(base, state, base) == state == merge_changes(base, base, state)
    assert merge_changes(base, state, state) == state


def condition(name: str, status: str) -> dict[str, str]:
    return {"type": name, "status": status, "reason": "Because"}


def status(*conditions: dict[str, str]) -> dict[str, Any]:
    return {"status": {"conditions": [*conditions]}}


def test_conditions_are_merged_by_type() -> None:
    base = status(condition("A", "True"), condition("B", "True"), condition("C", "True"))
    ours = status(condition("A", "False"), condition("B", "True"), condition("N", "True"))
    theirs = status(condition("X", "True"), *base["status"]["conditions"][:2], condition("C", "?"))
    with pytest.raises(MergeClash, match=r"^status\.conditions\['C'\]$"):
        merge_changes(base, ours, theirs)
    ours["status"]["conditions"].append(condition("C", "?"))
    merged = merge_changes(base, ours, theirs)
    assert merged == status(
        condition("X", "True"),
        condition("A", "False"),
        condition("B", "True"),
        condition("C", "?"),
        condition("N", "True"),
    )


def test_conditions_without_a_type_are_one_field() -> None:
    with pytest.raises(MergeClash, match=r"^status\.conditions$"):
        merge_changes(status(), status(condition("A", "True")), status({"status": "True"}))


def test_finalizers_and_owners_are_merged_by_item() -> None:
    base = {"metadata": {"finalizers": ["a", "b"]}}
    ours = {"metadata": {"finalizers": ["b", "c"], "ownerReferences": [{"uid": "1"}]}}
    theirs = {"metadata": {"finalizers": ["x", "a", "b"], "ownerReferences": [{"uid": "2"}]}}
    assert merge_changes(base, ours, theirs) == {
        "metadata": {
            "finalizers": ["x", "b", "c"],
            "ownerReferences": [{"uid": "2"}, {"uid": "1"}],
        }
    }


def test_all_fields_that_clash_are_named() -> None:
    labels = {"metadata": {"labels": {"example.com/a": "1", "b": "1"}}}
    ours = {"metadata": {"labels": {"example.com/a": "2"}}}
    theirs = {"metadata": {"labels": {"example.com/a": "3", "b": "3"}}}
    with pytest.raises(MergeClash) as failure:
        merge_changes(labels, ours, theirs)
    assert failure.value.paths == ("metadata.labels['example.com/a']", "metadata.labels.b")


def test_deep_objects_are_merged() -> None:
    def nested(depth: int, **inner: Any) -> dict[str, Any]:
        for _ in range(depth):
            inner = {"x": inner}
        return inner

    assert merge_changes(nested(490), nested(490, a=1), nested(490, b=1)) == nested(490, b=1, a=1)
