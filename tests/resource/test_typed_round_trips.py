"""Values of generated classes of all four libraries are read as they were written."""

from __future__ import annotations

import dataclasses
from typing import Any

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from appsdk_operator.resource import DecodeError, EncodeError, Kind, MutableObject, Object
from tests.hypothesis_profiles import scaled

pydantic = pytest.importorskip("pydantic")

LIBRARIES = ("attrs", "dataclass", "struct", "sparse struct", "pydantic")
WIDGET = Kind(group="example.com", version="v1", kind="Widget")
ABSENT: Any = object()

SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", 0.0, 1.0])
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=5,
)
# The type of a field with the values that it takes.
PLAIN_TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers(-2, 2)),
    (bool, st.booleans()),
    (float, st.sampled_from([0.0, 1.0, 0.5])),
    (int | None, st.none() | st.integers(-2, 2)),
    (str | None, st.none() | st.sampled_from(["", "a"])),
    (Any, JSON),
    (dict[str, Any], st.dictionaries(st.sampled_from("ab"), JSON)),
    (dict[str, int | None], st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(-2, 2))),
    (list[int | None], st.lists(st.none() | st.integers(-2, 2), max_size=3)),
]
HIDDEN = "hidden"


def made_class(library: str, name: str, fields: list[tuple[str, Any, Any]]) -> Any:
    """A class with these fields: name, type, and default or ABSENT."""
    annotations = {field: view for field, view, _ in fields}
    if library == "pydantic":
        config = pydantic.ConfigDict(frozen=True)
        parts = {
            field: (view, ... if default is ABSENT else default) for field, view, default in fields
        }
        return pydantic.create_model(name, __config__=config, **parts)
    if library == "attrs":
        made = {f: attrs.field(default=attrs.NOTHING if d is ABSENT else d) for f, _, d in fields}
        return attrs.frozen(type(name, (), {**made, "__annotations__": annotations}), kw_only=True)
    if library == "dataclass":
        body = {
            field: dataclasses.field(default=default)
            for field, _, default in fields
            if default is not ABSENT
        }
        plain = type(name, (), {**body, "__annotations__": annotations})
        return dataclasses.dataclass(frozen=True, kw_only=True)(plain)
    listed = [(f, v) if d is ABSENT else (f, v, d) for f, v, d in fields]
    omits = library == "sparse struct"
    return msgspec.defstruct(name, listed, frozen=True, kw_only=True, omit_defaults=omits)


@st.composite
def typed(
    draw: st.DrawFn, levels: int = 2, libraries: tuple[str, ...] = LIBRARIES
) -> tuple[Any, st.SearchStrategy[Any]]:
    """A class, and its values."""
    library = draw(st.sampled_from(libraries))
    within = ("pydantic",) if library == "pydantic" else LIBRARIES
    fields, values = [], {}
    for name in "xyz"[: draw(st.integers(1, 3))]:
        if levels and draw(st.booleans()):
            view, inner = draw(typed(levels - 1, within))
            default = draw(st.sampled_from([ABSENT, None]))
            if default is None or draw(st.booleans()):
                view, inner = view | None, st.none() | inner
        else:
            view, inner = draw(st.sampled_from(PLAIN_TYPES))
            # Not all libraries allow a mutable default.
            default = draw(st.just(ABSENT) | inner)
            default = ABSENT if isinstance(default, (dict, list)) else default
        fields.append((name, view, default))
        values[name] = inner
    made = made_class(library, "Made", fields)
    return made, st.builds(made, **values)


