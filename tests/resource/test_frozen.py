"""What is read of an object is frozen to its depths, however one gets there."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import attrs
import msgspec
import pytest

from appsdk_operator.resource import Kind, MutableObject, ReadOnlyError
from appsdk_operator.resource._json.frozen import FrozenDict, FrozenList, explain_frozen, freeze

DATA = {"a": {"b": {"c": 1}}, "l": [{"d": [2]}, [3]], "s": "x"}


@pytest.fixture
def frozen():
    return freeze(copy.deepcopy(DATA))


def given(**names):
    return names


WAYS_INTO_DICTS = {
    "by key": lambda d: d["a"],
    "by get": lambda d: d.get("a"),
    "by values": lambda d: next(iter(d.values())),
    "by items": lambda d: dict(d.items())["a"],
    "by dict()": lambda d: dict(d)["a"],
    "by **": lambda d: {**d}["a"],
    "by update": lambda d: (n := {}, n.update(d))[0]["a"],
    "by |": lambda d: (d | {})["a"],
    "by | from the right": lambda d: ({} | d)["a"],
    "by a call": lambda d: given(**d)["a"],
}


@pytest.mark.parametrize("way", WAYS_INTO_DICTS.values(), ids=WAYS_INTO_DICTS)
def test_whoever_finds_a_dict_finds_it_frozen(frozen, way):
    found = way(frozen)
    assert found == DATA["a"]
    with pytest.raises(ReadOnlyError):
        found["new"] = 1
    with pytest.raises(ReadOnlyError):
        found["b"]["c"] = 2


WAYS_INTO_LISTS = {
    "by index": lambda one: one[0],
    "by slice": lambda one: one[:1][0],
    "by for": lambda one: next(iter(one)),
    "reversed": lambda one: list(reversed(one))[-1],
    "by list()": lambda one: list(one)[0],  # noqa: RUF015 - the way is what is tested
    "by tuple()": lambda one: tuple(one)[0],  # noqa: RUF015
    "by *": lambda one: [*one][0],  # noqa: RUF015
    "by +": lambda one: (one + [])[0],  # noqa: RUF005
    "by *2": lambda one: (one * 2)[2],
    "by 2*": lambda one: (2 * one)[0],
}


@pytest.mark.parametrize("way", WAYS_INTO_LISTS.values(), ids=WAYS_INTO_LISTS)
def test_whoever_finds_something_in_a_list_finds_it_frozen(frozen, way):
    found = way(frozen["l"])
    assert found == DATA["l"][0]
    with pytest.raises(ReadOnlyError):
        found["new"] = 1
    with pytest.raises(ReadOnlyError):
        found["d"].append(1)


def test_what_is_found_is_one_object_however_often_it_is_asked_for(frozen):
    assert frozen["a"] is frozen["a"] is frozen.get("a")
    assert frozen["l"][0] is frozen["l"][0]
    assert type(frozen["a"]["b"]) is FrozenDict
    assert type(frozen["l"][1]) is FrozenList
    assert frozen.get("none") is None
    assert frozen.get("none", 5) == 5


@pytest.mark.parametrize("looks", [lambda d: None, lambda d: list(d["l"]), lambda d: d.items()])
def test_it_equals_encodes_copies_and_prints_like_what_it_is_made_of(frozen, looks):
    looks(frozen)
    assert frozen == DATA
    assert json.loads(json.dumps(frozen)) == DATA
    assert msgspec.json.decode(msgspec.json.encode(frozen)) == DATA
    assert repr(frozen) == repr(DATA)
    for made in (frozen.copy(), copy.copy(frozen), copy.deepcopy(frozen)):
        assert made == DATA
        made["a"]["b"]["c"] = 5
        made["l"][0]["d"].append(3)
        assert frozen == DATA
    again = pickle.loads(pickle.dumps(frozen))
    with pytest.raises(ReadOnlyError):
        again["a"]["b"]["c"] = 5


def test_an_item_is_read_without_a_look_at_its_neighbours(frozen):
    items = frozen["l"]
    assert items[0]["d"] == [2]
    assert items[-2] is items[0]
    assert type(next(list.__reversed__(items))) is list, "the other one is as it was"


def test_a_pattern_matches_it(frozen):
    match frozen:
        case {"a": {"b": {"c": number}}, "l": [{"d": [*_]}, [other]]}:
            assert (number, other) == (1, 3)
        case _:
            raise AssertionError(frozen)


@attrs.frozen
class AttrsSpec:
    n: int = 1


@dataclasses.dataclass(frozen=True)
class DataclassSpec:
    n: int = 1


class StructSpec(msgspec.Struct, frozen=True):
    n: int = 1


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        (AttrsSpec, "AttrsSpec is frozen.*attrs.evolve(draft.spec, n=…)"),
        (DataclassSpec, "DataclassSpec is frozen.*dataclasses.replace(draft.spec, n=…)"),
        (StructSpec, "is frozen.*msgspec.structs.replace(draft.spec, field=…)"),
    ],
)
def test_who_changes_a_frozen_spec_is_told_how(spec, remedy):
    draft = MutableObject(Kind(group="e.com", version="v1", kind="W", spec=spec), {"spec": {}})
    with pytest.raises(AttributeError) as caught:
        draft.spec.n = 5
    explain_frozen(caught.value)
    explain_frozen(caught.value)
    (note,) = caught.value.__notes__
    first, last = remedy.split(".*")
    assert first in note
    assert last in note


@pytest.mark.parametrize("error", [AttributeError("no"), ValueError("FrozenInstanceError")])
def test_other_errors_are_left_alone(error):
    explain_frozen(error)
    assert not hasattr(error, "__notes__")
