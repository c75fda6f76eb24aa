"""CustomResourceDefinitions whose names and texts are hard for a module of Python."""

from __future__ import annotations

import builtins
import copy
import keyword
from collections.abc import Iterator
from typing import Any

import msgspec
import pydantic
from hypothesis import strategies as st

__all__ = ["damaged", "definitions"]

# Of the libraries, of the module itself, and of each other once they are made names of Python.
_ODD = [
    *("NOTHING", "attr_dict", "attrDict", "MISSING", "__slots__", "__init__", "__annotations__"),
    *("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__", "__pydantic_extra__"),
    *("modelConfig", "modelDump", "modelFields", "self", "cls", "mro", "field", "Field", "root"),
    *("annotations", "Final", "final", "Kind", "kind", "KIND", "Any", "any", "Literal", "Mapping"),
    *("Annotated", "FieldName", "Schema", "schema", "Rule", "ListType", "Format", "Scope"),
    *("Sequence", "Time", "time", "Duration", "Quantity", "Int32", "int32", "TypeAlias"),
    *("attrs", "attr", "dataclasses", "msgspec", "pydantic", "typing", "collections", "kinds"),
    *("Widget", "WIDGET", "widget", "WidgetSpec", "widgetSpec", "WidgetStatus", "Spec", "spec"),
    *("status", "WIDGET_VERSIONS", "WidgetVersions", "widgetRules", "V1", "SpecV1", "WidgetV1"),
    *("A", "a", "AA", "aA", "Aa", "l", "O", "I", "ID", "id", "IDs", "URLs", "port", "ports"),
    *("Port", "Port2", "port2", "port_2", "class_", "class_2", "from_", "object_", "NONE", "true"),
    *("fooBar", "foo_bar", "FooBar", "foo-bar", "FOO_BAR", "foo_Bar", "foo__bar", "foo.bar"),
    *("", " ", "_", "__", "-", ".", "$ref", "x-kubernetes-x", "1", "12", "2fa", "a b", "a/b"),
    *("é", "ß", "ﬁ", "名", "İ", "naïve", "😀", "\u2028", "\u202e", "\0", "\n", "'", '"', "\\"),
    *("a\\b", 'a"b', '"""', "\\N{DASH}", "{x}", "# noqa", "x" * 300),
]
_NAMES = sorted(
    {
        *_ODD,
        *keyword.kwlist,
        *keyword.softkwlist,
        *dir(builtins),
        *dir(pydantic.BaseModel),
        *dir(msgspec.Struct),
    }
)
_TEXTS = [
    "",
    '"',
    '"""',
    "\\",
    '\\"',
    "'''",
    "{x}",
    "\0",
    "\r\n",
    "a\n\n  b",
    "é" * 100,
    "# noqa\n",
]
_ENUMS: list[list[Any]] = [
    *(["a"], ["a", "a"], [""], ["\n"], ['"'], ["'\"\\"], ["é"], ["None"], ["x" * 200]),
    *([None], ["a", None], [1], [1, 1], [-1], [2**70], [1.5], [True], [0, False], [1, "1", True]),
    *([{}], [[]], [{"a": [1]}], [[{}]]),
]
_KINDS = [
    *("Widget", "WIDGET", "WidgetV1", "WidgetV2", "WidgetVersions", "WidgetRules"),
    *("A", "AA", "Aa", "None", "True", "Kind", "Final", "Any", "Class", "Object", "Scope", "Rule"),
    *("HTTPRoute", "HttpRoute", "HTTProute", "FooBar", "Foo-Bar", "Foo-bar", "Foobar", "Import"),
    *("Spec", "Status", "ASpec", "ASpecX", "String", "E1", "X" * 63),
]
_GROUPS = ["example.com", "a.example.com", "x.io", "1.example.com", "class.io", "example-1.com"]
_VERSIONS = ["v1", "v2", "v1beta1", "class", "v-1", "1", "none", "a-b", "ab", "x-spec"]

_names = st.one_of(st.sampled_from(_NAMES), st.sampled_from(_ODD), st.text(max_size=3))
_texts = st.sampled_from(_TEXTS)


def _optional(**parts: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=parts)


def _of_enum(values: list[Any]) -> dict[str, Any]:
    types = {type(value) for value in values}
    known = {str: {"type": "string"}, int: {"type": "integer"}, bool: {"type": "boolean"}}
    made = {"enum": values, "default": values[0]}
    return {**made, **known.get(next(iter(types)), {})} if len(types) == 1 else made


