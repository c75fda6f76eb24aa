"""A null within ``Any`` is data; a field of a class that is None is absent."""

from __future__ import annotations

import dataclasses
from typing import Any

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from appsdk_operator.resource import Kind, MutableObject, Object, Versions, convert_parts
from tests.hypothesis_profiles import scaled

pydantic = pytest.importorskip("pydantic")

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


@attrs.frozen
class AttrsSpec:
    note: str | None = None
    free: dict[str, Any] = attrs.Factory(dict)
    items: list[Any] = attrs.Factory(list)
    anything: Any = None
    nested: AttrsSpec | None = None
    named: dict[str, AttrsSpec | None] = attrs.Factory(dict)


@dataclasses.dataclass(frozen=True)
class DataclassSpec:
    note: str | None = None
    free: dict[str, Any] = dataclasses.field(default_factory=dict)
    items: list[Any] = dataclasses.field(default_factory=list)
    anything: Any = None
    nested: DataclassSpec | None = None
    named: dict[str, DataclassSpec | None] = dataclasses.field(default_factory=dict)


class StructSpec(msgspec.Struct, frozen=True, rename={"note": "theNote"}):
    note: str | None = None
    free: dict[str, Any] = {}
    items: list[Any] = []
    anything: Any = None
    nested: StructSpec | None = None
    named: dict[str, StructSpec | None] = {}


class SparseSpec(StructSpec, frozen=True, omit_defaults=True, tag="Sparse", rename="camel"):
    nested: StructSpec | None = None


class ModelSpec(pydantic.BaseModel, frozen=True):
    note: str | None = None
    free: dict[str, Any] = pydantic.Field(default={})
    items: list[Any] = pydantic.Field(default=[])
    anything: Any = None
    nested: ModelSpec | None = None
    named: dict[str, ModelSpec | None] = pydantic.Field(default={})


CLASSES: list[Any] = [AttrsSpec, DataclassSpec, StructSpec, SparseSpec, ModelSpec]
classes = pytest.mark.parametrize("view", CLASSES)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
FREE = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


def values(view: Any) -> st.SearchStrategy[Any]:
    def made(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        nested = view if view is not SparseSpec else StructSpec
        return st.builds(
            view,
            note=st.none() | st.just("n"),
            free=FREE,
            items=st.lists(JSON, max_size=3),
            anything=JSON,
            nested=st.none() | inner.filter(lambda value: type(value) is nested),
            named=st.dictionaries(st.sampled_from("xy"), st.none(), max_size=2),
        )

    return made(st.builds(StructSpec if view is SparseSpec else view, note=st.none(), free=FREE))


def draft(spec: Any, view: Any) -> MutableObject:
    kind = WIDGET.typed(spec=view)
    return Object.from_dict(kind, {"metadata": {"name": "w"}, "spec": spec}).mutable_copy()


@classes
@settings(max_examples=scaled(60), deadline=None)
@given(data=st.data())
def test_a_typed_value_is_read_as_it_was_written(view: Any, data: st.DataObject) -> None:
    before, after = data.draw(values(view)), data.draw(values(view))
    obj = MutableObject.new(WIDGET.typed(spec=view), "w", spec=before)
    assert obj.spec == before
    obj.spec = after
    assert obj.spec == after
    assert obj.freeze().spec == obj.freeze().mutable_copy().spec
    written = obj["spec"]
    assert "note" not in written or written["note"] is not None
    assert written.get("nested", "absent") is not None
    obj.spec = obj.spec
    assert obj["spec"] == written


@classes
def test_a_null_in_a_free_mapping_or_list_is_written(view: Any) -> None:
    free = {"a": {"0": None}, "b": None, "c": [None, {"d": None}]}
    obj = draft({}, view)
    obj.spec = view(free=free, items=[None, {"x": None}], anything={"y": None}, named={"z": None})
    assert obj["spec"]["free"] == free
    assert obj["spec"]["items"] == [None, {"x": None}]
    assert obj["spec"]["anything"] == {"y": None}
    assert obj["spec"]["named"] == {"z": None}


@classes
def test_a_null_that_is_set_in_a_free_mapping_replaces_its_value(view: Any) -> None:
    obj = draft({"free": {"a": 1, "b": {"c": 1}}, "hidden": None}, view)
    obj.spec = view(free={"a": None, "b": {"c": None, "new": None}})
    assert obj["spec"]["free"] == {"a": None, "b": {"c": None, "new": None}}
    assert obj["spec"]["hidden"] is None
    obj.spec = view(free={"b": {"c": None}})
    assert obj["spec"]["free"] == {"b": {"c": None}}


@classes
def test_a_field_of_a_class_that_is_none_stays_absent(view: Any) -> None:
    inner = view if view is not SparseSpec else StructSpec
    obj = draft({"hidden": 1}, view)
    obj.spec = view(free={"a": None}, nested=inner(free={"b": None}), named={"x": inner()})
    written = obj["spec"]
    assert not {"note", "theNote", "anything"} & written.keys()
    assert written["nested"]["free"] == {"b": None}
    assert not {"note", "theNote", "anything", "nested"} & written["nested"].keys()
    assert not {"note", "theNote", "anything", "nested"} & written["named"]["x"].keys()
    assert written["hidden"] == 1


def test_typed_values_within_a_free_mapping_have_no_nulls_of_their_own() -> None:
    obj = draft({}, AttrsSpec)
    obj.spec = AttrsSpec(free={"typed": AttrsSpec(free={"a": None}), "list": [DataclassSpec()]})
    assert obj["spec"]["free"]["typed"]["free"] == {"a": None}
    assert "note" not in obj["spec"]["free"]["typed"]
    assert "note" not in obj["spec"]["free"]["list"][0]


class Pair(msgspec.Struct, frozen=True, array_like=True, tag="pair"):
    first: int | None = None
    second: AttrsSpec | None = None


def test_a_struct_that_is_written_as_a_list_keeps_the_places_of_its_fields() -> None:
    obj = draft({}, AttrsSpec)
    obj.spec = AttrsSpec(items=[Pair(None, AttrsSpec(free={"a": None}))])
    (pair,) = obj["spec"]["items"]
    assert pair[:2] == ["pair", None]
    assert pair[2]["free"] == {"a": None}
    assert "note" not in pair[2]


def test_nulls_deep_within_a_typed_value_stay() -> None:
    deep: Any = {"leaf": None}
    for _ in range(490):
        deep = {"a": deep}
    obj = draft({}, AttrsSpec)
    obj.spec = AttrsSpec(free=deep)
    found = obj["spec"]["free"]
    for _ in range(490):
        found = found["a"]
    assert found == {"leaf": None}
    assert "note" not in obj["spec"]


def test_a_conversion_of_parts_keeps_nulls_in_free_mappings() -> None:
    hub = WIDGET.typed(spec=AttrsSpec)
    older = Kind(group="example.com", version="v1beta1", kind="Widget", spec=DataclassSpec)
    versions = Versions(hub).older(
        older,
        up=convert_parts(spec=lambda spec: AttrsSpec(free=spec.free)),
        down=convert_parts(spec=lambda spec: DataclassSpec(free=spec.free)),
    )
    spec = {"free": {"a": {"0": None}}}
    obj = Object.from_dict(older, {"metadata": {"name": "w"}, "spec": spec})
    assert versions.convert(obj, hub)["spec"]["free"] == spec["free"]
