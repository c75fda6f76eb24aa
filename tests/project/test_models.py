"""Typed classes from CustomResourceDefinitions and built-in kinds."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import textwrap
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from appsdk_operator import (
    ApiError,
    Client,
    Kind,
    MutableObject,
    Object,
    custom_resource_definition,
)
from appsdk_operator.project import ModelError, builtin_models, models, read_crds
from appsdk_operator.resource import dump_yaml
from appsdk_operator.testing import APIServer, install_crds
from appsdk_operator.testing.strategies import values
from tests.definitions import widget_definition
from tests.hypothesis_profiles import scaled
from tests.project.model_tools import again, crd, imported, kinds_of

SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "What a widget should be.",
    "required": ["size", "podIP", "tier", "from"],
    "x-kubernetes-validations": [
        {"rule": "self.size > 0 || !has(self.note)", "message": "no note of nothing"}
    ],
    "properties": {
        "size": {
            "type": "integer",
            "format": "int32",
            "minimum": 0,
            "maximum": 9,
            "description": "How many\nthere are.",
        },
        "podIP": {"type": "string", "format": "ipv4"},
        "tier": {"type": "string", "enum": ["small", "big"], "default": "small"},
        "from": {"type": "string", "pattern": '^[a-z"\\\\]+$'},
        "note": {"type": "string", "nullable": True},
        "maybe": {"type": "string", "nullable": True, "default": "a"},
        "memory": {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
        },
        "since": {"type": "string", "format": "date-time"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "description": "One port.",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "port": {"type": "integer", "default": 80},
                },
            },
        },
        "limits": {
            "type": "object",
            "properties": {"max": {"type": "integer", "default": 3}},
            "default": {},
        },
        "colors": {"type": "array", "items": {"type": "string"}, "default": ["red"]},
        "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "anything": {"x-kubernetes-preserve-unknown-fields": True},
        "open": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"str": {"type": "string"}, "int": {"type": "integer"}},
        },
        "choice": {
            "type": "object",
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        },
    },
}
STYLES = ("attrs", "dataclass", "msgspec", "pydantic")


@pytest.mark.parametrize("style", STYLES)
def test_a_schema_becomes_classes_that_objects_are_read_into(style: Any, tmp_path: Path) -> None:
    module = imported(models([crd(SCHEMA)], style=style), tmp_path)
    data = {
        "size": 3,
        "podIP": "10.0.0.1",
        "tier": "big",
        "from": "x",
        "ports": [{"name": "web"}],
        "memory": "1Gi",
        "open": {"str": "x"},
    }
    spec = Object.from_dict(module.WIDGET, {"metadata": {"name": "a"}, "spec": data}).spec
    assert (spec.size, spec.pod_ip, spec.tier, spec.from_) == (3, "10.0.0.1", "big", "x")
    assert spec.ports == (module.Port(name="web", port=80),)
    assert spec.colors == ("red",)
    assert spec.limits.max == 3
    assert spec.labels == {}
    assert spec.note is None
    assert spec.open.str_ == "x"
    written = MutableObject.new(module.WIDGET, "a", spec=spec).to_dict()["spec"]
    assert data.items() <= {**written, "ports": data["ports"]}.items()


@pytest.mark.parametrize("style", STYLES)
def test_classes_become_the_same_schema_again(style: Any, tmp_path: Path) -> None:
    original = crd(SCHEMA)
    text = models([original], style=style)
    found = again(original, imported(text, tmp_path))
    assert models([found], style=style) == text
    new = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    properties = {**SCHEMA["properties"], "memory": {"x-kubernetes-int-or-string": True}}
    # A default of {} has the defaults of its fields.
    assert new["properties"]["limits"].pop("default") in ({}, {"max": 3})
    properties["limits"] = {
        k: v for k, v in SCHEMA["properties"]["limits"].items() if k != "default"
    }
    for name, schema in properties.items():
        assert new["properties"][name] == schema, name
    assert sorted(new["required"]) == ["from", "podIP", "size"]  # a default makes tier optional
    assert new["x-kubernetes-validations"] == SCHEMA["x-kubernetes-validations"]


def test_required_fields_come_first_and_descriptions_are_docstrings() -> None:
    text = models([crd(SCHEMA)])
    spec = next(
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == "WidgetSpec"
    )
    assert ast.get_docstring(spec) == "What a widget should be."
    names = [one.target.id for one in spec.body if isinstance(one, ast.AnnAssign)]  # type: ignore[union-attr]
    assert names[:4] == ["size", "pod_ip", "from_", "tier"]
    assert '    """How many\n    there are.\n    """\n' in text


def test_versions_have_classes_of_their_own_where_they_differ(tmp_path: Path) -> None:
    port = {"type": "object", "properties": {"name": {"type": "string"}}}
    other = {"type": "object", "properties": {"name": {"type": "integer"}}}
    first, second = (
        {"type": "object", "properties": {"port": one, "shared": port}} for one in (port, other)
    )
    made = crd(first)
    older = crd(second, version="v1alpha1")["spec"]["versions"][0]
    made["spec"]["versions"].append({**older, "storage": False})
    made["spec"]["versions"].append(
        {**older, "name": "v1alpha0", "storage": False, "served": False}
    )
    module = imported(models([made]), tmp_path)
    assert module.WIDGET_VERSIONS == (module.WIDGET, module.WIDGET_V1ALPHA1)
    assert module.WIDGET_V1ALPHA1.spec is module.WidgetSpecV1alpha1
    assert module.WidgetSpecV1alpha1(port=module.PortV1alpha1(name=1)).port.name == 1
    assert module.WidgetSpec(shared=module.Shared(name="a")).shared.name == "a"
    assert not hasattr(module, "SharedV1alpha1")
    assert not hasattr(module, "WIDGET_V1ALPHA0")


def test_names_that_clash_are_told_apart(tmp_path: Path) -> None:
    def part(kind: str) -> dict[str, Any]:
        return {"type": "object", "properties": {"x": {"type": kind}}}

    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "object", "properties": {"rule": part("string")}},
            "b": {"type": "object", "properties": {"rule": part("integer")}},
            "fooBar": {"type": "string"},
            "foo_bar": {"type": "string"},
            "class": {"type": "string"},
            "2fa": {"type": "string"},
            "$ref": {"type": "string"},
            "attrs": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
            "exception": part("string"),
        },
    }
    module = imported(models([crd(schema)]), tmp_path)
    assert {"ARule", "BRule", "SpecException"} <= vars(module).keys()
    data = {"fooBar": "1", "foo_bar": "2", "class": "3", "2fa": "4", "$ref": "5"}
    found = Object.from_dict(module.WIDGET, {"metadata": {"name": "a"}, "spec": data}).spec
    assert (found.foo_bar, found.foo_bar_2, found.class_, found.field_2fa, found.ref) == (
        *("1", "2", "3", "4"),
        "5",
    )


def test_two_kinds_of_one_name_have_their_groups_in_theirs(tmp_path: Path) -> None:
    one, other = crd(SCHEMA), crd(SCHEMA)
    other["spec"]["group"] = "other.example.com"
    other["metadata"]["name"] = "widgets.other.example.com"
    module = imported(models([one, other]), tmp_path)
    assert set(kinds_of(module)) == {"EXAMPLE_WIDGET", "OTHER_WIDGET"}


@pytest.mark.parametrize("style", STYLES)
def test_what_is_said_of_whole_objects_comes_back(style: Any, tmp_path: Path) -> None:
    said = {
        "description": 'A widget.\n\n  "Quoted" as it is.',
        "x-kubernetes-validations": [
            {"rule": "self.metadata.name != 'a'", "message": "not a", "reason": "FieldValueInvalid"}
        ],
    }
    original = crd(SCHEMA)
    original["spec"]["versions"][0]["schema"]["openAPIV3Schema"].update(said)
    # The name of another kind is in the way of a constant.
    text = models([original, crd(SCHEMA, kind="WidgetRules")], style=style)
    module = imported(text, tmp_path)
    assert isinstance(module.WIDGET_RULES, Kind)
    assert not hasattr(module, "WIDGET_RULES_DESCRIPTION")
    made = custom_resource_definition(
        module.WIDGET, description=module.WIDGET_DESCRIPTION, rules=module.WIDGET_RULES_2
    )
    root = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert said.items() <= root.items()


@pytest.mark.parametrize(
    "values",
    [
        {"enum": ["a"]},
        {"enum": ["a", None]},
        {"allOf": [{"enum": ["a"]}]},
        {"allOf": [{"minLength": 1}, {"enum": ["a"]}]},
    ],
    ids=str,
)
def test_a_nullable_enum_is_an_optional_literal(values: Any, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "required": ["mode"],
        "properties": {"mode": {"type": "string", "nullable": True, **values}},
    }
    text = models([crd(schema)])
    module = imported(text, tmp_path)
    data = {"metadata": {"name": "a"}, "spec": {"mode": None}}
    assert Object.from_dict(module.WIDGET, data).spec.mode is None
    found = again(crd(schema), module)
    assert models([found]) == text
    made = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    # API servers find null in no enum, so that it is beside it.
    assert {"enum": ["a"]} in made["properties"]["mode"]["allOf"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"versions": []}, "widgets.example.com has no versions"),
        ({"scope": "Galaxy"}, "widgets.example.com: 'Galaxy' is not a valid Scope"),
        ({"versions": [{"name": "v1"}]}, "version v1 has no schema"),
    ],
)
def test_a_crd_that_is_none_is_refused(change: dict[str, Any], text: str) -> None:
    made = crd(SCHEMA)
    made["spec"].update(change)
    with pytest.raises(ModelError, match=text):
        models([made])


def test_a_schema_that_is_none_is_refused_with_its_path() -> None:
    with pytest.raises(ModelError, match=r"WidgetSpec.a has the type 'strnig'"):
        models([crd({"type": "object", "properties": {"a": {"type": "strnig"}}})])
    with pytest.raises(ValueError, match="use one of attrs, dataclass, msgspec, pydantic"):
        models([], style="xml")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="two different CustomResourceDefinitions"):
        models([crd(SCHEMA), crd({"type": "object"})])


def test_crds_are_read_from_files_folders_and_lists(tmp_path: Path) -> None:
    listed = dump_yaml({"kind": "List", "items": [crd(SCHEMA), crd(SCHEMA, kind="Gadget")]})
    (tmp_path / "a.yaml").write_text(f"kind: ConfigMap\n---\n{listed}")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b.json").write_text('{"kind": "ConfigMap"}')
    found = read_crds(tmp_path)
    assert [one["spec"]["names"]["kind"] for one in found] == ["Widget", "Gadget"]
    with pytest.raises(ModelError, match="there is no CustomResourceDefinition in it"):
        read_crds(tmp_path / "below")
    binary = tmp_path / "below" / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match=r"binary\.yaml: not YAML"):
        read_crds(binary)


# -- Descriptions and names are data ------------------------------------------------------------

EVIL = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            [
                '"',
                "'",
                '"""',
                "'''",
                "\\",
                "\n",
                "\r",
                "\0",
                "\x1b",
                "\u2028",
                "\u202e",
                "{x}",
                "\t",
                " ",
                "${x}",
                "import os",
                "\\N{DASH}",
                "# noqa",
                "é",
                "x" * 90,
                ")",
                "]\n",
                "\\u0041",
                "}\x85",
            ]
        ),
        max_size=12,
    ).map("".join),
)
FIELDS = st.tuples(EVIL, st.sampled_from(STYLES)).map(
    # msgspec has no such names.
    lambda pair: (
        re.sub(r'[\x00-\x1f"\\]', "", pair[0]) if pair[1] == "msgspec" else pair[0],
        pair[1],
    )
)
ALLOWED = (ast.ImportFrom, ast.Import, ast.ClassDef, ast.AnnAssign, ast.Expr)


