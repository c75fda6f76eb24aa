"""Admission webhooks: the same promises of the embedded server and of the real one."""

from __future__ import annotations

import asyncio
import base64
import gc
import re
import ssl
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3

from appsdk_operator.apiserver import APIServer, Authority
from appsdk_operator.apiserver._webhooks.webhook_client import CallError, WebhookClient
from appsdk_operator.runtime import system_clock
from tests.apiserver.conftest import Api
from tests.apiserver.webhook_tools import (
    HOOKS,
    MAPS,
    WebhookServer,
    World,
    configuration,
    only,
    patching,
    rule,
    webhook,
)
from tests.ports import reserved_port

Promise = Callable[[World], None]
PROMISES: list[Promise] = []
CALL = 'Internal error occurred: failed calling webhook "one.example.com": '


CURRENT: set[Promise] = set()


def promise(function: Promise) -> Promise:
    """Kept by both servers."""
    PROMISES.append(function)
    return function


def current_promise(function: Promise) -> Promise:
    """Kept by both servers; those before Kubernetes 1.30 differ."""
    CURRENT.add(function)
    return promise(function)


@promise
def a_webhook_is_told_everything_about_a_write(world: World) -> None:
    world.admit("Validating", "one", webhook(world.hooks, "one", **only("one")))
    made = world.map("a", "one", data={"k": "v"})
    [request] = world.hooks.requests("one")
    uid, user, obj = request.pop("uid"), request.pop("userInfo"), request.pop("object")
    assert len(uid) == 36
    assert "system:masters" in user["groups"]
    assert obj["metadata"]["uid"] == made["metadata"]["uid"]
    assert (obj["kind"], obj["apiVersion"], obj["data"]) == ("ConfigMap", "v1", {"k": "v"})
    assert "resourceVersion" not in obj["metadata"]
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert request == {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "a",
        "namespace": "default",
        "operation": "CREATE",
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    _, review = world.hooks.reviews[0]
    assert (review["kind"], review["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    assert review["query"] == "timeout=10s"


@promise
def the_path_of_a_webhook_has_one_slash_between_its_parts(world: World) -> None:
    config = world.hooks.client("/one/")
    assert config["url"].endswith("//one/")
    world.admit(
        "Validating", "one", {**webhook(world.hooks, "one", **only("one")), "clientConfig": config}
    )
    assert world.map("a", "one").status == 201
    assert [review["path"] for _, review in world.hooks.reviews] == ["/one"]


@promise
def updates_and_deletions_are_asked_about_with_the_old_object(world: World) -> None:
    world.admit("Validating", "one", webhook(world.hooks, "one", **only("one")))
    world.map("a", "one", data={"k": "1"})
    world.api.patch(f"{MAPS}/a?fieldManager=me", {"data": {"k": "2"}})
    world.api.delete(f"{MAPS}/a", {"propagationPolicy": "Background"})
    _, update, deletion = world.hooks.requests("one")
    assert (update["object"]["data"], update["oldObject"]["data"]) == ({"k": "2"}, {"k": "1"})
    assert update["options"] == {
        "kind": "UpdateOptions",
        "apiVersion": "meta.k8s.io/v1",
        "fieldManager": "me",
    }
    assert (deletion["operation"], deletion["object"]) == ("DELETE", None)
    assert deletion["oldObject"]["data"] == {"k": "2"}
    assert deletion["options"] == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/v1",
        "propagationPolicy": "Background",
    }


@promise
def each_of_many_deletions_is_asked_about_without_a_name(world: World) -> None:
    world.admit(
        "Validating", "one", webhook(world.hooks, "one", rule("*", "DELETE"), **only("one"))
    )
    for name in "ab":
        world.map(name, "one")
    assert world.api.delete(f"{MAPS}?labelSelector=hook%3Done").status == 200
    requests = world.hooks.requests("one")
    assert sorted(r["oldObject"]["metadata"]["name"] for r in requests) == ["a", "b"]
    assert not any("name" in request for request in requests)


@promise
def a_mutating_webhook_sees_what_was_sent_and_changes_it(world: World) -> None:
    one = webhook(world.hooks, "one", **only("one"))
    world.admit("Mutating", "mutate", one)
    world.admit("Validating", "validate", webhook(world.hooks, "two", **only("one")))
    added = {"op": "add", "path": "/data", "value": {"k": "changed"}}
    world.hooks.answers["one"] = patching(added, warnings=["mind the change"])
    made = world.api.create(MAPS, {"metadata": {"generateName": "a-", "labels": {"hook": "one"}}})
    assert made["data"] == {"k": "changed"}
    assert made.headers["Warning"] == '299 - "mind the change"'
    [seen], [final] = world.hooks.requests("one"), world.hooks.requests("two")
    assert "name" not in seen
    assert "uid" not in seen["object"]["metadata"]
    assert seen["object"]["metadata"]["generateName"] == "a-"
    assert final["object"]["data"] == {"k": "changed"}
    assert final["object"]["metadata"]["name"] == made.name
    world.api.delete(f"{MAPS}/{made.name}")


@current_promise
def a_mutating_webhook_sees_a_new_namespace_with_the_label_of_its_name(world: World) -> None:
    by_name = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "labelled"}}}
    world.admit(
        "Mutating", "one", webhook(world.hooks, "one", rule("namespaces"), **only("one"), **by_name)
    )
    metadata = {"name": "labelled", "labels": {"hook": "one"}}
    world.api.create("/api/v1/namespaces?dryRun=All", {"metadata": metadata})
    [seen] = world.hooks.requests("one")
    assert seen["object"]["metadata"]["labels"]["kubernetes.io/metadata.name"] == "labelled"


