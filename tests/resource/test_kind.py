"""Kinds: names, paths, equality, and which types may be views."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Self, TypedDict
from urllib.parse import unquote, urlsplit

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
import urllib3.util
from hypothesis import given, settings

from appsdk_operator.resource import Kind, Object, Scope, custom_resource_definition, kinds
from tests.hypothesis_profiles import scaled

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
POD = Kind(group="", version="v1", kind="Pod")
NODE = Kind(group="", version="v1", kind="Node", scope=Scope.CLUSTER)


@attrs.frozen
class FrozenAttrs:
    replicas: int = 1


@attrs.frozen
class EmptyFrozenAttrs:
    pass


@attrs.frozen(slots=False)
class FrozenAttrsWithDict:
    replicas: int = 1


@attrs.define
class ChildOfFrozenAttrs(FrozenAttrs):
    image: str = ""


@attrs.frozen
class FrozenAttrsWithNew:
    replicas: int

    def __new__(cls, replicas: int) -> Self:
        return super().__new__(cls)


@dataclasses.dataclass(frozen=True)
class FrozenDataclass:
    replicas: int = 1


class FrozenStruct(msgspec.Struct, frozen=True):
    replicas: int = 1


class Typed(TypedDict):
    replicas: int


class Named(NamedTuple):
    replicas: int


@attrs.define
class MutableAttrs:
    replicas: int = 1


@attrs.define(on_setattr=[])
class PlainMutableAttrs:
    replicas: int = 1


@attrs.define
class EmptyMutableAttrs:
    pass


@dataclasses.dataclass
class MutableDataclass:
    replicas: int = 1


class MutableStruct(msgspec.Struct):
    replicas: int = 1


def test_plural_scope_and_views_have_defaults() -> None:
    assert (WIDGET.plural, WIDGET.scope) == ("widgets", Scope.NAMESPACED)
    assert (WIDGET.spec, WIDGET.status) == (None, None)
    assert WIDGET.is_namespaced
    assert not NODE.is_namespaced


def test_names_for_the_server_and_for_people() -> None:
    assert (WIDGET.api_version, POD.api_version) == ("example.com/v1", "v1")
    assert (WIDGET.qualified_name, POD.qualified_name) == ("widgets.example.com", "pods")
    assert (str(WIDGET), str(POD)) == ("widgets.v1.example.com", "pods.v1")


def test_typed_and_untyped_kinds_are_equal_and_one_key() -> None:
    typed = WIDGET.typed(spec=FrozenAttrs, status=Typed)
    assert typed == WIDGET
    assert hash(typed) == hash(WIDGET)
    assert {WIDGET: 1}[typed] == 1
    assert (typed.spec, typed.status) == (FrozenAttrs, Typed)
    assert typed.typed(spec=FrozenStruct).status is Typed


@pytest.mark.parametrize(
    "change",
    [
        {"group": "other.com"},
        {"version": "v2"},
        {"kind": "Gadget", "plural": "widgets"},
        {"plural": "widgetz"},
        {"scope": Scope.CLUSTER},
    ],
)
def test_kinds_that_differ_on_the_server_differ(change: dict[str, Any]) -> None:
    assert attrs.evolve(WIDGET, **change) != WIDGET


def test_a_kind_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        WIDGET.version = "v2"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"group": "Example.com"}, "use lower-case letters.*for example 'example.com', or ''"),
        ({"group": "a..b"}, "for example 'example.com'"),
        ({"group": "example.com\n"}, "for example 'example.com'"),
        ({"group": "a/b"}, "for example 'example.com'"),
        ({"version": ""}, "use for example 'v1' or 'v1beta1'"),
        ({"version": "v1/x"}, "use for example 'v1'"),
        ({"version": "V1"}, "use for example 'v1'"),
        ({"kind": ""}, "use for example 'Widget'"),
        ({"kind": "Wid get"}, "use for example 'Widget'"),
        ({"kind": "1st"}, "use for example 'Widget'"),
        ({"plural": "Widgets"}, "use for example 'widgets'"),
        ({"plural": "../secrets"}, "use for example 'widgets'"),
        ({"plural": ""}, "use for example 'widgets'"),
    ],
)
def test_a_name_that_no_server_takes_is_refused_with_an_example(
    fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        Kind(**{"group": "", "version": "v1", "kind": "Widget", **fields})


@pytest.mark.parametrize("field", ["group", "version", "kind", "plural", "scope"])
def test_a_name_of_another_type_is_refused(field: str) -> None:
    fields: dict[str, Any] = {"group": "", "version": "v1", "kind": "Widget", field: 1}
    with pytest.raises(TypeError, match=field):
        Kind(**fields)


@pytest.mark.parametrize(
    "view",
    [
        FrozenAttrs,
        EmptyFrozenAttrs,
        FrozenAttrsWithDict,
        ChildOfFrozenAttrs,
        FrozenAttrsWithNew,
        FrozenDataclass,
        FrozenStruct,
        Typed,
        Named,
        int,
        str,
        dict[str, int],
        list[FrozenStruct],
        FrozenStruct | None,
        Any,
    ],
)
@pytest.mark.parametrize("field", ["spec", "status"])
def test_types_whose_values_are_read_only_are_taken_as_views(view: Any, field: str) -> None:
    assert getattr(Kind(group="", version="v1", kind="Widget", **{field: view}), field) is view


@pytest.mark.parametrize(
    "view",
    [MutableAttrs, PlainMutableAttrs, EmptyMutableAttrs, MutableDataclass, MutableStruct],
)
@pytest.mark.parametrize("field", ["spec", "status"])
def test_classes_that_can_be_changed_are_refused_with_the_remedy(view: Any, field: str) -> None:
    with pytest.raises(ValueError, match=rf"{field} type {view.__name__}.*@attrs\.frozen"):
        Kind(group="", version="v1", kind="Widget", **{field: view})


def test_paths_of_collections_objects_and_subresources() -> None:
    assert POD.path() == "/api/v1/pods"
    assert POD.path("default") == "/api/v1/namespaces/default/pods"
    assert WIDGET.path("a", "b") == "/apis/example.com/v1/namespaces/a/widgets/b"
    assert WIDGET.path("a", "b", "status").endswith("/widgets/b/status")
    assert POD.path("a", "b", "proxy/metrics").endswith("/pods/b/proxy/metrics")
    assert NODE.path("ignored", "n1") == "/api/v1/nodes/n1"


@pytest.mark.parametrize("part", [".", ".."])
@pytest.mark.parametrize("where", [0, 1, 2])
def test_dots_that_would_lead_elsewhere_are_refused(part: str, where: int) -> None:
    parts = ["a", "b", "c"]
    parts[where] = part
    with pytest.raises(ValueError, match="would lead to another path"):
        POD.path(*parts)


def test_a_subresource_needs_a_name() -> None:
    with pytest.raises(ValueError, match="needs the name of an object"):
        POD.path("default", "", "status")


@settings(max_examples=scaled(200), deadline=None)
@given(namespace=st.text(min_size=1), name=st.text(min_size=1), sub=st.text(min_size=1))
def test_no_text_in_a_path_reaches_another_path(namespace: str, name: str, sub: str) -> None:
    try:
        path = POD.path(namespace, name, sub.replace("/", "_"))
    except (ValueError, UnicodeEncodeError):
        return
    assert urlsplit(path).path == path
    assert urllib3.util.parse_url(path).path == path, "a client would send something else"
    parts = path.split("/")
    assert parts[:4] == ["", "api", "v1", "namespaces"]
    assert [unquote(parts[4]), parts[5], unquote(parts[6]), unquote(parts[7])] == [
        namespace, "pods", name, sub.replace("/", "_"),
    ]  # fmt: skip
    assert len(parts) == 8


def test_a_definition_needs_a_kind_and_one_with_a_capital_letter() -> None:
    with pytest.raises(ValueError, match="begin with a capital letter: use 'WebSite'"):
        custom_resource_definition(Kind(group="example.com", version="v1", kind="webSite"))
    with pytest.raises(TypeError, match="is not a Kind"):
        custom_resource_definition("WebSite")  # type: ignore[arg-type]


@attrs.frozen
class Inner:
    fine: int = 0
    wrong: complex = 0j


@attrs.frozen
class Outer:
    name: str = ""
    items: list[dict[str, Inner]] = attrs.field(factory=list)


@dataclasses.dataclass(frozen=True)
class Plain:
    when: Inner | None = None


class Recursive(msgspec.Struct, frozen=True):
    more: list[Recursive] = []
    size: type = int


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (Outer, r"spec\.items\[\]\.\*\.wrong is of type complex, which has no schema: use text"),
        (Plain, r"spec\.when\.wrong is of type complex"),
        (Recursive, r"spec\.more\[\]: Recursive contains itself"),
        (dict[str, complex], r"spec\.\* is of type complex"),
        (Inner | None, r"spec\.wrong is of type complex"),
        (object, "spec is of type object"),
    ],
)
def test_a_type_without_a_schema_is_named_with_its_field(spec, text):
    kind = Kind(group="example.com", version="v1", kind="Widget", spec=spec)
    with pytest.raises(ValueError, match=text):
        custom_resource_definition(kind)


@pytest.mark.parametrize(
    ("scope", "remedy"),
    [
        ("Cluster", r"Scope\.CLUSTER"),
        ("namespaced", r"Scope\.NAMESPACED"),
        (None, r"Scope\.NAMESPACED or Scope\.CLUSTER"),
        ("all", r"Scope\.NAMESPACED or Scope\.CLUSTER"),
    ],
)
def test_what_is_no_scope_is_refused_with_the_one_that_is_meant(scope: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=rf"^scope={scope!r} is not a Scope: give {remedy}$"):
        Kind(group="", version="v1", kind="Node", scope=scope)


@pytest.mark.parametrize("what", ["spec", "status"])
def test_an_instance_is_no_type_of_spec_or_status(what: str) -> None:
    wanted: dict[str, Any] = {what: FrozenAttrs(replicas=7)}
    said = rf"^{what}=FrozenAttrs\(…\) is an instance: give its class, {what}=FrozenAttrs$"
    with pytest.raises(TypeError, match=said):
        Kind(group="", version="v1", kind="Node", **wanted)
    with pytest.raises(TypeError, match=said):
        WIDGET.typed(**wanted)


def test_a_kind_can_be_typed_by_classes_with_names_in_pythons_spelling() -> None:
    @attrs.frozen
    class Spec:
        max_size: int

    typed = kinds.apps.v1.Deployment.typed(spec=Spec, rename="camel")
    found = Object.from_dict(typed, {"metadata": {"name": "web"}, "spec": {"maxSize": 3}})
    assert found.spec == Spec(max_size=3)
    assert typed.typed(status=Spec).rename == "camel"
