"""CustomResourceDefinitions: serving, validation, defaults, pruning, versions and their end."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appsdk_operator.apiserver import APIServer, StatusError
from appsdk_operator.apiserver._schema.structural_schema import StructuralSchema
from appsdk_operator.resource import Kind
from tests.counting import calls_of
from tests.definitions import widget_definition
from tests.hypothesis_profiles import scaled

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = f"{DEFINITIONS}/widgets.example.com"


def conditions(reply: Any) -> dict[str, str]:
    return {c["type"]: c["status"] for c in reply["status"]["conditions"]}


def test_a_definition_is_established_and_served_at_once(connect: Any, widget_crd: Any) -> None:
    with APIServer() as server:
        api = connect(server)
        assert api.get(api.widgets).status == 404
        made = api.create(DEFINITIONS, widget_crd)
        assert made["spec"]["names"]["listKind"] == "WidgetList"
        assert made["spec"]["names"]["singular"] == "widget"
        assert api.get(api.widgets)["kind"] == "WidgetList"
        found = api.get(WIDGETS)
        assert conditions(found) == {"NamesAccepted": "True", "Established": "True"}
        assert found["status"]["storedVersions"] == ["v1"]
        resources = api.get("/apis/example.com/v1")["resources"]
        assert [r["name"] for r in resources] == ["widgets", "widgets/status", "widgets/scale"]


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"size": "x"}, "spec.size", 'spec.size in body must be of type integer: "string"'),
        ({"size": 99}, "spec.size", "spec.size in body should be less than or equal to 10"),
        ({"size": 0}, "spec.size", "spec.size in body should be greater than or equal to 1"),
        ({"size": True}, "spec.size", 'spec.size in body must be of type integer: "boolean"'),
        ({"size": None}, "spec.size", "Required value"),
        ({"mode": "z"}, "spec.mode", 'Unsupported value: "z": supported values: "a", "b"'),
        ({"name": "TOOLONG"}, "spec.name", "Too long: may not be more than 5 bytes"),
        ({"name": "A"}, "spec.name", "spec.name in body should match '^[a-z]+$'"),
        ({"when": "x"}, "spec.when", 'spec.when in body must be of type date-time: "x"'),
        ({"list": ["a", "b", "c"]}, "spec.list", "Too many: 3: must have at most 2 items"),
        ({"list": [1]}, "spec.list[0]", 'spec.list[0] in body must be of type string: "integer"'),
        ({"port": {}}, "spec.port", 'spec.port in body must be of type integer,string: "object"'),
        ({"counts": {"k": "v"}}, "spec.counts.k", 'must be of type integer: "string"'),
    ],
)
def test_what_breaks_the_schema_is_invalid(
    api: Any, new_widget: Any, spec: dict[str, Any], field: str, words: str
) -> None:
    refused = api.create(api.widgets, new_widget("a", **spec))
    assert (refused.status, refused["reason"]) == (422, "Invalid")
    (cause,) = refused["details"]["causes"]
    assert cause["field"] == field
    assert words in cause["message"]
    assert refused["message"] == f'Widget.example.com "a" is invalid: {field}: {cause["message"]}'


def test_every_problem_is_told_at_once(api: Any, new_widget: Any) -> None:
    body = new_widget("a", mode="z", name="A")
    del body["spec"]["size"]
    refused = api.create(api.widgets, body)
    assert [(c["field"], c["reason"]) for c in refused["details"]["causes"]] == [
        ("spec.mode", "FieldValueNotSupported"),
        ("spec.name", "FieldValueInvalid"),
        ("spec.size", "FieldValueRequired"),
    ]
    assert "is invalid: [spec.mode: Unsupported value: " in refused["message"]


def test_what_the_schema_allows_is_kept(api: Any) -> None:
    spec = {
        "size": 1,
        "when": "2026-01-02T03:04:05Z",
        "port": "http",
        "maybe": None,
        "free": {"any": {"thing": [1, 2]}},
        "counts": {"k": 1},
    }
    assert api.widget("a", **spec)["spec"] == {**spec, "mode": "a"}


def test_defaults_are_filled_in_and_unknown_fields_dropped(api: Any, new_widget: Any) -> None:
    created = api.create(api.widgets, {**new_widget("a", junk=1), "more": 2})
    assert created["spec"] == {"size": 1, "mode": "a"}
    assert "more" not in created.body
    warnings = created.headers.getlist("Warning")
    assert sorted(warnings) == [
        '299 - "unknown field \\"more\\""',
        '299 - "unknown field \\"spec.junk\\""',
    ]


def test_field_validation_can_be_strict_or_silent(api: Any, new_widget: Any) -> None:
    strict = api.create(f"{api.widgets}?fieldValidation=Strict", new_widget("a", junk=1))
    assert strict.status == 400
    assert strict["message"] == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: '
        'unknown field "spec.junk"'
    )
    twice = b'{"metadata":{"name":"m"},"data":{"a":"1","a":"2"}}'
    assert api("POST", f"{api.maps}?fieldValidation=Strict", twice).status == 400
    silent = api.create(f"{api.widgets}?fieldValidation=Ignore", new_widget("a", junk=1))
    assert silent.status == 201
    assert "Warning" not in silent.headers


def test_versions_are_views_of_the_same_objects(api: Any) -> None:
    api.widget("a")
    older = api.get("/apis/example.com/v1beta1/namespaces/default/widgets/a")
    assert older["apiVersion"] == "example.com/v1beta1"
    assert older["spec"] == {"size": 1, "mode": "a"}
    assert (
        older.headers["Warning"]
        == '299 - "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget"'
    )
    body = {
        "apiVersion": "example.com/v1beta1",
        "kind": "Widget",
        "metadata": {"name": "b"},
        "spec": {"size": 2},
    }
    assert api.create("/apis/example.com/v1beta1/namespaces/default/widgets", body).status == 201
    assert api.get(f"{api.widgets}/b")["apiVersion"] == "example.com/v1"


def test_a_changed_schema_goes_for_the_next_write(api: Any, widget_crd: Any) -> None:
    schema = widget_crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["size"]["maximum"] = 100
    changed = api.patch(WIDGETS, {"spec": widget_crd["spec"]})
    assert changed["metadata"]["generation"] == 2
    assert api.widget("a", size=50)["spec"]["size"] == 50


def test_a_version_that_is_served_no_more_is_not_found(api: Any, widget_crd: Any) -> None:
    widget_crd["spec"]["versions"][1]["served"] = False
    assert api.patch(WIDGETS, {"spec": widget_crd["spec"]}).status == 200
    assert api.get("/apis/example.com/v1beta1/widgets").status == 404
    versions = api.get("/apis/example.com")["versions"]
    assert [v["version"] for v in versions] == ["v1"]


def test_a_definition_takes_its_objects_along_and_waits_for_their_finalizers(
    api: Any, server: Any, new_widget: Any
) -> None:
    api.widget("a")
    api.widget("b")
    api.patch(f"{api.widgets}/b", {"metadata": {"finalizers": ["example.com/x"]}})
    assert api.delete(WIDGETS).status == 200
    assert conditions(api.get(WIDGETS))["Terminating"] == "True"
    refused = api.create(api.widgets, new_widget("c"))
    assert (refused.status, refused["reason"]) == (403, "Forbidden")
    assert api.names(api.widgets) == ["b"]
    api.patch(f"{api.widgets}/b", {"metadata": {"finalizers": None}})
    assert api.get(WIDGETS).status == 404
    assert api.get(api.widgets).status == 404
    with pytest.raises(LookupError, match="apply its CRD first"):
        server.objects(Kind(group="example.com", version="v1", kind="Widget"))


def test_a_definition_can_come_back_and_begins_empty(api: Any, widget_crd: Any) -> None:
    api.widget("a")
    api.delete(WIDGETS)
    assert api.create(DEFINITIONS, widget_crd).status == 201
    assert api.names(api.widgets) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"group": "nodot"}, "spec.group: Invalid value"),
        ({"scope": "Galaxy"}, 'spec.scope: Unsupported value: "Galaxy"'),
        ({"names": {"plural": "others", "kind": "Widget"}}, 'must be spec.names.plural+"."+spec'),
        ({"versions": []}, "spec.versions: Invalid value: null: must have exactly one version"),
        (
            {"versions": [{"name": "v1", "served": True, "storage": True}]},
            "openAPIV3Schema: Required value",
        ),
    ],
)
def test_a_definition_that_makes_no_sense_is_invalid(
    connect: Any, widget_crd: Any, change: dict[str, Any], words: str
) -> None:
    widget_crd["spec"] |= change
    with APIServer() as server:
        refused = connect(server).create(DEFINITIONS, widget_crd)
        assert (refused.status, refused["reason"]) == (422, "Invalid")
        assert words in refused["message"]


@pytest.mark.parametrize("value", ["string", 1.5, [], ["a"], True, {"type": "string"}, None])
def test_schemas_and_subresources_are_decoded_by_their_types(
    api: Any, widget_crd: Any, value: Any
) -> None:
    """The answers are those of the real server."""
    version = widget_crd["spec"]["versions"][0]
    path, stored = f"{WIDGETS}?dryRun=All", api.get(WIDGETS).body
    for field, refused in (
        ("additionalProperties", 0 if isinstance(value, (bool, dict, type(None))) else 400),
        (
            "additionalItems",
            0 if value is None else 422 if isinstance(value, (bool, dict)) else 400,
        ),
        ("items", 0 if isinstance(value, dict) else 400 if value == ["a"] else 422),
    ):
        kind = "array" if field == "items" else "object"
        version["schema"] = {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": kind, field: value}},
            }
        }
        version["subresources"] = {"status": {}}
        answer = api.update(path, {**stored, "spec": widget_crd["spec"]})
        assert answer.status == (refused or 200), (field, answer.body)
    version["schema"] = {"openAPIV3Schema": {"type": "object"}}
    version["subresources"] = {"status": value}
    answer = api.update(path, {**stored, "spec": widget_crd["spec"]})
    assert answer.status == (200 if isinstance(value, (dict, type(None))) else 400), answer.body


def test_a_server_is_not_made_with_a_definition_that_makes_no_sense(widget_crd: Any) -> None:
    widget_crd["spec"]["scope"] = "Galaxy"
    with pytest.raises(StatusError, match=r"spec\.scope"):
        APIServer(crds=[widget_crd])


def test_definitions_can_be_applied_while_the_server_runs(connect: Any, widget_crd: Any) -> None:
    with APIServer() as server:
        server.apply_crds([widget_crd])
        assert connect(server).widget("a").status == 201
        assert "singular" not in widget_crd["spec"]["names"]


def test_a_definition_whose_names_are_taken_is_not_served(api: Any, widget_crd: Any) -> None:
    widget_crd["metadata"]["name"] = "gadgets.example.com"
    widget_crd["spec"]["names"] = {"plural": "gadgets", "kind": "Widget"}
    api.create(DEFINITIONS, widget_crd)
    refused = api.get(f"{DEFINITIONS}/gadgets.example.com")
    assert conditions(refused) == {"NamesAccepted": "False", "Established": "False"}
    assert api.get("/apis/example.com/v1/gadgets").status == 404
    assert api.delete(f"{DEFINITIONS}/gadgets.example.com").status == 200
    assert api.get(f"{DEFINITIONS}/gadgets.example.com").status == 404
    assert api.get(api.widgets).status == 200


def test_no_definition_takes_the_place_of_a_built_in_kind(api: Any, widget_crd: Any) -> None:
    widget_crd["metadata"]["name"] = "leases.coordination.k8s.io"
    widget_crd["spec"]["group"] = "coordination.k8s.io"
    widget_crd["spec"]["names"] = {"plural": "leases", "kind": "Lease"}
    api.create(DEFINITIONS, widget_crd)
    api.delete(f"{DEFINITIONS}/leases.coordination.k8s.io")
    assert api.get("/apis/coordination.k8s.io/v1/leases").status == 200


def _alternatives(levels: int, keyword: str) -> dict[str, Any]:
    """Alternatives of alternatives: two each, and one below the other."""
    innermost: dict[str, Any] = {"required": ["a"]}
    made = innermost
    for _level in range(levels):
        made = {keyword: made} if keyword == "not" else {keyword: [innermost, made]}
    return made


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf", "not"])
def test_the_work_for_alternatives_grows_with_their_number_not_with_their_depth(
    keyword: str,
) -> None:
    def serve(levels: int) -> int:
        spec = {"type": "object", "properties": {"a": {"type": "string"}}}
        alternatives = _alternatives(levels, keyword)
        definition = widget_definition({"properties": {"spec": {**spec, **alternatives}}})
        server = APIServer()
        return calls_of(lambda: server.apply_crds([definition]))

    serve(1)
    none, once, twice = serve(0), serve(8), serve(16)
    assert twice - none < 2.3 * (once - none)


NUMBERED = "/apis/example.com/v1/namespaces/default/numbers"
STEPS = st.one_of(
    st.tuples(st.just("default"), st.sampled_from([None, 7, 8])),
    st.tuples(st.just("write"), st.sampled_from(["put", "patch", "status", "delete"])),
)


def numbered(default: int | None) -> dict[str, Any]:
    """A definition whose objects have a size with this default."""

    def version(name: str, **size: Any) -> dict[str, Any]:
        spec = {"type": "object", "properties": {"size": {"type": "integer", **size}}}
        status = {"type": "object", "properties": {"done": {"type": "boolean"}}}
        schema = {"type": "object", "properties": {"spec": spec, "status": status}}
        return {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
            "selectableFields": [{"jsonPath": ".spec.size"}],
        }

    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "numbers.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "numbers", "singular": "number", "kind": "Number"},
            "versions": [version("v1", default=default), version("v2")],
        },
    }


@settings(
    max_examples=scaled(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEPS, min_size=2, max_size=8))
def test_all_views_agree_whenever_the_schema_changes(api: Any, steps: list[Any]) -> None:
    """Reads show the present default of what is not stored, and any write stores what it read."""
    try:
        check_views(api, steps)
    finally:
        api.patch(f"{NUMBERED}/a", {"metadata": {"finalizers": None}})
        api.delete(f"{DEFINITIONS}/numbers.example.com")
        while api.get(f"{DEFINITIONS}/numbers.example.com").status == 200:
            pass


def check_views(api: Any, steps: list[Any]) -> None:
    assert api.create(DEFINITIONS, numbered(None)).status == 201
    made = api.create(
        NUMBERED,
        {
            "apiVersion": "example.com/v1",
            "kind": "Number",
            "metadata": {"name": "a", "finalizers": ["example.com/x"]},
            "spec": {},
        },
    )
    assert made.status == 201, made.body
    default, stored = None, None
    for step, what in steps:
        if step == "default":
            default = what
            crd = {**api.get(f"{DEFINITIONS}/numbers.example.com").body}
            crd["spec"] = numbered(default)["spec"]
            assert api.update(f"{DEFINITIONS}/numbers.example.com", crd).status == 200
        else:
            stored = stored or default
            path = f"{NUMBERED}/a"
            if what == "put":
                assert api.update(path, api.get(path).body).status == 200
            elif what == "patch":
                assert api.patch(path, {"metadata": {"labels": {"a": "b"}}}).status == 200
            elif what == "status":
                assert api.patch(f"{path}/status", {"status": {"done": True}}).status == 200
            else:
                assert api.delete(path).status == 200
        shown = stored or default
        assert sizes(api) == {shown}, (stored, default)
        [wanted] = api.get(f"{NUMBERED}?{selected(shown)}")["items"]
        assert wanted["spec"].get("size") == shown
    last = stored or default
    selecting = api.watch(NUMBERED, f"{selected(last)}&resourceVersion={made.version}")
    api.delete(f"{NUMBERED}/a")
    api.patch(f"{NUMBERED}/a", {"metadata": {"finalizers": None}})
    ends = api.watch(NUMBERED, f"resourceVersion={made.version}")
    for stream in (ends, selecting):
        kind, obj = "", {}
        while kind != "DELETED":
            kind, obj = stream.event()
        assert obj["spec"].get("size") == last
        stream.close()


def selected(size: int | None) -> str:
    return f"fieldSelector=spec.size%3D{size or ''}"


def sizes(api: Any) -> set[int | None]:
    """The sizes that the views of the only number show."""
    found = [api.get(f"{NUMBERED}/a").body, *api.get(NUMBERED)["items"]]
    other = NUMBERED.replace("v1", "v2")
    found += [api.get(f"{other}/a").body, *api.get(other)["items"]]
    stream = api.watch(NUMBERED)
    found.append(stream.event()[1])
    stream.close()
    return {obj["spec"].get("size") for obj in found}


HOLDERS: list[tuple[Any, Any]] = [
    (
        lambda schema: {"type": "object", "properties": {"k": schema}},
        lambda value: {"k": value},
    ),
    (
        lambda schema: {"type": "object", "additionalProperties": schema},
        lambda value: {"k": value},
    ),
    (lambda schema: {"type": "array", "items": schema}, lambda value: [value]),
]


@pytest.mark.parametrize("nullable", [False, True])
def test_defaults_that_replace_nulls_are_defaulted_themselves(nullable: bool) -> None:
    """In objects, maps and arrays of each other: defaulting again finds nothing to do."""
    fields = {"b": {"type": "integer", "default": 7}}
    leaf = {"type": "object", "properties": fields, "default": {}, "nullable": nullable}
    for (outer, hold), (inner, hold_too) in itertools.product(HOLDERS, repeat=2):
        middle = {**inner(leaf), "nullable": nullable}
        if middle["type"] == "object":
            middle["default"] = {"k": None} if nullable else {}
        structural = StructuralSchema({"type": "object", "properties": {"spec": outer(middle)}})
        for value in (hold(None), hold(hold_too(None)), hold(hold_too({}))):
            once: dict[str, Any] = {"spec": value}
            structural.prune_and_default(once)
            twice = copy.deepcopy(once)
            structural.prune_and_default(twice)
            assert twice == once
        if not nullable:
            once = {"spec": hold(hold_too(None))}
            structural.prune_and_default(once)
            assert once == {"spec": hold(hold_too({"b": 7}))}


@pytest.mark.parametrize(
    ("metadata", "status", "words"),
    [
        ({"labels": {"a": None}, "annotations": {"a": None}}, 201, {"labels": {"a": ""}}),
        ({"name": "", "generation": 0, "finalizers": []}, 201, {}),
        ({"creationTimestamp": "2020-01-01T01:00:00+01:00"}, 201, "2020-01-01T00:00:00Z"),
        ({"ownerReferences": [{"odd": 1, "uid": "u", "kind": "K", "name": "n"}]}, 422, "version"),
        ({"finalizers": [None]}, 422, "metadata.finalizers"),
        ({"ownerReferences": [None]}, 422, "metadata.ownerReferences.apiVersion"),
        ({"managedFields": [None]}, 422, "must be `Apply` or `Update`"),
        ({"creationTimestamp": "x"}, 400, 'parsing time "x"'),
        ({"managedFields": [{"time": 5}]}, 400, "cannot unmarshal number"),
        ({"generation": 2**63}, 400, "of type int64"),
        ({"ownerReferences": [{"controller": "yes"}]}, 400, "of type bool"),
        ("text", 400, "of type v1.ObjectMeta"),
    ],
)
def test_metadata_is_decoded_as_go_does_wherever_it_stands(
    api: Any, widget_crd: Any, metadata: Any, status: int, words: Any
) -> None:
    spec = widget_crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["pod"] = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    assert api.patch(WIDGETS, {"spec": widget_crd["spec"]}).status == 200
    embedded = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
        "spec": {"size": 1, "pod": embedded},
    }
    answer = api.create(api.widgets, body)
    assert answer.status == status, answer.body
    if status != 201:
        assert words in answer["message"]
        if status == 400:
            whole = {**body, "metadata": metadata, "spec": {"size": 1}}
            assert api.create(api.widgets, whole).status == 400
        return
    shown = answer["spec"]["pod"]["metadata"]
    if isinstance(words, str):
        assert shown == {"creationTimestamp": words}
    else:
        assert shown == {**words, **({"annotations": {"a": ""}} if words else {})}
