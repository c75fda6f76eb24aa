"""What a version cannot hold goes into an annotation and comes back, also after other changes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from appsdk_operator.resource import (
    ConversionError,
    Kind,
    MutableObject,
    Object,
    Versions,
    convert_parts,
)
from tests.resource.version_kinds import (
    GROUP,
    V1,
    V2,
    AlphaSpec,
    Range,
    Spec,
    V1Alpha1,
    down,
    up,
    widget,
    widgets,
)

NAME = "example.com/conversion-v1alpha1"
HUB = Kind(group=GROUP, version="v2", kind="Widget")
OLD = Kind(group=GROUP, version="v1", kind="Widget")


def pick(names: str) -> Any:
    """A function that keeps some fields of a spec."""

    def convert(old: Object, new: MutableObject) -> None:
        spec = old.get("spec")
        if spec is not None:
            new["spec"] = {name: spec[name] for name in names if name in spec}

    return convert


def lossy(up: str = "ab", down: str = "ab", **options: Any) -> Versions:
    """Plain versions of which each holds some fields alone: the hub a, b, c; the old a, b, d."""
    return Versions(HUB).older(OLD, up=pick(up), down=pick(down), lossless=True, **options)


def edited(obj: Object, **spec: Any) -> Object:
    """The object after a client has changed its spec; None removes a field."""
    draft = obj.mutable_copy()
    draft["spec"] = {k: v for k, v in {**draft["spec"], **spec}.items() if v is not None}
    return draft.freeze()


def in_former_format(obj: Object, name: str, spec: dict[str, Any]) -> Object:
    """The object with the annotation of former releases, if it has one: the whole spec."""
    if name not in obj.annotations:
        return obj
    draft = obj.mutable_copy()
    version = json.loads(obj.annotations[name])["from"]
    draft.annotations[name] = json.dumps({"apiVersion": version, "spec": spec})
    return draft.freeze()


def test_what_an_older_version_cannot_hold_comes_back() -> None:
    hub = widget(V1, {"size": 3, "range": {"low": 1, "high": 2}, "note": "keep me"})
    old = widgets().convert(hub, V1Alpha1)
    assert old.spec == AlphaSpec("3", "1-2")
    assert json.loads(old.annotations[NAME]) == {
        "from": "example.com/v1",
        "lost": {"spec": {"note": "keep me"}},
        "instead": {"spec": {"note": ""}},
    }
    assert widgets().convert(old, V1) == hub


def test_an_object_that_loses_nothing_has_no_annotation() -> None:
    for spec in ({"size": 3, "range": {"low": 1, "high": 2}, "note": ""}, {"size": 1}, {}):
        old = widgets().convert(widget(V1, spec, annotations={"a": "b"}), V1Alpha1)
        assert old.annotations == {"a": "b"}, "defaults that are written out are no loss"


class Sparse(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Leaves its defaults out when it is written."""

    free_text: str = "none"
    labels: dict[str, str] = {}
    anything: Any = 5
    nested: Sparse | None = None
    items: list[Sparse] = []


DENSE_OLD, DENSE_HUB = OLD.typed(spec=Sparse), HUB.typed(spec=Sparse)
SPARSE = Versions(DENSE_HUB).older(
    DENSE_OLD,
    up=convert_parts(spec=lambda spec: spec),
    down=convert_parts(spec=lambda spec: spec),
    lossless=True,
)


def test_defaults_that_the_type_leaves_out_are_no_loss() -> None:
    filled = {"freeText": "none", "labels": {}}
    spec = {**filled, "nested": {**filled, "nested": None}, "items": [filled, {}, filled]}
    assert SPARSE.convert(widget(DENSE_HUB, spec), DENSE_OLD).annotations == {}