_leaves: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(_ENUMS).map(copy.deepcopy).map(_of_enum),
    st.builds(
        lambda more: {"type": "string", **more},
        _optional(
            default=st.sampled_from(["", "a", '"\\\n', "é"]),
            format=st.sampled_from(["date-time", "duration", "byte", "", "'\"\\"]),
            pattern=st.sampled_from(["^a$", '"\\\\', '\\d+(\'"""\')']),
        ),
    ),
    st.builds(
        lambda more: {"type": "integer", **more},
        _optional(default=st.sampled_from([0, -1, 2**63]), format=st.sampled_from(["int32", "x"])),
    ),
    st.sampled_from(
        [
            {"type": "number", "default": 1e300},
            {"type": "boolean", "default": False},
            {"x-kubernetes-int-or-string": True, "default": "1"},
            {"x-kubernetes-preserve-unknown-fields": True, "default": [{}]},
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ]
    ).map(copy.deepcopy),
)


@st.composite
def _objects(draw: st.DrawFn, inner: Any) -> dict[str, Any]:
    fields = draw(st.dictionaries(_names, inner, max_size=6))
    made: dict[str, Any] = {"type": "object", "properties": fields}
    if fields and draw(st.booleans()):
        made["required"] = draw(st.lists(st.sampled_from(sorted(fields)), unique=True))
    more = _optional(
        description=_texts,
        **{
            "x-kubernetes-preserve-unknown-fields": st.just(True),
            "x-kubernetes-validations": _texts.map(lambda text: [{"rule": "1", "message": text}]),
        },
    )
    return {**made, **draw(st.one_of(st.just({}), more))}


def _with_doc(schema: Any, more: dict[str, Any]) -> dict[str, Any]:
    return {**schema, **more}


def _schemas() -> st.SearchStrategy[dict[str, Any]]:
    around = _optional(description=_texts, nullable=st.just(True))
    return st.recursive(
        st.builds(_with_doc, _leaves, around),
        lambda inner: st.one_of(
            _objects(inner),
            _objects(inner).map(lambda one: {**one, "default": {}}),
            st.builds(lambda one: {"type": "array", "items": one}, inner),
            st.builds(lambda one: {"type": "object", "additionalProperties": one}, inner),
        ),
        max_leaves=8,
    )


@st.composite
def _definition(draw: st.DrawFn, group: str, kind: str) -> dict[str, Any]:
    versions = []
    names = draw(st.lists(st.sampled_from(_VERSIONS), min_size=1, max_size=3, unique=True))
    for version in names:
        root = {"spec": draw(_objects(_schemas()))}
        if draw(st.booleans()):
            root["status"] = draw(_objects(_schemas()))
        schema = {"type": "object", "properties": root, "description": draw(_texts)}
        versions.append(
            {
                "name": version,
                "served": True,
                "storage": version == names[0],
                "schema": {"openAPIV3Schema": schema},
            }
        )
    plural = f"{kind.lower()[:62]}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": draw(st.sampled_from(["Namespaced", "Cluster"])),
            "names": {"kind": kind, "plural": plural},
            "versions": versions,
        },
    }


@st.composite
def definitions(draw: st.DrawFn) -> list[dict[str, Any]]:
    """One to three definitions that an API server may have."""
    places = st.tuples(st.sampled_from(_GROUPS), st.sampled_from(_KINDS))
    chosen = draw(st.lists(places, min_size=1, max_size=3, unique=True))
    return [draw(_definition(group, kind)) for group, kind in chosen]


_WRONG: list[Any] = [
    *(None, True, 0, -1, 1.5, "", "x", [], ["x"], [1], [None], {}, {"a": 1}, [{}], [[]]),
    {"type": "string"},
]
_PARTS = [
    *("enum", "default", "required", "properties", "items", "additionalProperties", "type"),
    *("format", "nullable", "description", "pattern", "x-kubernetes-validations", "allOf", "not"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
    *("anyOf", "oneOf", "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource"),
]


def _mappings(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node:
        if isinstance(inner, (dict, list)):
            yield from _mappings(inner)


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A definition of which one part is of another form than API servers accept."""
    made = copy.deepcopy(draw(_definition("example.com", "Widget")))
    place = draw(st.sampled_from(list(_mappings(made))))
    known = [*place, *_PARTS] if draw(st.booleans()) else _PARTS
    place[draw(st.sampled_from(known))] = copy.deepcopy(draw(st.sampled_from(_WRONG)))
    return made
