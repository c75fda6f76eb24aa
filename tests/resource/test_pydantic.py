"""Frozen pydantic models as types of spec and status; the kit works without pydantic."""

from __future__ import annotations

import datetime as dt
import decimal
import ipaddress
import pathlib
from typing import Annotated, Any

import attrs
import pytest

from appsdk_operator import Kind, MutableObject
from appsdk_operator.resource import EncodeError, custom_resource_definition, encode_json
from tests.resource.typed_objects import kind_of, read, refusal

pydantic = pytest.importorskip("pydantic")
dataclasses = pytest.importorskip("pydantic.dataclasses")


class Port(pydantic.BaseModel, frozen=True):
    number: int = pydantic.Field(ge=1, le=65535)
    since: dt.datetime | None = None


class Model(pydantic.BaseModel, frozen=True):
    """A widget's spec."""

    max_size: int = pydantic.Field(default=0, ge=0, alias="maxSize")
    ports: tuple[Port, ...] = ()
    note: str | None = None


class Strict(pydantic.BaseModel, frozen=True, strict=True):
    since: dt.datetime
    sizes: tuple[int, ...] = ()


@attrs.frozen
class Attrs:
    ports: tuple[Port, ...] = ()


def test_a_frozen_pydantic_model_is_read() -> None:
    spec = {"maxSize": 3, "ports": [{"number": 80, "since": "2024-05-01T10:00:00Z"}]}
    since = dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)
    assert read(Model, spec) == Model(maxSize=3, ports=(Port(number=80, since=since),))


def test_a_strict_model_is_read_as_json_is() -> None:
    since = dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)
    found = read(Strict, {"since": "2024-05-01T10:00:00Z", "sizes": [1, 2]})
    assert found == Strict(since=since, sizes=(1, 2))


def test_models_may_be_parts_of_other_classes() -> None:
    assert read(Attrs, {"ports": [{"number": 80}]}) == Attrs(ports=(Port(number=80),))


@pytest.mark.parametrize(
    ("view", "spec", "text"),
    [
        (Model, {"maxSize": -1}, r"$.spec.maxSize does not fit Model: Input should be greater"),
        (Model, {"ports": [{"number": 80}, {"number": 0}]}, "$.spec.ports[1].number does not fit"),
        (Model, {"maxSize": -1, "note": 3}, "(and 1 more)"),
        (Model, "text", "$.spec does not fit Model: "),
        (Attrs, {"ports": [{"number": 80}, {"number": 0}]}, "$.spec.ports[1].number does not fit"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(view: Any, spec: Any, text: str) -> None:
    said = refusal(view, spec)
    assert said.startswith("Widget default/web: $.spec")
    assert text in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Model().model_copy(update={"max_size": -1}), "$.spec.maxSize does not fit Model"),
        (Model.model_construct(ports=(Port.model_construct(number=0),)), "$.spec.ports[0].number"),
    ],
    ids=["model_copy", "model_construct"],
)
@pytest.mark.parametrize("present", [None, {}, {"unknown": 1}], ids=["none", "empty", "more"])
def test_a_value_that_could_not_be_read_again_is_not_written(
    value: Any, text: str, present: Any
) -> None:
    draft = MutableObject.new(kind_of(type(value)), "web")
    if present is not None:
        draft["spec"] = present
    with pytest.raises(EncodeError) as refused:
        draft.spec = value
    assert text in str(refused.value)
    assert draft.get("spec") == present
    with pytest.raises(EncodeError):
        MutableObject.new(kind_of(type(value)), "web", spec=value)


def test_a_model_is_written_under_its_aliases_and_keeps_what_it_does_not_know() -> None:
    draft = MutableObject.new(kind_of(Model), "web", spec={"maxSize": 3, "unknown": {"a": 1}})
    draft.spec = draft.spec.model_copy(update={"max_size": 5})
    assert draft["spec"] == {"maxSize": 5, "unknown": {"a": 1}}
    draft.spec = Model(ports=(Port(number=80),))
    assert draft["spec"] == {"maxSize": 0, "ports": [{"number": 80}], "unknown": {"a": 1}}
    assert MutableObject.new(kind_of(Model), "web", spec=Model(maxSize=2))["spec"] == {
        "maxSize": 2,
        "ports": [],
    }
    assert encode_json({"spec": Port(number=80)}) == b'{"spec":{"number":80,"since":null}}'