@pytest.mark.parametrize(
    "unknown",
    [
        {"free_text": "none"},
        {"labels": {"": ""}, "label": {}},
        {"nested": {"unknown": {}}},
        {"items": [{}, {"unknown": None}]},
        # A type that takes everything is not asked what it would not take.
        {"anything": 5},
    ],
)
def test_what_looks_like_a_default_and_is_not_known_to_the_type_comes_back(unknown: Any) -> None:
    hub = widget(DENSE_HUB, {"freeText": "none", **unknown})
    old = SPARSE.convert(hub, DENSE_OLD)
    assert len(old.annotations) == 1
    assert SPARSE.convert(old, DENSE_HUB)["spec"] == hub["spec"]


def test_without_it_what_is_lost_is_lost() -> None:
    hub = widget(V1, {"size": 3, "note": "keep me"})
    versions = widgets(lossless=False)
    old = versions.convert(hub, V1Alpha1)
    assert not old.annotations
    assert versions.convert(old, V1).spec == Spec(size=3)


def test_a_change_by_a_client_of_the_older_version_wins() -> None:
    hub = widget(V1, {"size": 3, "range": {"low": 1, "high": 2}, "note": "keep me"})
    old = widgets().convert(hub, V1Alpha1).mutable_copy()
    old.spec = AlphaSpec("4", "1-9")
    again = widgets().convert(old.freeze(), V1)
    assert again.spec == Spec(size=4, range=Range(1, 9), note="keep me")
    assert not again.annotations
    assert widgets().convert(again, V1Alpha1).spec == AlphaSpec("4", "1-9")


def test_fields_that_the_type_does_not_know_come_back_too() -> None:
    hub = widget(V1, {"size": 3, "unknown": {"a": [1]}})
    old = widgets().convert(hub, V1Alpha1)
    assert NAME in old.annotations
    assert widgets().convert(old, V1)["spec"]["unknown"] == {"a": [1]}


def test_items_of_lists_find_their_own() -> None:
    """A list in the hub has more fields in each item than the older version."""

    def names(old: Object, new: MutableObject) -> None:
        new["spec"] = {"ports": [{"name": port["name"]} for port in old["spec"]["ports"]]}

    versions = Versions(HUB).older(OLD, up=names, down=names, lossless=True)
    hub = widget(HUB, {"ports": [{"name": "a", "number": 1}, {"name": "b", "number": 2}]})
    old = versions.convert(hub, OLD)
    moved = edited(old, ports=[{"name": "b"}, {"name": "c"}])
    again = versions.convert(moved, HUB)
    assert again["spec"] == {"ports": [{"name": "b", "number": 2}, {"name": "c"}]}


def test_both_versions_may_have_fields_of_their_own() -> None:
    versions = lossy()
    hub = widget(HUB, {"a": 1, "b": 2, "c": 3})
    old = edited(versions.convert(hub, OLD), d=4, a=5)
    again = versions.convert(old, HUB)
    assert again["spec"] == {"a": 5, "b": 2, "c": 3}
    last = versions.convert(edited(again, b=None, c=6), OLD)
    assert last["spec"] == {"a": 5, "d": 4}
    assert versions.convert(last, HUB)["spec"] == {"a": 5, "c": 6}
    assert versions.convert(versions.convert(last, HUB), OLD) == last


