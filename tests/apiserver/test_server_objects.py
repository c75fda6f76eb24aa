"""Create, read, update, patch and delete, with the rules and words of the real server."""

from __future__ import annotations

from typing import Any

import pytest

JSON_PATCH = "application/json-patch+json"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
STRATEGIC = "application/strategic-merge-patch+json"
MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def test_a_created_object_gets_what_the_server_sets(api: Any) -> None:
    created = api.widget("a")
    metadata = created["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["generation"] == 1
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert api.get(f"{api.widgets}/a").body == created.body


def test_a_name_is_taken_once(api: Any) -> None:
    api.widget("a")
    again = api.create(api.widgets, {**api.get(f"{api.widgets}/a").body, "metadata": {"name": "a"}})
    assert (again.status, again["reason"]) == (409, "AlreadyExists")
    assert again["message"] == 'widgets.example.com "a" already exists'
    assert again["details"] == {"name": "a", "group": "example.com", "kind": "widgets"}


def test_what_is_not_there_is_not_found(api: Any) -> None:
    missing = api.get(f"{api.widgets}/nope")
    assert (missing.status, missing["reason"]) == (404, "NotFound")
    assert missing["message"] == 'widgets.example.com "nope" not found'
    assert api.update(f"{api.maps}/nope", {"metadata": {"name": "nope"}}).status == 404
    assert api.delete(f"{api.maps}/nope").status == 404


def test_names_are_generated_from_their_beginning(api: Any) -> None:
    names = {api.create(api.maps, {"metadata": {"generateName": "m-"}}).name for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("m-") and len(name) == 7 for name in names)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"name": "Bad_Name"}, "a lowercase RFC 1123 subdomain must consist of"),
        ({}, "metadata.name: Required value: name or generateName is required"),
        ({"name": "a", "labels": {"a b": "c"}}, 'metadata.labels: Invalid value: "a b": name part'),
        ({"name": "a", "labels": {"a": "-"}}, "a valid label must be an empty string or consist"),
        ({"name": "a", "annotations": {"/x": ""}}, "prefix part must be non-empty"),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "x"}]},
            'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
        ),
    ],
)
def test_metadata_is_validated(api: Any, metadata: dict[str, Any], words: str) -> None:
    refused = api.create(api.maps, {"metadata": metadata})
    assert (refused.status, refused["reason"]) == (422, "Invalid")
    assert words in refused["message"]
    assert refused["details"]["causes"]


def test_an_object_goes_where_its_url_says(api: Any) -> None:
    elsewhere = api.create(api.maps, {"metadata": {"name": "a", "namespace": "other"}})
    assert elsewhere.status == 400
    assert "does not match the namespace sent on the request" in elsewhere["message"]
    nowhere = api.create("/api/v1/namespaces/nope/configmaps", {"metadata": {"name": "a"}})
    assert (nowhere.status, nowhere["message"]) == (404, 'namespaces "nope" not found')
    other = api.create(api.widgets, {"apiVersion": "v1", "kind": "Widget", "metadata": {}})
    assert "does not match the expected API version (example.com/v1)" in other["message"]
    api.map("a")
    renamed = api.update(f"{api.maps}/a", {"metadata": {"name": "b"}})
    assert renamed["message"] == "the name of the object (b) does not match the name on the URL (a)"


def test_an_update_of_an_older_version_conflicts(api: Any) -> None:
    first = api.widget("a")
    assert api.update(f"{api.widgets}/a", {**first.body, "spec": {"size": 2}}).status == 200
    conflict = api.update(f"{api.widgets}/a", {**first.body, "spec": {"size": 3}})
    assert (conflict.status, conflict["reason"]) == (409, "Conflict")
    assert conflict["message"] == (
        f'Operation cannot be fulfilled on widgets.example.com "a": {MODIFIED}'
    )