def statements(tree: ast.Module) -> list[ast.stmt]:
    inner = [one for node in tree.body if isinstance(node, ast.ClassDef) for one in node.body]
    return [*tree.body, *inner]


@settings(max_examples=scaled(20), deadline=None)
@given(EVIL, EVIL, FIELDS)
def test_texts_of_a_crd_never_become_code(doc: str, value: str, field: tuple[str, Any]) -> None:
    name, style = field
    schema = {
        "type": "object",
        "description": doc,
        "required": ["k"],
        "properties": {
            name: {"type": "string", "description": doc, "default": value, "pattern": value},
            "k": {"type": "string", "enum": [value, "z"], "description": value},
            "m": {
                "type": "object",
                "properties": {name: {"type": "string"}},
                "x-kubernetes-validations": [{"rule": f"1{value}", "message": doc}],
            },
        },
    }
    made = crd(schema)
    whole = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    whole["description"] = doc
    whole["x-kubernetes-validations"] = [{"rule": f"1{doc}", "message": value}]
    text = models([made], style=style)
    tree = ast.parse(text)
    for node in statements(tree):
        assert isinstance(node, (*ALLOWED, ast.Pass)), ast.dump(node)
        if isinstance(node, ast.Expr):
            assert isinstance(node.value, ast.Constant)
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id  # type: ignore[attr-defined]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    assert called <= {
        "frozen",
        "dataclass",
        "field",
        "Field",
        "Schema",
        "Rule",
        "Kind",
        "FieldName",
    }
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert value in texts
    kept = {
        "".join(one.split())
        for node in statements(tree)
        if isinstance(node, ast.Expr) and isinstance(one := getattr(node.value, "value", 0), str)
    }
    assert "".join(doc.split()) in kept or not doc.strip()
    assert models([made], style=style) == text