@promise
def who_wants_to_is_asked_again_after_later_changes(world: World) -> None:
    again = {"reinvocationPolicy": "IfNeeded"}
    world.admit(
        "Mutating",
        "b",
        webhook(world.hooks, "b2", **only("one")),
        webhook(world.hooks, "b1", **only("one"), **again),
    )
    world.admit(
        "Mutating",
        "a",
        webhook(world.hooks, "a2", **only("one"), **again),
        webhook(world.hooks, "a1", **only("one"), **again),
        webhook(world.hooks, "a0", **only("one")),
    )

    def count(request: dict[str, Any]) -> Any:
        data = request["object"].get("data", {})
        value = {**data, "a1": data.get("a1", "") + "x"}
        return patching({"op": "add", "path": "/data", "value": value})(request)

    world.hooks.answers["a1"] = count
    world.hooks.answers["b2"] = patching({"op": "add", "path": "/data/b2", "value": "1"})
    assert world.map("a", "one")["data"] == {"a1": "xx", "b2": "1"}
    assert world.hooks.asked == ["a2", "a1", "a0", "b2", "b1", "a2", "a1", "b1"]
    world.hooks.answers.clear()
    world.api.delete(f"{MAPS}/a")


@promise
def a_refusal_is_told_in_the_words_of_the_webhook(world: World) -> None:
    world.admit("Validating", "one", webhook(world.hooks, "one", **only("one")))
    denied = 'admission webhook "one.example.com" denied the request'
    world.hooks.answers["one"] = lambda _: {"allowed": False}
    refused = world.map("a", "one")
    assert (refused.status, refused["message"]) == (400, f"{denied} without explanation")
    assert "reason" not in refused.body
    status = {"message": "no", "code": 418, "reason": "Teapot", "details": {"name": "q"}}
    world.hooks.answers["one"] = lambda _: {"allowed": False, "status": status, "warnings": ["w"]}
    refused = world.map("a", "one")
    assert (refused.status, refused["message"], refused["reason"]) == (
        418,
        f"{denied}: no",
        "Teapot",
    )
    assert refused["details"] == {"name": "q"}
    assert refused.headers["Warning"] == '299 - "w"'
    world.hooks.answers["one"] = lambda _: {"allowed": False, "status": {"reason": "Because"}}
    assert world.map("a", "one")["message"] == f"{denied}: Because"