def test_custom_resources_are_never_overwritten_blindly_and_config_maps_are(
    api: Any, new_widget: Any
) -> None:
    api.widget("a")
    refused = api.update(f"{api.widgets}/a", new_widget("a"))
    assert refused.status == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified" in refused["message"]
    api.map("a")
    assert (
        api.update(f"{api.maps}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}}).status == 200
    )


def test_an_update_without_a_change_keeps_the_version(api: Any) -> None:
    first = api.widget("a")
    assert api.update(f"{api.widgets}/a", first.body).version == first.version
    assert api.patch(f"{api.widgets}/a", {"spec": {"size": 1}}).version == first.version
    changed = api.patch(f"{api.maps}/{api.map('m').name}", {"data": {"n": "1"}})
    assert api.patch(f"{api.maps}/m", {"data": {"n": "1"}}).version == changed.version


def test_the_generation_counts_changes_of_the_spec_only(api: Any) -> None:
    api.widget("a")
    path = f"{api.widgets}/a"
    assert api.patch(path, {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 1
    assert api.patch(f"{path}/status", {"status": {"phase": "x"}})["metadata"]["generation"] == 1
    assert api.patch(path, {"spec": {"size": 2}})["metadata"]["generation"] == 2
    assert "generation" not in api.map("m")["metadata"]


def test_spec_and_status_are_written_apart(api: Any) -> None:
    created = api.create(
        api.widgets,
        {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": "a"},
            "spec": {"size": 1},
            "status": {"phase": "early"},
        },
    )
    assert "status" not in created.body
    path = f"{api.widgets}/a"
    status = api.patch(
        f"{path}/status",
        {"spec": {"size": 9}, "status": {"phase": "on"}, "metadata": {"labels": {"a": "b"}}},
    )
    assert status["status"] == {"phase": "on"}
    assert status["spec"]["size"] == 1
    assert "labels" not in status["metadata"]
    main = api.patch(path, {"spec": {"size": 3}, "status": {"phase": "off"}})
    assert (main["spec"]["size"], main["status"]) == (3, {"phase": "on"})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"uid": "zzz"}, "metadata.uid"),
        ({"deletionTimestamp": "2020-01-01T00:00:00Z"}, "metadata.deletionTimestamp"),
    ],
)
def test_what_identifies_an_object_does_not_change(
    api: Any, change: dict[str, str], field: str
) -> None:
    api.widget("a")
    refused = api.patch(f"{api.widgets}/a", {"metadata": change})
    assert refused.status == 422
    assert refused["details"]["causes"][0]["field"] == field
    assert refused["message"].endswith("field is immutable")


def test_what_only_the_server_sets_is_taken_from_the_server(api: Any) -> None:
    first = api.widget("a")
    patched = api.patch(
        f"{api.widgets}/a",
        {"metadata": {"generation": 44, "creationTimestamp": "2020-01-01T00:00:00Z"}},
    )
    assert patched.body == first.body


def test_an_update_of_another_incarnation_conflicts(api: Any) -> None:
    api.map("a")
    conflict = api.update(f"{api.maps}/a", {"metadata": {"name": "a", "uid": "other"}})
    assert conflict.status == 409
    assert "Precondition failed: UID in precondition: other" in conflict["message"]