def shown(value: Any) -> str:
    """The value with the types of all in it: to Python, True is 1."""
    if isinstance(value, dict):
        return str(sorted((key, shown(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return str([shown(item) for item in value])
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    names = [name for name in "xyz" if hasattr(value, name)]
    return f"{type(value)}{[(name, shown(getattr(value, name))) for name in names]}"


@settings(max_examples=scaled(300), deadline=None)
@given(data=st.data())
def test_a_value_of_any_class_is_read_as_it_was_written(data: st.DataObject) -> None:
    view, values = data.draw(typed())
    kind = WIDGET.typed(spec=view)
    value = data.draw(values)
    draft = MutableObject.new(kind, "w", spec=value)
    assert shown(draft.spec) == shown(value)
    assert shown(draft.freeze().spec) == shown(value)
    other = data.draw(values)
    draft.spec = other
    assert shown(draft.spec) == shown(other)


def with_field(value: Any, name: str, new: Any) -> Any:
    """The value with another value of one field, by the function of its library."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_copy(update={name: new})
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: new})
    return (attrs.evolve if attrs.has(type(value)) else dataclasses.replace)(value, **{name: new})


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=scaled(100), deadline=None)
@given(data=st.data())
def test_one_changed_field_is_the_only_one_that_is_written(
    library: str, data: st.DataObject
) -> None:
    view, values = data.draw(typed(libraries=(library,)))
    kind = WIDGET.typed(spec=view)
    value, other = data.draw(values), data.draw(values)
    stored = MutableObject.new(kind, "w", spec=value)["spec"]
    for name in data.draw(st.permutations("xyz"))[data.draw(st.integers(0, 2)) :]:
        fewer = {key: item for key, item in stored.items() if key != name}
        try:  # it has a default, which the field has then
            value = Object.from_dict(kind, {"metadata": {}, "spec": fewer}).spec
        except DecodeError:
            continue
        stored = fewer
    read = Object.from_dict(kind, {"metadata": {"name": "w"}, "spec": stored})
    draft = read.mutable_copy()
    draft.spec = read.spec
    assert draft["spec"] == stored
    name = data.draw(st.sampled_from([one for one in "xyz" if hasattr(value, one)]))
    draft.spec = new = with_field(read.spec, name, getattr(other, name))
    assert shown(draft.spec) == shown(new)
    changed = {
        key
        for key in stored.keys() | draft["spec"].keys()
        if shown(stored.get(key, ABSENT)) != shown(draft["spec"].get(key, ABSENT))
    }
    assert changed <= {name}


STORED = st.dictionaries(st.sampled_from(["x", "y", "z", "other"]), JSON | st.just({"x": {"y": 1}}))


@settings(max_examples=scaled(300), deadline=None)
@given(data=st.data())
def test_an_assigned_value_is_what_is_stored_whatever_was_there(data: st.DataObject) -> None:
    view, values = data.draw(typed())
    stored = {**data.draw(STORED), HIDDEN: {"x": 1}}
    obj = Object.from_dict(
        WIDGET.typed(spec=view), {"metadata": {"name": "w"}, "spec": stored}
    ).mutable_copy()
    obj.spec = value = data.draw(values)
    assert shown(obj.spec) == shown(value)
    assert obj["spec"][HIDDEN] == {"x": 1}


def test_a_class_that_forbids_unknown_fields_is_repaired_without_them() -> None:
    class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        size: int = 1

    kind = WIDGET.typed(spec=Strict)
    data = {"metadata": {"name": "w"}, "spec": {"size": 1, "other": 2}}
    obj = Object.from_dict(kind, data).mutable_copy()
    obj.spec = Strict(size=3)
    assert obj["spec"] == {"size": 3}


def test_a_none_of_a_field_that_takes_none_is_refused() -> None:
    @attrs.frozen
    class Spec:
        size: int = 5

    with pytest.raises(EncodeError, match=r"\$\.spec\.size does not fit"):
        MutableObject.new(WIDGET.typed(spec=Spec), "w", spec=Spec(size=None))  # type: ignore[arg-type]


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), (1, 1.0), ([1], [True])])
def test_a_value_of_another_json_type_is_another_value(before: Any, after: Any) -> None:
    @attrs.frozen
    class Spec:
        free: dict[str, Any] = attrs.field(factory=dict)
        items: tuple[Any, ...] = ()

    kind = WIDGET.typed(spec=Spec)
    stored = {"free": {"a": before}, "items": [{"a": before}, before]}
    obj = Object.from_dict(kind, {"metadata": {"name": "w"}, "spec": stored}).mutable_copy()
    obj.spec = Spec({"a": after}, ({"a": after}, after))
    assert repr(obj["spec"]) == repr({"free": {"a": after}, "items": [{"a": after}, after]})


def test_objects_with_one_and_with_true_differ_and_those_with_one_and_its_float_do_not() -> None:
    one, true, as_float = (
        Object.from_dict(WIDGET, {"metadata": {"name": "w"}, "spec": {"a": value}})
        for value in (1, True, 1.0)
    )
    assert one != true
    assert one == as_float


@attrs.frozen
class Inner:
    size: int = 1
    note: str | None = None


@attrs.frozen
class Outer:
    inner: Inner = Inner()
    all: tuple[Inner, ...] = ()
    named: dict[str, Inner] = attrs.field(factory=dict)


def test_a_repaired_spec_keeps_unknown_fields_at_all_depths_and_no_others() -> None:
    part = {"size": "many", "note": "old", "hidden": 1}
    stored = {"inner": part, "all": [part], "named": {"a": part, "b": part}, "hidden": 2}
    kind = WIDGET.typed(spec=Outer)
    obj = Object.from_dict(kind, {"metadata": {"name": "w"}, "spec": stored}).mutable_copy()
    obj.spec = value = Outer(Inner(2), (Inner(3),), {"a": Inner(4)})
    assert obj.spec == value
    assert obj["spec"]["inner"] == {"size": 2, "hidden": 1}
    assert obj["spec"]["named"] == {"a": {"size": 4, "hidden": 1}}
    assert obj["spec"]["hidden"] == 2