def test_a_whole_part_can_be_missing_in_the_older_version() -> None:
    def without_status(old: Object, new: MutableObject) -> None:
        new.pop("status", None)

    def same(old: Object, new: MutableObject) -> None: ...

    versions = Versions(HUB).older(OLD, up=same, down=without_status, lossless=True)
    hub = Object.from_dict(
        HUB, {"metadata": {"name": "a"}, "spec": {"a": 1}, "status": {"ready": True}}
    )
    old = versions.convert(hub, OLD)
    assert json.loads(old.annotations[NAME.replace("v1alpha1", "v1")]) == {
        "from": "example.com/v2",
        "lost": {"status": {"ready": True}},
    }
    changed = versions.convert(edited(old, a=2), HUB).to_dict()
    assert (changed["spec"], changed["status"]) == ({"a": 2}, {"ready": True})

    def with_status(old: Object, new: MutableObject) -> None:
        new["status"] = {"phase": "New"}

    versions = Versions(HUB).older(OLD, up=same, down=with_status, lossless=True)
    bare = widget(HUB, {"a": 1})
    assert versions.convert(versions.convert(bare, OLD), HUB) == bare


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '"text"',
        "{}",
        '{"apiVersion": 3}',
        '{"apiVersion": "example.com/v9", "spec": {}}',
        '{"apiVersion": "example.com/v1alpha1", "spec": {"size": "9"}}',
        '{"apiVersion": "example.com/v1", "spec": {"size": "no number"}}',
        '{"apiVersion": "example.com/v1", "spec": 5}',
        '{"apiVersion": "example.com/v1", "spec": {"range": null, "size": [1]}}',
        '{"from": "example.com/v1"}',
        '{"from": "example.com/v1", "lost": []}',
        '{"from": "example.com/v1", "lost": {"spec": 5}}',
        '{"from": "example.com/v1", "lost": {"spec": {"size": 9}}, "instead": 5}',
        '{"from": "example.com/v1", "lost": {"spec": {"size": 9}}, "instead": {"spec": 5}}',
        '{"from": "example.com/v1", "lost": {"spec": {"range": 5}}, "instead": {"spec": {}}}',
        '{"from": "example.com/v9", "lost": {"spec": {"note": "a"}}}',
        '{"from": "example.com/v1", "lost": {"metadata": {"name": "b"}, "kind": "Other"}}',
        '{"apiVersion": "example.com/v1", "spec": ' + '{"a":' * 5000 + "1" + "}" * 5001,
    ],
)
def test_an_annotation_of_somebody_else_is_taken_off(text: str) -> None:
    old = widget(V1Alpha1, {"size": "3"}, annotations={NAME: text, "a": "b"})
    made = widgets().convert(old, V1)
    assert made.spec == Spec(size=3)
    assert made.annotations == {"a": "b"}


def test_an_annotation_that_does_not_fit_the_types_is_taken_off() -> None:
    """Its functions read one field of it only."""

    def same(old: Object, new: MutableObject) -> None:
        new["spec"] = {"size": old["spec"]["size"]}

    plain = Kind(group=GROUP, version="v1alpha1", kind="Widget")
    versions = Versions(V1).older(plain, up=same, down=same, lossless=True)
    text = '{"apiVersion": "example.com/v1", "spec": {"size": 3, "note": 5}}'
    old = widget(plain, {"size": 3}, annotations={NAME: text})
    assert versions.convert(old, V1).spec == Spec(size=3)
    old = widget(plain, {"size": 3}, annotations={NAME: text.replace("5", '"fine"')})
    assert versions.convert(old, V1).spec == Spec(size=3, note="fine")


odd_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["spec", "size", "note", "status"]), inner, max_size=3)
    ),
    max_leaves=5,
)
odd_sizes = st.sampled_from(["x", "", "7", 7, None, [], {}, 1.5, True])
odd_annotations = (
    st.text(st.characters(codec="utf-8"), max_size=20)
    | odd_values.map(json.dumps)
    | st.fixed_dictionaries(
        {
            "from": st.sampled_from([HUB.api_version, OLD.api_version, f"{GROUP}/v0", 7]),
            "lost": odd_values | st.fixed_dictionaries({"spec": odd_values}),
        },
        optional={"instead": odd_values, "spec": odd_values},
    ).map(json.dumps)
)


