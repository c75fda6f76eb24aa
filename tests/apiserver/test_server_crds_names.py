"""CustomResourceDefinitions among themselves, and what they mean for what is stored."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from appsdk_operator.apiserver import APIServer

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/g.example.com/v1/namespaces/default/things"


def definition(plural: str = "things", schema: Any = None, **names: Any) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema or {"type": "object"}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.g.example.com"},
        "spec": {
            "group": "g.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural[:-1].title(), **names},
            "versions": [version],
        },
    }


def thing(name: str = "a", **spec: Any) -> dict[str, Any]:
    meta = {"name": name}
    return {"apiVersion": "g.example.com/v1", "kind": "Thing", "metadata": meta, "spec": spec}


def schema_of(**fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": fields}},
    }


def condition(found: Any, kind: str) -> tuple[str, str]:
    (match,) = (c for c in found["status"]["conditions"] if c["type"] == kind)
    return match["status"], match["reason"]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"kind": "Thing", "listKind": "ItemList"}, "KindConflict"),
        ({"listKind": "ThingList"}, "ListKindConflict"),
        ({"singular": "thing"}, "SingularConflict"),
        ({"shortNames": ["it", "th"]}, "ShortNamesConflict"),
    ],
)
def test_names_that_are_taken_are_waited_for(
    connect: Any, names: dict[str, Any], reason: str
) -> None:
    with APIServer(crds=[definition(shortNames=["th"])]) as server:
        api = connect(server)
        api.create(DEFINITIONS, definition("items", **names))
        path = f"{DEFINITIONS}/items.g.example.com"
        found = api.get(path)
        assert condition(found, "NamesAccepted") == ("False", reason)
        assert condition(found, "Established") == ("False", "NotAccepted")
        assert api.get("/apis/g.example.com/v1/namespaces/default/items").status == 404
        api.delete(f"{DEFINITIONS}/things.g.example.com")
        while condition(api.get(path), "Established")[0] != "True":
            pass
        assert api.get("/apis/g.example.com/v1/namespaces/default/items").status == 200


def test_a_definition_that_asks_for_a_taken_name_later_keeps_those_it_has(connect: Any) -> None:
    crds = [definition(shortNames=["th"]), definition("items", shortNames=["it"])]
    with APIServer(crds=crds) as server:
        api = connect(server)
        path = f"{DEFINITIONS}/items.g.example.com"
        api.patch(path, {"spec": {"names": {"shortNames": ["it", "th"]}}})
        found = api.get(path)
        assert condition(found, "NamesAccepted") == ("False", "ShortNamesConflict")
        assert condition(found, "Established")[0] == "True"
        assert found["status"]["acceptedNames"]["shortNames"] == ["it"]


def test_what_was_stored_before_a_schema_changed_is_read_by_the_new_one(connect: Any) -> None:
    text = {"type": "string"}
    with APIServer(crds=[definition(schema=schema_of(a=text, b=text))]) as server:
        api = connect(server)
        api.create(THINGS, thing(a="x", b="y"))
        changed = definition(schema=schema_of(a=text, c={**text, "default": "new"}))
        api.patch(f"{DEFINITIONS}/things.g.example.com", {"spec": changed["spec"]})
        assert api.get(f"{THINGS}/a")["spec"] == {"a": "x", "c": "new"}
        assert api.get(THINGS)["items"][0]["spec"] == {"a": "x", "c": "new"}


def test_a_definition_whose_rule_makes_no_sense_is_invalid(connect: Any) -> None:
    schema = schema_of(a={"type": "string", "x-kubernetes-validations": [{"rule": "self.b"}]})
    with APIServer() as server:
        refused = connect(server).create(DEFINITIONS, definition(schema=schema))
        (cause,) = refused["details"]["causes"]
        assert cause["field"].endswith("properties[a].x-kubernetes-validations[0].rule")
        assert "type 'string' does not support field selection" in cause["message"]


def test_rules_hold_for_objects_and_for_their_changes(connect: Any) -> None:
    rules = [{"rule": "self == oldSelf", "message": "fixed"}]
    schema = schema_of(
        a={"type": "string", "x-kubernetes-validations": rules},
        n={"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]},
    )
    with APIServer(crds=[definition(schema=schema)]) as server:
        api = connect(server)
        refused = api.create(THINGS, thing(n=9))
        assert refused["details"]["causes"] == [
            {
                "reason": "FieldValueInvalid",
                "message": "Invalid value: 9: failed rule: self < 5",
                "field": "spec.n",
            }
        ]
        assert api.create(THINGS, thing(a="x", n=1)).status == 201
        refused = api.patch(f"{THINGS}/a", {"spec": {"a": "y"}})
        assert [c["message"] for c in refused["details"]["causes"]] == ['Invalid value: "y": fixed']


def test_what_was_wrong_before_and_has_not_changed_may_stay(connect: Any) -> None:
    loose = schema_of(n={"type": "integer"}, v={"type": "string"})
    strict = copy.deepcopy(loose)
    strict["properties"]["spec"]["properties"]["n"]["maximum"] = 5
    with APIServer(crds=[definition(schema=loose)]) as server:
        api = connect(server)
        api.create(THINGS, thing(n=9))
        changed = definition(schema=strict)
        api.patch(f"{DEFINITIONS}/things.g.example.com", {"spec": changed["spec"]})
        assert api.patch(f"{THINGS}/a", {"spec": {"v": "x"}}).status == 200
        assert api.patch(f"{THINGS}/a", {"spec": {"n": 8}}).status == 422
        assert api.create(THINGS, thing("b", n=9)).status == 422


def test_objects_are_selected_by_the_fields_of_their_definition(connect: Any) -> None:
    crd = definition(schema=schema_of(a={"type": "string"}, b={"type": "boolean"}))
    crd["spec"]["versions"][0]["selectableFields"] = [
        {"jsonPath": ".spec.a"},
        {"jsonPath": ".spec.b"},
    ]
    with APIServer(crds=[crd]) as server:
        api = connect(server)
        for name in ("x", "y"):
            api.create(THINGS, thing(name, a=name, b=True))
        assert api.names(f"{THINGS}?fieldSelector=spec.a%3Dx,spec.b%3Dtrue") == ["x"]
        assert api.get(f"{THINGS}?fieldSelector=spec.c%3Dx").status == 400