PARSE = "failed to call webhook: couldn't get version/kind; json parse error: "
NUMBER = "failed to call webhook: json: cannot unmarshal number into Go struct field "
BROKEN: list[tuple[Any, str]] = [
    (lambda _: (404, "x"), "the server could not find the requested resource"),
    (lambda _: (418, "x"), "the server responded with the status code 418 but did not return more"),
    (
        lambda _: (200, "hello"),
        f"{PARSE}json: cannot unmarshal string into Go value of type struct",
    ),
    (lambda _: (200, '{"a": 1'), f"{PARSE}unexpected end of JSON input"),
    (lambda _: (200, "{} x"), f"{PARSE}invalid character 'x' after top-level value"),
    (
        lambda _: (200, '{"kind": 3}'),
        f"{PARSE}json: cannot unmarshal number into Go struct field .",
    ),
    (lambda _: (200, "a: ["), "failed to call webhook: yaml: line 1: "),
    (lambda _: (200, "a: 1"), "received invalid webhook response: webhook response was absent"),
    (lambda _: (200, "null"), "received invalid webhook response: webhook response was absent"),
    (lambda _: (200, '{"response": 3}'), f"{NUMBER}AdmissionReview.response of type v1.Admission"),
    (lambda _: {"allowed": 1}, f"{NUMBER}AdmissionResponse.response.allowed of type bool"),
    (lambda _: {"uid": 1}, f"{NUMBER}AdmissionResponse.response.uid of type types.UID"),
    (
        lambda _: {"allowed": True, "uid": "x"},
        "received invalid webhook response: expected response",
    ),
    (
        lambda _: {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"},
        "received invalid webhook response: webhook response was absent",
    ),
    (patching({"op": "x"}), "received invalid webhook response: validating webhook may not return"),
]


@current_promise
def a_failing_webhook_fails_the_write_or_is_ignored(world: World) -> None:
    world.admit(
        "Validating",
        "one",
        webhook(world.hooks, "one", **only("one")),
        webhook(world.hooks, "lenient", **only("lenient"), failurePolicy="Ignore"),
    )
    for answer, words in BROKEN:
        world.hooks.answers["one"] = world.hooks.answers["lenient"] = answer
        failed = world.map("a", "one")
        assert (failed.status, failed["reason"]) == (500, "InternalError")
        assert failed["message"].startswith(CALL)
        assert words in failed["message"]
        assert failed["details"]["causes"] == [
            {"message": failed["message"].removeprefix("Internal error occurred: ")}
        ]
        assert world.map("a", "lenient").status == 201
        world.api.delete(f"{MAPS}/a")


@current_promise
def a_mutating_webhook_keeps_the_rules_of_patches(world: World) -> None:
    world.admit("Mutating", "one", webhook(world.hooks, "one", **only("one")))

    def message(answer: Any) -> str:
        world.hooks.answers["one"] = answer
        failed = world.map("a", "one")
        assert failed.status == 500, failed.body
        return str(failed["message"])

    invalid = f"{CALL}received invalid webhook response: webhook returned "
    assert message(lambda _: {"allowed": True, "patch": "W10="}) == (
        f"{invalid}response.patch but not response.patchType"
    )
    assert message(lambda _: {"allowed": True, "patchType": "JSONPatch"}) == (
        f"{invalid}response.patchType but not response.patch"
    )
    undecodable = "received undecodable patch in webhook response: json: cannot unmarshal object"
    answer = {"allowed": True, "patchType": "JSONPatch", "patch": "e30="}
    assert message(lambda _: answer).startswith(CALL + undecodable)
    deep = base64.b64encode(b"[" * 100_000).decode()
    answer = {"allowed": True, "patchType": "JSONPatch", "patch": deep}
    assert message(lambda _: answer).startswith(
        f"{CALL}received undecodable patch in webhook response: "
    )
    assert message(patching({"op": "test", "path": "/metadata/name", "value": "z"})).endswith(
        "testing value /metadata/name failed: test failed"
    )
    assert message(patching({"op": "add", "path": "/nope/x", "value": 1})).endswith(
        'add operation does not apply: doc is missing path: "/nope/x": missing value'
    )
    world.hooks.answers["one"] = patching({"op": "replace", "path": "/data", "value": {"a": "b"}})
    assert world.map("a", "one")["data"] == {"a": "b"}
    refused = world.api.delete(f"{MAPS}/a")
    assert refused["message"] == (
        'Internal error occurred: admission webhook "one.example.com" attempted to modify the '
        "object, which is not supported for this operation"
    )
    world.hooks.answers.clear()
    world.api.delete(f"{MAPS}/a")


@promise
def what_a_webhook_made_of_an_object_is_validated(world: World) -> None:
    world.admit("Mutating", "one", webhook(world.hooks, "one", **only("one")))
    labels = {"op": "add", "path": "/metadata/labels/bad", "value": "-"}
    world.hooks.answers["one"] = patching(labels)
    refused = world.map("a", "one")
    assert (refused.status, refused["reason"]) == (422, "Invalid")
    world.hooks.answers["one"] = patching(
        {"op": "add", "path": "/metadata/namespace", "value": "kube-system"}
    )
    assert world.map("a", "one").status == 400
    world.hooks.answers["one"] = patching(
        {"op": "add", "path": "/metadata/resourceVersion", "value": "1"}
    )
    world.hooks.answers.pop("one")
    world.map("a", "one")
    world.hooks.answers["one"] = patching(
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}
    )
    assert world.api.patch(f"{MAPS}/a", {"data": {"a": "b"}}).status == 409
    world.hooks.answers.clear()
    world.api.delete(f"{MAPS}/a")


@current_promise
def a_webhook_has_only_so_much_time(world: World) -> None:
    world.admit("Validating", "one", webhook(world.hooks, "one", **only("one"), timeoutSeconds=1))
    world.hooks.answers["one"] = lambda _: None
    url = world.hooks.client("one")["url"]
    assert world.map("a", "one")["message"] == (
        f'{CALL}failed to call webhook: Post "{url}?timeout=1s": context deadline exceeded'
    )


@promise
def a_webhook_that_cannot_be_reached_or_trusted_is_not_asked(world: World) -> None:
    nowhere = {**world.hooks.client("one"), "url": "https://127.0.0.1:1/x"}
    distrusted = {"url": world.hooks.client("one")["url"]}
    service = {"service": {"name": "hooks", "namespace": "system", "path": "/x", "port": 8443}}
    world.admit(
        "Validating",
        "one",
        webhook(world.hooks, "nowhere", **only("nowhere"), clientConfig=nowhere),
        webhook(world.hooks, "distrusted", **only("distrusted"), clientConfig=distrusted),
        webhook(world.hooks, "service", **only("service"), clientConfig=service),
    )

    def why(hook: str) -> str:
        failed = world.map("a", hook)
        assert failed.status == 500
        return str(failed["message"])

    assert why("nowhere").endswith("dial tcp 127.0.0.1:1: connect: connection refused")
    assert why("distrusted").endswith("x509: certificate signed by unknown authority")
    assert why("service").endswith(
        'Post "https://hooks.system.svc:8443/x?timeout=10s": service "hooks" not found'
    )
    assert world.hooks.asked == []


