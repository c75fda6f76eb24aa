"""Webhooks by path and their builder: routing, rules, metrics, time limits."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import Any

import pytest

from appsdk_operator.resource import Kind, MutableObject, Versions
from appsdk_operator.runtime import ManualClock, Metrics, environment
from appsdk_operator.serving import HTTPRequest, HTTPResponse
from appsdk_operator.webhooks import (
    Admission,
    AdmissionRequest,
    AdmissionResponse,
    WebhookRule,
    Webhooks,
    webhook_for,
)
from tests.webhooks.admission_parts import WIDGET, post, review

MUTATE = "/mutate-example-com-v1-widget"
VALIDATE = "/validate-example-com-v1-widget"
TOTAL = "controller_runtime_webhook_requests_total"


def allow(request: AdmissionRequest) -> AdmissionResponse:
    """Allow everything."""
    return AdmissionResponse.allowed()


def nothing(obj: Any) -> None:
    """Do nothing."""


def test_a_request_is_answered_by_the_webhook_of_its_path() -> None:
    webhooks = Webhooks(metrics=Metrics())
    assert webhooks.answer(post(review(), path="/a")).status == 404
    webhooks.add("/a", Admission(allow))
    webhooks.add("/b", lambda request: HTTPResponse(body=b"b"))
    assert json.loads(webhooks.answer(post(review(), path="/a")).body)["response"]["allowed"]
    assert webhooks.answer(post(review(), path="/b")).body == b"b"
    assert webhooks.answer(post(review(), path="/a/b")).status == 404
    assert webhooks.paths == ("/a", "/b")
    assert isinstance(webhooks.get("/a"), Admission)
    assert webhooks.get("/c") is None


def test_a_webhook_may_be_a_coroutine_function() -> None:
    async def answer(request: HTTPRequest) -> HTTPResponse:
        await asyncio.sleep(0)
        return HTTPResponse(body=request.body)

    async def fail(request: HTTPRequest) -> HTTPResponse:
        raise KeyError(request.path)

    webhooks, body = Webhooks(metrics=Metrics()), review()
    webhooks.add("/a", answer)
    webhooks.add("/b", fail)
    webhooks.add("/c", functools.partial(answer))
    for path in ("/a", "/c"):
        assert webhooks.answer(post(body, path=path)).body == post(body).body
    assert webhooks.answer(post(body, path="/b")).status == 500
    webhooks.add("/d", lambda request: asyncio.sleep(0, 7))  # type: ignore[arg-type]
    assert webhooks.answer(post(body, path="/d")).status == 500


def test_a_path_has_one_webhook() -> None:
    webhooks = Webhooks(metrics=Metrics())
    webhooks.add("/a", Admission(allow, name="first"))
    with pytest.raises(ValueError, match=r"/a is the path of <admission webhook first> already"):
        webhooks.add("/a", Admission(allow))
    with pytest.raises(ValueError, match="does not begin with a slash"):
        webhooks.add("a", Admission(allow))
    with pytest.raises(TypeError, match="webhook=7"):
        webhooks.add("/b", 7)  # type: ignore[arg-type]
    rule = WebhookRule(type="validating", path="/c", kinds=(WIDGET,))
    with pytest.raises(ValueError, match="the rule has the path /c"):
        webhooks.add("/b", Admission(allow), rule=rule)
    assert webhooks.paths == ("/a",)


def test_series_exist_at_zero_from_the_start() -> None:
    metrics = Metrics()
    webhooks = Webhooks(metrics=metrics)
    webhooks.add("/a", Admission(allow))
    assert metrics.value(TOTAL, webhook="/a", code="200") == 0
    assert metrics.value(TOTAL, webhook="/a", code="500") == 0
    assert metrics.value("controller_runtime_webhook_requests_in_flight", webhook="/a") == 0
    assert metrics.value("controller_runtime_webhook_latency_seconds_count", webhook="/a") == 0
    assert metrics.value("controller_runtime_webhook_panics_total") == 0


def test_requests_are_counted_by_path_and_code() -> None:
    metrics, clock = Metrics(), ManualClock()
    webhooks = Webhooks(metrics=metrics, clock=clock)

    def slow(request: AdmissionRequest) -> AdmissionResponse:
        assert metrics.value("controller_runtime_webhook_requests_in_flight", webhook="/a") == 1
        clock.advance(2.0)
        return AdmissionResponse.denied("no")

    def fail(request: AdmissionRequest) -> AdmissionResponse:
        raise KeyError("x")

    webhooks.add("/a", Admission(slow))
    webhooks.add("/b", Admission(fail))
    webhooks.add("/c", Admission(fail))
    webhooks.add("/d", lambda request: HTTPResponse(status=503))
    for path in ("/a", "/a", "/b", "/c", "/d", "/e"):
        webhooks.answer(post(review(), path=path))
    # A denial is an answer; a failed handler is none, although its HTTP status is 200.
    assert metrics.value(TOTAL, webhook="/a", code="200") == 2
    assert metrics.value(TOTAL, webhook="/b", code="500") == 1
    assert metrics.value(TOTAL, webhook="/b", code="200") == 0
    assert metrics.value(TOTAL, webhook="/d", code="503") == 1
    assert metrics.value("controller_runtime_webhook_latency_seconds_sum", webhook="/a") == 4.0
    assert metrics.value("controller_runtime_webhook_requests_in_flight", webhook="/a") == 0
    assert metrics.value("controller_runtime_webhook_panics_total") == 2


@pytest.mark.parametrize("error", [KeyError("secret"), SystemExit(1)])
def test_a_webhook_that_raises_is_answered_with_a_bare_500(error: BaseException) -> None:
    def broken(request: HTTPRequest) -> HTTPResponse:
        raise error

    metrics = Metrics()
    webhooks = Webhooks(metrics=metrics)
    webhooks.add("/a", broken)
    webhooks.add("/b", lambda request: b"text")  # type: ignore[arg-type]
    for path in ("/a", "/b"):
        found = webhooks.answer(post(review(), path=path))
        assert (found.status, found.body) == (500, f"500 the webhook at {path} failed\n".encode())
        assert metrics.value(TOTAL, webhook=path, code="500") == 1
        assert metrics.value("controller_runtime_webhook_requests_in_flight", webhook=path) == 0


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ("timeout=10s", 9.5),
        ("timeout=30s", 28.5),
        ("timeout=1s", 0.9),
        ("timeout=100ms", 0.05),
        ("timeout=1m0.5s", 57.475),
        ("a=b&timeout=2s", 1.9),
        ("", None),
        ("timeout=", None),
        ("timeout=0s", None),
        ("timeout=-1s", None),
        ("timeout=ten", None),
        ("timeout=1e9s", None),
        ("timeouts=1s", None),
    ],
)
def test_the_time_limit_ends_before_the_servers(query: str, limit: float | None) -> None:
    found = Webhooks(metrics=Metrics()).time_limit(post(review(), query=query))
    assert found == (None if limit is None else pytest.approx(limit))


def test_a_late_answer_is_a_failure_that_names_the_handler() -> None:
    clock, metrics = ManualClock(), Metrics()
    webhooks = Webhooks(clock=clock, metrics=metrics)

    def check_size(request: AdmissionRequest) -> AdmissionResponse:
        clock.advance(9.6)
        return AdmissionResponse.allowed()

    webhooks.add("/a", Admission(check_size, name="check_size"))
    request = post(review(), path="/a", query="timeout=10s")
    found = webhooks.timed_out(request)
    assert found.status == 500
    assert found.body == b"the webhook check_size did not answer within 9.5 s\n"
    # What it says afterwards is nobody's any more, whatever the clocks say.
    assert request.claim_answer("time limit")
    webhooks.answer(request)
    assert metrics.value(TOTAL, webhook="/a", code="500") == 1
    assert metrics.value(TOTAL, webhook="/a", code="200") == 0


@pytest.mark.parametrize(("seconds", "code"), [(9.4, "200"), (9.6, "200"), (10.0, "500")])
def test_an_answer_counts_as_what_the_api_server_gets(seconds: float, code: str) -> None:
    """Nobody has answered in its place, so that it is sent; the API server waits for 10 s."""
    clock, metrics = ManualClock(), Metrics()
    webhooks = Webhooks(clock=clock, metrics=metrics)

    def check_size(request: AdmissionRequest) -> AdmissionResponse:
        clock.advance(seconds)
        return AdmissionResponse.allowed()

    webhooks.add("/a", Admission(check_size, name="check_size"))
    webhooks.answer(post(review(), path="/a", query="timeout=10s"))
    assert metrics.value(TOTAL, webhook="/a", code=code) == 1


def test_a_handler_that_ends_as_its_time_is_up_counts_as_what_was_sent() -> None:
    metrics = Metrics()
    webhooks = Webhooks(metrics=metrics)
    requests = []

    def check_size(request: AdmissionRequest) -> AdmissionResponse:
        assert requests[0].claim_answer("time limit")  # as the server does, by its own clock
        return AdmissionResponse.allowed()

    webhooks.add("/a", Admission(check_size, name="check_size"))
    requests.append(post(review(), path="/a", query="timeout=10s"))
    webhooks.answer(requests[0])
    assert metrics.value(TOTAL, webhook="/a", code="500") == 1
    assert metrics.value(TOTAL, webhook="/a", code="200") == 0


def test_the_body_limit_is_the_webhooks_own() -> None:
    webhooks = Webhooks(metrics=Metrics())
    assert webhooks.max_body_bytes == 1 << 20
    webhooks.add("/a", Admission(allow))
    webhooks.add("/b", lambda request: HTTPResponse())
    assert webhooks.body_limit("/a") == 7 * 1024 * 1024 + 1
    assert webhooks.body_limit("/b") == (1 << 20) + 1
    assert webhooks.body_limit("/c") == 1 << 20
    assert webhooks.max_body_bytes == 7 * 1024 * 1024 + 1


# -- the builder -----------------------------------------------------------------------------


def test_the_builder_serves_at_the_default_paths_with_rules() -> None:
    webhooks = Webhooks(metrics=Metrics())

    def set_size(obj: MutableObject) -> None:
        obj.spec["size"] = 1

    webhook_for(webhooks, WIDGET).default(set_size, failure_policy="Ignore").validate(
        create=nothing, delete=nothing, timeout_seconds=3
    ).complete()
    assert webhooks.paths == (MUTATE, VALIDATE)
    assert webhooks.rules == (
        WebhookRule(
            type="mutating",
            path=MUTATE,
            kinds=(WIDGET,),
            operations=("CREATE", "UPDATE"),
            failure_policy="Ignore",
        ),
        WebhookRule(
            type="validating",
            path=VALIDATE,
            kinds=(WIDGET,),
            operations=("CREATE", "DELETE"),
            timeout_seconds=3,
        ),
    )
    found = json.loads(webhooks.answer(post(review(), path=MUTATE)).body)["response"]
    assert found["patchType"] == "JSONPatch"
    assert json.loads(webhooks.answer(post(review(), path=VALIDATE)).body)["response"]["allowed"]


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (Kind(group="", version="v1", kind="Pod"), "/mutate--v1-pod"),
        (
            Kind(group="batch.tutorial.kubebuilder.io", version="v1", kind="CronJob"),
            "/mutate-batch-tutorial-kubebuilder-io-v1-cronjob",
        ),
    ],
)
def test_default_paths_are_controller_runtimes(kind: Kind, path: str) -> None:
    webhooks = Webhooks(metrics=Metrics())
    webhook_for(webhooks, kind).default(nothing).complete()
    assert webhooks.paths == (path,)


def test_paths_can_be_chosen() -> None:
    webhooks = Webhooks(metrics=Metrics())
    builder = webhook_for(webhooks, WIDGET)
    builder.default(nothing, path="/size").validate(create=nothing, path="/check/it_1").complete()
    assert webhooks.paths == ("/size", "/check/it_1")


@pytest.mark.parametrize("path", ["", "size", "/a//b", "/a/", "/a.b", "/a b", "/a\n"])
def test_a_path_of_the_builder_has_segments_of_letters_and_digits(path: str) -> None:
    builder = webhook_for(Webhooks(metrics=Metrics()), WIDGET)
    with pytest.raises(ValueError, match="does not match"):
        builder.default(nothing, path=path)


def test_nothing_is_served_when_one_path_is_taken() -> None:
    webhooks = Webhooks(metrics=Metrics())
    webhooks.add(VALIDATE, Admission(allow))
    builder = webhook_for(webhooks, WIDGET).default(nothing).validate(create=nothing)
    with pytest.raises(ValueError, match=f"{VALIDATE} is the path of .* already"):
        builder.complete()
    assert webhooks.paths == (VALIDATE,)


def test_mistakes_with_the_builder_are_named() -> None:
    webhooks = Webhooks(metrics=Metrics())
    builder = webhook_for(webhooks, WIDGET)
    with pytest.raises(ValueError, match="has no webhooks: call default"):
        builder.complete()
    builder.default(nothing).validate(create=nothing)
    with pytest.raises(ValueError, match=r"default\(…\) of widgets.v1.example.com is called twice"):
        builder.default(nothing)
    with pytest.raises(ValueError, match=r"validate\(…\) of .* is called twice"):
        builder.validate(update=lambda old, new: None)
    builder.complete()
    with pytest.raises(RuntimeError, match="complete already"):
        builder.complete()
    with pytest.raises(TypeError, match="has no webhooks: give a Manager"):
        webhook_for(object(), WIDGET)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is not a Kind"):
        webhook_for(webhooks, "widgets")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="failure_policy"):
        webhook_for(webhooks, WIDGET).default(nothing, failure_policy="Maybe")  # type: ignore[arg-type]


def test_recovery_can_be_turned_off() -> None:
    def fail(obj: Any) -> None:
        raise KeyError("x")

    webhooks = Webhooks(metrics=Metrics())
    webhook_for(webhooks, WIDGET).default(fail).recover_panic(False).complete()
    assert webhooks.answer(post(review(), path=MUTATE)).status == 500


def test_the_environment_is_used() -> None:
    metrics, clock = Metrics(), ManualClock()
    with environment(clock=clock, metrics=metrics):
        webhooks = Webhooks()
    left: list[float | None] = []

    def look(obj: Any) -> None:
        from appsdk_operator.webhooks import admission_request

        request = admission_request()
        assert request is not None
        clock.advance(1.0)
        left.append(request.time_left())

    webhook_for(webhooks, WIDGET).default(look).complete()
    webhooks.answer(post(review(), path=MUTATE, query="timeout=10s"))
    assert left == [9.0]
    assert metrics.value(TOTAL, webhook=MUTATE, code="200") == 1


def test_one_path_for_two_webhooks_is_refused_before_anything_is_served() -> None:
    webhooks = Webhooks(metrics=Metrics())
    builder = webhook_for(webhooks, WIDGET).default(nothing, path="/a")
    builder.validate(create=nothing, path="/a")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"/a is the path of <defaulter .* already"):
            builder.complete()
        assert webhooks.paths == ()
    shared = webhook_for(webhooks, WIDGET).default(nothing, path="/convert")
    shared.convert(Versions(WIDGET).older(OLDER, up=nothing_to, down=nothing_to))
    with pytest.raises(ValueError, match="/convert is the path of the conversion webhook already"):
        shared.complete()
    assert webhooks.paths == ()


def test_a_conversion_whose_path_is_taken_is_refused_before_anything_is_served() -> None:
    webhooks = Webhooks(metrics=Metrics())
    webhooks.add("/convert", lambda request: HTTPResponse())
    builder = webhook_for(webhooks, WIDGET).default(nothing)
    builder.convert(Versions(WIDGET).older(OLDER, up=nothing_to, down=nothing_to))
    with pytest.raises(ValueError, match="/convert is the path of"):
        builder.complete()
    assert webhooks.paths == ("/convert",)


OLDER = Kind(group=WIDGET.group, version="v1alpha1", kind=WIDGET.kind)


def nothing_to(old: Any, new: Any) -> None:
    """Convert nothing."""
