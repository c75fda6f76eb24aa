"""Changeable objects, and typed specs that are assigned back without a loss."""

from __future__ import annotations

import copy
import datetime as dt
from typing import Any

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from appsdk_operator.resource import (
    DecodeError,
    EncodeError,
    Kind,
    MutableObject,
    Object,
    ObjectKey,
)
from tests.hypothesis_profiles import scaled

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


@attrs.frozen
class Port:
    port: int
    name: str | None = None
    protocol: str = "TCP"


@attrs.frozen
class Spec:
    replicas: int = 1
    paused: bool | None = None
    ports: list[Port] = attrs.Factory(list)
    main: Port | None = None
    extra: dict[str, Any] = attrs.Factory(dict)
    tags: tuple[str, ...] = ()


class Sparse(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    max_replicas: int = 1
    ports: tuple[Port, ...] = ()


TYPED = WIDGET.typed(spec=Spec, status=Spec)


def draft(spec: Any, kind: Kind = TYPED) -> MutableObject:
    return Object.from_dict(kind, {"metadata": {"name": "w"}, "spec": spec}).mutable_copy()


# Metadata and the mapping


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("labels", "labels"),
        ("annotations", "annotations"),
        ("finalizers", "finalizers"),
        ("owner_references", "ownerReferences"),
        ("generateName", "generateName"),
    ],
)
def test_what_belongs_into_the_metadata_is_refused_beside_it(field: str, place: str) -> None:
    with pytest.raises(TypeError, match=f"{field}=… .* metadata={{'{place}': …}}"):
        MutableObject.new(WIDGET, "w", namespace="", **{field: ""})


def test_metadata_can_be_given_besides_name_and_namespace() -> None:
    given = {"name": "other", "labels": {"app": "web"}}
    obj = MutableObject.new(WIDGET, "w", namespace="ns", metadata=given)
    assert obj.metadata == {"name": "w", "namespace": "ns", "labels": {"app": "web"}}
    obj.labels["app"] = "mine"
    assert given["labels"] == {"app": "web"}


@pytest.mark.parametrize("kind", ["Widget", Spec, {"password": "hunter2"}])
def test_an_object_of_what_is_no_kind_is_refused(kind: Any) -> None:
    makers: list[Any] = [MutableObject.new, MutableObject, Object.from_dict]
    for make in makers:
        with pytest.raises(TypeError, match=r"is not a Kind.*kinds\.core\.v1") as caught:
            make(kind, {"metadata": {"name": "w"}})
        assert "hunter2" not in str(caught.value)


def test_a_new_object_has_type_metadata_and_fields() -> None:
    obj = MutableObject.new(WIDGET, "w", namespace="ns", spec=Spec(2), data={"a": None})
    assert obj.data == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"replicas": 2, "ports": [], "extra": {}, "tags": []},
        "data": {"a": None},
    }
    assert MutableObject.new(WIDGET).data["metadata"] == {}


def test_the_name_of_a_new_object_may_be_given_by_its_keyword() -> None:
    named = MutableObject.new(WIDGET, name="web", namespace="default")
    assert named == MutableObject.new(WIDGET, "web", namespace="default")
    assert "name" not in named.data


def test_fields_of_a_new_object_must_be_json() -> None:
    with pytest.raises(EncodeError, match=r"\$\.spec\.a\[0\] cannot be written as JSON"):
        MutableObject.new(WIDGET, "w", spec={"a": [object()]})


def test_typed_values_within_plain_ones_become_plain() -> None:
    obj = MutableObject.new(WIDGET, "w", spec={"ports": [Port(80)], "at": dt.date(2024, 5, 1)})
    assert obj["spec"] == {"ports": [{"port": 80, "protocol": "TCP"}], "at": "2024-05-01"}
    assert "at: '2024-05-01'" in obj.to_yaml()


def test_a_copy_of_an_object_is_apart_from_it() -> None:
    obj = Object.from_dict(WIDGET, {"metadata": {"name": "w"}, "spec": {"a": [1]}})
    one, other = obj.mutable_copy(), obj.mutable_copy()
    one.spec["a"].append(2)
    one.labels["x"] = "y"
    assert (obj.spec, other.spec) == ({"a": [1]}, {"a": [1]})
    assert one.freeze().spec == {"a": [1, 2]}
    plain = other.to_dict()
    plain["spec"]["a"].append(3)
    assert other.spec == {"a": [1]}
    deep = copy.deepcopy(other)
    deep.spec["a"].clear()
    assert other.spec == {"a": [1]}
    assert deep.kind == other.kind


