"""Conversion webhooks: versions of custom resources with different schemas."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from appsdk_operator.apiserver import APIServer
from appsdk_operator.resource import Kind
from tests.apiserver.conftest import Api
from tests.apiserver.webhook_tools import WebhookServer

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "convert.example.com"
ONE = f"/apis/{GROUP}/v1/namespaces/default/things"
TWO = f"/apis/{GROUP}/v2/namespaces/default/things"
THREE = f"/apis/{GROUP}/v3/namespaces/default/things"
FAILED = "conversion webhook for convert.example.com/v1, Kind=Thing "


def definition(hooks: WebhookServer, strategy: str = "Webhook") -> dict[str, Any]:
    """A definition whose v1 and v3 have a size as a string and a note, v2 a number and a remark."""

    def version(name: str, size: str) -> dict[str, Any]:
        note = {"type": "string"}
        name_of_note = "remark" if name == "v2" else "note"
        fields = {"size": {"type": size}, name_of_note: note, "same": note}
        spec = {"type": "object", "properties": fields}
        status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        properties = {"spec": spec, "status": status}
        return {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        }

    conversion: dict[str, Any] = {"strategy": strategy}
    if strategy == "Webhook":
        conversion["webhook"] = {
            "clientConfig": hooks.client("convert"),
            "conversionReviewVersions": ["v1"],
        }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "conversion": conversion,
            "versions": [
                version("v1", "string"),
                version("v2", "integer"),
                version("v3", "string"),
            ],
        },
    }


def convert(request: dict[str, Any]) -> dict[str, Any]:
    """Convert sizes from strings to numbers and notes to remarks, or back."""
    wanted = request["desiredAPIVersion"]
    found = copy.deepcopy(request["objects"])
    for obj in found:
        obj["apiVersion"] = wanted
        size = obj.get("spec", {}).get("size")
        if size is not None:
            obj["spec"]["size"] = int(size) if wanted.endswith("v2") else str(size)
        names = ("note", "remark") if wanted.endswith("v2") else ("remark", "note")
        if names[0] in obj.get("spec", {}):
            obj["spec"][names[1]] = obj["spec"].pop(names[0])
    return {"result": {"status": "Success"}, "convertedObjects": found}


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], Any]:
    """Convert, and call ``change`` for each object."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        response = convert(request)
        for obj in response["convertedObjects"]:
            change(obj)
        return response

    return answer


class Things:
    """A server with the definition, and its conversion webhook."""

    def __init__(self, api: Api, hooks: WebhookServer) -> None:
        self.api, self.hooks = api, hooks
        hooks.answers["convert"] = convert
        assert api.create(CRDS, definition(hooks)).status == 201
        pause = threading.Event()
        for _ in range(200):
            if api.get(ONE).status == 200 and api.get(TWO).status == 200:
                break
            pause.wait(0.05)

    def make(self, path: str, name: str, size: Any, **metadata: Any) -> Any:
        return self.api.create(path, thing(path, name, size, **metadata))


def thing(path: str, name: str, size: Any, **metadata: Any) -> dict[str, Any]:
    version = path.split("/")[3]
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "Thing",
        "metadata": {"name": name, **metadata},
        "spec": {"size": size},
    }


def applied(things: Things, path: str, who: str, **spec: Any) -> Any:
    """Apply a spec to the thing called a, in the version of ``path``."""
    config = {**thing(path, "a", 0), "spec": spec}
    return things.api.patch(f"{path}/a?fieldManager={who}", config, "application/apply-patch+yaml")


def owned(obj: Any) -> dict[str, list[str]]:
    """The fields of the spec that each manager owns."""
    return {
        entry["manager"]: sorted(entry["fieldsV1"].get("f:spec", {}))
        for entry in obj["metadata"]["managedFields"]
    }


Promise = Callable[[Things], None]
PROMISES: list[Promise] = []


def promise(function: Promise) -> Promise:
    """Kept by both servers."""
    PROMISES.append(function)
    return function