def ruff(*arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, "--isolated", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd=tempfile.gettempdir(),  # where the kit is somebody else's package
    )


@pytest.mark.programs
@settings(max_examples=scaled(8), deadline=None)
@example(doc="", value="00000000\x1f\x1f\x1f⺀⼀", field=("", "attrs"))
@example(doc='\\"', value="", field=("", "attrs"))
@example(doc="", value="0000000\u0cc2", field=("", "attrs"))
@given(EVIL, EVIL, FIELDS)
def test_ruff_has_nothing_to_say(doc: str, value: str, field: tuple[str, Any]) -> None:
    name, style = field
    # How wide ruff takes a letter that is too new for this Python's Unicode is not known here.
    assume("Cn" not in {unicodedata.category(letter) for letter in value + name})
    schema = {
        "type": "object",
        "description": doc,
        "properties": {
            name: {"type": "string", "description": doc, "default": value, "pattern": value},
            "k" * 70: {"type": "string", "enum": [value, "z"]},
            "many": {
                "type": "array",
                "items": {"type": "string", "pattern": value, "minLength": 1},
            },
        },
    }
    text = models([crd(schema)], style=style)
    formatted = ruff("format", "--diff", text=text)
    assert formatted.returncode == 0, formatted.stdout + text
    checked = ruff("check", "--select", "E,F,I,N,PIE,UP,W,Q,C4", text=text)
    assert checked.returncode == 0, checked.stdout + text


