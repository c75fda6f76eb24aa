"""``rename`` of a kind whose classes are pydantic models."""

from __future__ import annotations

from typing import Any, Literal

import attrs
import pytest

from appsdk_operator import DecodeError, Kind, MutableObject, Object

pydantic = pytest.importorskip("pydantic")


class Port(pydantic.BaseModel, frozen=True):
    host_port: int = pydantic.Field(default=80, ge=1)
    own_name: str = pydantic.Field(default="", alias="own_name_")


class Cat(pydantic.BaseModel, frozen=True):
    sort_of: Literal["cat"] = "cat"
    lives_left: int = 9


class Dog(pydantic.BaseModel, frozen=True, extra="forbid"):
    sort_of: Literal["dog"] = "dog"
    best_friend: str | None = None


class Open(pydantic.BaseModel, frozen=True, extra="allow"):
    max_size: int = 0


class Ports(pydantic.RootModel[list[Port]], frozen=True):
    pass


class Model(pydantic.BaseModel, frozen=True):
    max_size: int = 0
    more_ports: tuple[Port, ...] = ()
    ports_by_name: dict[str, Port] = pydantic.Field(default_factory=dict)
    one_pet: Cat | Dog | None = None
    all_open: Open = Open()
    root_ports: Ports = Ports([])


@attrs.frozen
class Attrs:
    main_model: Model
    note_of_it: str | None = None


def kind_of(view: Any) -> Kind[Any, Any]:
    return Kind(group="example.com", version="v1", kind="Widget", spec=view, rename="camel")


MODEL = Model(
    max_size=2,
    more_ports=(Port(host_port=1, own_name_="x"),),
    ports_by_name={"a_b": Port(host_port=2)},
    one_pet=Dog(best_friend="me"),
    root_ports=Ports([Port(host_port=4)]),
)
WIRE = {
    "maxSize": 2,
    "morePorts": [{"hostPort": 1, "own_name_": "x"}],
    "portsByName": {"a_b": {"hostPort": 2, "own_name_": ""}},
    "onePet": {"sortOf": "dog", "bestFriend": "me"},
    "allOpen": {"maxSize": 0},
    "rootPorts": [{"hostPort": 4, "own_name_": ""}],
}


def test_every_part_has_its_name_on_the_wire_and_comes_back() -> None:
    draft = MutableObject.new(kind_of(Model), "web", spec=MODEL)
    assert draft["spec"] == WIRE
    assert draft.spec == draft.freeze().spec == MODEL
    wrapped = MutableObject.new(kind_of(Attrs), "web", spec=Attrs(MODEL))
    assert wrapped["spec"] == {"mainModel": WIRE}
    assert wrapped.freeze().spec == Attrs(MODEL)


def test_fields_that_a_model_keeps_and_others_survive() -> None:
    draft = MutableObject.new(
        kind_of(Model),
        "web",
        spec={"x_y": 1, "allOpen": {"maxSize": 1, "max_size": 2, "other_one": 3}},
    )
    assert draft.spec.all_open.max_size == 1
    assert draft.spec.all_open.model_extra == {"other_one": 3}
    draft.spec = draft.spec.model_copy(update={"max_size": 7})
    assert draft["spec"]["maxSize"] == 7
    assert draft["spec"]["x_y"] == 1
    assert draft["spec"]["allOpen"] == {"maxSize": 1, "max_size": 2, "other_one": 3}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"morePorts": [{"hostPort": 0}]},
            "$.spec.morePorts[0].hostPort does not fit Model: Input",
        ),
        ({"maxSize": "x"}, "$.spec.maxSize does not fit Model: Input should be a valid integer"),
    ],
)
def test_errors_name_the_path_on_the_wire(spec: Any, text: str) -> None:
    obj = Object.from_dict(kind_of(Model), {"metadata": {"name": "web"}, "spec": spec})
    with pytest.raises(DecodeError) as refused:
        _ = obj.spec
    assert text in str(refused.value)
