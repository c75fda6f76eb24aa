"""camelCase on the wire from snake_case in Python: ``rename`` of a kind."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Mapping
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator import DecodeError, Kind, MutableObject, Object
from appsdk_operator.resource import EncodeError, FieldName, Versions, convert_parts

T = TypeVar("T")


class Size(enum.Enum):
    VERY_BIG = "VeryBig"


@attrs.frozen
class Port:
    host_port: int = attrs.field(default=80, validator=attrs.validators.ge(1))
    app_protocol: str | None = None


@dataclasses.dataclass(frozen=True)
class Disk:
    size_in_gib: int
    labels_by_name: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Blue(msgspec.Struct, frozen=True, tag_field="kindOfIt", tag="blue"):
    shade_of_it: int = 0


class Red(msgspec.Struct, frozen=True, tag_field="kindOfIt", tag="red"):
    shade_of_it: str = ""
    own_name: int = msgspec.field(default=0, name="own_name_")


class Row(msgspec.Struct, frozen=True, array_like=True):
    first_port: Port
    count: int = 0


class Pair(NamedTuple):
    left_port: Port
    right_disk: Disk


class Note(TypedDict, total=False):
    some_key: str
    a_port: Port


@attrs.frozen
class Boxed(Generic[T]):
    in_the_box: T


@attrs.frozen
class Tree:
    tree_name: str = ""
    sub_trees: tuple[Tree, ...] = ()


@attrs.frozen
class Spec:
    max_size: int = 0
    pod_ip: Annotated[str, FieldName("podIP")] = ""
    from_: str = ""
    main_port: Port | None = None
    more_ports: tuple[Port, ...] = ()
    ports_by_name: Mapping[str, Port] = attrs.field(factory=dict)
    disk_lists: Mapping[str, list[Disk]] = attrs.field(factory=dict)
    one_color: Blue | Red | None = None
    table_rows: tuple[Row, ...] = ()
    fixed_pair: tuple[Port, Disk] | None = None
    named_pair: Pair | None = None
    free_note: Note = attrs.field(factory=Note)
    boxed_port: Boxed[Port] | None = None
    whole_tree: Tree = Tree()
    any_size: Size = Size.VERY_BIG
    born_at: dt.datetime | None = None
    any_thing: Any = None


def kind_of(view: Any) -> Kind[Any, Any]:
    return Kind(
        group="example.com", version="v1", kind="Widget", spec=view, status=view, rename="camel"
    )


WIDGET = kind_of(Spec)

FULL = Spec(
    max_size=3,
    pod_ip="10.0.0.1",
    from_="here",
    main_port=Port(1, "http"),
    more_ports=(Port(2), Port(3, "tcp")),
    ports_by_name={"some_name": Port(4)},
    disk_lists={"a_b": [Disk(5, {"x_y": "z_z"})]},
    one_color=Red("dark", 7),
    table_rows=(Row(Port(6), 2),),
    fixed_pair=(Port(7), Disk(8)),
    named_pair=Pair(Port(9), Disk(10)),
    free_note={"some_key": "v", "a_port": Port(11)},
    boxed_port=Boxed(Port(12)),
    whole_tree=Tree("a", (Tree("b"),)),
    born_at=dt.datetime(2024, 5, 1, tzinfo=dt.UTC),
    any_thing={"left_alone": [1]},
)
WIRE = {
    "maxSize": 3,
    "podIP": "10.0.0.1",
    "from": "here",
    "mainPort": {"hostPort": 1, "appProtocol": "http"},
    "morePorts": [{"hostPort": 2}, {"hostPort": 3, "appProtocol": "tcp"}],
    "portsByName": {"some_name": {"hostPort": 4}},
    "diskLists": {"a_b": [{"sizeInGib": 5, "labelsByName": {"x_y": "z_z"}}]},
    "oneColor": {"kindOfIt": "red", "shadeOfIt": "dark", "own_name_": 7},
    "tableRows": [[{"hostPort": 6}, 2]],
    "fixedPair": [{"hostPort": 7}, {"sizeInGib": 8, "labelsByName": {}}],
    "namedPair": [{"hostPort": 9}, {"sizeInGib": 10, "labelsByName": {}}],
    "freeNote": {"some_key": "v", "a_port": {"hostPort": 11}},
    "boxedPort": {"inTheBox": {"hostPort": 12}},
    "wholeTree": {"treeName": "a", "subTrees": [{"treeName": "b", "subTrees": []}]},
    "anySize": "VeryBig",
    "bornAt": "2024-05-01T00:00:00Z",
    "anyThing": {"left_alone": [1]},
}


def obj_of(spec: Any, kind: Any = WIDGET) -> Object[Any, Any]:
    return Object.from_dict(kind, {"metadata": {"name": "web"}, "spec": spec})


def test_every_part_has_its_name_on_the_wire_and_comes_back() -> None:
    draft = MutableObject.new(WIDGET, "web", spec=FULL)
    assert draft["spec"] == WIRE
    assert draft.spec == FULL
    assert draft.freeze().spec == FULL
    draft.status = FULL
    assert draft["status"] == WIRE
    assert draft.freeze().status == FULL


def test_a_typed_value_in_plain_ones_is_written_by_the_kind_too() -> None:
    draft = MutableObject.new(WIDGET, "web", spec={"morePorts": [Port(2)]})
    assert draft["spec"] == {"morePorts": [{"hostPort": 2}]}
    draft["spec"]["mainPort"] = Port(5)
    draft["status"] = Spec(max_size=2)
    assert draft.freeze()["spec"]["mainPort"] == {"hostPort": 5, "appProtocol": None}
    assert draft.to_dict()["status"]["maxSize"] == 2
    assert draft.to_dict()["spec"]["mainPort"] == {"hostPort": 5}
    assert obj_of(Spec(max_size=4)).spec.max_size == 4


def test_unknown_fields_stay_also_those_with_a_name_of_python() -> None:
    spec = {"maxSize": 1, "max_size": "mine", "mainPort": {"hostPort": 2, "host_port": 9, "x": 1}}
    draft = obj_of(spec).mutable_copy()
    assert draft.spec == Spec(max_size=1, main_port=Port(2))
    draft.spec = attrs.evolve(draft.spec, max_size=5, main_port=Port(3))
    assert draft["spec"]["max_size"] == "mine"
    assert draft["spec"]["maxSize"] == 5
    assert draft["spec"]["mainPort"] == {"hostPort": 3, "host_port": 9, "x": 1}
    draft.spec = attrs.evolve(draft.spec, main_port=None)
    assert "mainPort" not in draft["spec"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"maxSize": "3"}, "$.spec.maxSize does not fit Spec: Expected `int`, got `str`"),
        ({"mainPort": {"hostPort": 0}}, "$.spec.mainPort.hostPort does not fit Spec: 'host_port'"),
        ({"morePorts": [{}, {"hostPort": ""}]}, "$.spec.morePorts[1].hostPort does not fit Spec"),
        ({"diskLists": {"a": [{}]}}, "required field `sizeInGib`"),
        ({"diskLists": {"a": [{"sizeInGib": ""}]}}, "$.spec.diskLists[...][0].sizeInGib does not"),
        ({"oneColor": {"kindOfIt": "blue", "shadeOfIt": ""}}, "$.spec.oneColor.shadeOfIt does"),
        ({"fixedPair": [{}, {"sizeInGib": ""}]}, "$.spec.fixedPair[1].sizeInGib does not fit"),
        ({"namedPair": [{}, {"sizeInGib": ""}]}, "$.spec.namedPair[1].sizeInGib does not fit"),
        ({"tableRows": [[{"hostPort": ""}]]}, "$.spec.tableRows[0][0].hostPort does not fit"),
        ({"boxedPort": {"inTheBox": {"hostPort": ""}}}, "$.spec.boxedPort.inTheBox.hostPort"),
    ],
)
def test_errors_name_the_path_on_the_wire(spec: Any, text: str) -> None:
    with pytest.raises(DecodeError) as of_object:
        _ = obj_of(spec).spec
    with pytest.raises(DecodeError) as of_draft:
        _ = obj_of(spec).mutable_copy().spec
    assert text in str(of_object.value)
    assert str(of_object.value) == str(of_draft.value)


def test_a_value_that_could_not_be_read_again_is_refused_with_its_name_on_the_wire() -> None:
    with attrs.validators.disabled():
        value = Spec(more_ports=(Port(0),))
    with pytest.raises(EncodeError, match=r"\$\.spec\.morePorts\[0\]\.hostPort does not fit Spec"):
        MutableObject.new(WIDGET, "web", spec=value)


def test_a_class_that_forbids_unknown_fields_refuses_the_names_of_python() -> None:
    class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        max_size: int = 0

    with pytest.raises(DecodeError, match=r"Object contains unknown field `max_size`$"):
        _ = obj_of({"max_size": 1}, kind_of(Strict)).spec


def test_two_fields_with_one_name_on_the_wire_are_refused() -> None:
    @attrs.frozen
    class Twice:
        max_size: int = 0
        maxSize: int = 0  # noqa: N815

    with pytest.raises(
        ValueError, match=r"Twice\.max_size and .*Twice\.maxSize are both 'maxSize'"
    ):
        kind_of(Twice)
    with pytest.raises(ValueError, match=r"rename='snake': give 'camel'"):
        Kind(group="example.com", version="v1", kind="Widget", rename="snake")  # type: ignore[arg-type]


def test_a_kind_without_it_is_another_view_of_the_same_kind() -> None:
    plain = Kind(group="example.com", version="v1", kind="Widget", spec=Spec)
    assert plain == WIDGET
    obj = obj_of({"maxSize": 2, "max_size": 3})
    assert obj.spec.max_size == 2
    assert obj.viewed_as(plain).spec.max_size == 3
    assert WIDGET.typed(spec=Port).rename == "camel"


def test_deep_values_are_read_and_written() -> None:
    deep: Any = 0
    for _ in range(490):
        deep = [deep]
    obj = obj_of({"maxSize": 2, "anyThing": deep})
    assert obj.spec.max_size == 2
    draft = obj.mutable_copy()
    draft.spec = attrs.evolve(draft.spec, max_size=3)
    assert draft.freeze()["spec"]["maxSize"] == 3


def test_conversions_between_versions_have_the_names_of_each() -> None:
    @attrs.frozen
    class Old:
        top_size: int = 0

    old = Kind(group="example.com", version="v1alpha1", kind="Widget", spec=Old)
    versions = Versions(WIDGET).older(
        old,
        up=convert_parts(spec=lambda spec: Spec(max_size=spec.top_size)),
        down=convert_parts(spec=lambda spec: Old(spec.max_size)),
        lossless=True,
    )
    new = versions.convert(obj_of({"top_size": 3}, old), WIDGET)
    assert new["spec"]["maxSize"] == 3
    rich = obj_of({"maxSize": 4, "mainPort": {"hostPort": 7}})
    there = versions.convert(rich, old)
    assert there["spec"] == {"top_size": 4}
    assert versions.convert(there, WIDGET).spec == rich.spec


def test_a_version_with_other_names_does_not_keep_the_former_ones() -> None:
    old = Kind(group="example.com", version="v1alpha1", kind="Widget", spec=Port)
    new = Kind(group="example.com", version="v1", kind="Widget", spec=Port, rename="camel")

    def same(old: Any, new: Any) -> None:
        assert "spec" not in new, "it has the names of the other version"
        new.spec = old.spec

    versions = Versions(new).older(old, up=same, down=same)
    assert versions.convert(obj_of({"host_port": 3}, old), new)["spec"] == {"hostPort": 3}
    assert versions.convert(obj_of({"hostPort": 3}, new), old)["spec"] == {"host_port": 3}


_ports = st.builds(Port, st.integers(1, 9), st.none() | st.text(max_size=2))
_disks = st.builds(Disk, st.integers(0, 9), st.dictionaries(st.text(max_size=2), st.just("v")))
_specs = st.builds(
    Spec,
    max_size=st.integers(-5, 5),
    main_port=st.none() | _ports,
    more_ports=st.lists(_ports, max_size=2).map(tuple),
    ports_by_name=st.dictionaries(st.sampled_from(["max_size", "maxSize", "a"]), _ports),
    disk_lists=st.dictionaries(st.text(max_size=2), st.lists(_disks, max_size=2), max_size=2),
    one_color=st.sampled_from([None, Blue(2), Red("r", 3)]),
    fixed_pair=st.none() | st.tuples(_ports, _disks),
    whole_tree=st.sampled_from([Tree(), Tree("x", (Tree("y", (Tree("z"),)),))]),
)
_extras = st.dictionaries(st.sampled_from(["max_size", "mainport", "x", "from_"]), st.integers())


@given(_specs, _specs, _extras)
def test_what_is_written_is_read_and_unknown_fields_survive(
    one: Spec, other: Spec, extras: dict[str, int]
) -> None:
    draft = MutableObject.new(WIDGET, "web", spec=one)
    assert draft.freeze().spec == one
    draft["spec"].update(extras)
    before = {name: draft["spec"][name] for name in extras}
    draft.spec = other
    assert draft.freeze().spec == draft.spec == other
    assert {name: draft["spec"][name] for name in extras} == before


@pytest.mark.parametrize("library", ["attrs", "dataclasses", "msgspec"])
def test_a_name_beyond_ascii_is_read_before_it_was_ever_written(library: str) -> None:
    # Made at run time, because the UTF-8 of a constant may have been asked for.
    name = b"gr\xc3\xb6\xc3\x9fe".decode()
    fields: list[Any] = [("size", Annotated[float, FieldName(name)], 7.0)]
    if library == "msgspec":
        spec: Any = msgspec.defstruct("Spec", fields, frozen=True)
    elif library == "dataclasses":
        spec = dataclasses.make_dataclass("Spec", fields, frozen=True)
    else:
        body = {"__annotations__": {"size": fields[0][1]}, "size": 7.0}
        spec = attrs.frozen(type("Spec", (), body))
    kind = Kind(group="example.com", version="v1", kind="Widget", spec=spec, rename="camel")
    raw = b'{"apiVersion":"example.com/v1","kind":"Widget","spec":{"gr\xc3\xb6\xc3\x9fe":1.5}}'
    assert Object(kind, raw, "", "a", "", "", 0, None).spec.size == 1.5
