"""What classes become in the schema of a CRD."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, TypedDict

import attrs
import msgspec
import pytest
from attrs import validators

from appsdk_operator.resource import (
    FieldName,
    Immutable,
    Int32,
    Int64,
    ListType,
    MapType,
    MutableObject,
    PrinterColumn,
    Rule,
    Scale,
    Schema,
    Time,
    Versions,
    custom_resource_definition,
)
from appsdk_operator.resource import Kind as AnyKind
from tests.resource.schema_kinds import CLASSES, AttrsSpec


def kind_of(view: Any, **options: Any) -> AnyKind[Any, Any]:
    return AnyKind(group="example.com", version="v1", kind="Widget", spec=view, **options)


def version_of(view: Any, rename: Any = None, **options: Any) -> dict[str, Any]:
    made = custom_resource_definition(kind_of(view, rename=rename), **options).to_dict()
    version: dict[str, Any] = made["spec"]["versions"][0]
    return version


def schema_of(view: Any, rename: Any = None, **options: Any) -> dict[str, Any]:
    whole = version_of(view, rename, **options)["schema"]["openAPIV3Schema"]
    spec: dict[str, Any] = whole["properties"]["spec"]
    return spec


@attrs.frozen
class WithDoctest:
    """A size.

    In liters.

        >>> WithDoctest(3).liters
        3

    For readers of the code.
    """

    liters: int = 1


@attrs.frozen
class Marked:
    """A ``size``, see :class:`~example.Widget`, :py:meth:`!run` and :ref:`sizes <the-sizes>`.

    Other `text`, ```fenced```, ``a`b`` and 10:30:`x` stay.
    """

    size: int = 1
    """One of ``1`` and ``2``, as in :attr:`Widget.size`."""


def test_descriptions_have_no_markup_of_restructuredtext() -> None:
    schema = schema_of(Marked)
    assert schema["description"] == (
        "A `size`, see Widget, run and sizes.\n\n"
        "Other `text`, ```fenced```, ``a`b`` and 10:30:`x` stay."
    )
    assert schema["properties"]["size"]["description"] == "One of `1` and `2`, as in Widget.size."


def test_a_description_ends_where_the_doctests_begin() -> None:
    assert schema_of(WithDoctest)["description"] == "A size.\n\nIn liters."