@promise
def rules_and_selectors_say_who_is_asked(world: World) -> None:
    world.admit(
        "Validating",
        "one",
        webhook(
            world.hooks,
            "team",
            rule("*"),
            namespaceSelector={"matchLabels": {"team": "x"}},
            objectSelector={"matchExpressions": [{"key": "seen", "operator": "Exists"}]},
        ),
        webhook(world.hooks, "inside", rule("*", scope="Namespaced"), **only("inside")),
        webhook(world.hooks, "outside", rule("*", scope="Cluster"), **only("inside")),
        webhook(world.hooks, "creations", rule("namespaces", "CREATE"), **only("inside")),
    )

    def asked(reply: Any) -> list[str]:
        assert reply.status < 300, reply.body
        found = sorted(world.hooks.asked)
        world.hooks.reviews.clear()
        return found

    labels = {"team": "x", "hook": "inside", "seen": "1"}
    api, path = world.api, "/api/v1/namespaces"
    created = api.create(path, {"metadata": {"name": "pipeline", "labels": labels}})
    assert asked(created) == ["creations", "outside", "team"]
    maps = f"{path}/pipeline/configmaps"
    assert asked(api.create(maps, {"metadata": {"name": "a", "labels": {"hook": "no"}}})) == []
    # Who was meant before a change is asked about it, too.
    changed = api.patch(f"{maps}/a", {"metadata": {"labels": {"hook": "inside", "seen": "1"}}})
    assert asked(changed) == ["inside", "team"]
    assert asked(api.patch(f"{maps}/a", {"metadata": {"labels": None}})) == ["inside", "team"]
    assert asked(api.patch(f"{maps}/a", {"data": {"k": "v"}})) == []
    assert asked(world.map("b", "inside")) == ["inside"]
    assert asked(api.delete(f"{MAPS}/b")) == ["inside"]
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    role = {"metadata": {"name": "pipeline", "labels": labels}, "rules": []}
    assert asked(api.create(roles, role)) == ["outside", "team"]
    assert asked(api.delete(f"{roles}/pipeline")) == ["outside", "team"]


@promise
def an_absent_object_matches_no_selector(world: World) -> None:
    absent = {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]}
    others = {"matchExpressions": [{"key": "skip", "operator": "NotIn", "values": ["yes"]}]}
    world.admit(
        "Validating",
        "one",
        webhook(world.hooks, "absent", objectSelector=absent),
        webhook(world.hooks, "others", objectSelector=others),
    )
    for skip in ("yes", "no", ""):
        labels = {"hook": "x", **({"skip": skip} if skip else {})}
        world.api.create(MAPS, {"metadata": {"name": f"skip-{skip}x", "labels": labels}})
        world.api.delete(f"{MAPS}/skip-{skip}x")
    found = {
        name: [request["name"] for request in world.hooks.requests(name)]
        for name in ("absent", "others")
    }
    assert found == {
        "absent": ["skip-x", "skip-x"],
        "others": ["skip-nox", "skip-nox", "skip-x", "skip-x"],
    }


@current_promise
def a_mutating_webhook_sees_a_service_before_its_address_is_allocated(world: World) -> None:
    world.hooks.answers["one"] = patching({"op": "add", "path": "/spec/clusterIP", "value": "None"})
    world.admit("Mutating", "one", webhook(world.hooks, "one", rule("services"), **only("one")))
    services = "/api/v1/namespaces/default/services"
    metadata = {"name": "headless", "labels": {"hook": "one"}}
    made = world.api.create(services, {"metadata": metadata, "spec": {"ports": [{"port": 80}]}})
    world.api.delete(f"{services}/headless")
    assert made.status == 201, made.body
    assert made["spec"]["clusterIPs"] == ["None"]
    assert "clusterIP" not in world.hooks.requests("one")[0]["object"]["spec"]


@promise
def a_namespace_whose_name_is_generated_is_selected_by_its_labels(world: World) -> None:
    labelled = {"namespaceSelector": {"matchLabels": {"asks": "one"}}}
    world.admit("Mutating", "one", webhook(world.hooks, "one", rule("namespaces"), **labelled))
    for asked, labels in ((0, {}), (1, {"asks": "one"})):
        metadata = {"generateName": "generated-", "labels": labels}
        world.api.create("/api/v1/namespaces?dryRun=All", {"metadata": metadata})
        assert len(world.hooks.asked) == asked


@promise
def a_request_for_a_token_is_asked_about(world: World) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    world.api.create(accounts, {"metadata": {"name": "a"}})
    world.admit("Validating", "one", webhook(world.hooks, "one", rule("serviceaccounts/token")))
    assert world.api.create(f"{accounts}/a/token", {"spec": {}}).status == 201
    [request] = world.hooks.requests("one")
    assert (request["name"], request["subResource"]) == ("a", "token")
    assert request["object"]["kind"] == request["kind"]["kind"] == "TokenRequest"
    world.hooks.answers["one"] = lambda _: {"allowed": False}
    assert world.api.create(f"{accounts}/a/token", {"spec": {}}).status == 400
    world.api.delete(f"{accounts}/a")


@promise
def a_pod_that_is_ending_is_asked_about_when_it_has_to_end_sooner(world: World) -> None:
    pods = "/api/v1/namespaces/default/pods"
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": "ending", "labels": {"hook": "one"}}
    assert world.api.create(pods, {"metadata": metadata, "spec": spec}).status == 201
    world.admit(
        "Validating", "one", webhook(world.hooks, "one", rule("pods", "DELETE"), **only("one"))
    )
    for asked, body in ((1, None), (1, None), (2, {"gracePeriodSeconds": 5})):
        assert world.api.delete(f"{pods}/ending", body).status == 200
        assert len(world.hooks.asked) == asked
    world.api.delete(f"{pods}/ending", {"gracePeriodSeconds": 0})