def test_reading_the_name_adds_nothing() -> None:
    obj = MutableObject(WIDGET, {"metadata": None})
    assert (obj.key, obj.resource_version) == (ObjectKey("", ""), "")
    assert obj.data == {"metadata": None}
    empty = MutableObject(WIDGET, {})
    repr(empty)
    assert empty.data == {}


def test_shortcuts_make_what_is_missing_and_change_in_place() -> None:
    obj = MutableObject(WIDGET, {"metadata": {"labels": None}})
    obj.labels["a"] = "b"
    obj.annotations["c"] = "d"
    obj.finalizers.append("e/f")
    obj.metadata["name"] = "n"
    frozen = obj.freeze()
    assert (frozen.labels, frozen.annotations, frozen.finalizers, frozen.name) == (
        {"a": "b"}, {"c": "d"}, ("e/f",), "n",
    )  # fmt: skip


def test_it_is_a_mapping() -> None:
    obj = MutableObject.new(WIDGET, "w")
    obj["data"] = {"a": "b"}
    assert dict(obj)["data"] == {"a": "b"}
    assert len(obj) == 4
    del obj["data"]
    assert "data" not in obj
    assert obj == MutableObject.new(WIDGET, "w")
    assert Object.from_dict(WIDGET, obj) == obj.freeze()


# Assigning


def test_a_null_in_a_plain_spec_stays() -> None:
    obj = draft({"a": None, "b": [None]}, WIDGET)
    obj.spec = obj.spec
    assert obj["spec"] == {"a": None, "b": [None]}


def test_an_assigned_plain_spec_is_a_copy() -> None:
    obj, spec = draft({}, WIDGET), {"a": [1]}
    obj.spec = spec
    spec["a"].append(2)
    assert obj["spec"] == {"a": [1]}


@pytest.mark.parametrize("kind", [WIDGET, TYPED])
def test_assigning_none_removes_the_field(kind: Kind) -> None:
    obj = draft({"replicas": 1}, kind)
    obj.spec = None
    obj.status = None
    assert "spec" not in obj
    assert "status" not in obj


def test_optional_fields_that_are_not_set_do_not_become_null() -> None:
    obj = MutableObject.new(TYPED, "w")
    obj.spec = Spec(main=Port(1))
    assert obj["spec"]["main"] == {"port": 1, "protocol": "TCP"}
    assert "paused" not in obj["spec"]


def test_an_unchanged_typed_spec_changes_nothing() -> None:
    spec = {"unknown": 1, "replicas": 1, "extra": {"x": None}, "paused": None, "main": {"port": 1}}
    obj = draft(spec)
    obj.spec = obj.spec
    assert obj["spec"] == spec
    assert list(obj["spec"]) == list(spec)


def test_a_change_keeps_what_the_type_does_not_know_at_every_depth() -> None:
    obj = draft({
        "unknown": {"deep": [1]},
        "main": {"port": 1, "hidden": 2},
        "extra": {"null": None, "n": 1},
    })  # fmt: skip
    spec = obj.spec
    obj.spec = attrs.evolve(
        spec, replicas=5, main=attrs.evolve(spec.main, port=9), extra={"null": None, "n": 2}
    )
    assert obj["spec"] == {
        "unknown": {"deep": [1]},
        "main": {"port": 9, "hidden": 2},
        "extra": {"null": None, "n": 2},
        "replicas": 5,
    }


def test_a_field_set_to_none_is_removed_and_a_key_of_a_map_too() -> None:
    obj = draft({"paused": True, "main": {"port": 1, "hidden": 1}, "extra": {"a": 1, "b": 2}})
    obj.spec = attrs.evolve(obj.spec, paused=None, main=None, extra={"b": 2})
    assert obj["spec"] == {"extra": {"b": 2}}


def test_a_type_that_omits_defaults_can_change_a_default_that_the_server_wrote() -> None:
    kind = WIDGET.typed(spec=Sparse)
    obj = draft({"maxReplicas": 1, "hidden": 1}, kind)
    obj.spec = msgspec.structs.replace(obj.spec, max_replicas=7)
    assert obj["spec"] == {"maxReplicas": 7, "hidden": 1}


def test_tuples_keep_unknown_fields_like_lists() -> None:
    obj = draft({"ports": [{"port": 1, "hidden": 1}]}, WIDGET.typed(spec=Sparse))
    obj.spec = msgspec.structs.replace(obj.spec, ports=(Port(2),))
    assert obj["spec"]["ports"] == [{"port": 2, "hidden": 1}]