def test_finalizers_hold_an_object_until_the_last_is_gone(api: Any, server: Any) -> None:
    api.map("a", finalizers=["example.com/one", "example.com/two"])
    path = f"{api.maps}/a"
    marked = api.delete(path)
    assert marked.status == 200
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert api.delete(path).version == marked.version
    added = api.patch(path, {"metadata": {"finalizers": ["example.com/one", "example.com/new"]}})
    assert added.status == 422
    assert "no new finalizers can be added if the object is being deleted" in added["message"]
    assert api.patch(path, {"metadata": {"finalizers": ["example.com/two"]}}).status == 200
    last = api.patch(path, {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert int(last.version) < server.resource_version
    assert api.get(path).status == 404


def test_marking_for_deletion_counts_as_a_generation(api: Any) -> None:
    api.widget("a")
    api.patch(f"{api.widgets}/a", {"metadata": {"finalizers": ["example.com/x"]}})
    assert api.delete(f"{api.widgets}/a")["metadata"]["generation"] == 2


def test_a_deletion_answers_with_a_status_and_its_event_has_its_own_version(
    api: Any, server: Any
) -> None:
    created = api.widget("a")
    deleted = api.delete(f"{api.widgets}/a")
    assert deleted["status"] == "Success"
    assert deleted["details"]["uid"] == created["metadata"]["uid"]
    assert server.resource_version == int(created.version) + 1


def test_a_deletion_checks_its_preconditions(api: Any) -> None:
    created = api.map("a")
    path = f"{api.maps}/a"
    assert api.delete(path, {"preconditions": {"uid": "other"}}).status == 409
    stale = api.delete(path, {"preconditions": {"resourceVersion": "1"}})
    assert "does not match the ResourceVersion in record" in stale["message"]
    version = {"preconditions": {"resourceVersion": created.version}}
    assert api.delete(path, version).status == 200
    wrong = api.delete(path, {"propagationPolicy": "Sideways"})
    assert (wrong.status, wrong["details"]["causes"][0]["field"]) == (422, "propagationPolicy")


def test_a_collection_is_deleted_by_selector(api: Any) -> None:
    for name in "abc":
        api.map(name, {"keep": str(name == "b").lower()})
    gone = api.delete(f"{api.maps}?labelSelector=keep%3Dfalse")
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "c"]
    assert api.names(api.maps) == ["b"]


def test_a_dry_run_answers_and_changes_nothing(api: Any, server: Any) -> None:
    api.map("a")
    before = server.resource_version
    assert api.create(f"{api.maps}?dryRun=All", {"metadata": {"name": "b"}}).status == 201
    dry = api.patch(f"{api.maps}/a?dryRun=All", {"data": {"k": "v"}})
    assert dry["data"] == {"k": "v"}
    assert api.delete(f"{api.maps}/a?dryRun=All").status == 200
    assert server.resource_version == before
    assert api.names(api.maps) == ["a"]
    assert api.create(f"{api.maps}?dryRun=Some", {"metadata": {"name": "b"}}).status == 422


def test_nothing_that_was_sent_is_lost(api: Any) -> None:
    raw = (
        b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1,'
        b'"free":{"zeta":1,"alpha":{"y":1,"x":12345678901234567890123},"b":"1","a":"2"}}}'
    )
    assert api("POST", api.widgets, raw).status == 201
    found = api.get(f"{api.widgets}/a")["spec"]["free"]
    assert found["alpha"] == {"y": 1, "x": 12345678901234567890123}
    assert list(found) == ["zeta", "alpha", "b", "a"]


def test_a_json_patch_is_all_or_nothing(api: Any) -> None:
    created = api.map("a")
    path = f"{api.maps}/a"
    failed = api.patch(
        path,
        [
            {"op": "add", "path": "/data", "value": {"k": "v"}},
            {"op": "test", "path": "/data/k", "value": "other"},
        ],
        JSON_PATCH,
    )
    assert (failed.status, failed["reason"]) == (422, "Invalid")
    assert api.get(path).version == created.version
    patch = [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/x"]}]
    assert api.patch(path, patch, JSON_PATCH)["metadata"]["finalizers"] == ["example.com/x"]


def add(path: str, *value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, **({"value": value[0]} if value else {})}


LISTED = add("/metadata/finalizers", ["example.com/x", "example.com/y"])
BIG = [add("/data/big", "x" * 300_000)]
COPY = {"op": "copy", "from": "/data/big", "path": "/data/copy"}
LENIENT_PATCHES: list[tuple[list[Any], Any]] = [
    ([{"op": "test", "path": "/data/none", "value": None}], {"a": "1"}),
    ([{"op": "test", "path": "/nope/none", "value": None}], None),
    ([{"op": "replace", "path": "/data/none", "value": "v"}], {"a": "1", "none": "v"}),
    ([{"op": "copy", "from": "/data/none", "path": "/data/b"}], {"a": "1", "b": ""}),
    ([{"op": "copy", "from": "/data/a", "path": "/data/b"}], {"a": "1", "b": "1"}),
    ([{"op": "copy", "from": "", "path": "/data/b"}], None),
    ([add("/data/z")], {"a": "1", "z": ""}),
    ([add("data/z", "v")], {"a": "1"}),
    ([add("", {"apiVersion": "v1", "kind": "ConfigMap"})], None),
    ([LISTED, {"op": "remove", "path": "/metadata/finalizers/-1"}], ["example.com/x"]),
    ([LISTED, {"op": "remove", "path": "/metadata/finalizers/01"}], ["example.com/x"]),
    (
        [LISTED, add("/metadata/finalizers/-1", "example.com/z")],
        ["example.com/x", "example.com/y", "example.com/z"],
    ),
    ([*BIG, *[COPY] * 10, add("/data", {})], {}),
    ([*BIG, *[COPY] * 11, add("/data", {})], None),
]


def json_patches_are_applied_as_go_does(api: Any) -> None:
    for operations, wanted in LENIENT_PATCHES:
        assert api.create(api.maps, {"metadata": {"name": "j"}, "data": {"a": "1"}}).status == 201
        answer = api.patch(f"{api.maps}/j", operations, JSON_PATCH)
        shown = operations[-1]
        if wanted is None:
            assert answer.status == 422, shown
            assert "rejected our request due to an error" in answer["message"], shown
        elif isinstance(wanted, list):
            assert answer["metadata"]["finalizers"] == wanted, shown
        else:
            assert answer.body.get("data", {}) == wanted, shown
        api.patch(f"{api.maps}/j", {"metadata": {"finalizers": None}})
        api.delete(f"{api.maps}/j")


def test_a_json_patch_is_applied_as_go_does(api: Any) -> None:
    json_patches_are_applied_as_go_does(api)


@pytest.mark.real
def test_the_real_server_applies_json_patches_the_same(real_api: Any) -> None:
    json_patches_are_applied_as_go_does(real_api)


def test_copies_of_a_value_share_nothing(api: Any, widget_crd: Any) -> None:
    spec = widget_crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    text = {"type": "string"}
    spec["properties"]["one"] = {"type": "object", "properties": {"x": text, "y": text}}
    spec["properties"]["two"] = {"type": "object", "properties": {"x": text}}
    assert api.patch(CRD, {"spec": widget_crd["spec"]}).status == 200
    api.widget("a", one={"x": "1", "y": "2"})
    copied = api.patch(
        f"{api.widgets}/a", [{"op": "copy", "from": "/spec/one", "path": "/spec/two"}], JSON_PATCH
    )
    assert copied["spec"]["one"] == {"x": "1", "y": "2"}
    assert copied["spec"]["two"] == {"x": "1"}


def test_a_strategic_patch_merges_lists_of_built_in_kinds_only(api: Any) -> None:
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]},
    }
    pods = "/api/v1/namespaces/default/pods"
    api.create(pods, pod)
    patch = {"spec": {"containers": [{"name": "b", "image": "z"}]}}
    patched = api.patch(f"{pods}/p", patch, STRATEGIC)
    assert [c["image"] for c in patched["spec"]["containers"]] == ["x", "z"]
    unordered = {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}
    refused = api.patch(f"{pods}/p", {"spec": unordered}, STRATEGIC)
    assert refused.status == 500
    assert refused["message"] == (
        "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n"
        "[map[name:b]]\n"
    )
    api.widget("a")
    refused = api.patch(f"{api.widgets}/a", {"spec": {"size": 2}}, STRATEGIC)
    assert (refused.status, refused["reason"]) == (415, "UnsupportedMediaType")