@promise
def parts_of_objects_are_asked_about_by_their_names(world: World) -> None:
    world.admit(
        "Validating",
        "one",
        webhook(world.hooks, "scale", rule("deployments/scale")),
        webhook(world.hooks, "status", rule("*/status"), **only("one")),
        webhook(world.hooks, "whole", rule("deployments"), **only("one")),
    )
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    }
    deployment = {
        "metadata": {"name": "d", "labels": {"hook": "one"}},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    path = "/apis/apps/v1/namespaces/default/deployments"
    assert world.api.create(path, deployment).status == 201
    assert world.api.patch(f"{path}/d/scale", {"spec": {"replicas": 3}}).status == 200
    assert world.api.patch(f"{path}/d/status", {"status": {"replicas": 1}}).status == 200
    assert world.hooks.asked == ["whole", "scale", "status"]
    [scale], [status] = world.hooks.requests("scale"), world.hooks.requests("status")
    assert scale["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert scale["resource"] == {"group": "apps", "version": "v1", "resource": "deployments"}
    assert scale["subResource"] == scale["requestSubResource"] == "scale"
    assert (scale["oldObject"]["spec"], scale["object"]["spec"]) == (
        {"replicas": 1},
        {"replicas": 3},
    )
    assert (status["kind"]["kind"], status["subResource"]) == ("Deployment", "status")
    world.api.delete(f"{path}/d")


@promise
def configurations_are_nobodys_business(world: World) -> None:
    world.admit("Validating", "one", webhook(world.hooks, "one", rule("*/*", "UPDATE")))
    world.hooks.answers["one"] = lambda _: {"allowed": False}
    path = f"{HOOKS}/validatingwebhookconfigurations/one"
    assert world.api.patch(path, {"metadata": {"labels": {"a": "b"}}}).status == 200
    # A real server writes of its own accord: Leases, for example.
    groups = [request["resource"]["group"] for request in world.hooks.requests("one")]
    assert "admissionregistration.k8s.io" not in groups


@promise
def a_rehearsal_is_asked_about_as_one(world: World) -> None:
    world.admit("Validating", "one", webhook(world.hooks, "one", **only("one")))
    body = {"metadata": {"name": "a", "labels": {"hook": "one"}}}
    assert world.api.create(f"{MAPS}?dryRun=All", body).status == 201
    [request] = world.hooks.requests("one")
    assert request["dryRun"] is True
    assert request["options"]["dryRun"] == ["All"]
    world.hooks.answers["one"] = lambda _: {"allowed": False}
    assert world.api.create(f"{MAPS}?dryRun=All", body).status == 400


@promise
def a_patch_begins_anew_when_the_object_changed_while_a_webhook_was_asked(world: World) -> None:
    world.admit(
        "Validating", "one", webhook(world.hooks, "one", rule("*", "UPDATE"), **only("one"))
    )
    before = world.map("a", "one", data={"k": "1"})

    def meanwhile(_request: dict[str, Any]) -> dict[str, Any]:
        world.hooks.answers.pop("one")
        theirs = {"data": {"theirs": str(len(world.hooks.asked))}}
        assert world.api.patch(f"{MAPS}/a", theirs).status == 200
        return {"allowed": True}

    world.hooks.answers["one"] = meanwhile
    patched = world.api.patch(f"{MAPS}/a", {"data": {"mine": "1"}})
    assert patched["data"] == {"k": "1", "theirs": "1", "mine": "1"}
    assert len(world.hooks.asked) == 3
    world.hooks.answers["one"] = meanwhile
    stale = {**before.body, "metadata": patched["metadata"], "data": {}}
    assert world.api.update(f"{MAPS}/a", stale).status == 409
    world.api.delete(f"{MAPS}/a")


@current_promise
def conditions_say_who_is_asked(world: World) -> None:
    def conditional(name: str, *expressions: str, **more: Any) -> Any:
        conditions = [{"name": f"c{i}", "expression": text} for i, text in enumerate(expressions)]
        return webhook(world.hooks, name, **only(name), matchConditions=conditions, **more)

    asks = (
        "request.operation == 'CREATE' && request.namespace == 'default' && oldObject == null && "
        "object.metadata.name == 'a' && 'system:masters' in request.userInfo.groups"
    )
    world.admit(
        "Validating",
        "one",
        conditional("met", asks, "request.dryRun == false"),
        conditional("missed", "object.nope == 'x'", "request.operation == 'DELETE'"),
        conditional("broken", "object.nope == 'x'"),
        conditional("lenient", "object.nope == 'x'", failurePolicy="Ignore"),
    )
    assert world.map("a", "met").status == 201
    assert world.map("b", "missed").status == 201
    assert world.map("c", "lenient").status == 201
    refused = world.map("d", "broken")
    assert (refused.status, refused["reason"]) == (403, "Forbidden")
    assert refused["message"] == (
        "configmaps \"d\" is forbidden: expression 'object.nope == 'x'' resulted in error: "
        "no such key: nope"
    )
    assert world.hooks.asked == ["met"]


@pytest.mark.parametrize("kept", PROMISES, ids=lambda promised: promised.__name__)
def test_the_embedded_server_keeps_the_promise(kept: Promise, api: Api) -> None:
    with WebhookServer() as hooks:
        world = World(api, hooks)
        try:
            kept(world)
        finally:
            world.close()


@pytest.mark.real
def test_the_real_server_keeps_every_promise(real_api: Api) -> None:
    is_current = int(real_api.get("/version")["gitVersion"].split(".")[1]) >= 30
    with WebhookServer() as hooks:
        for kept in PROMISES:
            if kept in CURRENT and not is_current:
                continue
            world = World(real_api, hooks, settles=True)
            try:
                kept(world)
            finally:
                world.close()


def test_services_are_where_the_options_say(connect: Any) -> None:
    with WebhookServer("hooks.system.svc") as hooks:
        services = {"system/hooks": f"https://127.0.0.1:{hooks.port}"}
        with APIServer(services=services) as server:
            world = World(connect(server), hooks)
            config = {
                "caBundle": hooks.client("one")["caBundle"],
                "service": {"name": "hooks", "namespace": "system", "path": "/one"},
            }
            world.admit("Validating", "one", webhook(hooks, "one", clientConfig=config))
            assert world.map("a", "any").status == 201
            assert hooks.asked == ["one"]


def test_the_certificate_of_a_service_is_verified_by_its_name(connect: Any) -> None:
    with WebhookServer("127.0.0.1") as hooks:
        services = {
            "system/hooks": f"https://127.0.0.1:{hooks.port}",
            "system/localhost": f"https://localhost:{hooks.port}",
        }
        with APIServer(services=services) as server:
            world = World(connect(server), hooks)
            world.admit("Validating", "one", webhook(hooks, "one", **only("one")))
            for name in ("hooks", "localhost"):
                config = {
                    "caBundle": hooks.client("one")["caBundle"],
                    "service": {"name": name, "namespace": "system", "path": "/one"},
                }
                made = configuration(
                    "Validating", name, webhook(hooks, "one", clientConfig=config, **only(name))
                )
                assert (
                    world.api.create(f"{HOOKS}/validatingwebhookconfigurations", made).status == 201
                )
                # The other one has just been called there, and its connection is still open.
                assert world.map("a", "one").status == 201
                refused = world.map("a", name)
                assert refused.status == 500
                assert (
                    f'Post "https://{name}.system.svc:443/one?timeout=10s": tls: failed to verify '
                    "certificate: x509: certificate is valid for localhost, kubernetes.default.svc"
                    in refused["message"]
                )
                assert f'SelfSigned("{name}.system.svc")' in refused["message"]
                assert world.api.delete(f"{MAPS}/a").status == 200


def test_a_bundle_may_have_text_of_any_language_around_its_certificates(world: World) -> None:
    config = world.hooks.client("one")
    bundle = "Főtanúsítvány\n".encode() + base64.b64decode(config["caBundle"])
    config["caBundle"] = base64.b64encode(bundle).decode()
    world.admit("Validating", "one", webhook(world.hooks, "one", clientConfig=config))
    assert world.map("a", "any").status == 201
    assert world.hooks.asked == ["one"]


def test_a_bundle_that_is_no_text_fails_as_the_policy_says(world: World) -> None:
    config = {**world.hooks.client("one"), "caBundle": base64.b64encode(b"\x30\x82\xff").decode()}
    for name, policy in (("one", "Fail"), ("two", "Ignore")):
        more = {"clientConfig": config, "failurePolicy": policy, **only(name)}
        world.admit("Validating", name, webhook(world.hooks, name, **more))
    refused = world.map("a", "one")
    assert refused.status == 500
    assert "unable to load root certificates" in refused["message"]
    assert world.map("a", "two").status == 201


def test_the_trust_of_webhooks_that_are_gone_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts: weakref.WeakSet[ssl.SSLContext] = weakref.WeakSet()
    make = ssl.create_default_context

    def noting(**options: Any) -> ssl.SSLContext:
        contexts.add(made := make(**options))
        return made

    monkeypatch.setattr(ssl, "create_default_context", noting)
    bundle = base64.b64encode(Authority(system_clock.time()).certificate).decode()

    async def call(client: WebhookClient, port: int) -> None:
        for number in range(150):
            client.set_service(f"system/hook-{number}", f"https://127.0.0.1:{port}")
            service = {"name": f"hook-{number}", "namespace": "system"}
            with pytest.raises(CallError, match="connection refused"):
                await client.post({"caBundle": bundle, "service": service}, {}, 10)
        await client.close()

    client = WebhookClient()
    with reserved_port() as port:
        asyncio.run(call(client, port))
    gc.collect()
    assert len(contexts) < 100


def test_the_client_ends_right_after_a_webhook_has_closed_the_connection() -> None:
    async def call(hooks: WebhookServer) -> None:
        client = WebhookClient()
        kinds = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        await client.post(hooks.client("one"), {**kinds, "request": {"uid": "u"}}, 10)
        await client.close()

    with WebhookServer() as hooks:
        asyncio.run(call(hooks))


@pytest.mark.parametrize(("days", "relation"), [(-400, "after"), (2, "before")])
def test_a_certificate_is_not_valid_at_this_time(api: Api, days: int, relation: str) -> None:
    with WebhookServer(valid_in=days * 86400.0) as hooks:
        made = configuration("Validating", "v", webhook(hooks, "one"))
        assert api.create(f"{HOOKS}/validatingwebhookconfigurations", made).status == 201
        refused = api.create(MAPS, {"metadata": {"name": "a"}})
        assert re.search(
            "x509: certificate has expired or is not yet valid: current time "
            rf"[0-9T:-]+Z is {relation} [0-9T:-]+Z$",
            refused["message"],
        )


@pytest.fixture
def world(api: Api) -> Iterator[World]:
    with WebhookServer() as hooks:
        world = World(api, hooks)
        yield world
        hooks.answers.clear()


def test_a_connection_is_admitted_and_ends_at_the_node(world: World) -> None:
    world.admit("Mutating", "m", webhook(world.hooks, "m", rule("pods/*", "CONNECT")))
    world.admit("Validating", "v", webhook(world.hooks, "v", rule("pods/exec", "CONNECT")))
    api, pods = world.api, "/api/v1/namespaces/default/pods"
    containers = [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]
    spec = {"nodeName": "n", "containers": containers}
    assert api.create(pods, {"metadata": {"name": "a"}, "spec": spec}).status == 201
    assert api.create("/api/v1/nodes", {"metadata": {"name": "n"}}).status == 201
    world.hooks.answers["m"] = patching({"op": "add", "path": "/container", "value": "d"})
    failed = api.create(f"{pods}/a/exec?command=ls&command=-l&stdin=1&tty=false", {})
    assert (failed.status, failed["message"]) == (
        500,
        "no preferred addresses found; known addresses: []",
    )
    (mutating,), (validating,) = world.hooks.requests("m"), world.hooks.requests("v")
    seen = {"kind": "PodExecOptions", "apiVersion": "v1", "stdin": True, "command": ["ls", "-l"]}
    assert mutating["object"] == seen
    assert validating["object"] == {**seen, "container": "d"}
    assert (validating["operation"], validating["subResource"]) == ("CONNECT", "exec")
    assert validating["options"] is None
    address = {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}
    assert api.patch("/api/v1/nodes/n/status", address).status == 200
    failed = api.create(f"{pods}/a/attach", {})
    assert failed.status == 500
    assert failed["message"].startswith('error dialing backend: node "n" has no kubelet')
    world.hooks.answers["m"] = lambda _: {"allowed": False, "status": {"message": "not now"}}
    refused = api.create(f"{pods}/none/portforward?ports=80,81", {})
    assert refused["message"] == 'admission webhook "m.example.com" denied the request: not now'
    assert world.hooks.requests("m")[-1]["object"]["ports"] == [80, 81]


def test_the_garbage_collector_asks_for_what_it_deletes_until_it_may(world: World) -> None:
    owner = world.map("owner", "none")
    refusals = iter(["not yet"])

    def once(_request: dict[str, Any]) -> dict[str, Any]:
        why = next(refusals, None)
        return {"allowed": why is None, "status": {"message": why or ""}}

    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    reference["uid"] = owner["metadata"]["uid"]
    metadata = {"name": "a", "labels": {"hook": "one"}, "ownerReferences": [reference]}
    world.api.create(MAPS, {"metadata": metadata})
    world.admit("Validating", "one", webhook(world.hooks, "one", **only("one")))
    world.hooks.answers["one"] = once
    stream = world.api.watch(MAPS, "labelSelector=hook%3Done")
    assert stream.event()[0] == "ADDED"
    world.api.delete(f"{MAPS}/owner")
    assert stream.event()[0] == "DELETED"
    first, second = world.hooks.requests("one")
    assert first["userInfo"]["username"].endswith("kube-system:generic-garbage-collector")
    assert second["options"]["preconditions"] == {"uid": second["oldObject"]["metadata"]["uid"]}


@pytest.mark.parametrize("first", ["says nothing", "refuses"])
def test_what_the_garbage_collector_was_about_to_delete_goes_after_a_restart(
    connect: Any, first: str
) -> None:
    reached = threading.Event()

    def answer(_request: dict[str, Any]) -> Any:
        reached.set()
        return None if first == "says nothing" else {"allowed": False}

    server = APIServer()
    with WebhookServer() as hooks:
        with server:
            world = World(connect(server), hooks)
            owner = world.map("owner", "none")
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
            reference["uid"] = owner["metadata"]["uid"]
            metadata = {"name": "a", "labels": {"hook": "one"}, "ownerReferences": [reference]}
            world.api.create(MAPS, {"metadata": metadata})
            world.admit("Validating", "one", webhook(hooks, "one", **only("one")))
            hooks.answers["one"] = answer
            world.api.delete(f"{MAPS}/owner")
            assert reached.wait(30)
        hooks.answers.clear()
        with server:
            api = connect(server)
            stream = api.watch(MAPS)
            while api.names(MAPS):
                stream.event()


def test_a_namespace_waits_for_content_that_a_webhook_keeps(world: World) -> None:
    path = "/api/v1/namespaces"
    world.api.create(path, {"metadata": {"name": "brief"}})
    for name, hook in (("a", "one"), ("b", "none")):
        body = {"metadata": {"name": name, "labels": {"hook": hook}}}
        assert world.api.create(f"{path}/brief/configmaps", body).status == 201
    world.admit("Validating", "one", webhook(world.hooks, "one", **only("one")))
    asked: list[dict[str, Any]] = []

    def once(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return {"allowed": len(asked) > 1}

    world.hooks.answers["one"] = once
    stream = world.api.watch(path, "fieldSelector=metadata.name%3Dbrief")
    assert stream.event()[0] == "ADDED"
    world.api.delete(f"{path}/brief")
    while stream.event()[0] != "DELETED":
        pass
    assert asked[0]["userInfo"]["username"].endswith("kube-system:namespace-controller")
    assert [request["operation"] for request in asked] == ["DELETE", "DELETE"]
    assert world.api.get(f"{path}/brief").status == 404


def test_an_equivalent_version_is_what_a_webhook_is_shown(world: World) -> None:
    versioned = {**rule("widgets"), "apiGroups": ["example.com"], "apiVersions": ["v1beta1"]}
    world.admit(
        "Mutating",
        "one",
        webhook(world.hooks, "equivalent", versioned),
        webhook(world.hooks, "exact", versioned, matchPolicy="Exact"),
    )
    world.hooks.answers["equivalent"] = patching(
        {"op": "replace", "path": "/spec/size", "value": 7}
    )
    made = world.api.widget("a")
    assert (made["apiVersion"], made["spec"]["size"]) == ("example.com/v1", 7)
    [request] = world.hooks.requests("equivalent")
    assert request["kind"]["version"] == request["resource"]["version"] == "v1beta1"
    assert request["requestKind"]["version"] == request["requestResource"]["version"] == "v1"
    assert request["object"]["apiVersion"] == "example.com/v1beta1"
    assert "exact" not in world.hooks.asked


def test_configurations_take_effect_and_lose_it_at_once(world: World) -> None:
    path = f"{HOOKS}/validatingwebhookconfigurations"
    world.admit("Validating", "one", webhook(world.hooks, "one"))
    world.map("a", "any")
    changed = [{"op": "replace", "path": "/webhooks/1/rules/0/operations", "value": ["DELETE"]}]
    patched = world.api.patch(f"{path}/one", changed, "application/json-patch+json")
    assert patched.status == 200
    world.map("b", "any")
    world.api.delete(f"{MAPS}/a")
    world.api.delete(f"{path}/one")
    world.api.delete(f"{MAPS}/b")
    assert [request["operation"] for request in world.hooks.requests("one")] == ["CREATE", "DELETE"]


def test_a_server_that_stops_waits_for_no_webhook(world: World) -> None:
    world.admit("Validating", "one", webhook(world.hooks, "one"))
    reached = threading.Event()
    world.hooks.answers["one"] = lambda _request: reached.set()
    failed: list[Exception] = []

    def create() -> None:
        try:
            world.map("a", "any")
        except urllib3.exceptions.HTTPError as error:
            failed.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    assert reached.wait(30)
    world.api.server.stop()
    thread.join(30)
    assert failed


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (["a", "", "a", "b"], ["a", "b"]),
        (["x" * 4096], ["x" * 4096]),
        (["x" * 4096, "", "y"], ["x" * 256, "y"]),
        (["x" * 4097], ["x" * 256]),
        ([f"{i:03}{'x' * 300}" for i in range(30)], [f"{i:03}{'x' * 253}" for i in range(16)]),
        (["größer\u00a0\u2028", "two\nlines", "\x85", "last"], ["größer\u00a0\u2028", "last"]),
    ],
)
def test_long_warnings_are_cut_and_unusable_ones_dropped(
    world: World, sent: list[str], shown: list[str]
) -> None:
    world.admit("Validating", "v", webhook(world.hooks, "one", **only("one")))
    world.hooks.answers["one"] = lambda _: {"allowed": True, "warnings": sent}
    made = world.map("a", "one")
    found = made.headers["Warning"].encode("latin-1").decode()
    assert found == ", ".join(f'299 - "{text}"' for text in shown)


@pytest.mark.parametrize(("seconds", "header"), [(7, "7"), (0, None), (-1, None), ("7", None)])
def test_a_denial_says_when_to_come_again(world: World, seconds: Any, header: str | None) -> None:
    world.admit("Validating", "v", webhook(world.hooks, "one", **only("one")))
    status = {"code": 429, "message": "later", "details": {"retryAfterSeconds": seconds}}
    world.hooks.answers["one"] = lambda _: {"allowed": False, "status": status}
    refused = world.map("a", "one")
    assert (refused.status, refused.headers.get("Retry-After")) == (429, header)


def test_warnings_are_told_whatever_becomes_of_a_write(world: World, new_widget: Any) -> None:
    world.admit("Validating", "one", webhook(world.hooks, "one", rule("widgets")))
    world.hooks.answers["one"] = lambda _: {"allowed": False, "warnings": ["beware"]}
    refused = world.api.create(world.api.widgets, new_widget("a", unknown=1))
    assert refused.status == 400
    assert refused.headers["Warning"] == '299 - "unknown field \\"spec.unknown\\"", 299 - "beware"'
    invalid = world.api.create(world.api.widgets, new_widget("a", size="x", unknown=1))
    assert (invalid.status, len(world.hooks.asked)) == (422, 1)
    assert invalid.headers["Warning"] == '299 - "unknown field \\"spec.unknown\\""'
