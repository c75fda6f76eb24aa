"""Versions of a kind: what is refused, what functions may return, what a conversion keeps."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.resource import (
    ConversionError,
    DecodeError,
    Kind,
    MutableObject,
    Object,
    Scope,
    Versions,
    WrongKindError,
    convert_parts,
)
from tests.resource.version_kinds import (
    GROUP,
    V1,
    V2,
    AlphaSpec,
    Range,
    Spec,
    V1Alpha1,
    down,
    up,
    widget,
    widgets,
)

PLAIN = Kind(group=GROUP, version="v1", kind="Widget")
OLD = Kind(group=GROUP, version="v1alpha1", kind="Widget")


def nothing(old: Object, new: MutableObject) -> None:
    """Change nothing but the version."""


def plain(up: Any = nothing, down: Any = nothing, **options: Any) -> Versions:
    return Versions(PLAIN).older(OLD, up=up, down=down, **options)


def rise(function: Any, **metadata: Any) -> dict[str, Any]:
    """What a function makes of an old object."""
    return plain(function).convert(widget(OLD, {"size": 1}, **metadata), PLAIN).to_dict()


def refusal(function: Any, **metadata: Any) -> str:
    with pytest.raises(ConversionError) as caught:
        rise(function, **metadata)
    return str(caught.value)


# -- Building ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"kind": OLD}, ValueError, "is given twice"),
        ({"kind": PLAIN}, ValueError, "widgets.v1.example.com is given twice: give each version"),
        ({"group": "other.com"}, ValueError, "has the group 'other.com', but the hub"),
        ({"kind_name": "Gadget"}, ValueError, "has the kind 'Gadget'"),
        ({"plural": "widgetses"}, ValueError, "has the plural 'widgetses'"),
        ({"scope": Scope.CLUSTER}, ValueError, "has the scope"),
        ({"up": None}, TypeError, r"v1beta1.example.com: up=None cannot be called: give a fun"),
        (
            {"down": lambda one: None},
            TypeError,
            r"down=.*lambda.*too many positional.*\(old, new\)",
        ),
        ({"served": "false"}, TypeError, "served='false': give True or False"),
        ({"deprecated": "x" * 257}, ValueError, "has 257 characters: API servers accept at most"),
        ({"deprecated": "two\nlines"}, ValueError, "give one line of text"),
        ({"deprecated": ""}, ValueError, "give one line of text"),
        ({"deprecated": 3}, TypeError, "give the warning as text"),
        ({"lossless": "no slash"}, ValueError, "is not a name of an annotation: use for example"),
        ({"lossless": 5}, TypeError, "give True, False or the name"),
        ({"lossless": "example.com/conversion-v1alpha1"}, ValueError, "of another version"),
    ],
)
def test_a_version_that_does_not_fit_is_refused(
    change: dict[str, Any], error: type[Exception], text: str
) -> None:
    names = {"group": GROUP, "version": "v1beta1", "kind": "Widget"}
    for name in ("group", "plural", "scope"):
        if name in change:
            names[name] = change.pop(name)
    names["kind"] = change.pop("kind_name", "Widget")
    options = {"kind": Kind(**names), "up": nothing, "down": nothing, **change}
    versions = plain(lossless=True)
    with pytest.raises(error, match=text):
        versions.older(options.pop("kind"), **options)


def test_a_hub_that_is_no_kind_and_an_async_function_are_refused() -> None:
    async def convert(old: Object, new: MutableObject) -> None: ...

    class Converts:
        async def __call__(self, old: Object, new: MutableObject) -> None: ...

    with pytest.raises(TypeError, match="hub='v1' is not a Kind"):
        Versions("v1")  # type: ignore[arg-type]
    for function in (convert, Converts()):
        with pytest.raises(TypeError, match="up is async, but a conversion is a pure function"):
            plain(function)
    with pytest.raises(TypeError, match=r"spec=.*: give a function of \(spec\)"):
        convert_parts(spec=lambda: None)  # type: ignore[arg-type, misc]


def test_versions_are_values() -> None:
    one = Versions(V1)
    assert one.older(V1Alpha1, up=up, down=down).kinds == (V1, V1Alpha1)
    assert one.kinds == (V1,)
    versions = widgets()
    assert [spoke.kind.version for spoke in versions.spokes] == ["v1alpha1", "v2"]
    assert versions.kind("v2") is V2
    with pytest.raises(LookupError, match="no version v3: it has v1, v1alpha1, v2"):
        versions.kind("v3")
    assert versions == widgets()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        versions.hub = V2  # type: ignore[misc]


# -- Converting -------------------------------------------------------------------------------


def test_any_version_is_converted_to_any_other() -> None:
    versions = widgets()
    old = widget(V1Alpha1, {"size": "3", "range": "1-5"})
    hub = versions.convert(old, V1)
    assert hub.spec == Spec(size=3, range=Range(1, 5))
    new = versions.convert(old, V2)
    assert new["spec"] == {"width": 3, "range": {"low": 1, "high": 5}, "note": ""}
    assert new["apiVersion"] == "example.com/v2"
    assert versions.convert(new, V1Alpha1).spec == AlphaSpec("3", "1-5")
    assert versions.convert(hub, V1Alpha1) == old


def test_an_object_of_the_wanted_version_stays_as_it_is() -> None:
    old = widget(V1Alpha1, {"size": "3"})
    assert widgets().convert(old, V1Alpha1) is old
    read = widgets().convert(old.viewed_as(OLD), V1Alpha1)
    assert read.spec == AlphaSpec("3")
    assert widgets().convert(old, OLD)["spec"] == {"size": "3"}


def test_a_draft_becomes_a_draft() -> None:
    draft = widget(V1Alpha1, {"size": "3"}).mutable_copy()
    made = widgets().convert(draft, V1)
    assert isinstance(made, MutableObject)
    assert made.spec.size == 3
    made["metadata"]["name"] = "other"
    assert draft.name == "web"
    with pytest.raises(TypeError, match="give an Object or MutableObject"):
        widgets().convert({}, V1)  # type: ignore[call-overload]


def test_an_object_of_another_kind_is_refused() -> None:
    gadget = Kind(group=GROUP, version="v1", kind="Gadget")
    with pytest.raises(WrongKindError, match=r"gadgets.v1.example.com is not one of widgets.v1"):
        widgets().convert(widget(V1, {}), gadget)
    with pytest.raises(WrongKindError, match="is not one of"):
        widgets().convert(Object.from_dict(gadget, {"metadata": {}}), V1)


def test_functions_read_what_they_convert_with_its_types() -> None:
    def check(old: Object[AlphaSpec], new: MutableObject[Spec]) -> None:
        assert type(old.spec) is AlphaSpec
        assert "spec" not in new, "of another type"
        assert new["status"] == {"ready": True, "more": 1}, "of the same type"
        assert new["data"] == {"a": 1}
        assert new.labels == {"a": "b"}
        new.spec = Spec(size=7)

    versions = Versions(V1).older(V1Alpha1, up=check, down=down)
    data = {
        "metadata": {"name": "web", "labels": {"a": "b"}},
        "spec": {"size": "3", "unknown": True},
        "status": {"ready": True, "more": 1},
        "data": {"a": 1},
    }
    made = versions.convert(Object.from_dict(V1Alpha1.typed(), data), V1).to_dict()
    assert made == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "web", "labels": {"a": "b"}},
        "spec": {"size": 7, "range": {"low": 0, "high": 0}, "note": ""},
        "status": {"ready": True, "more": 1},
        "data": {"a": 1},
    }


def test_spec_and_status_can_be_converted_apart() -> None:
    versions = plain(
        convert_parts(
            spec=lambda spec: {"size": int(spec["size"])},
            status=lambda status: {"is": dict(status)},
        ),
        convert_parts(spec=lambda spec: {"size": str(spec["size"])}),
    )
    old = Object.from_dict(
        OLD, {"metadata": {"name": "a"}, "spec": {"size": "1", "more": 2}, "status": {"b": 1}}
    )
    new = versions.convert(old, PLAIN)
    assert (new["spec"], new["status"]) == ({"size": 1}, {"is": {"b": 1}})
    back = versions.convert(new, OLD)
    assert (back["spec"], back["status"]) == ({"size": "1"}, {"is": {"b": 1}})
    bare = versions.convert(Object.from_dict(OLD, {"metadata": {"name": "a"}}), PLAIN)
    assert "spec" not in bare


def test_a_typed_spec_can_be_converted_apart() -> None:
    def spec_up(spec: AlphaSpec) -> Spec:
        return Spec(size=int(spec.size))

    def spec_down(spec: Spec) -> AlphaSpec:
        return AlphaSpec(size=str(spec.size))

    versions = Versions(V1).older(
        V1Alpha1, up=convert_parts(spec=spec_up), down=convert_parts(spec=spec_down)
    )
    data = {"metadata": {"name": "a"}, "spec": {"size": "4"}, "status": {"ready": True}}
    new = versions.convert(Object.from_dict(V1Alpha1, data), V1)
    assert (new.spec.size, new.status.ready) == (4, True)


# -- What a function may return ---------------------------------------------------------------


def test_a_function_changes_the_draft_or_returns_it_or_another_object() -> None:
    def change(old: Object, new: MutableObject) -> None:
        new.spec["size"] += 1

    def same(old: Object, new: MutableObject) -> MutableObject:
        change(old, new)
        return new

    def another(old: Object, new: MutableObject) -> MutableObject:
        return MutableObject.new(PLAIN, old.name, spec={"size": old.spec["size"] + 1})

    def view(old: Object, new: MutableObject) -> Object:
        return another(old, new).freeze()

    expected = rise(change, uid="7", labels={"a": "b"}, foo={"bar": [1]})
    assert expected["spec"] == {"size": 2}
    assert expected["metadata"] == {
        "name": "web",
        "namespace": "default",
        "uid": "7",
        "labels": {"a": "b"},
        "foo": {"bar": [1]},
    }
    for function in (same, another, view):
        assert rise(function, uid="7", labels={"a": "b"}, foo={"bar": [1]}) == expected


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"spec": {}}, "returned a value of type dict: return an Object or MutableObject"),
        (True, "returned a value of type bool"),
        (widget(OLD, {}), "returned an object of widgets.v1alpha1.example.com: return one of"),
        (widget(PLAIN, {}, name="other"), "changed metadata.name: only labels and annotations"),
        (widget(PLAIN, {}, uid="2"), "changed metadata.uid"),
    ],
)
def test_another_result_is_refused(result: Any, text: str) -> None:
    message = refusal(lambda old, new: result, uid="1")
    assert message.startswith("Widget default/web from v1alpha1 to v1: ")
    assert text in message


def test_a_coroutine_is_refused() -> None:
    async def convert() -> None: ...

    assert "of type coroutine" in refusal(lambda old, new: convert())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda new: new.metadata.pop("finalizers"), "changed metadata.finalizers: only labels"),
        (lambda new: new.finalizers.append("b"), "changed metadata.finalizers"),
        (lambda new: new.metadata.update(generation=5), "changed metadata.generation"),
        (lambda new: new.pop("metadata"), "removed the metadata"),
        (lambda new: new.update(metadata=[]), "removed the metadata"),
        (lambda new: new.update(apiVersion="v9"), "set apiVersion to 'v9': leave it alone"),
        (lambda new: new.update(kind="Gadget"), "set kind to 'Gadget'"),
        (lambda new: new.labels.update(a=1), "metadata.labels to something else than a mapping"),
        (lambda new: new.metadata.update(annotations=["a"]), "metadata.annotations to something"),
    ],
)
def test_metadata_is_not_a_functions_to_change(change: Any, text: str) -> None:
    def convert(old: Object, new: MutableObject) -> None:
        change(new)

    assert text in refusal(convert, finalizers=["a"], generation=3)


def test_labels_and_annotations_are() -> None:
    def convert(old: Object, new: MutableObject) -> None:
        new.labels["more"] = "1"
        del new.metadata["annotations"]
        new.finalizers  # noqa: B018 - reading it creates an empty list

    made = rise(convert, labels={"a": "b"}, annotations={"c": "d"})
    assert made["metadata"] == {
        "name": "web",
        "namespace": "default",
        "labels": {"a": "b", "more": "1"},
    }

    def anew(old: Object, new: MutableObject) -> MutableObject:
        return MutableObject.new(PLAIN, old.name, metadata={"labels": {}, "annotations": {"e": ""}})

    made = rise(anew, labels={"a": "b"}, annotations={"c": "d"})
    assert made["metadata"] == {"name": "web", "namespace": "default", "annotations": {"e": ""}}


def test_a_function_refuses_an_object_with_its_own_words() -> None:
    def convert(old: Object, new: MutableObject) -> None:
        raise ConversionError("spec.size is too large for v1")

    message = "Widget default/web from v1alpha1 to v1: spec.size is too large for v1"
    assert refusal(convert) == message


def test_an_object_that_does_not_fit_its_types_is_refused_with_the_path() -> None:
    with pytest.raises(ConversionError, match=r"\$.spec.size does not fit AlphaSpec: Expected"):
        widgets().convert(widget(V1Alpha1, {"size": 3}), V1)
    with pytest.raises(DecodeError):
        widgets().convert(Object.from_dict(V1Alpha1, {"metadata": {"name": 3}}), V1)


def test_a_crash_is_raised_as_it_is_with_a_note() -> None:
    with pytest.raises(KeyError) as caught:
        rise(lambda old, new: old.spec["missing"])
    assert caught.value.__notes__ == ["while converting Widget default/web from v1alpha1 to v1"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
any_text = st.text(st.characters(codec="utf-8"))
texts = st.dictionaries(any_text, any_text, max_size=2)


@given(metadata=st.dictionaries(st.sampled_from(["foo", "managedFields", "b"]), json_values),
       labels=texts, spec=json_values, more=json_values)  # fmt: skip
def test_a_conversion_that_changes_nothing_loses_nothing(
    metadata: dict[str, Any], labels: dict[str, str], spec: Any, more: Any
) -> None:
    data = {
        "apiVersion": OLD.api_version,
        "kind": "Widget",
        "metadata": {"name": "web", **metadata, "labels": labels, "annotations": labels},
        "spec": spec,
        "more": more,
    }
    obj = Object.from_dict(OLD, json.loads(json.dumps(data)))
    for versions in (plain(), plain(lossless=True)):
        there = versions.convert(obj, PLAIN)
        assert there.to_dict() == {**data, "apiVersion": PLAIN.api_version}
        assert versions.convert(there, OLD).to_dict() == data


def test_deep_objects_are_converted() -> None:
    deep: Any = {}
    for _ in range(490):
        deep = {"a": deep}
    made = plain().convert(Object.from_dict(OLD, {"metadata": {"name": "a"}, "spec": deep}), PLAIN)
    assert made.raw.count(b'{"a":') == 490
