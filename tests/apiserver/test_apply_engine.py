"""The laws of server-side apply: algebra of field sets, comparison, merge and ownership."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.apiserver._managed_fields import field_sets, merging, ownership, typed_values
from appsdk_operator.apiserver._managed_fields.ownership import Manager, Owners, TypedObject
from appsdk_operator.apiserver._managed_fields.shapes import Shape, ShapeBuilder
from appsdk_operator.apiserver._values.run_sync import run_sync
from tests.hypothesis_profiles import scaled

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
SHAPE = ShapeBuilder().custom(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": NUMBER,
                    "order": {"type": "array", "items": TEXT},
                    "names": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
                    "ports": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["port", "protocol"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "port": NUMBER,
                                "protocol": {**TEXT, "default": "TCP"},
                                "name": TEXT,
                            },
                        },
                    },
                    "mark": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "properties": {"a": TEXT, "b": TEXT},
                    },
                    "labels": {"type": "object", "additionalProperties": TEXT},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        },
    }
)

LAW = settings(max_examples=scaled(30), deadline=None)
LETTERS = st.sampled_from("abc")
PORTS = st.dictionaries(
    st.tuples(st.integers(1, 3), st.sampled_from(["TCP", "UDP"])), st.none() | LETTERS, max_size=3
).map(
    lambda found: [
        {"port": port, "protocol": protocol, **({"name": name} if name else {})}
        for (port, protocol), name in found.items()
    ]
)
FREE = st.recursive(
    st.integers(0, 2) | st.booleans() | LETTERS,
    lambda inner: (
        st.dictionaries(LETTERS, inner, min_size=1, max_size=2)
        | st.lists(inner, min_size=1, max_size=2)
    ),
    max_leaves=4,
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "size": st.integers(0, 3),
        "order": st.lists(LETTERS, min_size=1, max_size=3),
        "names": st.lists(LETTERS, min_size=1, max_size=3, unique=True),
        "ports": PORTS.filter(bool),
        "mark": st.fixed_dictionaries({"a": LETTERS}, optional={"b": LETTERS}),
        "labels": st.dictionaries(LETTERS, LETTERS, min_size=1, max_size=2),
        "free": st.dictionaries(LETTERS, FREE, min_size=1, max_size=2),
    },
)
OBJECTS = SPECS.map(lambda spec: {"spec": spec} if spec else {})
SETS = OBJECTS.map(lambda obj: typed_values.field_set(obj, SHAPE)) | OBJECTS.map(
    lambda obj: {
        k: v for k, v in typed_values.all_fields(obj, SHAPE).items() if k != field_sets.SELF
    }
)


async def _same_version(typed: TypedObject, _version: str) -> TypedObject:
    return typed


def apply(live: Any, config: Any, owners: Owners, who: str, *, force: bool = True) -> Any:
    """The object and its owners after ``who`` applies ``config`` to ``live``."""
    merged, after = run_sync(
        ownership.apply(
            TypedObject(live, SHAPE, "v1"),
            TypedObject(config, SHAPE, "v1"),
            dict(owners),
            Manager(who, "Apply"),
            {},
            _same_version,
            force=force,
        )
    )
    return merged.value, after


def update(live: Any, new: Any, owners: Owners, who: str) -> Owners:
    """The owners after ``who`` updates ``live`` to ``new``."""
    after: Owners = run_sync(
        ownership.update(
            TypedObject(live, SHAPE, "v1"),
            TypedObject(new, SHAPE, "v1"),
            dict(owners),
            Manager(who, "Update", "v1"),
            {},
            _same_version,
        )
    )
    return after


def differs(one: Any, other: Any) -> bool:
    """Whether two objects differ, apart from the order of unordered lists."""
    found = typed_values.compare(one, other, SHAPE)
    return bool(found.removed or found.modified or found.added)


def canonical(fields: field_sets.FieldSet) -> str:
    return json.dumps(field_sets.ordered(fields, by_text=True))


def same(one: field_sets.FieldSet, other: field_sets.FieldSet) -> bool:
    return canonical(one) == canonical(other)


@LAW
@given(SETS, SETS, SETS)
def test_sets_of_fields_are_sets(a: Any, b: Any, c: Any) -> None:
    before = copy.deepcopy((a, b, c))
    assert same(field_sets.union(a, b), field_sets.union(b, a))
    assert same(field_sets.intersection(a, b), field_sets.intersection(b, a))
    assert same(
        field_sets.union(field_sets.union(a, b), c), field_sets.union(a, field_sets.union(b, c))
    )
    assert same(field_sets.union(a, a), a)
    assert same(field_sets.intersection(a, a), a)
    assert field_sets.difference(a, a) == {}
    assert field_sets.difference_below(a, a) == {}
    assert field_sets.intersection(field_sets.difference(a, b), b) == {}
    assert same(field_sets.union(field_sets.difference(a, b), field_sets.intersection(a, b)), a)
    assert same(
        field_sets.intersection(a, field_sets.union(b, c)),
        field_sets.union(field_sets.intersection(a, b), field_sets.intersection(a, c)),
    )
    assert set(field_sets.paths(field_sets.difference_below(a, b))) <= set(
        field_sets.paths(field_sets.difference(a, b))
    )
    assert (a, b, c) == before


@LAW
@given(SETS)
def test_a_set_is_the_set_of_its_paths(a: Any) -> None:
    built: field_sets.FieldSet = {}
    for path in field_sets.paths(a):
        assert field_sets.has(a, path)
        field_sets.attach(built, path, {})
    assert same(built, a)


@LAW
@given(SETS, st.booleans())
def test_what_is_written_of_a_set_is_read_again(a: Any, by_text: bool) -> None:
    written = json.loads(json.dumps(field_sets.ordered(a, by_text=by_text)))
    assert same(field_sets.parse(written), a)


@pytest.mark.parametrize(
    "given_", [3, {"a": {}}, {"k:[1]": {}}, {"v:": {}}, {"f:a": []}, {"i:x": {}}]
)
def test_what_is_no_set_is_not_read(given_: Any) -> None:
    with pytest.raises(ValueError):
        field_sets.parse(given_)


def test_one_field_has_one_name() -> None:
    other = {"f:a": {".": {}}, 'k:{"b":1.0,"a":"x"}': {}, "v:2.0": {}, "x:unknown": {"f:b": {}}}
    assert field_sets.parse(other) == {"f:a": {}, 'k:{"a":"x","b":1}': {}, "v:2": {}}


@LAW
@given(OBJECTS, OBJECTS)
def test_a_comparison_tells_what_makes_one_object_of_another(old: Any, new: Any) -> None:
    found = typed_values.compare(old, new, SHAPE)
    assert (found.removed, found.modified, found.added) == ({}, {}, {}) or (
        json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True)
    )
    assert same(found.removed, typed_values.compare(new, old, SHAPE).added)
    assert same(found.modified, typed_values.compare(new, old, SHAPE).modified)
    assert field_sets.intersection(found.removed, found.added) == {}


@pytest.mark.parametrize("around", [lambda value: value, lambda value: [value, {"b": value}]])
def test_a_number_that_becomes_a_flag_is_a_change(around: Callable[[Any], Any]) -> None:
    one, true = ({"spec": {"free": {"a": around(value)}}} for value in (1, True))
    live, owners = apply({}, one, {}, "them")
    with pytest.raises(ownership.OwnershipConflict):
        apply(live, true, owners, "me", force=False)
    assert list(update(live, true, owners, "me")) == [Manager("me", "Update", "v1")]
    assert not differs(one, {"spec": {"free": {"a": around(1.0)}}})


@LAW
@given(OBJECTS, OBJECTS)
def test_merging_keeps_what_is_applied(live: Any, config: Any) -> None:
    before = copy.deepcopy((live, config))
    merged = merging.merge(live, config, SHAPE)
    merging.check(merged, SHAPE)
    assert merging.merge(merged, config, SHAPE) == merged
    assert merging.merge(live, live, SHAPE) == live
    wanted = typed_values.field_set(config, SHAPE)
    assert field_sets.difference(wanted, typed_values.field_set(merged, SHAPE)) == {}
    assert not differs(typed_values.extract(merged, wanted, SHAPE), config)
    assert (live, config) == before


@LAW
@given(OBJECTS)
def test_what_is_extracted_of_an_applied_object_is_what_was_applied(config: Any) -> None:
    obj, owners = apply({}, config, {}, "me")
    assert obj == config
    wanted = typed_values.field_set(config, SHAPE)
    if wanted:
        assert same(owners[Manager("me", "Apply")].fields, wanted)
        assert typed_values.extract(obj, wanted, SHAPE) == config
    else:
        assert owners == {}


@LAW
@given(OBJECTS, OBJECTS)
def test_applying_twice_changes_nothing(live: Any, config: Any) -> None:
    owners = update({}, live, {}, "them")
    once = apply(live, config, owners, "me")
    assert apply(*[once[0], config, once[1], "me"]) == once


@LAW
@given(OBJECTS, OBJECTS)
def test_what_is_applied_no_more_is_gone(first: Any, second: Any) -> None:
    obj, owners = apply({}, first, {}, "me")
    obj, owners = apply(obj, second, owners, "me")
    assert not differs(obj, second)


@LAW
@given(OBJECTS, OBJECTS)
def test_two_who_apply_other_fields_do_not_mind_the_order(one: Any, other: Any) -> None:
    mine, theirs = typed_values.field_set(one, SHAPE), typed_values.field_set(other, SHAPE)
    if _overlap(mine, theirs):
        return
    obj, owners = apply({}, one, {}, "one", force=False)
    first, after = apply(obj, other, owners, "other", force=False)
    obj, owners = apply({}, other, {}, "other", force=False)
    second, again = apply(obj, one, owners, "one", force=False)
    assert not differs(first, second)
    assert {m: canonical(o.fields) for m, o in after.items()} == {
        m: canonical(o.fields) for m, o in again.items()
    }


def _overlap(one: field_sets.FieldSet, other: field_sets.FieldSet) -> bool:
    """Whether a field of ``one`` is in ``other`` or below one of its fields."""
    mine, theirs = set(field_sets.paths(one)), set(field_sets.paths(other))
    return any(
        longer[: len(shorter)] == shorter
        for a, b in ((mine, theirs), (theirs, mine))
        for shorter in a
        for longer in b
    )


@LAW
@given(OBJECTS, OBJECTS)
def test_an_update_owns_what_it_changes_and_nobody_else_does(old: Any, new: Any) -> None:
    owners = update({}, old, {}, "first")
    after = update(old, new, owners, "second")
    changed = typed_values.compare(old, new, SHAPE)
    mine = after.get(Manager("second", "Update", "v1"))
    assert same(mine.fields if mine else {}, changed.changed)
    theirs = after.get(Manager("first", "Update", "v1"))
    if theirs:
        assert field_sets.intersection(theirs.fields, changed.changed) == {}
        assert field_sets.intersection(theirs.fields, changed.removed) == {}


@LAW
@given(OBJECTS, OBJECTS)
def test_a_conflict_names_what_is_owned_and_differs(live: Any, config: Any) -> None:
    owners = update({}, live, {}, "them")
    try:
        apply(live, config, owners, "me", force=False)
    except ownership.OwnershipConflict as error:
        merged = merging.merge(live, config, SHAPE)
        changed = typed_values.compare(live, merged, SHAPE).changed
        for fields in error.fields.values():
            assert fields
            assert field_sets.difference(fields, changed) == {}
    forced, after = apply(live, config, owners, "me")
    assert not differs(forced, merging.merge(live, config, SHAPE))
    assert (Manager("me", "Apply") in after) == bool(typed_values.field_set(config, SHAPE))


# -- owners that name their fields in another version --------------------------------------

_MARKED = {"type": "object", "properties": {"a": TEXT, "b": TEXT}}
_SPECS: dict[str, Any] = {
    "old": {"title": TEXT, "count": NUMBER, "mark": _MARKED},
    "new": {"text": TEXT, "count": NUMBER, "mark": _MARKED},
}
_OTHER_SHAPES: dict[str, Shape] = {
    version: ShapeBuilder().custom(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    )
    for version, spec in _SPECS.items()
}


class Waiting:
    """An awaitable that is not done at once."""

    def __await__(self) -> Generator[None]:
        yield


async def renamed(typed: TypedObject, version: str) -> TypedObject | None:
    """The title of the old version is the text of the new; other versions are gone."""
    await Waiting()
    if version not in _SPECS:
        return None
    value = dict(typed.value or {})
    # An empty spec stays: who applied it owns it in each version.
    if value.get("spec"):
        spec = value["spec"] = dict(value["spec"])
        for name in ("title", "text"):
            if name in spec:
                text = spec.pop(name)
                spec["title" if version == "old" else "text"] = text
    return TypedObject(value, _OTHER_SHAPES[version], version)


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for conversions."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value


def applied_in(version: str, live: Any, spec: Any, owners: Owners, who: str, *, force: bool) -> Any:
    """``live``, kept as the new version, after ``who`` applies ``spec`` in ``version``."""

    async def work() -> Any:
        stored = TypedObject(live, _OTHER_SHAPES["new"], "new")
        before = await renamed(stored, version)
        assert before is not None
        config = TypedObject({"spec": spec}, _OTHER_SHAPES[version], version)
        me = Manager(who, "Apply")
        merged, after = await ownership.apply(
            before, config, dict(owners), me, {}, renamed, force=force
        )
        shown = await renamed(merged, "new")
        assert shown is not None
        return shown.value, after

    return finished(work())


def test_a_field_stays_when_its_owner_applies_again_in_another_version() -> None:
    obj, owners = applied_in("old", {}, {"title": "a", "count": 1}, {}, "me", force=False)
    obj, owners = applied_in("new", obj, {"mark": {"a": "a"}}, owners, "them", force=False)
    obj, owners = applied_in("old", obj, {"title": "b"}, owners, "me", force=False)
    assert obj == {"spec": {"text": "b", "mark": {"a": "a"}}}
    assert owners[Manager("me", "Apply")].fields == {"f:spec": {"f:title": {}}}


def test_a_conflict_is_found_under_the_name_of_the_owners_version() -> None:
    obj, owners = applied_in("old", {}, {"title": "a"}, {}, "me", force=False)
    with pytest.raises(ownership.OwnershipConflict) as refused:
        applied_in("new", obj, {"text": "b"}, owners, "them", force=False)
    assert refused.value.fields == {Manager("me", "Apply"): {"f:spec": {"f:title": {}}}}
    _, owners = applied_in("new", obj, {"text": "b"}, owners, "them", force=True)
    assert Manager("me", "Apply") not in owners


@LAW
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["old", "new"]),
            st.sampled_from(["me", "them"]),
            st.none() | LETTERS,
            st.none() | st.integers(0, 2),
            st.dictionaries(st.sampled_from("ab"), LETTERS, max_size=2),
        ),
        max_size=5,
    )
)
def test_the_version_of_an_apply_makes_no_difference(steps: list[Any]) -> None:
    def run(version_of: Callable[[str], str]) -> Any:
        obj: Any = {}
        owners: Owners = {}
        for asked, who, text, count, mark in steps:
            version = version_of(asked)
            spec = {"title" if version == "old" else "text": text, "count": count, "mark": mark}
            spec = {name: value for name, value in spec.items() if value not in (None, {})}
            obj, owners = applied_in(version, obj, spec, owners, who, force=True)
        return (obj.get("spec") or {}), {
            manager: canonical(_in_new_names(owner.fields)) for manager, owner in owners.items()
        }

    assert run(lambda asked: asked) == run(lambda _: "new")


def _in_new_names(fields: Any) -> Any:
    spec = dict(fields.get("f:spec", {}))
    if "f:title" in spec:
        spec["f:text"] = spec.pop("f:title")
    return {"f:spec": spec}


def test_fields_of_what_became_atomic_are_owned_as_a_whole() -> None:
    fields = {"f:spec": {"f:mark": {"f:a": {}}, "f:order": {'v:"a"': {}}, "f:size": {}}}
    assert ownership.reconcile(fields, SHAPE) == {
        "f:spec": {"f:mark": {}, "f:order": {}, "f:size": {}}
    }
    kept = {"f:spec": {"f:labels": {"f:a": {}}, "f:free": {"f:a": {"f:b": {}}}}}
    assert ownership.reconcile(kept, SHAPE) is kept