PORTS = [
    {"name": "a", "port": 1, "hidden": "A"},
    {"name": "b", "port": 2, "hidden": "B"},
    {"name": "c", "port": 3, "hidden": "C"},
]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda a, b, c: [c, a, b], [PORTS[2], PORTS[0], PORTS[1]]),
        (lambda a, b, c: [a, c], [PORTS[0], PORTS[2]]),
        (
            lambda a, b, c: [a, attrs.evolve(b, port=9), c],
            [PORTS[0], {**PORTS[1], "port": 9}, PORTS[2]],
        ),
        (lambda a, b, c: [attrs.evolve(c, port=9), a], [{**PORTS[2], "port": 9}, PORTS[0]]),
        (
            lambda a, b, c: [Port(7, "new"), attrs.evolve(a, port=9), b, c],
            [
                {"port": 7, "name": "new", "protocol": "TCP"},
                {**PORTS[0], "port": 9},
                *PORTS[1:],
            ],
        ),
        (
            lambda a, b, c: [a, b, Port(3, "other")],
            [PORTS[0], PORTS[1], {"port": 3, "name": "other", "protocol": "TCP"}],
        ),
        (lambda a, b, c: [], []),
    ],
)  # fmt: skip
def test_named_items_of_a_list_keep_their_unknown_fields_wherever_they_go(
    change: Any, expected: Any
) -> None:
    obj = draft({"ports": PORTS})
    obj.spec = attrs.evolve(obj.spec, ports=change(*obj.spec.ports))
    assert obj["spec"]["ports"] == expected


def test_nameless_items_are_recognised_by_what_did_not_change() -> None:
    obj = draft(
        {"ports": [{"port": 1, "protocol": "UDP", "h": 1}, {"port": 2, "protocol": "SCTP", "h": 2}]}
    )
    _, second = obj.spec.ports
    obj.spec = attrs.evolve(obj.spec, ports=[attrs.evolve(second, port=9)])
    assert obj["spec"]["ports"] == [{"port": 9, "protocol": "SCTP", "h": 2}]
    obj = draft({"ports": [{"port": 1, "h": 1}, {"port": 2, "h": 2}]})
    obj.spec = attrs.evolve(obj.spec, ports=[Port(8), Port(9)])
    assert obj["spec"]["ports"] == [{"port": 8, "h": 1}, {"port": 9, "h": 2}]


@attrs.frozen
class Condition:
    type: str
    status: str


@attrs.frozen
class Status:
    conditions: tuple[Condition, ...] = ()


@given(data=st.data())
def test_conditions_keep_their_unknown_fields_wherever_they_go(data: st.DataObject) -> None:
    types = st.lists(st.sampled_from("ABCDE"), unique=True)
    stored = [{"type": t, "status": "True", "reason": f"Of{t}"} for t in data.draw(types)]
    kind = WIDGET.typed(status=Status)
    obj = Object.from_dict(kind, {"metadata": {"name": "w"}, "status": {"conditions": stored}})
    copy = obj.mutable_copy()
    wanted = [Condition(t, data.draw(st.sampled_from(["True", "False"]))) for t in data.draw(types)]
    copy.status = Status(tuple(wanted))
    assert copy.status.conditions == tuple(wanted)
    known = {one["type"] for one in stored}
    assert [one.get("reason") for one in copy["status"]["conditions"]] == [
        f"Of{one.type}" if one.type in known else None for one in wanted
    ]


def test_plain_items_of_a_list_are_just_replaced() -> None:
    obj = draft({"tags": ["a", "b", "c"]})
    obj.spec = attrs.evolve(obj.spec, tags=("c", "x", "a"))
    assert obj["spec"]["tags"] == ["c", "x", "a"]


def test_items_of_a_set_are_not_mixed_up() -> None:
    @attrs.frozen
    class Zones:
        zones: frozenset[str]

    zones = [f"zone-{n}" for n in range(20)]
    obj = draft({"zones": zones}, WIDGET.typed(spec=Zones))
    obj.spec = Zones(obj.spec.zones - {"zone-7"})
    assert sorted(obj["spec"]["zones"]) == sorted({*zones} - {"zone-7"})


def test_a_spec_that_does_not_fit_can_be_repaired_with_a_typed_one() -> None:
    obj = draft({"replicas": "many", "hidden": 1})
    with pytest.raises(DecodeError, match=r"\$\.spec\.replicas"):
        _ = obj.spec
    obj.spec = Spec(replicas=3)
    assert obj.spec.replicas == 3
    assert obj["spec"]["hidden"] == 1