@given(
    text=odd_annotations | odd_sizes,
    target=st.sampled_from([HUB, OLD]),
    version=st.sampled_from([HUB, OLD]),
    size=st.integers(0, 3),
)
def test_whatever_the_annotation_says_the_object_is_converted(
    text: Any, target: Kind, version: Kind, size: int
) -> None:
    """Whoever may write an object may write its annotations, and must not break lists of it."""

    def sized(function: Any) -> Any:
        return convert_parts(spec=lambda spec: {**spec, "size": function(spec["size"])})

    versions = Versions(HUB).older(OLD, up=sized(int), down=sized(str), lossless=True)
    source = OLD if target is HUB else HUB
    spec = {"size": size if source is HUB else str(size)}
    plain = versions.convert(widget(source, spec), target)
    try:
        json.loads(text)
    except (TypeError, ValueError):
        # One that counts, because it says of the object what is so.
        lost = {"from": version.api_version, "lost": {"spec": {"size": text}}}
        text = json.dumps({**lost, "instead": {"spec": plain["spec"]}})
    annotations = dict.fromkeys([NAME.replace("v1alpha1", v) for v in ("v1", "v2")], text)
    made = versions.convert(widget(source, spec, annotations=annotations), target)
    assert set(made["spec"]) >= {"size"}


def test_a_number_is_no_boolean() -> None:
    def number(old: Object, new: MutableObject) -> None:
        new["spec"] = {"on": int(old["spec"]["on"])}

    def same(old: Object, new: MutableObject) -> None: ...

    versions = Versions(HUB).older(OLD, up=same, down=number, lossless=True)
    old = versions.convert(widget(HUB, {"on": True}), OLD)
    assert old["spec"] == {"on": 1}
    assert versions.convert(old, HUB)["spec"]["on"] is True


def test_functions_do_not_see_the_annotation() -> None:
    seen = []

    def look(old: Object, new: MutableObject) -> None:
        seen.extend([*old.annotations, *new.annotations])
        up(old, new)

    versions = Versions(V1).older(V1Alpha1, up=look, down=down, lossless=True)
    old = versions.convert(widget(V1, {"note": "a"}, annotations={"a": "b"}), V1Alpha1)
    versions.convert(old, V1)
    assert set(seen) == {"a"}


def test_the_annotation_has_a_name_of_choice() -> None:
    old = widgets(lossless="other.io/rest").convert(widget(V1, {"note": "a"}), V1Alpha1)
    assert list(old.annotations) == ["other.io/rest"]


def test_an_annotation_that_is_too_large_is_refused() -> None:
    hub = widget(V1, {"note": "x" * 262_144})
    with pytest.raises(ConversionError, match=r"cannot hold has 262\d+ .* accept 262144"):
        widgets().convert(hub, V1Alpha1)


@pytest.mark.parametrize("is_former", [False, True])
def test_an_annotation_survives_another_hub(is_former: bool) -> None:
    """v1 was the hub when the annotation was written; now v2 is, and v1 is a spoke."""
    old = widgets().convert(widget(V1, {"size": 3, "note": "keep me"}), V1Alpha1)
    if is_former:
        old = in_former_format(old, NAME, {"size": 3, "note": "keep me"})

    def straight(old: Object, new: MutableObject) -> None:
        new["spec"] = {"width": int(old.spec.size)}

    def back(old: Object, new: MutableObject[AlphaSpec]) -> None:
        new.spec = AlphaSpec(size=str(old["spec"].get("width", 1)))

    def v1_up(old: Object, new: MutableObject) -> None:
        new["spec"] = {"width": old["spec"]["size"], "note": old["spec"].get("note", "")}

    def v1_down(old: Object, new: MutableObject) -> None:
        new["spec"] = {"size": old["spec"]["width"], "note": old["spec"].get("note", "")}

    later = (
        Versions(V2)
        .older(V1Alpha1, up=straight, down=back, lossless=True)
        .older(V1, up=v1_up, down=v1_down)
    )
    made = later.convert(old, V2)
    assert made["spec"] == {"width": 3, "note": "keep me"}
    assert not made.annotations