@promise
def each_version_shows_the_same_objects_in_its_way(things: Things) -> None:
    api = things.api
    first, second = things.make(ONE, "a", "1"), things.make(TWO, "b", 2)
    assert (first["spec"], second["spec"]) == ({"size": "1"}, {"size": 2})
    assert api.get(f"{TWO}/a")["spec"] == {"size": 1}
    assert api.get(f"{TWO}/a")["apiVersion"] == f"{GROUP}/v2"
    assert api.get(f"{TWO}/a")["metadata"]["resourceVersion"] == first.version
    assert [item["spec"] for item in api.get(ONE)["items"]] == [{"size": "1"}, {"size": "2"}]
    assert [item["spec"] for item in api.get(TWO)["items"]] == [{"size": 1}, {"size": 2}]
    table = api.get(TWO, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert [row["cells"][0] for row in table["rows"]] == ["a", "b"]


@promise
def writes_come_through_in_every_version(things: Things) -> None:
    api = things.api
    things.make(ONE, "a", "1")
    patched = api.patch(f"{TWO}/a", {"spec": {"size": 5}})
    assert (patched["spec"], patched["metadata"]["generation"]) == ({"size": 5}, 2)
    assert api.get(f"{ONE}/a")["spec"] == {"size": "5"}
    updated = api.update(f"{TWO}/a", {**patched.body, "spec": {"size": 6}})
    assert api.get(f"{ONE}/a")["spec"] == {"size": "6"}
    assert api.update(f"{TWO}/a", {**patched.body, "spec": {"size": 7}}).status == 409
    status = api.patch(f"{TWO}/a/status", {"status": {"ready": True}})
    assert status["spec"] == {"size": 6}
    assert api.get(f"{ONE}/a")["status"] == {"ready": True}
    rehearsed = api.create(f"{TWO}?dryRun=All", thing(TWO, "z", 9))
    assert rehearsed["spec"] == {"size": 9}
    refused = api.patch(f"{TWO}/a", {"spec": {"size": "six"}})
    assert (refused.status, refused["reason"]) == (422, "Invalid")
    assert int(status.version) > int(updated.version)
    assert api.delete(f"{TWO}/a").status == 200
    assert api.get(f"{ONE}/a").status == 404


@promise
def a_deletion_is_marked_in_every_version(things: Things) -> None:
    things.make(TWO, "a", 1, finalizers=["example.com/wait"])
    marked = things.api.delete(f"{TWO}/a")
    assert (marked["apiVersion"], marked["spec"]) == (f"{GROUP}/v2", {"size": 1})
    assert "deletionTimestamp" in marked["metadata"]
    last = things.api.patch(f"{TWO}/a", {"metadata": {"finalizers": None}})
    assert last["spec"] == {"size": 1}
    assert things.api.get(f"{ONE}/a").status == 404


@promise
def watches_see_their_version(things: Things) -> None:
    made = things.make(ONE, "a", "1")
    # A watch begins with what the server's cache has; that of this version may be behind.
    found = things.api.get(f"{TWO}/a?resourceVersion={made.version}")
    assert found["spec"] == {"size": 1}
    stream = things.api.watch(TWO)
    things.make(ONE, "b", "2")
    things.api.patch(f"{ONE}/b", {"spec": {"size": "3"}})
    things.api.delete(f"{ONE}/b")
    events = [stream.event() for _ in range(4)]
    seen = [(kind, obj["metadata"]["name"], obj["spec"]["size"]) for kind, obj in events]
    assert seen == [("ADDED", "a", 1), ("ADDED", "b", 2), ("MODIFIED", "b", 3), ("DELETED", "b", 3)]
    assert {obj["apiVersion"] for _, obj in events} == {f"{GROUP}/v2"}
    stream.close()


@promise
def a_webhook_is_sent_objects_as_they_are_stored(things: Things) -> None:
    things.make(ONE, "sent", "1", labels={"a": "b"})
    things.api.get(f"{TWO}/sent")
    # The watch cache of a real server asks for each version, and still about former objects.
    review = next(
        review
        for _, review in things.hooks.reviews
        if review["request"]["desiredAPIVersion"] == f"{GROUP}/v2"
        and review["request"]["objects"][0]["metadata"]["name"] == "sent"
    )
    assert (review["kind"], review["apiVersion"]) == ("ConversionReview", "apiextensions.k8s.io/v1")
    assert review["query"] == "timeout=30s"
    [obj] = review["request"]["objects"]
    assert (obj["apiVersion"], obj["spec"]) == (f"{GROUP}/v1", {"size": "1"})
    assert "resourceVersion" not in obj["metadata"]


@promise
def labels_and_annotations_are_all_a_webhook_may_change_besides(things: Things) -> None:
    def change(obj: dict[str, Any]) -> None:
        obj["metadata"].update(
            labels={"n": "1"},
            annotations={"m": "2"},
            finalizers=["x.y/z"],
            generation=77,
            foo="bar",
        )
        obj["unknown"] = 1

    things.make(ONE, "a", "1")
    things.hooks.answers["convert"] = changed(change)
    found = things.api.get(f"{TWO}/a").body
    assert found["metadata"]["labels"] == {"n": "1"}
    assert found["metadata"]["annotations"] == {"m": "2"}
    assert found["metadata"]["generation"] == 1
    assert not {"finalizers", "foo"} & set(found["metadata"])
    assert "unknown" not in found


@promise
def metadata_without_the_object_is_converted_too(things: Things) -> None:
    def note(obj: dict[str, Any]) -> None:
        obj["metadata"]["annotations"] = {"seen": obj["apiVersion"]}

    things.hooks.answers["convert"] = changed(note)
    assert things.make(ONE, "a", "1").status == 201
    kind = "application/json;g=meta.k8s.io;v=v1;as=PartialObjectMetadata"
    stream = things.api.watch(TWO, Accept=kind)
    seen = [stream.event()[1], things.api.get(f"{TWO}/a", Accept=kind).body]
    seen += things.api.get(TWO, Accept=f"{kind}List")["items"]
    for partial in seen:
        assert partial["kind"] == "PartialObjectMetadata"
        assert partial["metadata"]["annotations"] == {"seen": f"{GROUP}/v2"}


def _rename(obj: dict[str, Any]) -> None:
    obj["metadata"]["name"] = "other"


def _elsewhere(obj: dict[str, Any]) -> None:
    obj["metadata"]["namespace"] = "other"


def _relabel(obj: dict[str, Any]) -> None:
    obj["metadata"]["labels"] = {"a": 1}


INVALID = "returned invalid object"
WRONG: list[tuple[Any, str]] = [
    (lambda _: (500, "oops"), 'failed: an error on the server ("oops") has prevented the request'),
    (
        lambda _: {"result": {"status": "Failure", "message": "no"}, "convertedObjects": []},
        "failed: no",
    ),
    (
        lambda request: {"convertedObjects": convert(request)["convertedObjects"]},
        "failed: response.result.status was '', not 'Success'",
    ),
    (
        lambda _: {"result": {"status": "Success"}, "convertedObjects": []},
        "returned 0 objects, expected 1",
    ),
    (
        changed(lambda obj: obj.update(apiVersion="a/v9")),
        f"{INVALID} at index 0: invalid groupVersion (expected {GROUP}/v2, received a/v9)",
    ),
    (
        changed(lambda obj: obj.update(kind="Other")),
        f"{INVALID} at index 0: invalid kind (expected Thing, received Other)",
    ),
    (changed(_rename), f"{INVALID}: must have the same name: a != other"),
    (changed(_elsewhere), f"{INVALID}: must have the same namespace: default != other"),
    (changed(_relabel), "returned invalid metadata: metadata.labels[a] must be a string, but is"),
    (
        lambda _: {"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1"},
        "failed: no response provided",
    ),
    (
        lambda _: (200, "{}"),
        "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got",
    ),
]


@promise
def an_apply_keeps_what_others_applied_in_another_version(things: Things) -> None:
    assert applied(things, ONE, "me", note="mine", same="s").status == 201
    assert applied(things, TWO, "them", size=3).status == 200
    again = applied(things, ONE, "me", note="again")
    assert (again.status, again["spec"]) == (200, {"note": "again", "size": "3"})
    assert owned(again) == {"me": ["f:note"], "them": ["f:size"]}
    assert things.api.get(f"{TWO}/a")["spec"] == {"remark": "again", "size": 3}
    less = applied(things, TWO, "me", same="s")
    assert less["spec"] == {"same": "s", "size": 3}
    assert owned(less) == {"me": ["f:same"], "them": ["f:size"]}


@promise
def a_conflict_names_the_field_as_its_owner_does(things: Things) -> None:
    assert applied(things, ONE, "me", note="mine").status == 201
    refused = applied(things, TWO, "them", remark="theirs")
    assert refused.status == 409
    assert refused["message"] == ('Apply failed with 1 conflict: conflict with "me": .spec.note')
    assert applied(things, TWO, "them", remark="mine").status == 200
    assert owned(things.api.get(f"{ONE}/a")) == {"me": ["f:note"], "them": ["f:remark"]}


@promise
def an_update_takes_over_what_it_changes_of_another_version(things: Things) -> None:
    assert applied(things, ONE, "me", note="mine", same="s").status == 201
    things.api.patch(f"{TWO}/a?fieldManager=them", {"spec": {"remark": "theirs"}})
    found = things.api.get(f"{ONE}/a")
    assert owned(found) == {"me": ["f:same"], "them": ["f:remark"]}
    things.api.patch(f"{ONE}/a?fieldManager=third", {"spec": {"note": None, "size": "1"}})
    assert owned(things.api.get(f"{ONE}/a")) == {"me": ["f:same"], "third": ["f:size"]}


@promise
def a_manager_may_change_the_version_that_it_applies(things: Things) -> None:
    assert applied(things, ONE, "me", note="mine", same="s").status == 201
    assert applied(things, THREE, "third", size="3").status == 200
    less = applied(things, TWO, "me", remark="again")
    assert (less.status, less["spec"]) == (200, {"remark": "again", "size": 3})
    assert owned(less) == {"me": ["f:remark"], "third": ["f:size"]}


@promise
def an_object_may_begin_with_owners_of_another_version(things: Things) -> None:
    entry = {
        "manager": "them",
        "operation": "Update",
        "apiVersion": f"{GROUP}/v2",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:remark": {}}},
    }
    made = thing(ONE, "a", "1", managedFields=[entry])
    made["spec"]["note"] = "mine"
    found = things.api.create(f"{ONE}?fieldManager=me", made)
    assert found.status == 201
    assert owned(found) == {"me": [".", "f:note", "f:size"]}


@promise
def an_apply_fails_when_an_owners_version_cannot_be_had(things: Things) -> None:
    def fails(request: dict[str, Any]) -> Any:
        metadata = request["objects"][0]["metadata"]
        # The storage version is converted yet; only what the field manager asks fails.
        if request["desiredAPIVersion"].endswith("v2"):
            return {"result": {"status": "Failure", "message": f"not {metadata['name']}"}}
        return convert(request)

    assert applied(things, ONE, "me", note="mine").status == 201
    assert applied(things, TWO, "them", size=3).status == 200
    things.hooks.answers["convert"] = fails
    failed = applied(things, ONE, "me", note="again")
    assert (failed.status, failed["message"]) == (500, f"{FAILED}failed: not a")
    patched = things.api.patch(f"{ONE}/a", {"spec": {"note": "patched"}})
    assert (patched.status, patched["spec"]["note"]) == (200, "patched")
    assert "managedFields" not in patched["metadata"]


@promise
def a_field_beyond_the_schema_of_an_owners_version_fails_an_apply(things: Things) -> None:
    assert applied(things, ONE, "me", note="mine").status == 201
    assert applied(things, TWO, "them", size=3).status == 200
    things.hooks.answers["convert"] = changed(lambda obj: obj["spec"].update(more="x"))
    failed = applied(things, ONE, "me", note="again")
    assert (failed.status, failed["message"]) == (
        500,
        ".spec.more: field not declared in schema",
    )


@promise
def a_wrong_answer_is_told_of(things: Things) -> None:
    things.make(ONE, "a", "1")
    for answer, words in WRONG:
        things.hooks.answers["convert"] = answer
        failed = things.api.get(f"{TWO}/a")
        assert failed.status == 500
        assert failed["message"].startswith(FAILED + words)
        assert "reason" not in failed.body
        refused = things.make(TWO, "b", 2)
        assert refused.status == 500
        assert refused["message"].startswith(FAILED.replace("/v1,", "/v2,"))
    assert things.api.get(f"{ONE}/a").status == 200
    assert things.api.get(f"{ONE}/b").status == 404


@pytest.mark.parametrize("kept", PROMISES, ids=lambda promised: promised.__name__)
def test_the_embedded_server_keeps_the_promise(kept: Promise, api: Api) -> None:
    with WebhookServer() as hooks:
        kept(Things(api, hooks))


@pytest.mark.real
def test_the_real_server_keeps_every_promise(real_api: Api) -> None:
    with WebhookServer() as hooks:
        things = Things(real_api, hooks)
        for kept in PROMISES:
            kept(things)
            hooks.answers["convert"] = convert
            for path in (ONE, TWO):
                assert real_api.delete(path).status == 200


@pytest.fixture
def things(api: Api) -> Iterator[Things]:
    with WebhookServer() as hooks:
        yield Things(api, hooks)


def test_what_a_webhook_said_about_a_revision_is_listed_while_it_fails(things: Things) -> None:
    things.make(TWO, "a", 1)
    things.hooks.answers["convert"] = lambda _: (500, "oops")
    assert [item["spec"] for item in things.api.get(TWO)["items"]] == [{"size": 1}]
    things.make(ONE, "b", "2")
    failed = things.api.get(TWO)
    assert failed.status == 500
    assert failed["message"].startswith(FAILED)
    assert "Retry-After" not in failed.headers


def test_what_is_marked_for_deletion_is_stored_in_the_present_version(things: Things) -> None:
    things.make(ONE, "a", "1", finalizers=["example.com/wait"])
    path = f"{CRDS}/things.{GROUP}"
    crd = things.api.get(path).body
    for version in crd["spec"]["versions"]:
        version["storage"] = version["name"] == "v2"
    assert things.api.update(path, crd).status == 200
    things.api.delete(f"{ONE}/a")
    things.hooks.answers["convert"] = lambda _: (500, "oops")
    stored = things.api.get(f"{TWO}/a")
    assert (stored["spec"], "deletionTimestamp" in stored["metadata"]) == ({"size": 1}, True)


def test_what_a_former_webhook_said_is_not_taken_for_the_word_of_another(things: Things) -> None:
    server = things.api.server
    assert isinstance(server, APIServer)
    things.make(ONE, "a", "1")
    served = server._core.served(GROUP, "v2", "things")
    [record] = served.resource.collection.records.values()
    converter = cast("Any", type("Converter", (), {}))
    served.resource.converter = converter()
    served.keep_converted(record, record.decode())
    assert not served.needs_conversion(record)
    # It is often at the address that the other one had.
    served.resource.converter = None
    served.resource.converter = converter()
    assert served.needs_conversion(record)


def test_a_write_that_changes_nothing_keeps_the_version(things: Things) -> None:
    made = things.make(ONE, "a", "1")
    assert things.api.patch(f"{TWO}/a", {"spec": {"size": 1}}).version == made.version


def test_the_version_of_the_request_is_between_two_others(things: Things) -> None:
    applied(things, ONE, "me", note="mine", same="s")
    applied(things, THREE, "third", size="3")
    things.hooks.reviews.clear()
    applied(things, TWO, "me", remark="again")
    asked = [
        {obj["apiVersion"][-2:], request["desiredAPIVersion"][-2:]}
        for request in things.hooks.requests("convert")
        for obj in request["objects"]
    ]
    assert all("v2" in versions for versions in asked)
    assert {"v2", "v3"} in asked


def test_a_list_asks_about_all_objects_at_once(things: Things) -> None:
    for name in "abc":
        things.make(ONE, name, "1")
    things.hooks.reviews.clear()
    assert len(things.api.get(TWO)["items"]) == 3
    assert len(things.api.get(TWO)["items"]) == 3
    [request] = things.hooks.requests("convert")
    assert [obj["metadata"]["name"] for obj in request["objects"]] == ["a", "b", "c"]


def test_a_watch_waits_for_a_webhook_that_fails(things: Things) -> None:
    stream = things.api.watch(TWO, "allowWatchBookmarks=true")
    things.hooks.answers["convert"] = lambda _: (500, "oops")
    made = things.make(ONE, "a", "1")
    things.hooks.answers["convert"] = convert
    assert stream.event()[1]["spec"] == {"size": 1}
    server = things.api.server
    assert isinstance(server, APIServer)
    server.send_bookmarks()
    kind, bookmark = stream.event()
    assert (kind, bookmark["metadata"]["resourceVersion"]) == ("BOOKMARK", made.version)
    stream.close()


def test_a_bookmark_that_is_asked_for_during_a_conversion_comes_after_it(things: Things) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def late(request: dict[str, Any]) -> Any:
        asked.set()
        go_on.wait(30)
        return convert(request)

    stream = things.api.watch(TWO, "allowWatchBookmarks=true")
    things.hooks.answers["convert"] = late
    try:
        made = things.make(ONE, "a", "1")
        assert asked.wait(30)
        server = things.api.server
        assert isinstance(server, APIServer)
        server.send_bookmarks()
    finally:
        go_on.set()
    assert stream.event()[0] == "ADDED"
    kind, bookmark = stream.event()
    assert (kind, bookmark["metadata"]["resourceVersion"]) == ("BOOKMARK", made.version)


def test_a_watch_ends_when_the_conversion_changes(things: Things) -> None:
    stream = things.api.watch(TWO)
    things.make(ONE, "a", "1")
    assert stream.event()[1]["spec"] == {"size": 1}
    path = f"{CRDS}/things.{GROUP}"
    none = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
    assert things.api.patch(path, none).status == 200
    assert stream.rest() == []
    assert things.api.get(f"{TWO}/a")["spec"] == {"size": "1"}


def test_a_watch_has_its_time_while_nothing_happens(things: Things) -> None:
    assert things.api.watch(TWO, "timeoutSeconds=1").rest() == []


def test_the_objects_of_a_server_can_be_looked_at_in_every_version(things: Things) -> None:
    server = things.api.server
    assert isinstance(server, APIServer)
    things.make(ONE, "a", "1")
    kind = Kind(group=GROUP, version="v2", kind="Thing")
    assert [obj["spec"] for obj in server.objects(kind)] == [{"size": 1}]
    assert [json.dumps(obj["spec"]) for _, _, obj in server.history(kind)] == ['{"size": 1}']


def test_what_a_client_selects_and_what_a_table_shows_is_converted(things: Things) -> None:
    api = things.api
    crd = api.get(f"{CRDS}/things.{GROUP}").body
    second = crd["spec"]["versions"][1]
    second["selectableFields"] = [{"jsonPath": ".spec.remark"}]
    second["additionalPrinterColumns"] = [
        {"name": "Remark", "type": "string", "jsonPath": ".spec.remark"}
    ]
    assert api.update(f"{CRDS}/things.{GROUP}", crd).status == 200
    wanted = "fieldSelector=spec.remark%3Dgood"
    later = api.watch(TWO, f"resourceVersion={things.make(ONE, 'first', '1').version}&{wanted}")
    table = api.watch(TWO, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert table.event()[1]["rows"][0]["cells"] == ["first", None]
    body = thing(ONE, "a", "1")
    for note in ("good", "bad"):
        api.create(ONE, {**body, "metadata": {"name": note}, "spec": {"size": "1", "note": note}})
        assert table.event()[1]["rows"][0]["cells"] == [note, note]
    assert api.names(f"{TWO}?{wanted}") == api.names(f"{TWO}?{wanted}&limit=1") == ["good"]
    assert api.watch(TWO, wanted).events(1) == [("ADDED", "good")]
    api.patch(f"{TWO}/good", {"spec": {"remark": "worse"}})
    assert later.events(2) == [("ADDED", "good"), ("DELETED", "good")]