def test_a_typed_value_that_is_no_json_is_refused() -> None:
    obj = draft({"replicas": 1})
    with pytest.raises(EncodeError, match=r"\$\.spec cannot be written as JSON"):
        obj.spec = Spec(extra={"x": object()})


# The property

NAMES = st.sampled_from("abcdef")
PORT_DICTS = st.builds(
    lambda port, protocol: {"port": port, **({"protocol": protocol} if protocol else {})},
    st.integers(1, 5),
    st.sampled_from([None, "TCP", "UDP"]),
)
HIDDEN = st.integers(0, 10**6)


def known_part(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: known_part(v) for k, v in value.items() if not k.startswith("hidden")}
    if isinstance(value, list):
        return [known_part(item) for item in value]
    return value


@settings(max_examples=scaled(300), deadline=None)
@given(data=st.data())
def test_assigning_a_typed_spec_loses_no_unknown_field_and_no_change(data: st.DataObject) -> None:
    names = data.draw(st.lists(NAMES, unique=True, max_size=5))
    ports: list[dict[str, Any]] = [
        {**data.draw(PORT_DICTS), "name": name, "hidden": f"of {name}"} for name in names
    ]
    raw: dict[str, Any] = {"hidden-top": [{"x": None}], "ports": ports}
    if data.draw(st.booleans()):
        raw["replicas"] = data.draw(st.integers(0, 3))
    if data.draw(st.booleans()):
        raw["main"] = {**data.draw(PORT_DICTS), "hidden": 1}
    obj = draft(raw)
    before = obj.spec

    kept = [p for p in before.ports if data.draw(st.booleans())]
    changed = [attrs.evolve(p, port=data.draw(st.integers(1, 9))) for p in kept]
    added = [
        Port(data.draw(st.integers(1, 5)), f"new-{n}") for n in range(data.draw(st.integers(0, 2)))
    ]
    new = attrs.evolve(
        before,
        replicas=data.draw(st.integers(0, 3)),
        paused=data.draw(st.sampled_from([None, True])),
        ports=data.draw(st.permutations(changed + added)),
        extra=data.draw(st.dictionaries(NAMES, st.integers() | st.just("x"), max_size=3)),
    )
    if before.main is not None:
        new = attrs.evolve(new, main=attrs.evolve(before.main, port=data.draw(st.integers(1, 9))))
    obj.spec = new

    assert obj.spec == new, "a change was lost"
    written = obj["spec"]
    assert written["hidden-top"] == [{"x": None}]
    for port in written["ports"]:
        assert port.get("hidden") == (f"of {port['name']}" if port["name"] in names else None)
    if before.main is not None:
        assert written["main"]["hidden"] == 1
    assert known_part(obj.freeze().to_dict()["spec"]) == known_part(written)
    assert [k for k in written if k in raw] == list(raw), "the order of keys was lost"


@attrs.frozen
class OtherSpec:
    color: str = "red"


TYPED = Kind(group="example.com", version="v1", kind="Widget", spec=Spec, status=Port)


@pytest.mark.parametrize(
    ("value", "given"),
    [(OtherSpec(), r"OtherSpec\(…\)"), (5, r"int\(…\)"), ([1], r"list\(…\)"), (Spec, "Spec")],
)
@pytest.mark.parametrize(("field", "wanted"), [("spec", "Spec"), ("status", "Port")])
def test_a_value_of_another_class_than_the_kinds_is_refused(field, wanted, value, given):
    said = rf"^Widget: {field}={given} is not of type {wanted}, .* give {wanted}\(…\) or a mapping$"
    with pytest.raises(TypeError, match=said):
        MutableObject.new(TYPED, "w", **{field: value})
    for before in ({}, {field: {}}):
        draft = MutableObject.new(TYPED, "w", **before)
        with pytest.raises(TypeError, match=said):
            setattr(draft, field, value)
        assert draft.data.get(field) == before.get(field)


@attrs.frozen
class WiderSpec(Spec):
    color: str = "red"


@pytest.mark.parametrize("value", [{"replicas": 2}, Spec(2), WiderSpec(2), None])
def test_mappings_and_instances_of_the_kinds_class_are_taken(value):
    draft = MutableObject.new(TYPED, "w", spec=value)
    assert (draft["spec"] or {}).get("replicas", 2) == 2
    draft.spec = value


@pytest.mark.parametrize("view", [None, list[int], int | str])
def test_a_kind_without_a_class_for_its_spec_takes_any_json(view):
    kind = Kind(group="example.com", version="v1", kind="Widget", spec=view)
    assert MutableObject.new(kind, "w", spec=5)["spec"] == 5