@pytest.mark.programs
@pytest.mark.long
def test_type_checkers_accept_the_modules_of_all_styles(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    for style in STYLES:
        (folder / f"widgets_{style}.py").write_text(models([crd(SCHEMA)], style=style))  # type: ignore[arg-type]
        (folder / f"use_{style}.py").write_text(
            textwrap.dedent(
                f"""
                import widgets_{style} as widgets

                spec = widgets.WidgetSpec(size=1, pod_ip="10.0.0.1", from_="a", ports=())
                kind = widgets.WIDGET
                names: tuple[str, ...] = spec.colors
                """
            )
        )
    # In one run each: most of it is the start, and the kit itself.
    for command in (["mypy", "--strict", "."], ["pyright", "--pythonpath", sys.executable, "."]):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


# -- Any structural schema ----------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "podIP", "x-y", "class", "maxSize", "type", "str", "rules", "A"])


def scalars() -> st.SearchStrategy[dict[str, Any]]:
    def optional(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries({}, optional=parts)

    texts = optional(
        minLength=st.integers(0, 2),
        maxLength=st.integers(3, 5),
        format=st.sampled_from(["date-time", "ipv4", "duration", "byte", "none"]),
        pattern=st.sampled_from(["^[a-z]*$", "a|b"]),
        enum=st.sampled_from([["a"], ["a", "b", ""]]),
        default=st.sampled_from(["a", "b"]),
    )
    numbers = optional(
        minimum=st.integers(-2, 0),
        maximum=st.integers(3, 5),
        format=st.sampled_from(["int32", "int64"]),
        enum=st.sampled_from([[1, 2]]),
        default=st.integers(1, 2),
    )
    return st.one_of(
        texts.map(lambda one: {"type": "string", **one}),
        numbers.map(lambda one: {"type": "integer", **one}),
        st.sampled_from(
            [
                {"type": "boolean"},
                {"type": "boolean", "default": False},
                {"type": "number", "minimum": 0, "exclusiveMinimum": True},
                {"x-kubernetes-int-or-string": True},
                {"x-kubernetes-int-or-string": True, "default": "25%"},
                {"x-kubernetes-preserve-unknown-fields": True},
                {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            ]
        ),
    )


def composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda items: {"type": "array", "items": items, "maxItems": 2, "default": []}, inner
        ),
        st.builds(lambda one: {"type": "object", "additionalProperties": one}, inner),
        classes(inner),
    )


def without_default(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "default"}


@st.composite
def classes(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    fields = draw(st.dictionaries(NAMES, inner, max_size=4))
    made: dict[str, Any] = {"type": "object", "properties": fields}
    if required := draw(st.lists(st.sampled_from(sorted(fields)), unique=True)) if fields else []:
        made["required"] = required
    if draw(st.booleans()):
        made["description"] = draw(st.sampled_from(["One.", "Two lines\n  of text."]))
    if draw(st.integers(0, 5)) == 0:
        made["x-kubernetes-preserve-unknown-fields"] = True
    if draw(st.integers(0, 5)) == 0:
        made["maxProperties"] = 3
    return made


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    # Of any place, null and a description; a default that null or an enum would make odd goes.
    parts = st.builds(
        lambda one, more: (
            one
            if "enum" in one and more
            else {**without_default(one), **more}
            if more.get("nullable")
            else {**one, **more}
        ),
        st.recursive(scalars(), composed, max_leaves=6),
        st.sampled_from([{}, {}, {"nullable": True}, {"description": "What it is."}]),
    )
    return draw(classes(parts))


def sound(schema: Any) -> Any:
    """The schema without defaults that do not fit it."""
    if not isinstance(schema, dict):
        return schema
    made = {
        key: {name: sound(one) for name, one in value.items()}
        if key == "properties"
        else sound(value)
        if key in ("items", "additionalProperties")
        else value
        for key, value in schema.items()
    }
    default = made.get("default")
    is_odd = (
        ("enum" in made and default not in made["enum"])
        or (made.get("format") in ("date-time", "ipv4", "duration", "byte") and default is not None)
        or (default is not None and len(str(default)) < made.get("minLength", 0))
    )
    if is_odd:
        made.pop("default", None)
    return made


@settings(max_examples=scaled(15), deadline=None)
@given(schemas().map(sound), st.sampled_from(STYLES))
def test_classes_of_any_schema_are_stable(schema: dict[str, Any], style: Any) -> None:
    original = crd(schema)
    text = models([original], style=style)
    with tempfile.TemporaryDirectory() as folder:
        found = again(original, imported(text, Path(folder)))
        assert models([found], style=style) == text


def test_the_schema_of_the_classes_accepts_the_same_objects() -> None:
    with APIServer() as server, Client(server.client_config()) as client:

        @settings(max_examples=scaled(10), deadline=None)
        @given(st.data())
        def check(data: st.DataObject) -> None:
            schema = data.draw(schemas().map(sound))
            given_specs = st.one_of(
                values(schema), values({"x-kubernetes-preserve-unknown-fields": True})
            )
            check_same_answers(client, schema, [data.draw(given_specs) for _ in range(3)])

        check()


def check_same_answers(client: Client, schema: dict[str, Any], specs: list[Any]) -> None:
    original = crd(schema)
    with tempfile.TemporaryDirectory() as folder:
        found = again(original, imported(models([original]), Path(folder)))
    kinds = [Kind(group="example.com", version="v1", kind=name) for name in ("Old", "New")]
    for kind, one in zip(kinds, (original, found), strict=True):
        whole = one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        made = custom_resource_definition(kind, schema={**whole, "required": ["spec"]})
        install_crds(client, [made])
    for spec in specs:
        answers = []
        for kind in kinds:
            metadata = {"generateName": "a-", "namespace": "default"}
            draft = Object.from_dict(kind, {"metadata": metadata, "spec": spec})
            try:
                answers.append(client.create(draft).to_dict()["spec"])
            except ApiError as error:
                answers.append(error.status)
        assert answers[0] == answers[1], (schema, found, spec)


# -- Built-in kinds -----------------------------------------------------------------------------


def builtin(*names: str, style: Any = "attrs") -> str:
    from appsdk_operator.apiserver import builtin_schemas

    known = builtin_schemas.data()
    return builtin_models(names, schemas=known.schemas, definitions=known.kinds, style=style)


@pytest.mark.parametrize("style", STYLES)
def test_built_in_kinds_have_typed_views(style: Any, tmp_path: Path) -> None:
    module = imported(builtin("apps/v1/Deployment", "core/v1/Pod", style=style), tmp_path)
    data = {
        "containers": [
            {
                "name": "web",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1"}},
                "livenessProbe": {"httpGet": {"port": "web"}},
            }
        ]
    }
    pod = Object.from_dict(
        module.POD, {"metadata": {"name": "a"}, "spec": data, "status": {"podIP": "10.0.0.1"}}
    )
    assert pod.spec.containers[0].ports[0].container_port == 80
    assert pod.status.pod_ip == "10.0.0.1"
    template = module.PodTemplateSpec(spec=pod.spec)
    spec = module.DeploymentSpec(selector=module.LabelSelector(), template=template)
    written = MutableObject.new(module.DEPLOYMENT, "a", spec=spec).to_dict()["spec"]
    container = written["template"]["spec"]["containers"][0]
    assert container["livenessProbe"] == {"httpGet": {"port": "web"}}


def test_all_built_in_kinds_with_spec_or_status_have_classes(tmp_path: Path) -> None:
    from appsdk_operator.resource import kinds

    count = 0
    for entry in kinds.builtin_kinds():
        kind = entry.kind
        try:
            text = builtin(f"{kind.group or 'core'}/{kind.version}/{kind.kind}")
        except ModelError:  # no spec and no status
            continue
        assert ": Final = kinds." in text
        count += 1
    assert count > 30


def test_a_kind_that_is_not_built_in_is_refused() -> None:
    with pytest.raises(ModelError, match="such as apps/v1/Deployment"):
        builtin("apps/v1/Deploymint")
    with pytest.raises(ModelError, match="neither its spec nor its status"):
        builtin("core/v1/ConfigMap")


def test_a_definition_within_itself_is_any_there_and_itself_elsewhere(tmp_path: Path) -> None:
    def fields(**properties: str) -> dict[str, Any]:
        refs = {name: {"$ref": target} for name, target in properties.items()}
        return {"type": "object", "properties": refs}

    leaf = {"type": "object", "properties": {"x": {"type": "string"}}}
    schemas = {
        "x.Pod": fields(spec="x.Spec"),
        "x.Spec": fields(first="x.One", second="x.Two"),
        "x.One": fields(two="x.Two", leaf="x.Leaf"),
        "x.Two": fields(one="x.One", leaf="x.Leaf"),
        "x.Leaf": leaf,
    }
    text = builtin_models(
        ["core/v1/Pod"], schemas=schemas, definitions={("", "v1", "Pod"): "x.Pod"}
    )
    pod = imported(text, tmp_path).POD
    data = {"second": {"one": {"leaf": {"x": "a"}, "two": {"one": {"free": 1}}}}}
    spec = Object.from_dict(pod, {"metadata": {"name": "a"}, "spec": data}).spec
    assert spec.second.one.leaf.x == "a"
    assert spec.second.one.two["one"] == {"free": 1}


def test_a_description_with_markup_makes_a_class_that_makes_the_same_crd(tmp_path: Path) -> None:
    made = widget_definition(
        {
            "properties": {
                "spec": {
                    "type": "object",
                    "description": "The ``size`` of :class:`~a.Widget`, in ```litres```.",
                    "properties": {"size": {"type": "integer", "description": "Like ``1``."}},
                }
            }
        }
    )
    text = models([made])
    assert "The `size` of Widget, in ```litres```." in text
    assert models([again(made, imported(text, tmp_path))]) == text
