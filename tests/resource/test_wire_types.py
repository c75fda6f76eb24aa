"""Renamed classes are read by msgspec itself, as the translation of plain values reads them."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, NewType, TypedDict, TypeVar

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator import DecodeError, Kind, MutableObject, Object
from appsdk_operator.resource import FieldName
from appsdk_operator.resource._typed import renaming, spec_types
from tests.resource.test_renaming import Blue, Boxed, Disk, Port, Red, Row, Size, Tree, kind_of

pydantic = pytest.importorskip("pydantic")

T = TypeVar("T")
Percent = NewType("Percent", int)


@attrs.frozen(slots=False)
class Loose:
    """Its values are in ``__dict__``."""

    max_size: int = attrs.field(default=1, validator=attrs.validators.ge(0))
    node_names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slotted:
    a_port: Port
    seen_as: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.seen_as.append(type(self).__name__)


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ports_of_it: tuple[Port, ...]
    max_size: Annotated[int, msgspec.Meta(le=9)] = 1
    seen_as: list[str] = []

    def __post_init__(self) -> None:
        self.seen_as.append(type(self).__name__)


class Model(pydantic.BaseModel, frozen=True):
    max_size: int = 0
    named_it: str = pydantic.Field(default="", alias="own_name")


@attrs.frozen
class Based(Loose):
    more_of_it: Percent = Percent(3)


@attrs.frozen
class Swapped:
    one: Annotated[int, FieldName("two")] = 1
    two: Annotated[str, FieldName("one")] = ""


@attrs.frozen
class Quick:
    max_size: int
    pod_ip: Annotated[str, FieldName("podIP")] = ""
    main_port: Port | None = None
    ports_by_name: Mapping[str, Port] = attrs.field(factory=dict)
    disk_lists: Mapping[str, list[Disk]] = attrs.field(factory=dict)
    one_color: Blue | Red | None = None
    fixed_pair: tuple[Port, Disk] | None = None
    boxed_port: Boxed[Port] | None = None
    loose_one: Loose = Loose()
    based_on: Based | None = None
    slotted_one: Slotted | None = None
    struct_of: Annotated[Struct, msgspec.Meta(description="x")] | None = None
    models_of: tuple[Model, ...] = ()
    any_size: Size = Size.VERY_BIG
    born_at: dt.datetime | None = None
    swapped_one: Swapped | None = None
    few_ports: Annotated[tuple[Port, ...], msgspec.Meta(max_length=2)] = ()
    any_thing: Any = None

    def __attrs_post_init__(self) -> None:
        assert type(self) is Quick


VIEW = renaming.Renamed(Quick, "camel")
WIRE: dict[str, Any] = {
    "maxSize": 3,
    "podIP": "10.0.0.1",
    "mainPort": {"hostPort": 1, "appProtocol": "http"},
    "portsByName": {"some_name": {"hostPort": 4}},
    "diskLists": {"a_b": [{"sizeInGib": 5, "labelsByName": {"x_y": "z_z"}}]},
    "oneColor": {"kindOfIt": "red", "shadeOfIt": "dark", "own_name_": 7},
    "fixedPair": [{"hostPort": 7}, {"sizeInGib": 8}],
    "boxedPort": {"inTheBox": {"hostPort": 12}},
    "looseOne": {"maxSize": 2, "nodeNames": ["a"]},
    "basedOn": {"maxSize": 2, "moreOfIt": 4},
    "slottedOne": {"aPort": {"hostPort": 2}},
    "structOf": {"portsOfIt": [{"hostPort": 3}], "maxSize": 2},
    "modelsOf": [{"maxSize": 4, "own_name": "x"}],
    "anySize": "VeryBig",
    "bornAt": "2024-05-01T00:00:00Z",
    "swappedOne": {"one": "a", "two": 3},
    "fewPorts": [{"hostPort": 1}],
    "anyThing": {"left_alone": [1]},
    "unknown": 1,
}


def translated(value: Any) -> Any:
    """What the translation of plain values reads, without a type of its own."""
    plain = renaming._plan(Quick, "camel").read(value)
    return msgspec.convert(plain, Quick, dec_hook=spec_types.decode_hook)


def test_what_is_read_is_of_the_classes_themselves() -> None:
    assert VIEW.reader is not None
    kind = kind_of(Quick)
    found = Object.from_dict(kind, {"metadata": {"name": "a"}, "spec": WIRE}).spec
    assert found == translated(WIRE) == VIEW.convert(WIRE)
    assert found.boxed_port == Boxed(Port(12))
    assert found.swapped_one == Swapped(one=3, two="a")
    assert vars(found.loose_one) == {"max_size": 2, "node_names": ("a",)}
    parts = [found, found.main_port, found.disk_lists["a_b"][0], found.one_color, found.loose_one]
    parts += [found.based_on, found.slotted_one, found.struct_of, found.struct_of.ports_of_it[0]]
    wanted = [Quick, Port, Disk, Red, Loose, Based, Slotted, Struct, Port]
    assert [type(one) for one in parts] == wanted
    assert found.slotted_one.seen_as == ["Slotted"], "its own hook ran once"
    assert found.struct_of.seen_as == ["Struct"]
    written = MutableObject.new(kind, "a", spec=attrs.evolve(found, slotted_one=None))["spec"]
    assert {**WIRE, **written}.items() >= {"swappedOne": {"one": "a", "two": 3}}.items()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"looseOne": {"maxSize": -1}}, r"\$\.spec\.looseOne\.maxSize .*must be >= 0"),
        ({"mainPort": {"hostPort": 0}}, r"\$\.spec\.mainPort\.hostPort .*must be >= 1"),
        ({"fewPorts": [{}, {}, {}]}, r"\$\.spec\.fewPorts .*length <= 2"),
        ({"structOf": {"portsOfIt": [], "maxSize": 10}}, r"\$\.spec\.structOf\.maxSize .*<= 9"),
        ({"structOf": {"ports_of_it": []}}, "unknown field `ports_of_it`"),
        ({"slottedOne": {}}, "missing required field `aPort`"),
        ({"modelsOf": [{"maxSize": "x"}]}, r"\$\.spec\.modelsOf\[0\]\.maxSize"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_its_name_on_the_wire(change: Any, text: str) -> None:
    obj = Object.from_dict(kind_of(Quick), {"metadata": {"name": "a"}, "spec": {**WIRE, **change}})
    with pytest.raises(DecodeError, match=text):
        obj.spec  # noqa: B018


WRONG = st.sampled_from([None, 0, "x", [], {}, [1], {"hostPort": 0}, {"max_size": 1}, -1, True])
PLACES = st.sampled_from([*WIRE, "max_size", "looseOne.maxSize", "structOf.max_size"])


@given(st.dictionaries(PLACES, WRONG, max_size=3), st.sets(st.sampled_from(sorted(WIRE))))
def test_it_reads_and_refuses_what_the_translation_does(
    changes: dict[str, Any], without: set[str]
) -> None:
    value = {name: item for name, item in WIRE.items() if name not in without}
    for place, item in changes.items():
        whole, _, part = place.partition(".")
        value[whole] = {**WIRE[whole], part: item} if part else item
    try:
        wanted = translated(value)
    except (msgspec.ValidationError, TypeError, ValueError):
        wanted = None
    obj = Object.from_dict(kind_of(Quick), {"metadata": {"name": "a"}, "spec": value})
    if wanted is None:
        with pytest.raises(DecodeError):
            obj.spec  # noqa: B018
    else:
        assert obj.spec == wanted
        assert repr(obj.spec) == repr(wanted)


class Noted(TypedDict):
    a_port: Port


class _Counting:
    made: list[type]

    def __init_subclass__(cls) -> None:
        _Counting.made = [*getattr(_Counting, "made", []), cls]


@attrs.frozen
class Hooked(_Counting):
    max_size: int = 0


@attrs.frozen(slots=False)
class Shadowed:
    max_size: int = 0

    @property
    def maxSize(self) -> int:  # noqa: N802 - the name on the wire
        return self.max_size


@attrs.frozen
class Begun:
    max_size: int = 0

    def __attrs_pre_init__(self) -> None: ...


@attrs.frozen(slots=False)
class SwappedLoose:
    one: Annotated[int, FieldName("two")] = 1
    two: Annotated[str, FieldName("one")] = ""


def holder(view: Any) -> Any:
    made = attrs.make_class("Holder", {"the_part": attrs.field(type=view)}, frozen=True)
    made.__annotations__ = {"the_part": view}
    return made


@pytest.mark.parametrize(
    ("view", "wire"),
    [
        (Tree, {"treeName": "a", "subTrees": [{"treeName": "b"}]}),
        (Row, [{"hostPort": 6}, 2]),
        (Noted, {"a_port": {"hostPort": 1}}),
        (Hooked, {"maxSize": 2}),
        (Shadowed, {"maxSize": 2}),
        (Begun, {"maxSize": 2}),
        (SwappedLoose, {"one": "a", "two": 3}),
    ],
    ids=str,
)
def test_what_has_no_such_type_is_translated(view: Any, wire: Any) -> None:
    kind: Kind[Any, Any] = kind_of(holder(view))
    before = list(getattr(_Counting, "made", []))
    assert kind.spec_view.reader is None
    assert list(getattr(_Counting, "made", [])) == before, "no class was told of a subclass"
    obj = Object.from_dict(kind, {"metadata": {"name": "a"}, "spec": {"thePart": wire}})
    again = MutableObject.new(kind, "a", spec=obj.spec)["spec"]["thePart"]
    assert again == wire or again["subTrees"][0]["treeName"] == "b" or again[1] == 2


def test_a_class_that_is_defined_later_is_read_by_it_then() -> None:
    later = attrs.make_class("Later", {"the_part": attrs.field(type=Any)}, frozen=True)
    later.__annotations__ = {"the_part": "NotYet"}
    view = renaming.Renamed(later, "camel")
    with pytest.raises(NameError):
        view.reader  # noqa: B018
    later.__annotations__ = {"the_part": Port}
    assert view.reader is not None
    assert view.convert({"thePart": {"hostPort": 3}}).the_part == Port(3)