def test_leases_are_created_by_an_update_and_never_overwritten_blindly(api: Any) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}
    assert api.update(path, lease).status == 201
    assert api.update(path, lease).status == 422


def test_secrets_are_encoded_and_keep_their_type(api: Any) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    made = api.create(secrets, {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    assert (made["data"], made["type"]) == ({"a": "Yg=="}, "Opaque")
    assert "stringData" not in made.body
    assert api.patch(f"{secrets}/s", {"type": "other"}).status == 422


def test_a_scale_reads_and_writes_the_replicas(api: Any) -> None:
    api.widget("a", replicas=2)
    path = f"{api.widgets}/a/scale"
    scale = api.get(path)
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 0},
    )
    assert api.update(path, {**scale.body, "spec": {"replicas": 4}})["spec"] == {"replicas": 4}
    assert api.patch(path, {"spec": {"replicas": 5}})["spec"] == {"replicas": 5}
    assert api.get(f"{api.widgets}/a")["spec"]["replicas"] == 5
    assert api.update(path, {**scale.body, "spec": {"replicas": 9}}).status == 409


def test_events_are_one_thing_in_two_groups(api: Any) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "hello",
    }
    assert api.create("/api/v1/namespaces/default/events", event).status == 201
    newer = api.get("/apis/events.k8s.io/v1/namespaces/default/events/e")
    assert newer["apiVersion"] == "events.k8s.io/v1"
    assert (newer["note"], newer["regarding"]["name"]) == ("hello", "p")
    assert api.names("/api/v1/events?fieldSelector=involvedObject.name%3Dp") == ["e"]


def test_a_pod_that_runs_somewhere_is_given_its_grace_period(api: Any) -> None:
    pods = "/api/v1/namespaces/default/pods"
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    api.create(pods, {"metadata": {"name": "p"}, "spec": spec})
    assert api.delete(f"{pods}/p")["metadata"]["deletionGracePeriodSeconds"] == 30
    assert api.get(f"{pods}/p").status == 200
    assert api.delete(f"{pods}/p", {"gracePeriodSeconds": 0}).status == 200
    assert api.get(f"{pods}/p").status == 404


def test_autoscalers_of_the_first_version_are_those_of_the_second(api: Any) -> None:
    path = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
    spec = {
        "maxReplicas": 3,
        "minReplicas": 1,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
        "targetCPUUtilizationPercentage": 70,
    }
    made = api.create(path.format("v1"), {"metadata": {"name": "h"}, "spec": spec})
    assert made["spec"] == spec
    newer = api.get(f"{path.format('v2')}/h")
    assert newer["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70
    assert api.get(f"{path.format('v1')}/h")["spec"] == spec
