"""Admission webhooks: what they answer to which body, as controller-runtime's tests pin it."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from appsdk_operator.client import Invalid
from appsdk_operator.resource import Kind, Scope
from appsdk_operator.runtime import ManualClock
from appsdk_operator.webhooks import (
    Admission,
    AdmissionRequest,
    AdmissionResponse,
    Denied,
    GroupVersionResource,
    Operation,
    UserInfo,
    Validating,
    admission_request,
)
from tests.webhooks.admission_parts import TYPED, WIDGET, answer, post, review, widget

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def allow(request: AdmissionRequest) -> AdmissionResponse:
    """Allow everything."""
    return AdmissionResponse.allowed()


def refusal(code: int, message: str) -> bytes:
    """The whole answer to a body that cannot be used."""
    text = json.dumps(message)
    return (
        b'{"response":{"uid":"","allowed":false,"status":{"metadata":{},"message":%b,"code":%d}}}\n'
        % (text.encode(), code)
    )


@pytest.mark.parametrize(
    ("body", "content_type", "code", "message"),
    [
        (b"", "application/json", 400, "request body is empty"),
        (b"{}", "application/foo", 400, "contentType=application/foo, expected application/json"),
        (
            b"{}",
            "application/json; charset=utf-8",
            400,
            "contentType=application/json; charset=utf-8, expected application/json",
        ),
        (
            b" " * (7 * 1024 * 1024),
            "application/json",
            413,
            "request entity is too large; limit is 7340032 bytes",
        ),
        (
            b" " * (7 * 1024 * 1024),
            "text/plain",
            413,
            "request entity is too large; limit is 7340032 bytes",
        ),
    ],
)
def test_a_body_that_cannot_be_used_is_refused_with_status_200(
    body: bytes, content_type: str, code: int, message: str
) -> None:
    found = Admission(allow)(post(body, content_type=content_type))
    assert (found.status, found.body) == (200, refusal(code, message))


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"request": []}', b'{"request":{"uid":7}}'],
)
def test_a_body_that_is_no_review_is_refused_without_uid_and_version(body: bytes) -> None:
    found = json.loads(Admission(allow)(post(body)).body)
    assert set(found) == {"response"}
    assert found["response"]["uid"] == ""
    assert found["response"]["status"]["code"] == 400
    assert "not an AdmissionReview" in found["response"]["status"]["message"]


def test_a_body_below_the_limit_is_read() -> None:
    data = json.dumps(review()).encode()
    assert answer(Admission(allow), data + b" " * (7 * 1024 * 1024 - 1 - len(data)))["allowed"]


def test_a_deeply_nested_body_is_answered() -> None:
    kind = b'"kind":{"group":"example.com","version":"v1","kind":"Widget"}'
    deep = b'{"request":{"uid":"1",%b,"object":' % kind + b"[" * 100_000 + b"]" * 100_000 + b"}}"

    def look(request: AdmissionRequest) -> AdmissionResponse:
        return AdmissionResponse.denied(str(request.object))

    assert answer(Admission(look), deep)["status"]["code"] == 400


@pytest.mark.parametrize(
    ("given", "answered"),
    [
        (("admission.k8s.io/v1", "AdmissionReview"), ("admission.k8s.io/v1", "AdmissionReview")),
        (("admission.k8s.io/v1beta1", "AdmissionReview"),) * 2,
        ((None, None), ("admission.k8s.io/v1", "AdmissionReview")),
    ],
)
def test_the_answer_has_the_version_of_the_review(given: Any, answered: Any) -> None:
    body = review()
    body["apiVersion"], body["kind"] = given
    found = json.loads(Admission(allow)(post(body)).body)
    assert (found["apiVersion"], found["kind"]) == answered
    assert found["response"] == {
        "uid": UID,
        "allowed": True,
        "status": {"metadata": {}, "code": 200},
    }


def test_an_answer_is_written_as_go_writes_it() -> None:
    assert Admission(allow)(post(review())).body == (
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"%b",'
        b'"allowed":true,"status":{"metadata":{},"code":200}}}\n' % UID.encode()
    )


def test_a_review_without_a_request_is_refused() -> None:
    found = answer(
        Admission(allow), {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
    )
    assert found["status"] == {
        "metadata": {},
        "message": "the review has no request",
        "code": 400,
    }


@pytest.mark.parametrize("kind", [None, {}, {"group": "", "version": "", "kind": ""}])
def test_a_request_without_a_kind_calls_the_handler_and_is_refused_if_that_needs_it(
    kind: Any,
) -> None:
    def look(request: AdmissionRequest) -> AdmissionResponse:
        return AdmissionResponse.denied(str(request.kind))

    body = review(kind=kind)
    assert answer(Admission(allow), body)["allowed"]
    found = answer(Admission(look), body)
    assert (found["uid"], found["allowed"], found["status"]["code"]) == (UID, False, 400)
    assert found["status"]["message"] == "the request names no kind"


def test_an_empty_request_calls_the_handler_as_in_go() -> None:
    seen: list[AdmissionRequest] = []

    def note(request: AdmissionRequest) -> AdmissionResponse:
        seen.append(request)
        return AdmissionResponse.allowed()

    body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {}}
    assert answer(Admission(note), body)["allowed"]
    (request,) = seen
    assert (request.uid, request.operation, request.object, request.old_object) == (
        "",
        "",
        None,
        None,
    )
    assert repr(request)
    validating = Admission(Validating(WIDGET, create=lambda obj: None))
    assert answer(validating, body)["status"]["message"] == 'unknown operation ""'


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (AdmissionResponse.denied("no"), {"message": "no", "reason": "Forbidden", "code": 403}),
        (
            AdmissionResponse.denied("later", code=429, reason="TooManyRequests"),
            {"message": "later", "reason": "TooManyRequests", "code": 429},
        ),
        (AdmissionResponse.denied(), {"reason": "Forbidden", "code": 403}),
        (AdmissionResponse.errored(422, "odd"), {"message": "odd", "code": 422}),
    ],
)
def test_a_denial_has_code_reason_and_message(
    response: AdmissionResponse, expected: dict[str, Any]
) -> None:
    found = answer(Admission(lambda request: response), review())
    assert not found["allowed"]
    assert found["status"] == {"metadata": {}, **expected}


def test_warnings_and_audit_annotations_go_along() -> None:
    response = (
        AdmissionResponse.denied("no")
        .with_warnings("one", "two")
        .with_warnings("three")
        .with_audit_annotations({"a": "1"})
        .with_audit_annotations({"b": "2"})
    )
    found = answer(Admission(lambda request: response), review())
    assert found["warnings"] == ["one", "two", "three"]
    assert found["auditAnnotations"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Denied("no"), {"message": "no", "reason": "Forbidden", "code": 403}),
        (
            Denied("full", code=409, reason="Conflict"),
            {"message": "full", "reason": "Conflict", "code": 409},
        ),
    ],
)
def test_a_raised_denial_is_a_denial(error: Exception, expected: Any) -> None:
    def refuse(request: AdmissionRequest) -> AdmissionResponse:
        raise error

    webhook = Admission(refuse)
    found = answer(webhook, review())
    assert found["status"] == {"metadata": {}, **expected}
    assert [sample.value for sample in webhook.samples()] == [0]


def test_a_raised_api_error_keeps_its_status() -> None:
    def refuse(request: AdmissionRequest) -> AdmissionResponse:
        raise Invalid(
            "spec is odd",
            details={"causes": [{"reason": "FieldValueInvalid", "field": "spec"}]},
        )

    found = answer(Admission(refuse), review())
    assert found["status"] == {
        "metadata": {},
        "status": "Failure",
        "message": "spec is odd",
        "reason": "Invalid",
        "details": {"causes": [{"reason": "FieldValueInvalid", "field": "spec"}]},
        "code": 422,
    }


def test_a_failed_handler_denies_with_its_name_and_is_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def check_widget(request: AdmissionRequest) -> AdmissionResponse:
        raise KeyError("spec")

    webhook = Admission(check_widget)
    with caplog.at_level(logging.ERROR):
        response = webhook(post(review(object=widget(secret="hunter2"))))
    found = json.loads(response.body)["response"]
    assert response.status == 200
    assert getattr(response, "counted_as", None) == 500
    assert (found["uid"], found["allowed"]) == (UID, False)
    assert found["status"]["code"] == 500
    assert found["status"]["message"].endswith("check_widget failed: KeyError: 'spec'")
    assert [sample.value for sample in webhook.samples()] == [1]
    [record] = caplog.records
    fields = vars(record)
    assert fields["request_id"] == UID
    assert (fields["namespace"], fields["object"]) == ("default", "a")
    assert (fields["operation"], fields["user"]) == ("CREATE", "jane")
    assert fields["kind"] == "widgets.v1.example.com"
    assert "hunter2" not in record.getMessage() + str(fields)


def test_without_recovery_an_error_is_the_callers() -> None:
    def fail(request: AdmissionRequest) -> AdmissionResponse:
        raise KeyError("spec")

    webhook = Admission(fail, recover_panic=False)
    with pytest.raises(KeyError):
        webhook(post(review()))
    assert [sample.value for sample in webhook.samples()] == [1]


def test_a_handler_that_exits_denies() -> None:
    def leave(request: AdmissionRequest) -> AdmissionResponse:
        raise RuntimeError("x" * 100_000)

    message = answer(Admission(leave, name="door"), review())["status"]["message"]
    assert message.startswith("the webhook door failed: RuntimeError: xxx")
    assert len(message) < 1000


def test_a_response_that_is_none_is_named(caplog: pytest.LogCaptureFixture) -> None:
    found = answer(Admission(lambda request: True, name="yes"), review())  # type: ignore[arg-type, return-value]
    assert "the webhook yes failed: TypeError: it returned bool" in found["status"]["message"]


def test_a_response_that_is_no_json_is_an_error_with_its_uid() -> None:
    response = AdmissionResponse.patched([{"op": "add", "path": "/spec/a", "value": object()}])
    found = answer(Admission(lambda request: response), review())
    assert (found["uid"], found["allowed"]) == (UID, False)
    assert found["status"] == {
        "metadata": {},
        "message": "unable to encode response",
        "code": 500,
    }


def test_an_async_handler_sees_the_request_in_its_tasks() -> None:
    seen: list[str] = []

    async def look() -> None:
        request = admission_request()
        assert request is not None
        seen.append(request.uid)

    async def check(request: AdmissionRequest) -> AdmissionResponse:
        assert admission_request() is request
        await asyncio.gather(look(), asyncio.create_task(look()))
        return AdmissionResponse.allowed()

    assert answer(Admission(check), review())["allowed"]
    assert seen == [UID, UID]
    assert admission_request() is None


def test_a_request_has_the_facts_of_its_review() -> None:
    found: list[AdmissionRequest] = []

    def look(request: AdmissionRequest) -> AdmissionResponse:
        found.append(request)
        return AdmissionResponse.allowed()

    clock = ManualClock()
    body = review(
        "UPDATE",
        requestKind={"group": "example.com", "version": "v2", "kind": "Widget"},
        requestResource={"group": "example.com", "version": "v2", "resource": "widgets"},
        subResource="status",
        dryRun=True,
        userInfo={"username": "jane", "uid": "7", "groups": ["a"], "extra": {"scopes": ["x"]}},
        object=widget(size=1),
        oldObject=widget(size=2),
    )
    answer(Admission(look, clock=clock), body, query="timeout=10s")
    [request] = found
    assert request.uid == UID
    assert request.operation == Operation.UPDATE
    assert (request.kind, request.request_kind.version) == (WIDGET, "v2")
    assert request.resource == GroupVersionResource("example.com", "v1", "widgets")
    assert str(request.request_resource) == "widgets.v2.example.com"
    assert (request.subresource, request.request_subresource) == ("status", "status")
    assert (request.name, request.namespace) == ("a", "default")
    assert request.user == UserInfo("jane", "7", ("a",), {"scopes": ("x",)})
    assert request.dry_run
    assert request.options["kind"] == "CreateOptions"
    assert request.object is not None
    assert request.object.spec == {"size": 1}
    assert request.old_object is not None
    assert request.old_object.spec == {"size": 2}
    assert request.object_as(TYPED).spec.size == 1
    assert request.api_version == "admission.k8s.io/v1"
    assert request.time_left() == 10.0
    clock.advance(9.0)
    assert request.time_left() == 1.0
    clock.advance(9.0)
    assert request.time_left() == 0.0
    assert "hunter" not in repr(request)


def test_the_options_of_a_connection_are_its_object() -> None:
    found: list[AdmissionRequest] = []

    def look(request: AdmissionRequest) -> AdmissionResponse:
        found.append(request)
        return AdmissionResponse.allowed()

    body = review(
        "CONNECT",
        kind={"group": "", "version": "v1", "kind": "PodExecOptions"},
        resource={"group": "", "version": "v1", "resource": "pods"},
        requestKind=None,
        requestResource=None,
        subResource="exec",
        name="web",
        object={"kind": "PodExecOptions", "apiVersion": "v1", "command": ["sh"], "stdin": True},
        options=None,
    )
    assert answer(Admission(look), body)["allowed"]
    [request] = found
    assert request.object is not None
    assert request.object["command"] == ["sh"]
    assert (request.subresource, request.name, request.options) == ("exec", "web", {})


def test_a_subresource_with_a_kind_of_its_own_has_that_kind() -> None:
    found: list[Kind] = []

    def look(request: AdmissionRequest) -> AdmissionResponse:
        assert request.object is not None
        found.append(request.object.kind)
        return AdmissionResponse.allowed()

    scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "a"}}
    body = review(
        "UPDATE",
        kind={"group": "autoscaling", "version": "v1", "kind": "Scale"},
        subResource="scale",
        object=scale,
        oldObject=scale,
    )
    assert answer(Admission(look), body)["allowed"]
    assert [str(kind) for kind in found] == ["scales.v1.autoscaling"]


def test_a_cluster_scoped_kind_has_its_scope() -> None:
    scopes: list[Scope] = []

    def look(request: AdmissionRequest) -> AdmissionResponse:
        scopes.append(request.kind.scope)
        return AdmissionResponse.allowed()

    answer(Admission(look), review(namespace=None))
    answer(Admission(look), review())
    assert scopes == [Scope.CLUSTER, Scope.NAMESPACED]


def test_a_request_made_by_a_test_is_the_one_of_its_review() -> None:
    made = AdmissionRequest(
        "UPDATE",
        WIDGET,
        object=widget(size=1),
        old_object=widget(size=2),
        user=UserInfo("jane"),
        uid="7",
        dry_run=True,
    )
    found: list[AdmissionRequest] = []

    def look(request: AdmissionRequest) -> AdmissionResponse:
        found.append(request)
        return AdmissionResponse.allowed()

    answer(Admission(look), made.to_review())
    [read] = found
    for name in (
        *("uid", "operation", "kind", "request_kind", "resource", "name", "namespace", "user"),
        *("dry_run", "object", "old_object", "subresource", "options", "api_version"),
    ):
        assert getattr(read, name) == getattr(made, name), name


def test_a_review_of_another_api_group_is_answered_in_it() -> None:
    # As controller-runtime does: the API server decides what it takes.
    body = {**review(), "apiVersion": "admission.k8s.io/v2"}
    assert json.loads(Admission(allow)(post(body)).body)["apiVersion"] == "admission.k8s.io/v2"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Admission(AdmissionResponse), "is a class"),
        (lambda: Admission(lambda: None), "not a function of"),  # type: ignore[arg-type, misc]
        (lambda: AdmissionResponse.denied("no", code=200), "is not an error"),
        (lambda: Denied("no", code=200), "is not an error"),
        (lambda: AdmissionResponse.allowed().with_warnings(1), "is not text"),  # type: ignore[arg-type]
        (lambda: AdmissionRequest("PATCH", WIDGET), "is not a valid Operation"),
    ],
)
def test_mistakes_are_named_when_they_are_made(make: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        make()