def test_a_function_that_refuses_the_way_back_keeps_everything() -> None:
    def refuse(old: Object, new: MutableObject) -> None:
        raise ConversionError("v1 has no such widgets")

    versions = Versions(HUB).older(OLD, up=pick("a"), down=refuse, lossless=True)
    made = versions.convert(widget(OLD, {"a": 1, "b": 2}), HUB)
    assert json.loads(made.annotations["example.com/conversion-v1"])["spec"] == {"a": 1, "b": 2}


def test_spokes_keep_their_annotations_apart() -> None:
    other = Kind(group=GROUP, version="v1beta1", kind="Widget")
    versions = lossy().older(other, up=pick("a"), down=pick("a"), lossless=True)
    old = widget(OLD, {"a": 1, "b": 2, "d": 4})
    there = versions.convert(old, other)
    assert there["spec"] == {"a": 1}
    assert len(there.annotations) == 2
    assert versions.convert(there, OLD) == old
    changed = versions.convert(edited(there, a=9), OLD)
    assert changed["spec"] == {"a": 9, "b": 2, "d": 4}


def test_the_annotation_has_the_lost_fields_alone_at_any_depth() -> None:
    def without(old: Object, new: MutableObject) -> None:
        new["spec"]["template"].pop("secret", None)

    def same(old: Object, new: MutableObject) -> None:
        new["spec"]["template"].setdefault("mode", "auto")

    versions = Versions(HUB).older(OLD, up=same, down=without, lossless=True)
    spec = {"image": "a" * 999, "template": {"secret": {"key": 1}, "ports": [1, 2]}}
    old = versions.convert(widget(HUB, spec), OLD)
    assert json.loads(old.annotations["example.com/conversion-v1"]) == {
        "from": "example.com/v2",
        "lost": {"spec": {"template": {"secret": {"key": 1}}}},
        "instead": {"spec": {"template": {"mode": "auto"}}},
    }
    assert versions.convert(old, HUB)["spec"] == spec
    draft = old.mutable_copy()
    draft["spec"]["template"] = {"mode": "manual", "ports": [3]}
    again = versions.convert(draft.freeze(), HUB)
    assert again["spec"]["template"] == {"mode": "manual", "ports": [3], "secret": {"key": 1}}
    draft["spec"]["template"] = {}
    again = versions.convert(draft.freeze(), HUB)
    assert again["spec"] == {"image": "a" * 999, "template": {"secret": {"key": 1}}}


def test_lists_that_would_be_long_twice_are_there_once() -> None:
    def numbers(old: Object, new: MutableObject) -> None:
        new["spec"] = {"ports": [{"name": port["name"]} for port in old["spec"]["ports"]]}

    versions = Versions(HUB).older(OLD, up=numbers, down=numbers, lossless=True)
    ports = [{"name": f"{'p' * 40}{number}", "number": number} for number in range(2800)]
    old = versions.convert(widget(HUB, {"ports": ports}), OLD)
    assert "apiVersion" in json.loads(old.annotations["example.com/conversion-v1"])
    assert versions.convert(old, HUB)["spec"] == {"ports": ports}


def test_a_part_that_was_removed_meanwhile_stays_away() -> None:
    versions = lossy()
    old = versions.convert(widget(HUB, {"a": 1, "c": 3}), OLD).mutable_copy()
    del old["spec"]
    assert "spec" not in versions.convert(old.freeze(), HUB)


@pytest.mark.parametrize(
    ("lost", "instead", "size", "note"),
    [
        ({"note": "kept"}, {"note": ""}, 3, "kept"),
        ({"note": "kept"}, {"note": "other"}, 3, ""),
        ({"note": "kept", "size": 9}, {"note": "", "size": 3}, 3, ""),
        ({"size": 9}, {"size": 3}, 3, ""),
        ({"size": 9}, {}, 3, ""),
        ({"size": 9}, {"size": 8}, 3, ""),
    ],
)
def test_an_annotation_that_disagrees_with_the_object_loses(
    lost: dict[str, Any], instead: dict[str, Any], size: int, note: str
) -> None:
    """Somebody has edited it."""
    text = {"from": "example.com/v1", "lost": {"spec": lost}, "instead": {"spec": instead}}
    old = widget(V1Alpha1, {"size": "3"}, annotations={NAME: json.dumps(text)})
    made = widgets().convert(old, V1)
    assert made.spec == Spec(size=size, note=note)
    assert not made.annotations