def test_an_attrs_class_is_a_schema() -> None:
    made = schema_of(AttrsSpec, "camel")
    assert made["description"] == "What a widget should be.\n\nAs text."
    assert made["required"] == ["owner"]
    rules = made["x-kubernetes-validations"]
    assert {"rule": "self.maxSize >= self.minSize"}.items() <= rules[-1].items()
    assert rules[0]["rule"] == "!has(oldSelf.region) || has(self.region)"
    fields = made["properties"]
    assert fields["owner"] == {
        "type": "string",
        "maxLength": 20,
        "description": "Who made it.",
        "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "the field is immutable"}
        ],
    }
    assert fields["minSize"] == {"type": "integer", "minimum": 0, "default": 1}
    assert fields["maxSize"] == {
        "type": "integer",
        "maximum": 100,
        "exclusiveMaximum": True,
        "default": 9,
    }
    assert fields["tier"] == {"type": "string", "enum": ["small", "big"], "default": "small"}
    assert fields["mode"] == {"type": "string", "enum": ["Auto", "Manual"], "default": "Auto"}
    assert fields["target"] == {"x-kubernetes-int-or-string": True, "default": 80}
    assert fields["memory"]["x-kubernetes-int-or-string"]
    assert "nullable" not in fields["memory"]
    assert fields["memory"]["pattern"].startswith(r"^(\+|-)?")
    assert fields["timeout"] == {"type": "string", "format": "duration", "default": "30s"}
    assert fields["since"] == {"type": "string", "format": "date-time"}
    assert fields["color"] == {"type": "string", "pattern": "^(?:[a-z]+)$", "default": "red"}
    assert fields["labels"]["additionalProperties"] == {"type": "string"}
    assert fields["weights"]["additionalProperties"]["exclusiveMinimum"]
    ports = fields["ports"]
    assert ports["x-kubernetes-list-type"] == "map"
    assert ports["x-kubernetes-list-map-keys"] == ["name"]
    assert ports["maxItems"] == 5
    assert ports["items"]["description"] == "A port of the widget."
    assert ports["items"]["properties"]["number"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 65535,
        "default": 80,
        "description": "The port's number.",
    }
    assert fields["tags"]["x-kubernetes-list-type"] == "set"
    assert fields["template"] == {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    assert fields["extra"]["x-kubernetes-preserve-unknown-fields"]
    assert fields["anything"] == {"x-kubernetes-preserve-unknown-fields": True}
    source = fields["source"]
    assert set(source["properties"]) == {"from", "path", "variable", "isOptional"}
    assert source["required"] == ["from"]
    assert source["oneOf"] == [
        {"properties": {"from": {"enum": ["file"]}}, "required": ["path"]},
        {"properties": {"from": {"enum": ["env"]}}, "required": ["variable"]},
    ]
    assert "default" not in source["properties"]["isOptional"], "the other class has no such field"

    assert fields["address"] == {"type": "string", "format": "ipv4"}
    assert fields["mainPort"]["default"] == {"name": "main", "number": 80}


@pytest.mark.parametrize("name", CLASSES)
def test_other_classes_are_the_same_schema(name: str) -> None:
    made = schema_of(CLASSES[name], "camel")
    assert made["description"] == "What a widget should be."
    assert made["required"] == ["owner"]
    fields = made["properties"]
    assert fields["owner"]["maxLength"] == 20
    assert fields["owner"]["description"] == "Who made it."
    assert fields["owner"]["x-kubernetes-validations"][0]["rule"] == "self == oldSelf"
    assert fields["maxSize"]["maximum"] == 100
    assert fields["maxSize"]["exclusiveMaximum"] is True
    assert fields["tier"] == {"type": "string", "enum": ["small", "big"], "default": "small"}
    assert fields["ports"]["maxItems"] == 5
    assert fields["ports"]["default"] == []
    number = fields["ports"]["items"]["properties"]["number"]
    assert number == {"type": "integer", "minimum": 1, "maximum": 65535, "default": 80}
    assert fields["target"] == {"x-kubernetes-int-or-string": True, "default": 80}
    assert fields["color"] == {"type": "string", "pattern": "^[a-z]+$", "default": "red"}


@attrs.frozen
class Free:
    size: int = 0


@attrs.frozen
class Bound:
    size: int


def test_a_spec_is_required_or_has_a_default() -> None:
    def root(view: Any) -> dict[str, Any]:
        found: dict[str, Any] = version_of(view)["schema"]["openAPIV3Schema"]
        return found

    assert root(Bound)["required"] == ["spec"]
    assert "required" not in root(Free)
    assert root(Free)["properties"]["spec"]["default"] == {}
    assert "required" not in root(Bound | None)
    assert "required" not in root(None)


def test_a_named_field_needs_a_kind_that_renames() -> None:
    @attrs.frozen
    class Named:
        pod_ip: Annotated[str, FieldName("podIP")] = ""

    with pytest.raises(ValueError, match=r'spec\.pod_ip has a FieldName.*rename="camel"'):
        schema_of(Named)
    assert list(schema_of(Named, "camel")["properties"]) == ["podIP"]


@attrs.frozen
class Kept:
    name: str
    value: Annotated[str, Immutable]


def _odd(_: object, __: object, value: int) -> None:
    if value % 2:
        raise ValueError("odd")


@attrs.frozen
class Unsaid:
    size: int = attrs.field(default=0, validator=[attrs.validators.ge(0), _odd])
    text: str = attrs.field(default="", validator=attrs.validators.matches_re("(?=a)a"))
    other: int = attrs.field(default=0, validator=attrs.validators.not_(attrs.validators.gt(3)))

    def __attrs_post_init__(self) -> None:
        pass


def test_what_no_schema_can_say_is_named_if_asked_for() -> None:
    assert schema_of(Unsaid)["properties"]["size"] == {
        "type": "integer",
        "minimum": 0,
        "default": 0,
    }
    with pytest.raises(ValueError, match="no schema can express") as refused:
        schema_of(Unsaid, strict=True)
    for text in ("spec.size: validator _odd", "spec.text: pattern", "spec.other: validator"):
        assert text in str(refused.value)
    assert "Unsaid.__attrs_post_init__" in str(refused.value)
    schema_of(AttrsSpec, "camel", strict=True)


class Mixed(enum.Enum):
    ONE = 1
    TEXT = "x"


@pytest.mark.parametrize(
    ("view", "schema"),
    [
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Mixed, {"x-kubernetes-int-or-string": True, "enum": [1, "x"]}),
        (int | float, {"type": "number"}),
        (Annotated[int | None, msgspec.Meta(ge=1)], {"type": "integer", "minimum": 1}),
        (Annotated[int, msgspec.Meta(ge=1)] | None, {"type": "integer", "minimum": 1}),
        (bytes, {"type": "string", "format": "byte"}),
        (Annotated[list[Kept], ListType.MAP("name")], {"x-kubernetes-list-map-keys": ["name"]}),
        (
            Annotated[dict[str, str], MapType.ATOMIC],
            {"additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
        ),
        (
            Annotated[str, msgspec.Meta(extra_json_schema={"x-kubernetes-int-or-string": True})],
            {"x-kubernetes-int-or-string": True},
        ),
        (tuple[int, int], {"items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),
        (
            Annotated[int, Rule("self > 3", message="small", reason="FieldValueInvalid")],
            {
                "x-kubernetes-validations": [
                    {"rule": "self > 3", "message": "small", "reason": "FieldValueInvalid"}
                ]
            },
        ),
    ],
    ids=str,
)
def test_types_and_what_they_become(view: Any, schema: Mapping[str, Any]) -> None:
    field = attrs.make_class("Spec", {"it": attrs.field(type=view)}, frozen=True)
    field.__annotations__ = {"it": view}
    found = schema_of(field)["properties"]["it"]
    assert schema.items() <= found.items()


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (list[int] | str, "spec.it may be of several types"),
        (tuple[int, str], "spec.it has items of several types"),
        (Annotated[list[Free], ListType.MAP("name")], "names no field of its items: use one of"),
        (Annotated[list[dict[str, str]], ListType.SET], "ListType.SET is for texts and numbers"),
        (Annotated[int, ListType.SET], "spec.it has a ListType, but is not a list"),
        (None, "spec.it is always null"),
        (list[Kept], "spec.it: a rule of its items has oldSelf"),
    ],
    ids=str,
)
def test_what_has_no_schema_is_refused_with_its_path(view: Any, text: str) -> None:
    made = attrs.make_class("Spec", {"it": attrs.field(type=view)}, frozen=True)
    made.__annotations__ = {"it": view}
    with pytest.raises(ValueError) as refused:
        schema_of(made)
    assert text in str(refused.value)


def test_the_rest_of_a_version_is_options() -> None:
    version = version_of(
        AttrsSpec,
        "camel",
        printer_columns=[
            PrinterColumn("Size", ".spec.maxSize"),
            PrinterColumn("Since", "spec.since", priority=1),
            PrinterColumn("Age", ".metadata.creationTimestamp"),
            {"name": "Plain", "type": "string", "jsonPath": ".spec.owner"},
        ],
        scale=Scale(replicas="spec.maxSize", selector=".status.selector"),
        selectable_fields=["spec.color"],
        deprecated="use v2",
    )
    assert version["additionalPrinterColumns"] == [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.maxSize"},
        {"name": "Since", "type": "date", "jsonPath": ".spec.since", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Plain", "type": "string", "jsonPath": ".spec.owner"},
    ]
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.maxSize",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    assert version["selectableFields"] == [{"jsonPath": ".spec.color"}]
    assert (version["deprecated"], version["deprecationWarning"]) == (True, "use v2")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Scale(replicas=".status.replicas"), r"replicas=.*'\.spec\.…'"),
        (lambda: PrinterColumn("Size", ".spec.size", type="int"), "use one of integer"),
        (lambda: Rule(" "), "give an expression"),
        (lambda: Rule("true", reason="Bad"), "use one of FieldValueInvalid"),
        (lambda: Rule("true", reason="Invalid"), "use one of FieldValueInvalid"),
        (ListType.MAP, "the field that identifies an item"),
        (
            lambda: custom_resource_definition(Versions(kind_of(Free)), deprecated=True),  # type: ignore[call-overload]
            r"Versions\.older",
        ),
    ],
)
def test_options_are_checked_when_given(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_a_list_in_place_of_fields_is_refused() -> None:
    with pytest.raises(TypeError, match="give fields one by one"):
        ListType.MAP(["name"])  # type: ignore[arg-type]


def test_schema_says_what_no_other_marker_says() -> None:
    @Schema(minProperties=1, not_={"required": ["name"]})
    @attrs.frozen
    class Spec:
        name: Annotated[str, Schema(pattern="^a", maxLength=3)] = ""
        count: Int32 = 1
        big: Int64 = 1
        since: Annotated[Time | None, Schema(nullable=True)] = None

    spec = schema_of(Spec)
    assert spec["minProperties"] == 1
    assert spec["not"] == {"required": ["name"]}
    fields = spec["properties"]
    assert fields["name"] == {"type": "string", "pattern": "^a", "maxLength": 3, "default": ""}
    assert fields["count"] == {"type": "integer", "format": "int32", "default": 1}
    assert fields["big"]["format"] == "int64"
    assert fields["since"] == {"type": "string", "format": "date-time", "nullable": True}


def test_an_empty_schema_marker_is_refused() -> None:
    with pytest.raises(ValueError, match=r"give parts of a schema, Schema\(maxLength=63\)"):
        Schema()


def test_none_is_null_where_a_field_cannot_be_absent_for_it() -> None:
    @attrs.frozen
    class Spec:
        required: str | None
        items: tuple[str | None, ...] = ()
        other: str | None = "a"
        absent: str | None = None

    fields = schema_of(Spec)["properties"]
    assert fields["required"]["nullable"]
    assert fields["items"]["items"]["nullable"]
    assert fields["other"]["nullable"]
    assert "nullable" not in fields["absent"]


def test_the_enum_of_what_may_be_none_is_beside_null() -> None:
    @attrs.frozen
    class Spec:
        mode: Literal["a"] | None
        literal: Literal["a", None]  # noqa: PYI061 - the other spelling
        checked: str | None = attrs.field(
            validator=attrs.validators.optional(attrs.validators.in_(["a"]))
        )
        asked: Annotated[Literal["a"] | None, Schema(nullable=True)] = None
        absent: Literal["a"] | None = None
        other: Literal["a", None] = None  # noqa: PYI061

    fields = schema_of(Spec)["properties"]
    for name in ("mode", "literal", "checked", "asked"):
        known = {"type": "string", "nullable": True, "allOf": [{"enum": ["a"]}]}
        assert fields[name] == known, name
    assert fields["absent"] == fields["other"] == {"type": "string", "enum": ["a"]}


def test_a_description_and_rules_are_of_the_whole_object() -> None:
    rule = Rule("self.metadata.name != 'x'", message="not x")
    root = version_of(Free, description="A widget.", rules=[rule])["schema"]["openAPIV3Schema"]
    assert root["description"] == "A widget."
    assert root["x-kubernetes-validations"] == [rule.as_json()]
    given = {"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}
    root = version_of(Free, schema=given, rules=[rule])["schema"]["openAPIV3Schema"]
    assert root["x-kubernetes-validations"] == [{"rule": "true"}, rule.as_json()]
    assert given["x-kubernetes-validations"] == [{"rule": "true"}]
    for wrong, text in (
        ({"rules": rule}, r"give a list, \[Rule"),
        ({"rules": ["true"]}, r"'true' is not a Rule: give a list, \[Rule"),
        ({"description": 3}, "give a text"),
    ):
        with pytest.raises(TypeError, match=text):
            version_of(Free, **wrong)


def test_a_spec_that_may_not_be_empty_has_no_empty_default() -> None:
    @Schema(minProperties=1)
    @attrs.frozen
    class Spec:
        name: str = ""

    whole = version_of(Spec)["schema"]["openAPIV3Schema"]
    assert whole["required"] == ["spec"]
    assert "default" not in whole["properties"]["spec"]


@attrs.frozen
class SetOnce:
    region: Annotated[str | None, Immutable] = None
    zone: Annotated[str, Immutable] | None = None
    port: Annotated[int, Immutable] | str = 0


def test_an_immutable_member_of_a_union_makes_the_field_immutable() -> None:
    made = schema_of(SetOnce)
    for name in ("region", "zone", "port"):
        rules = [rule["rule"] for rule in made["properties"][name]["x-kubernetes-validations"]]
        assert rules == ["self == oldSelf"], name
    assert [rule["message"] for rule in made["x-kubernetes-validations"]] == [
        f"{name} is immutable: it cannot be removed" for name in ("region", "zone", "port")
    ]


def test_parts_of_a_schema_add_up() -> None:
    @Schema(required=["color"])
    @attrs.frozen
    class Spec:
        size: Annotated[int, msgspec.Meta(ge=0), Schema(exclusiveMinimum=True)]
        more: Annotated[int, Schema(exclusiveMaximum=True, maximum=9)]
        text: Annotated[str, Schema(oneOf=[{"pattern": "a"}]), Schema(oneOf=[{"pattern": "b"}])]
        color: str = ""

    made = schema_of(Spec)
    assert made["required"] == ["size", "more", "text", "color"]
    lower = {"type": "integer", "minimum": 0, "exclusiveMinimum": True}
    upper = {"type": "integer", "maximum": 9, "exclusiveMaximum": True}
    assert (made["properties"]["size"], made["properties"]["more"]) == (lower, upper)
    assert made["properties"]["text"] == {
        "type": "string",
        "oneOf": [{"pattern": "a"}],
        "allOf": [{"oneOf": [{"pattern": "b"}]}],
    }


class Options(TypedDict):
    size: int
    color: NotRequired[str]


class Lax(TypedDict, total=False):
    size: Required[int]
    color: str


@pytest.mark.parametrize("view", [Options, Lax])
def test_keys_of_a_typed_dict_are_required_as_its_annotations_say(view: Any) -> None:
    # Its own __required_keys__ does not, as annotations are texts in this module.
    made = schema_of(attrs.make_class("Spec", {"it": attrs.field(type=view)}, frozen=True))
    assert made["properties"]["it"]["required"] == ["size"]


@pytest.mark.parametrize(
    ("config", "numbers"),
    [
        ({"ser_json_timedelta": "float"}, ["span"]),
        ({"ser_json_temporal": "seconds"}, ["at", "day", "hour", "span"]),
        ({"ser_json_temporal": "iso8601", "ser_json_timedelta": "float"}, []),
    ],
)
def test_times_that_a_model_writes_as_numbers_are_numbers(config: Any, numbers: list[str]) -> None:
    pydantic = pytest.importorskip("pydantic", "2.12")
    fields: dict[str, Any] = {
        "at": (dt.datetime, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        "day": (dt.date, dt.date(2026, 1, 1)),
        "hour": (dt.time, dt.time(12)),
        "span": (dt.timedelta, dt.timedelta(seconds=90)),
    }
    spec = pydantic.create_model("Spec", __config__={"frozen": True, **config}, **fields)
    written = MutableObject.new(kind_of(spec), "w", namespace="default", spec=spec()).to_dict()
    made = schema_of(spec)["properties"]
    assert [name for name in fields if made[name]["type"] == "number"] == numbers
    assert [name for name in fields if isinstance(written["spec"][name], float)] == numbers


class Pair(NamedTuple):
    first: str
    second: str = ""


class Row(msgspec.Struct, frozen=True, array_like=True):
    first: str
    second: str = ""


class TaggedRow(msgspec.Struct, frozen=True, array_like=True, tag="row"):
    first: str
    second: str = ""


class Chain(msgspec.Struct, frozen=True, array_like=True):
    following: list[Chain]


@pytest.mark.parametrize(("view", "fewest", "most"), [(Pair, 1, 2), (Row, 1, 2), (TaggedRow, 2, 3)])
def test_the_items_of_an_array_with_defaults_may_be_absent(
    view: Any, fewest: int, most: int
) -> None:
    made = schema_of(attrs.make_class("Spec", {"it": attrs.field(type=view)}, frozen=True))
    expected = {"type": "array", "items": {"type": "string"}}
    limits = {"minItems": fewest, "maxItems": most}
    assert made["properties"]["it"] == {**expected, **limits}


def test_the_tag_of_an_array_is_named_if_asked_for() -> None:
    spec = attrs.make_class("Spec", {"it": attrs.field(type=TaggedRow)}, frozen=True)
    with pytest.raises(ValueError, match=r"spec\.it: that the first item is 'row'"):
        schema_of(spec, strict=True)


def test_an_array_that_contains_itself_has_no_schema() -> None:
    spec = attrs.make_class("Spec", {"it": attrs.field(type=Chain)}, frozen=True)
    with pytest.raises(ValueError, match="Chain contains itself"):
        schema_of(spec)


def test_the_root_of_a_model_has_the_markers_and_the_description_of_its_class() -> None:
    pydantic = pytest.importorskip("pydantic")

    def check(value: str) -> str:
        return value

    body = {
        "__doc__": "The name of a color.",
        "check": pydantic.field_validator("root")(check),
        "__module__": __name__,
    }
    root = type("Color", (pydantic.RootModel[str],), body, frozen=True)
    Schema(maxLength=9)(root)
    spec = pydantic.create_model("Spec", __config__={"frozen": True}, it=(root, ...))
    assert schema_of(spec)["properties"]["it"] == {
        "type": "string",
        "maxLength": 9,
        "description": "The name of a color.",
    }
    with pytest.raises(ValueError, match=r"spec\.it: validator check"):
        schema_of(spec, strict=True)


def test_an_item_that_may_be_none_has_its_enum_beside_null() -> None:
    @attrs.frozen
    class Spec:
        colors: list[str | None] = attrs.field(
            validator=validators.deep_iterable(validators.optional(validators.in_(["red"])))
        )

    assert schema_of(Spec)["properties"]["colors"]["items"] == {
        "type": "string",
        "nullable": True,
        "allOf": [{"enum": ["red"]}],
    }
