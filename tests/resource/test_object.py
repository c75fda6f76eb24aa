"""Objects: immutable, lazy, lossless."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import json
import math
import types
from collections.abc import Callable
from typing import Any, TypedDict

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
    OwnerReference,
    ReadOnlyError,
    Scope,
    WrongKindError,
    decode_json,
    encode_json,
    parse_time,
)
from tests.hypothesis_profiles import scaled

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
NODE = Kind(group="", version="v1", kind="Node", scope=Scope.CLUSTER)

DATA: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {
        "name": "web",
        "namespace": "default",
        "uid": "u-1",
        "resourceVersion": "42",
        "generation": 3,
        "creationTimestamp": "2024-05-01T10:00:00Z",
        "deletionTimestamp": "2024-05-02T10:00:00Z",
        "labels": {"app": "web"},
        "annotations": {"note": "é"},
        "finalizers": ["a/b", "c/d"],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-2", "controller": True}
        ],
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {"replicas": 3, "ports": [{"port": 80}], "nested": {"a": [1, {"b": 2}]}},
    "status": {"ready": True},
}


def widget(kind: Kind = WIDGET, **fields: Any) -> Object:
    return Object.from_dict(kind, {**DATA, **fields})


# Reading


def test_the_header_and_the_rest_of_the_metadata_can_be_read() -> None:
    obj = widget()
    assert obj.key == ObjectKey("default", "web")
    assert (obj.uid, obj.resource_version, obj.generation) == ("u-1", "42", 3)
    assert obj.is_deleting
    assert obj.deletion_timestamp == "2024-05-02T10:00:00Z"
    assert obj.labels == {"app": "web"}
    assert obj.annotations == {"note": "é"}
    assert obj.finalizers == ("a/b", "c/d")
    assert obj.owner_references == (OwnerReference("v1", "Pod", "p", "u-2", controller=True),)
    assert obj.creation_timestamp == dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)
    assert obj.metadata == DATA["metadata"]
    assert obj.spec == DATA["spec"]
    assert obj.status == DATA["status"]


@pytest.mark.parametrize("absent", [{}, "null"])
def test_absent_and_null_metadata_read_alike(absent: Any) -> None:
    names = [*DATA["metadata"]]
    obj = Object.from_dict(NODE, {"metadata": dict.fromkeys(names) if absent else {}})
    assert (obj.key, obj.uid, obj.resource_version, obj.generation) == (("", ""), "", "", 0)
    assert not obj.is_deleting
    assert (obj.labels, obj.annotations, obj.finalizers, obj.owner_references) == ({}, {}, (), ())
    assert obj.creation_timestamp is None
    assert (obj.spec, obj.status) == (None, None)


def test_top_level_fields_read_like_a_mapping() -> None:
    obj = widget(data={"a": "b"}, empty=None)
    assert obj["data"] == {"a": "b"}
    assert (obj.get("data"), obj.get("nothing"), obj.get("nothing", 5)) == ({"a": "b"}, None, 5)
    assert obj.get("empty", 5) is None
    assert "data" in obj
    assert "nothing" not in obj
    assert list(obj) == [*DATA, "data", "empty"]
    with pytest.raises(KeyError, match="nothing"):
        obj["nothing"]


def test_owner_references_are_values() -> None:
    [one], [other] = widget().owner_references, widget().owner_references
    assert {one} == {other}
    assert one != OwnerReference("v1", "Pod", "p", "other")


def test_keys_read_as_namespace_and_name() -> None:
    assert str(ObjectKey("default", "web")) == "default/web"
    assert str(ObjectKey("", "n1")) == "n1"


@pytest.mark.parametrize(
    ("stamp", "text"),
    [
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00+00:00"),
        ("2024-05-01T10:00:00.123456Z", "2024-05-01T10:00:00.123456+00:00"),
        ("2024-05-01T12:00:00+02:00", "2024-05-01T12:00:00+02:00"),
    ],
)
def test_times_of_servers_are_aware(stamp: str, text: str) -> None:
    assert parse_time(stamp).isoformat() == text


# Laziness


def test_nothing_but_the_header_is_decoded_on_arrival() -> None:
    raw = b'{"metadata":{"name":"x","labels":5,"finalizers":{}},"spec":{"s":"\xff"},"status":[]}'
    obj = Object.from_json(WIDGET.typed(status=FrozenSpec), raw)
    assert obj.name == "x"
    assert obj.raw is raw
    for read in (lambda: obj.labels, lambda: obj.finalizers, lambda: obj.spec, lambda: obj.status):
        with pytest.raises(DecodeError):
            read()
    with pytest.raises(DecodeError):
        obj.to_dict()


def test_labels_that_are_no_text_are_an_error_with_the_place() -> None:
    obj = widget(metadata={"name": "x", "labels": {"a": 1}})
    with pytest.raises(DecodeError, match=r"Widget x: Expected `str`, got `int`.*metadata\.labels"):
        _ = obj.labels


def test_a_creation_time_that_is_none_is_an_error_with_the_place() -> None:
    obj = widget(metadata={"name": "x", "creationTimestamp": "yesterday"})
    with pytest.raises(DecodeError, match=r"\$\.metadata\.creationTimestamp is not a time"):
        _ = obj.creation_timestamp


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{}", b"[]", b"null", b'{"metadata":null}', b'{"metadata":{"name":5}}',
        b'{"metadata":{}} {}', b'{"metadata":{},"spec":{bad}}', b'{"metadata":{"name":"\xff"}}',
        b'{"metadata":{},"spec":' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_object_is_an_error_that_names_the_kind(raw: bytes) -> None:
    with pytest.raises(DecodeError, match=r"not an object of kind widgets\.v1\.example\.com"):
        Object.from_json(WIDGET, raw)


@pytest.mark.parametrize(
    "fields",
    [{"kind": "Gadget"}, {"apiVersion": "example.com/v2"}, {"apiVersion": ""}],
)
def test_an_object_of_another_kind_is_refused(fields: dict[str, Any]) -> None:
    raw = json.dumps({**DATA, **fields}).encode()
    with pytest.raises(WrongKindError, match=r"expected example.com/v1 Widget.*default/web: check"):
        Object.from_json(WIDGET, raw)


# Read-only


CHANGES: list[Callable[[Any], Any]] = [
    lambda o: setattr(o, "name", "x"),
    lambda o: setattr(o, "spec", {}),
    lambda o: setattr(o, "new", 1),
    lambda o: delattr(o, "name"),
    lambda o: o.__setitem__("spec", {}),
    lambda o: o.__delitem__("spec"),
    lambda o: setattr(o.owner_references[0], "name", "x"),
    lambda o: delattr(o.owner_references[0], "name"),
    *[
        lambda o, change=change, view=view: change(view(o))
        for view in (
            lambda o: o.labels,
            lambda o: o.annotations,
            lambda o: o.metadata,
            lambda o: o.metadata["labels"],
            lambda o: o.spec,
            lambda o: o.spec["nested"],
            lambda o: o.status,
            lambda o: o["spec"]["nested"]["a"][1],
            lambda o: o.get("spec"),
        )
        for change in (
            lambda d: d.__setitem__("a", 1),
            lambda d: d.__delitem__("a"),
            lambda d: d.update(a=1),
            lambda d: d.setdefault("a", 1),
            lambda d: d.pop("a", None),
            lambda d: d.popitem(),
            lambda d: d.clear(),
            lambda d: d.__ior__({"a": 1}),
        )
    ],
    *[
        lambda o, change=change, view=view: change(view(o))
        for view in (lambda o: o.spec["ports"], lambda o: o["metadata"]["finalizers"])
        for change in (
            lambda a: a.__setitem__(0, 1),
            lambda a: a.__setitem__(slice(0), [1]),
            lambda a: a.__delitem__(0),
            lambda a: a.append(1),
            lambda a: a.extend([1]),
            lambda a: a.insert(0, 1),
            lambda a: a.pop(),
            lambda a: a.remove(1),
            lambda a: a.clear(),
            lambda a: a.sort(),
            lambda a: a.reverse(),
            lambda a: a.__iadd__([1]),
            lambda a: a.__imul__(2),
        )
    ],
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_way_of_changing_an_object_names_the_way_to_do_it(
    change: Callable[[Any], Any],
) -> None:
    obj = widget()
    with pytest.raises(ReadOnlyError, match=r"obj\.mutable_copy\(\)"):
        change(obj)
    assert obj.to_dict() == DATA


def test_copies_of_views_can_be_changed() -> None:
    obj = widget()
    for copied in (obj.spec.copy(), copy.copy(obj.spec), copy.deepcopy(obj.spec)):
        copied["nested"]["a"].append(1)
        assert type(copied) is dict
    assert type(copy.deepcopy(obj.spec["ports"])) is list
    assert type(obj.spec | {"a": 1}) is dict
    assert obj.to_dict() == DATA


def test_an_object_is_its_own_copy() -> None:
    obj = widget()
    assert copy.copy(obj) is obj
    assert copy.deepcopy({"a": [obj]})["a"][0] is obj


# Equality and repr


def test_objects_are_equal_by_content_whatever_the_order_and_the_spaces() -> None:
    raw = json.dumps(dict(reversed(DATA.items())), indent=2).encode()
    same = Object.from_json(WIDGET, raw)
    assert same == widget()
    assert hash(same) == hash(widget())
    assert same != widget(spec={})
    assert same != DATA
    assert same == widget(WIDGET.typed(spec=dict))


def test_an_item_of_a_list_equals_the_same_object_from_elsewhere() -> None:
    bare = {key: value for key, value in DATA.items() if key not in ("kind", "apiVersion")}
    item = Object.from_json(WIDGET, json.dumps(bare).encode())
    assert item == widget()
    assert list(item.to_dict()) == ["apiVersion", "kind", *bare]


def test_repr_shows_no_content() -> None:
    secret = widget(data={"password": "hunter2"})
    assert repr(secret) == "<Widget default/web rv=42 uid=u-1>"
    assert repr(secret.mutable_copy()) == "<mutable Widget default/web rv=42>"
    assert repr(MutableObject.new(WIDGET, "x")) == "<mutable Widget x rv=->"


def test_an_object_as_text_is_its_kind_and_name() -> None:
    obj = widget(data={"password": "hunter2"})
    assert str(obj) == str(obj.mutable_copy()) == "Widget default/web"
    assert str(MutableObject.new(WIDGET, "x")) == "Widget x"


# Typed views


class FrozenPort(msgspec.Struct, frozen=True, rename="camel"):
    port: int
    node_port: int | None = None


class FrozenSpec(msgspec.Struct, frozen=True):
    replicas: int
    ports: tuple[FrozenPort, ...] = ()


@attrs.frozen
class AttrsPort:
    port: int


@attrs.frozen
class AttrsSpec:
    replicas: int
    ports: list[AttrsPort] = attrs.Factory(list)


@dataclasses.dataclass(frozen=True)
class DataclassSpec:
    replicas: int


class DictSpec(TypedDict):
    replicas: int
    ports: list[dict[str, int]]


@pytest.mark.parametrize("view", [FrozenSpec, AttrsSpec, DataclassSpec])
def test_typed_views_of_every_sort_are_decoded(view: Any) -> None:
    spec = widget(WIDGET.typed(spec=view)).spec
    assert isinstance(spec, view)
    assert spec.replicas == 3


def test_nested_and_renamed_fields_are_decoded() -> None:
    obj = widget(WIDGET.typed(spec=FrozenSpec), spec={"replicas": 1, "ports": [
        {"port": 80, "nodePort": 30080}
    ]})  # fmt: skip
    assert obj.spec.ports == (FrozenPort(80, 30080),)
    nested = widget(WIDGET.typed(spec=AttrsSpec)).spec.ports
    assert nested == [AttrsPort(80)]


def test_typed_dicts_are_read_only_too() -> None:
    spec = widget(WIDGET.typed(spec=DictSpec)).spec
    assert spec == {"replicas": 3, "ports": [{"port": 80}]}
    with pytest.raises(ReadOnlyError):
        spec["ports"][0]["port"] = 1


@pytest.mark.parametrize("missing", [True, False])
def test_a_typed_view_that_is_absent_or_null_is_none(missing: bool) -> None:
    kind = WIDGET.typed(spec=FrozenSpec, status=AttrsSpec)
    fields = {} if missing else {"spec": None, "status": None}
    obj = Object.from_dict(kind, {"metadata": {}, **fields})
    assert (obj.spec, obj.status) == (None, None)
    assert (obj.mutable_copy().spec, obj.mutable_copy().status) == (None, None)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"replicas": "three"}, r"Widget default/web: \$\.spec\.replicas does not fit FrozenSpec"),
        ({"replicas": "three"}, r"replicas does not fit FrozenSpec: Expected `int`, got `str`$"),
        ({"replicas": 1, "ports": [{"port": 80}, {"port": None}]}, r"\$\.spec\.ports\[1\]\.port"),
        ({"ports": []}, r"\$\.spec does not fit FrozenSpec: .*replicas"),
        (5, r"\$\.spec does not fit FrozenSpec: Expected `object`, got `int`"),
    ],
)  # fmt: skip
def test_a_spec_that_does_not_fit_names_object_path_and_type(spec: Any, text: str) -> None:
    obj = widget(WIDGET.typed(spec=FrozenSpec), spec=spec)
    with pytest.raises(DecodeError, match=text):
        _ = obj.spec
    with pytest.raises(DecodeError, match=text):
        _ = obj.mutable_copy().spec


def test_the_same_object_can_be_viewed_with_other_types() -> None:
    obj = widget()
    typed = obj.viewed_as(WIDGET.typed(spec=AttrsSpec))
    assert typed.spec == AttrsSpec(3, [AttrsPort(80)])
    assert typed == obj
    assert typed.raw is obj.raw
    assert obj.viewed_as(WIDGET) is obj
    with pytest.raises(WrongKindError, match=r"cannot be viewed as nodes\.v1: not the same kind"):
        obj.viewed_as(NODE)


# Encoding


class Opaque:
    pass


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, r"\$\.spec\.a\[1\] is not a finite number"),
        (-math.inf, r"\$\.spec\.a\[1\] is not a finite number"),
        ({"b": math.inf}, r"\$\.spec\.a\[1\]\.b is not a finite number"),
        (FrozenFloat := attrs.make_class("FrozenFloat", ["x"])(math.nan), r"a\[1\]\.x is not"),
        (Opaque(), r"\$\.spec\.a\[1\] cannot be written as JSON"),
        ("\ud800", r"\$\.spec\.a\[1\] cannot be written as JSON"),
        ({None: 1}, r"\$\.spec\.a\[1\] cannot be written as JSON"),
        (LOOP, "contains itself"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_the_path(value: Any, path: str) -> None:
    with pytest.raises(EncodeError, match=path):
        widget(spec={"a": [None, value]})
    draft = widget().mutable_copy()
    draft["spec"] = {"a": [None, value]}
    with pytest.raises(EncodeError, match=path):
        draft.freeze()


def test_mappings_of_every_sort_are_encoded() -> None:
    assert encode_json(types.MappingProxyType({"a": 1})) == b'{"a":1}'
    assert encode_json(widget().spec) == encode_json(DATA["spec"])
    assert decode_json(encode_json(widget().mutable_copy())) == DATA


@pytest.mark.parametrize("raw", [b"", b"{", b'"\xff"', b"[" * 100_000, b"{} x", b"1" * 5000])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError, match="not JSON"):
        decode_json(raw)


# Round trips

INTEGERS = (
    st.integers() | st.integers(-(2**80), 2**80) | st.sampled_from([2**63, 2**64, -(2**63) - 1])
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=15,
)  # fmt: skip
OBJECTS = st.builds(
    lambda fields, metadata, order: dict(
        sorted(
            {
                **fields,
                "metadata": {**metadata, "name": "n", "namespace": "ns"},
                **{key: DATA[key] for key in ("apiVersion", "kind")},
            }.items(),
            key=lambda item: order.random(),
        )
    ),
    st.dictionaries(TEXT | st.sampled_from(["spec", "status"]), JSON, max_size=5),
    st.dictionaries(TEXT.map(lambda key: f"x{key}"), JSON, max_size=3),
    st.randoms(use_true_random=False),
)


def shape(value: Any) -> Any:
    """The value with key order and the types of numbers, which ``==`` does not look at."""
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value).__name__, repr(value)


@settings(max_examples=scaled(250), deadline=None)
@given(data=OBJECTS, indent=st.sampled_from([None, 1]))
def test_nothing_is_lost_in_a_round_trip(data: dict[str, Any], indent: int | None) -> None:
    raw = json.dumps(data, ensure_ascii=False, indent=indent).encode()
    obj = Object.from_json(WIDGET, raw)
    again = Object.from_json(WIDGET, encode_json(obj.to_dict()))
    thawed = obj.mutable_copy().freeze()
    for other in (obj, again, thawed):
        assert shape(other.to_dict()) == shape(data)
        assert shape(json.loads(other.raw)) == shape(data)
        assert other == obj
        assert hash(other) == hash(obj)
    assert [shape(obj[key]) for key in obj] == [shape(data[key]) for key in data]
    assert shape(obj.metadata) == shape(data["metadata"])


def test_the_order_of_the_type_fields_is_kept_where_they_are() -> None:
    data = {"metadata": {}, "kind": "Widget", "spec": {}, "apiVersion": "example.com/v1"}
    assert list(Object.from_dict(WIDGET, data)) == list(data)
    assert list(Object.from_dict(WIDGET, {"metadata": {}})) == ["apiVersion", "kind", "metadata"]
    half = {"kind": "Widget", "metadata": {}}
    assert list(Object.from_dict(WIDGET, half)) == ["apiVersion", "kind", "metadata"]


def test_objects_that_are_equal_are_not_unequal() -> None:
    kind = Kind(group="", version="v1", kind="ConfigMap")
    one, other = (Object.from_dict(kind, {"metadata": {"name": n}}) for n in ("a", "b"))
    same = Object.from_dict(kind, {"metadata": {"name": "a"}})
    assert not one != same  # noqa: SIM202 - it is != that is tested
    assert one != other


def test_an_object_is_encoded_as_the_json_it_came_from() -> None:
    kind = Kind(group="", version="v1", kind="ConfigMap")
    obj = Object.from_json(kind, b'{"metadata":{"name":"a"},  "x":1}')
    assert encode_json(obj) == obj.raw


@pytest.mark.parametrize("data", [None, [1], "text", b"{}", 5, (), {1}], ids=repr)
def test_an_object_is_made_of_a_mapping(data: Any) -> None:
    for make in (Object.from_dict, MutableObject):
        with pytest.raises(TypeError, match=rf"data is of type {type(data).__name__}: "):
            make(WIDGET, data)


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        ("{}", "Object.from_json"),
        (b"{}", "load_yaml"),
        ([{}], "each item by itself"),
        (None, "give a mapping with apiVersion, kind and metadata"),
    ],
)
def test_what_is_no_mapping_is_told_what_takes_it(data: Any, remedy: str) -> None:
    with pytest.raises(TypeError) as refused:
        Object.from_dict(WIDGET, data)
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "remedy"),
    [
        (None, "give JSON as bytes"),
        ("{}", r"text\.encode\(\)"),
        ([b"{}"], "each item by itself"),
        ({"metadata": {}}, r"use Object\.from_dict"),
        (5, "give JSON as bytes"),
    ],
)
def test_json_is_bytes(raw: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=rf"raw is of type {type(raw).__name__}: .*{remedy}"):
        Object.from_json(WIDGET, raw)


def test_json_is_of_a_kind() -> None:
    with pytest.raises(TypeError, match="is not a Kind"):
        Object.from_json(None, b'{"metadata":{}}')  # type: ignore[arg-type]


def test_a_draft_is_made_of_a_dict_that_it_keeps() -> None:
    with pytest.raises(TypeError, match="give a dict, which is kept as it is"):
        MutableObject(WIDGET, types.MappingProxyType({}))  # type: ignore[arg-type]