specs = st.dictionaries(
    st.sampled_from("abcdx"),
    st.recursive(
        st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["name", "n"]), inner, max_size=2)
        ),
        max_leaves=4,
    ),
)
subsets = st.sampled_from(["", "a", "ab", "abc", "abd", "abcdx"])


@given(spec=specs, up=subsets, down=subsets)
def test_every_round_trip_gives_the_same(spec: dict[str, Any], up: str, down: str) -> None:
    versions = lossy(up, down)
    for one, other in ((HUB, OLD), (OLD, HUB)):
        obj = widget(one, spec, labels={"a": "b"}, annotations={"c": "d"})
        there = versions.convert(obj, other)
        assert versions.convert(there, one) == obj
        again = versions.convert(versions.convert(there, one), other)
        assert again == there, "and again"


@given(spec=specs, change=specs, down=subsets)
def test_what_an_older_client_writes_is_what_it_reads(
    spec: dict[str, Any], change: dict[str, Any], down: str
) -> None:
    """The hub holds all that the older version does, which is changed in between."""
    change = {name: value for name, value in change.items() if name in down}
    versions = lossy("abcdx", down)
    old = versions.convert(widget(HUB, spec), OLD).mutable_copy()
    old["spec"] = change
    hub = versions.convert(old.freeze(), HUB)
    assert versions.convert(hub, OLD)["spec"] == change
    if not _has_none(spec) and not _has_none(change):
        kept = {name: value for name, value in spec.items() if name not in down}
        assert {k: v for k, v in hub["spec"].items() if k not in down} == kept


@given(spec=specs, change=specs, down=subsets)
def test_an_annotation_has_what_the_older_version_lacks_and_nothing_else(
    spec: dict[str, Any], change: dict[str, Any], down: str
) -> None:
    """And the annotation of former releases, with the whole spec, gives the same object."""
    versions = lossy("abcdx", down)
    name = "example.com/conversion-v1"
    old = versions.convert(widget(HUB, spec), OLD)
    lost = {field: value for field, value in spec.items() if field not in down}
    found = json.loads(old.annotations.get(name, "null"))
    if lost:
        assert found["lost"] == {"spec": lost}
    assert (found is None) == (not lost)
    for fields in (None, change):
        draft = old.mutable_copy()
        if fields is not None:
            draft["spec"] = {field: value for field, value in fields.items() if field in down}
        new = draft.freeze()
        one = versions.convert(new, HUB)
        # With the former one, a client's 1 in place of a true was no change.
        if "true" not in json.dumps(fields) and "false" not in json.dumps(fields):
            assert one == versions.convert(in_former_format(new, name, spec), HUB)


def _has_none(value: Any) -> bool:
    return "null" in json.dumps(value)


digits = st.integers(0, 9)


@given(size=digits, low=digits, note=st.text("ab", max_size=2), to=digits)
def test_typed_versions_keep_what_is_lost(size: int, low: int, note: str, to: int) -> None:
    hub = widget(V1, {"size": size, "range": {"low": low, "high": 9}, "note": note})
    old = widgets().convert(hub, V1Alpha1)
    assert (NAME in old.annotations) == bool(note)
    assert widgets().convert(old, V1) == hub
    assume(size != to)
    draft = old.mutable_copy()
    draft.spec = AlphaSpec(size=str(to), range=f"{low}-9")
    assert widgets().convert(draft.freeze(), V1).spec == Spec(to, Range(low, 9), note)
