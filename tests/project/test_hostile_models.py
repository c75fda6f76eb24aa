"""Modules of typed classes from definitions whose names and texts are hard for Python."""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator import Object, custom_resource_definition
from appsdk_operator.project import ModelError, models
from appsdk_operator.project._models.module import reserved_fields
from appsdk_operator.testing.strategies import values
from tests.hypothesis_profiles import scaled
from tests.project.hostile_crds import damaged, definitions
from tests.project.model_tools import crd, imported, kinds_of, lost

STYLES = ("attrs", "dataclass", "msgspec", "pydantic")


def text_of(crds: list[dict[str, Any]], style: Any) -> str | None:
    """The module; None where msgspec cannot have a name."""
    try:
        return models(crds, style=style)
    except ModelError as error:
        if style == "msgspec" and "use another style" in str(error):
            return None
        raise


@settings(max_examples=scaled(30))
@given(definitions(), st.sampled_from(STYLES), st.data())
def test_a_module_imports_and_its_classes_are_those_of_the_definitions(
    crds: list[dict[str, Any]], style: Any, data: st.DataObject
) -> None:
    text = text_of(crds, style)
    if text is None:
        return
    ast.parse(text)
    schemas = {
        (crd["spec"]["group"], crd["spec"]["names"]["kind"], version["name"]): (
            version["schema"]["openAPIV3Schema"]["properties"]
        )
        for crd in crds
        for version in crd["spec"]["versions"]
    }
    with tempfile.TemporaryDirectory() as folder:
        kinds = list(kinds_of(imported(text, Path(folder))).values())
        assert sorted((kind.group, kind.kind, kind.version) for kind in kinds) == sorted(schemas)
        for kind in kinds:
            schema = schemas[kind.group, kind.kind, kind.version]
            found = custom_resource_definition(kind).to_dict()["spec"]["versions"][0]
            made = found["schema"]["openAPIV3Schema"]["properties"]
            for part in ("spec", "status"):
                known = schema.get(part, {}).get("properties", {})
                if known:
                    assert made[part]["properties"].keys() == known.keys()
            if kind.spec is not None:
                spec = data.draw(values(schema["spec"], deepest=2))
                obj = Object.from_dict(kind, {"metadata": {"name": "a"}, "spec": spec})
                assert isinstance(obj.spec, kind.spec)
                written = obj.mutable_copy()
                written.spec = obj.spec
                assert lost(spec, written["spec"]) == []


@settings(max_examples=scaled(60))
@given(damaged(), st.sampled_from(STYLES))
def test_a_definition_of_another_form_is_refused_or_its_module_imports(
    crd: dict[str, Any], style: Any
) -> None:
    try:
        text = models([crd], style=style)
    except ModelError:
        return
    with tempfile.TemporaryDirectory() as folder:
        imported(text, Path(folder))


# -- Names that clash, each by itself -------------------------------------------------------------


def spec(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXT = {"type": "string"}
PART = spec(x=TEXT)


def with_versions(made: dict[str, Any], *versions: str) -> dict[str, Any]:
    (first,) = made["spec"]["versions"]
    made["spec"]["versions"] = [
        {**first, "name": version, "storage": version == versions[0]} for version in versions
    ]
    return made


def test_kinds_that_differ_in_the_case_of_letters_have_constants_of_their_own(
    tmp_path: Path,
) -> None:
    names = ("HTTPRoute", "HttpRoute", "Foo-Bar", "FooBar", "WidgetV2", "Widget")
    crds = [crd(spec(**{f"of-{name}": TEXT}), kind=name) for name in names]
    for one in crds:
        with_versions(one, "v1", "v2")
    kinds = kinds_of(imported(models(crds), tmp_path))
    assert len(kinds) == 12
    for kind in kinds.values():
        made = custom_resource_definition(kind).to_dict()["spec"]["versions"][0]
        (field,) = made["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        assert field == f"of-{kind.kind}"
    # What is not alike keeps its plain name.
    assert {"WIDGET", "WIDGET_V2", "WIDGET_V2_V2"} < kinds.keys()


def test_versions_with_names_that_are_alike_have_classes_of_their_own(tmp_path: Path) -> None:
    made = with_versions(crd(PART), "v2", "v1", "v-1")
    made["spec"]["versions"][2]["schema"] = crd(spec(y=TEXT))["spec"]["versions"][0]["schema"]
    module = imported(models([made]), tmp_path)
    found = {kind.version: kind.spec for kind in kinds_of(module).values()}
    assert len(module.WIDGET_VERSIONS) == len(set(found.values())) == 3
    assert found["v-1"](y="a").y == "a"


def test_a_class_has_not_the_name_of_a_constant(tmp_path: Path) -> None:
    module = imported(models([crd(spec(A=PART), kind="A")]), tmp_path)
    data = {"metadata": {"name": "a"}, "spec": {"A": {"x": "1"}}}
    assert Object.from_dict(module.A, data).spec.a.x == "1"


def test_no_field_hides_what_a_model_of_pydantic_has(tmp_path: Path) -> None:
    own = {name for name in dir(pydantic.BaseModel) if not name.startswith("_")}
    assert own | {"model_config"} <= reserved_fields("pydantic")
    names = ["modelConfig", "model_config", "modelDump", "copy"]
    text = models([crd(spec(**dict.fromkeys(names, TEXT)))], style="pydantic")
    module = imported(text, tmp_path)
    data = {"metadata": {"name": "a"}, "spec": dict.fromkeys(names, "1")}
    found = Object.from_dict(module.WIDGET, data).spec
    assert (found.model_config_, found.model_config__2, found.model_dump_) == ("1", "1", "1")


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "\0"])
def test_a_name_that_msgspec_refuses_is_refused_with_what_to_do(name: str) -> None:
    crds = [crd(spec(**{name: TEXT}))]
    with pytest.raises(ModelError, match="use another style"):
        models(crds, style="msgspec")
    assert models(crds)