def test_a_crd_has_the_schema_of_a_model() -> None:
    versions = custom_resource_definition(kind_of(Model))["spec"]["versions"]
    spec = versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["maxSize"] == {"type": "integer", "minimum": 0, "default": 0}
    port = spec["properties"]["ports"]["items"]
    assert port["properties"]["number"] == {"type": "integer", "minimum": 1, "maximum": 65535}
    assert port["properties"]["since"] == {
        "type": "string",
        "format": "date-time",
    }
    assert port["required"] == ["number"]


class Tree(pydantic.BaseModel, frozen=True):
    children: tuple[Tree, ...] = ()


def test_a_crd_of_a_model_that_contains_itself_says_so() -> None:
    with pytest.raises(ValueError, match="Tree contains itself"):
        custom_resource_definition(kind_of(Tree))
    assert read(Tree, {"children": [{}]}) == Tree(children=(Tree(),))


class Changeable(pydantic.BaseModel):
    size: int = 0


@dataclasses.dataclass(frozen=True)
class PydanticData:
    size: int = 0


@pytest.mark.parametrize(
    ("view", "remedy"),
    [
        (Changeable, r"can be changed .* pydantic\.BaseModel\(frozen=True\)"),
        (PydanticData, r"dataclass of pydantic.* class PydanticData\(pydantic\.BaseModel, frozen"),
    ],
)
def test_a_class_that_cannot_be_is_refused_with_what_to_use(view: Any, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        Kind(group="example.com", version="v1", kind="Widget", spec=view)


# -- Extra fields -----------------------------------------------------------------------------


class Open(pydantic.BaseModel, frozen=True, extra="allow"):
    max_size: int | None = pydantic.Field(default=None, alias="maxSize")
    ports: tuple[Open, ...] = ()
    named: dict[str, Open] = pydantic.Field(default_factory=dict)
    labels: dict[str, str | None] = pydantic.Field(default_factory=dict)


class Listed(pydantic.RootModel[list[Open]], frozen=True):
    """Items alone."""


class Chosen(pydantic.BaseModel, frozen=True, extra="allow"):
    """Says itself what is written."""

    @pydantic.model_serializer
    def chosen(self) -> dict[str, Any]:
        return {"chosen": True}


FREE = {"note": None, "more": {"a": None, "b": [None]}}


@pytest.mark.parametrize(
    "spec",
    [
        FREE,
        {"ports": [FREE, {}]},
        {"named": {"a": {"named": {"b": FREE}}, "c": {}}},
        {"labels": {"a": None}},
    ],
)
def test_a_null_in_an_extra_field_is_data(spec: dict[str, Any]) -> None:
    kind = kind_of(Open)
    value = Open.model_validate(spec)
    written = MutableObject.new(kind, "web", spec=value)["spec"]
    assert read(Open, written) == value

    def without_defaults(value: Any) -> Any:
        if isinstance(value, dict):
            defaults = ("ports", "named", "labels")
            return {k: without_defaults(v) for k, v in value.items() if k not in defaults or v}
        return [without_defaults(item) for item in value] if isinstance(value, list) else value

    assert without_defaults(written) == without_defaults(spec)
    # And in an assignment over what is there.
    draft = MutableObject(kind, {"metadata": {"name": "web"}, "spec": {"maxSize": 3, "old": None}})
    draft.spec = draft.spec.model_copy(update={"max_size": 4})
    assert draft["spec"]["maxSize"] == 4
    assert draft["spec"]["old"] is None
    draft.spec = value
    assert "maxSize" not in draft["spec"]
    assert "old" not in draft["spec"]
    assert without_defaults(draft["spec"]) == without_defaults(spec)


def test_what_a_model_says_itself_is_written_as_it_says() -> None:
    listed = Listed([Open.model_validate(FREE)])
    draft = MutableObject(kind_of(Open), {"a": listed, "b": Chosen.model_validate(FREE)})
    written = draft.to_dict()
    assert written["a"][0]["note"] is None
    assert written["b"] == {"chosen": True}


FROZEN = pydantic.ConfigDict(frozen=True)
NAMES = pydantic.RootModel[dict[str, int]]
WRITTEN_OTHERWISE = Annotated[str, pydantic.PlainSerializer(str.upper)]


@pytest.mark.parametrize("rename", [None, "camel"])
@pytest.mark.parametrize(
    ("view", "default"),
    [
        (ipaddress.IPv4Address, ipaddress.IPv4Address("10.0.0.1")),
        (pydantic.HttpUrl, pydantic.HttpUrl("http://a")),
        (pathlib.Path, pathlib.Path("/a")),
        (list[ipaddress.IPv4Address], [ipaddress.IPv4Address("10.0.0.1")]),
        (set[ipaddress.IPv4Address], {ipaddress.IPv4Address(n) for n in range(9)}),
        (dict[str, pathlib.Path], {"a_b": pathlib.Path("/a")}),
        (dt.timedelta, dt.timedelta(hours=36)),
        (decimal.Decimal, decimal.Decimal("1.50")),
        (NAMES, NAMES({"a_b": 1})),
        (Model, Model(ports=(Port(number=80),))),
        (WRITTEN_OTHERWISE, "a"),
        (str, "a"),
        (tuple[int, ...], (1, 2)),
    ],
)
def test_the_default_of_a_schema_is_what_the_model_writes(
    view: Any, default: Any, rename: Any
) -> None:
    made = pydantic.create_model(
        "Spec",
        __config__=FROZEN,
        first_one=(str, ...),
        the_field=(view, default),
    )
    kind = Kind(group="example.com", version="v1", kind="W", spec=made, rename=rename)
    name = "theField" if rename else "the_field"
    written = MutableObject.new(kind, "w", spec=made(first_one="a"))["spec"][name]
    crd = custom_resource_definition(kind)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found = spec["properties"][name]["default"]
    assert found == (sorted(written) if isinstance(default, set) else written)


def test_a_field_may_be_called_as_the_parameter_of_a_class_method() -> None:
    made = pydantic.create_model(
        "Spec", __config__=FROZEN, cls=(str, "a"), size=(NAMES, NAMES({"b": 1}))
    )
    kind = Kind(group="example.com", version="v1", kind="W", spec=made)
    spec = custom_resource_definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = spec["properties"]["spec"]["properties"]
    assert found["cls"]["default"] == "a"
    assert found["size"]["default"] == {"b": 1}


def test_the_default_of_a_secret_is_refused_as_its_mask() -> None:
    class Spec(pydantic.BaseModel, frozen=True):
        password: pydantic.SecretStr = pydantic.SecretStr("x")

    kind = Kind(group="example.com", version="v1", kind="W", spec=Spec)
    with pytest.raises(ValueError, match=r"Spec\.password as '\*+'"):
        custom_resource_definition(kind)


@pytest.mark.parametrize(("how", "format_"), [({}, None), ({"ser_json_bytes": "base64"}, "byte")])
def test_the_bytes_of_a_model_have_the_format_in_which_they_are_written(
    how: Any, format_: str | None
) -> None:
    config = pydantic.ConfigDict(
        frozen=True, val_json_bytes=how.get("ser_json_bytes", "utf8"), **how
    )
    made = pydantic.create_model("Spec", __config__=config, data=(bytes, b"hello"))
    kind = Kind(group="example.com", version="v1", kind="W", spec=made)
    crd = custom_resource_definition(kind)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    field = spec["properties"]["data"]
    written = MutableObject.new(kind, "w", spec=made())["spec"]["data"]
    assert (field.get("format"), field["default"]) == (format_, written)
