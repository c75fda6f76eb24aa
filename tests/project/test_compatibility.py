"""Which changes of a CRD break stored objects or clients."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from appsdk_operator.client import ApiError, MergePatch
from appsdk_operator.project import Finding, breaking_changes
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Object,
    Versions,
    custom_resource_definition,
    kinds,
)
from appsdk_operator.testing import MemoryServer

V1 = Kind(group="example.com", version="v1", kind="Widget")
V2 = Kind(group="example.com", version="v2", kind="Widget")
CRD = kinds.apiextensions.v1.CustomResourceDefinition


def crd(spec: Any, **options: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": spec}}
    return custom_resource_definition(V1, schema=schema, **options).to_dict()


def field(schema: Any, *, required: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": {"it": schema}}
    return {**made, "required": ["it"]} if required else made


def told(old: Any, new: Any) -> list[Finding]:
    """The findings of a change of ``spec.it``, which the way back does not have, too."""
    return breaking_changes(crd(field(old)), crd(field(new)))


INT: dict[str, Any] = {"type": "integer"}
STR: dict[str, Any] = {"type": "string"}
ANY: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
OPEN: dict[str, Any] = {"type": "object", **ANY}
INT_OR_STRING: dict[str, Any] = {"x-kubernetes-int-or-string": True}


def listed(kind: str, *keys: str) -> dict[str, Any]:
    fields = {"name": STR, "port": INT}
    made: dict[str, Any] = {
        "type": "array",
        "items": {"type": "object", "properties": fields, "required": list(fields)},
        "x-kubernetes-list-type": kind,
    }
    return {**made, "x-kubernetes-list-map-keys": list(keys)} if keys else made


# What is narrower in the second than in the first; the way back breaks no stored object.
NARROWER = [
    ({"type": "number"}, INT, "its type changed from number to integer"),
    (INT_OR_STRING, STR, "its type changed from int-or-string to string"),
    (ANY, INT, "its type changed from anything to integer"),
    ({**STR, "nullable": True}, STR, "it may no longer be null"),
    (STR, {**STR, "enum": ["a"]}, "only 'a' are valid now"),
    ({**STR, "enum": ["a", "b"]}, {**STR, "enum": ["a"]}, "'b' is no longer valid"),
    (
        {**STR, "nullable": True, "enum": ["a", "b"]},
        {**STR, "nullable": True, "allOf": [{"enum": ["a"]}]},
        "'b' is no longer valid",
    ),
    (INT, {**INT, "minimum": 1}, "minimum is 1 now"),
    ({**INT, "minimum": 1}, {**INT, "minimum": 2}, "minimum is 2 now (it was 1)"),
    (
        {**INT, "maximum": 5},
        {**INT, "maximum": 5, "exclusiveMaximum": True},
        "exclusiveMaximum is True now",
    ),
    ({**STR, "maxLength": 9}, {**STR, "maxLength": 8}, "maxLength is 8 now (it was 9)"),
    (STR, {**STR, "minLength": 1}, "minLength is 1 now"),
    (STR, {**STR, "pattern": "^a"}, "pattern is ^a now"),
    (STR, {**STR, "format": "ipv4"}, "its format must now be ipv4"),
    ({**INT, "format": "int64"}, {**INT, "format": "int32"}, "its format must now be int32"),
    ({**INT, "multipleOf": 2}, {**INT, "multipleOf": 4}, "multipleOf is 4 now (it was 2)"),
    (INT, {**INT, "anyOf": [{"maximum": 1}, {"minimum": 5}]}, "anyOf changed"),
    (
        INT,
        {**INT, "x-kubernetes-validations": [{"rule": "self > 1"}]},
        "the rule 'self > 1' is new",
    ),
    (OPEN, {"type": "object", "properties": {}}, "unknown fields are dropped now"),
    (
        {"type": "object", "additionalProperties": STR},
        {"type": "object", "properties": {}},
        "it is no longer a map",
    ),
    (field(INT), {"type": "object", "properties": {}}, "the field is gone"),
    (field(INT), field(INT, required=True), "it is required now"),
    (
        {"type": "object", "properties": {}},
        field(INT, required=True),
        "a new field that is required",
    ),
    (
        field({**INT, "default": 1}, required=True),
        field(INT, required=True),
        "it is required now",
    ),
    (listed("atomic"), listed("map", "name"), "its list type changed from atomic to map"),
]


@pytest.mark.parametrize(("old", "new", "change"), NARROWER, ids=[c for _, _, c in NARROWER])
def test_what_is_narrower_breaks_stored_objects(old: Any, new: Any, change: str) -> None:
    found = [one for one in told(old, new) if change in one.change]
    assert [one.breaks for one in found] == [("stored objects", "clients")]
    assert found[0].path.startswith("spec.it")
    assert found[0].version == "v1"
    assert found[0].remedy
    back = [one.change for one in told(new, old) if "stored objects" in one.breaks]
    assert [change for change in back if "the field is gone" not in change] == []


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (INT, {"type": "number"}, "its type changed from integer to number"),
        (STR, INT_OR_STRING, "its type changed from string to int-or-string"),
        (
            INT,
            {**INT_OR_STRING, "anyOf": [INT, STR]},
            "its type changed from integer to int-or-string",
        ),
        ({**INT, "default": 1}, {**INT, "default": 2}, "its default changed from 1 to 2"),
        ({**INT, "default": 1}, INT, "its default is gone"),
        (
            INT,
            {**INT, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
            "the rule 'self == oldSelf' is new",
        ),
        (listed("map", "name"), listed("atomic"), "its list type changed from map to atomic"),
        (
            {"type": "object", "additionalProperties": STR},
            {"type": "object", "additionalProperties": STR, "x-kubernetes-map-type": "atomic"},
            "its map type changed from granular to atomic",
        ),
    ],
)
def test_what_breaks_clients_alone(old: Any, new: Any, change: str) -> None:
    assert [(one.change, one.breaks) for one in told(old, new)] == [(change, ("clients",))]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (field(INT), {"type": "object", "properties": {"it": INT, "more": STR}}),
        (field(INT), field({**INT, "default": 3}, required=True)),
        ({**INT, "multipleOf": 4}, {**INT, "multipleOf": 2}),
        ({"type": "object", "properties": {"a": STR}}, OPEN | {"properties": {}}),
        (
            {"type": "object", "properties": {"a": STR}},
            {"type": "object", "additionalProperties": STR},
        ),
        ({**STR, "description": "old"}, {**STR, "description": "new", "format": "our-own"}),
        ({**INT, "format": "int32"}, {**INT, "format": "int64"}),
        (STR, {**STR, "minLength": 0}),
    ],
)
def test_what_breaks_nothing(old: Any, new: Any) -> None:
    assert told(old, new) == []
    assert told(old, old) == []


def test_a_path_goes_through_lists_and_maps() -> None:
    def deep(leaf: Any) -> Any:
        return {"type": "array", "items": {"type": "object", "additionalProperties": field(leaf)}}

    (found,) = told(deep(STR), deep({**STR, "enum": ["a"]}))
    assert found.path == "spec.it[].*.it"
    assert str(found) == (
        "widgets.example.com v1 spec.it[].*.it: only 'a' are valid now, which breaks stored "
        "objects and clients: allow the other values, too"
    )


def test_an_embedded_object_that_becomes_a_plain_one_loses_what_each_object_has() -> None:
    old = {**field(INT), "x-kubernetes-embedded-resource": True}
    found = {one.path for one in told(old, field(INT)) if "the field is gone" in one.change}
    assert found == {"spec.it.apiVersion", "spec.it.kind", "spec.it.metadata"}
    assert told(old, {**old, **OPEN}) == []


def test_parts_of_the_crd_are_compared() -> None:
    old = crd(
        field(INT),
        short_names=["wd"],
        categories=["all"],
        selectable_fields=[".spec.it"],
    )
    new = copy.deepcopy(old)
    new["spec"]["scope"] = "Cluster"
    new["spec"]["names"].update(plural="widgetz", shortNames=[], categories=[])
    new["spec"]["versions"][0].update(served=False, subresources={}, selectableFields=[])
    found = {one.path or one.change: one.breaks for one in breaking_changes(old, new)}
    both, clients = ("stored objects", "clients"), ("clients",)
    assert found == {
        "names.plural": both,
        "scope": both,
        "names": clients,
        "the version is no longer served": clients,
        "subresources.status": clients,
        "selectableFields .spec.it": clients,
    }


def test_versions_that_go_are_found() -> None:
    versions = Versions(V2).older(V1, up=lambda old, new: None, down=lambda old, new: None)
    two = custom_resource_definition(versions)
    one = custom_resource_definition(Versions(V2))
    (gone,) = breaking_changes(two, one)
    assert (gone.version, gone.breaks) == ("v1", ("stored objects", "clients"))
    assert "status.storedVersions" in gone.remedy
    (stored,) = breaking_changes(two, custom_resource_definition(Versions(V1)))
    assert "the version in which objects are stored is gone" in stored.change
    without = two.to_dict()
    without["spec"]["conversion"] = {"strategy": "None"}
    assert [found.path for found in breaking_changes(two, without)] == ["conversion"]


def test_objects_and_mappings_are_taken_and_others_refused() -> None:
    made = crd(field(INT))
    assert breaking_changes(Object.from_dict(CRD, made), made) == []
    for part in ("group", "names", "scope", "versions"):
        spec = {name: value for name, value in made["spec"].items() if name != part}
        with pytest.raises(ValueError, match="new is not a CustomResourceDefinition"):
            breaking_changes(made, {**made, "spec": spec})
    with pytest.raises(ValueError, match="old is not a CustomResourceDefinition"):
        breaking_changes({"kind": "Widget"}, made)


def test_an_enum_that_moves_beside_null_breaks_nothing() -> None:
    old, new = ({"enum": ["a"]}, {"allOf": [{"enum": ["a"]}]})
    nullable = {**STR, "nullable": True}
    assert told({**nullable, **old}, {**nullable, **new}) == []


def test_an_unchanged_meaning_breaks_nothing() -> None:
    old = crd({"type": "number", "multipleOf": 0.3})
    old["spec"]["versions"][0]["subresources"] = {
        "scale": {"specReplicasPath": ".spec.r", "statusReplicasPath": ".status.r"}
    }
    new = crd({"type": "number", "multipleOf": 0.1})
    new["spec"]["versions"][0]["subresources"] = copy.deepcopy(
        old["spec"]["versions"][0]["subresources"]
    )
    new["spec"]["versions"][0]["subresources"]["scale"]["labelSelectorPath"] = ".status.s"
    assert breaking_changes(old, new) == []
    assert {each.path for each in breaking_changes(new, old)} == {"subresources.scale", "spec"}


# What API servers do with what was stored under another definition.

scalars = st.sampled_from(
    [
        *({"type": name} for name in ("string", "integer", "number", "boolean")),
        {"type": "string", "maxLength": 1},
        {"type": "string", "enum": ["a", "b"]},
        {"type": "string", "format": "hexcolor"},
        {"type": "integer", "minimum": 2},
        {"type": "integer", "format": "int32"},
        {"type": "number", "multipleOf": 0.5},
        {"type": "string", "nullable": True},
        ANY,
        INT_OR_STRING,
    ]
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    return (
        st.builds(lambda found: {"type": "object", "properties": found}, fields)
        | st.builds(lambda found: {**OPEN, "properties": found}, fields)
        | st.builds(lambda found: {**ANY, "properties": found}, fields)
        | st.builds(lambda found: {"type": "object", "additionalProperties": found}, inner)
        | st.builds(lambda found: {"type": "array", "items": found}, inner)
        | st.builds(
            lambda found: {"type": "object", "properties": found, "required": sorted(found)[:1]},
            fields,
        )
    )


some_schemas = st.recursive(scalars, containers, max_leaves=3)
some_values = st.recursive(
    st.sampled_from(["a", "red?", "#ffffff", "", 0, 3, 2**31, 1.5, True, None]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=3,
)


@given(
    old=some_schemas,
    new=some_schemas,
    value=some_values,
    is_another_version=st.booleans(),
    metadata=st.sampled_from([None, {"properties": {"name": {"maxLength": 1, **STR}}}]),
)
def test_what_a_server_refuses_or_drops_of_a_stored_object_is_found(
    old: Any, new: Any, value: Any, is_another_version: bool, metadata: Any
) -> None:
    before, after = crd(field(old)), crd(field(new))
    if metadata is not None:
        whole = after["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        whole["properties"]["metadata"] = {"type": "object", **metadata}
    if is_another_version:
        (version,) = after["spec"]["versions"]
        former = before["spec"]["versions"][0]
        after["spec"]["versions"] = [{**version, "name": "v2"}, {**former, "storage": False}]
    found = [each for each in breaking_changes(before, after) if "stored objects" in each.breaks]
    client = MemoryServer(crds=[before]).client()
    try:
        stored = client.create(MutableObject.new(V1, "ab", namespace="default", spec={"it": value}))
    except ApiError:
        assume(False)
    definition = client.get(CRD, before["metadata"]["name"]).mutable_copy()
    definition["spec"] = after["spec"]
    client.update(definition)
    patch = MergePatch({"metadata": {"labels": {"any": "write"}}})
    kept = None
    with contextlib.suppress(ApiError):
        kept = client.patch(V1, "ab", patch, namespace="default").to_dict().get("spec")
    assert found or kept == stored.to_dict().get("spec")