@pytest.mark.parametrize("style", STYLES)
def test_names_that_python_has_a_meaning_for_are_read_and_written(
    style: Any, tmp_path: Path
) -> None:
    names = ["__slots__", "__dataclass_fields__", "__attrs_attrs__", "__init__", "__annotations__"]
    module = imported(models([crd(spec(**dict.fromkeys(names, TEXT)))], style=style), tmp_path)
    data = dict.fromkeys(names, "1")
    obj = Object.from_dict(module.WIDGET, {"metadata": {"name": "a"}, "spec": data})
    assert obj.spec.slots == "1"
    written = obj.mutable_copy()
    written.spec = obj.spec
    assert written["spec"] == data


@pytest.mark.parametrize("style", STYLES)
def test_an_enum_of_numbers_beyond_64_bits_is_a_number(style: Any, tmp_path: Path) -> None:
    schema = spec(size={"type": "integer", "enum": [2**70, 1]})
    module = imported(models([crd(schema)], style=style), tmp_path)
    data = {"metadata": {"name": "a"}, "spec": {"size": 2**70}}
    assert Object.from_dict(module.WIDGET, data).spec.size == 2**70
    made = custom_resource_definition(module.WIDGET).to_dict()["spec"]["versions"][0]
    found = made["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]
    assert found["enum"] == [2**70, 1]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("value", [[], [1], {}, {"a": [1]}], ids=str)
def test_instances_do_not_share_a_default_that_can_be_changed(
    value: Any, style: Any, tmp_path: Path
) -> None:
    schema = spec(any={"x-kubernetes-preserve-unknown-fields": True, "default": value})
    module = imported(models([crd(schema)], style=style), tmp_path)
    one, other = module.WidgetSpec(), module.WidgetSpec()
    assert one.any == other.any == value
    assert one.any is not other.any


def nested(levels: int, around: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = around(schema)
    return schema


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("around", "fine", "text"),
    [
        (lambda one: {"type": "array", "items": one, "nullable": True}, 30, "lists and maps"),
        (lambda one: {"type": "object", "additionalProperties": one}, 30, "lists and maps"),
        (lambda one: spec(a=one), 90, "nested more than 100 levels"),
        (lambda one: {"enum": [[one]]}, 9, "an enum is nested more than 30 levels"),
        (lambda one: {"default": [one]}, 14, "an enum is nested more than 30 levels"),
    ],
    ids=["lists", "maps", "objects", "enum", "default"],
)
def test_what_is_nested_too_deeply_is_refused_and_the_rest_imports(
    around: Any, fine: int, text: str, style: Any, tmp_path: Path
) -> None:
    imported(models([crd(spec(a=nested(fine, around)))], style=style), tmp_path)
    with pytest.raises(ModelError, match=text):
        models([crd(spec(a=nested(95 if fine < 10 else 110, around)))], style=style)
    with pytest.raises(ModelError, match=rf"{text}|nested more than 300 levels deep"):
        models([crd(spec(a=nested(180, around)))], style=style)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"required": 3}, r"WidgetSpec\.a: required is not a list of names but 3"),
        ({"properties": ["x"]}, "properties is not a mapping"),
        ({"enum": "x"}, "not a list of values"),
        ({"allOf": [3]}, "not a list of schemas"),
        ({"x-kubernetes-validations": [{"rule": " "}]}, "give an expression"),
        ({"x-kubernetes-validations": [{"rule": "1", "reason": "Bad"}]}, "use one of FieldValue"),
        ({"x-kubernetes-list-type": "map"}, "has no x-kubernetes-list-map-keys"),
        ({"x-kubernetes-list-map-keys": [3]}, "not a list of names"),
    ],
    ids=str,
)
def test_a_part_of_another_form_is_refused_with_its_place(part: Any, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        models([crd(spec(a={"type": "object", **part}))])


def test_a_part_that_is_null_is_absent() -> None:
    schema = spec(a={"type": "object", "properties": None, "required": None, "enum": None})
    assert models([crd({**schema, "required": None, "x-kubernetes-validations": None})])
