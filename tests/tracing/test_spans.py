"""Spans of calls, requests and reviews, as one sees them in a store of traces."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from appsdk_operator import App, Kind, MutableObject, TerminalError, kinds
from appsdk_operator.client import Client
from appsdk_operator.controllers import Request, Result
from appsdk_operator.manager import Manager
from appsdk_operator.runtime import (
    CallRecord,
    FailureCause,
    ManualClock,
    Metrics,
    RequestRecord,
    StopSignal,
)
from appsdk_operator.serving import HTTPRequest
from appsdk_operator.testing import APIServer
from appsdk_operator.tracing import TraceFields, Tracing, _links
from appsdk_operator.webhooks import Admission, AdmissionResponse, Webhooks
from tests.waiting import eventually

CONFIG_MAP = kinds.core.v1.ConfigMap
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Spans:
    """A provider that keeps its spans, and what waits for them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        # A function within a function is named with that.
        return [span for span in self.all() if span.name == name or span.name.endswith(f".{name}")]

    def only(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found


@pytest.fixture
def spans() -> Spans:
    return Spans()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def identity(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def a_call(name: str = "web", **more: Any) -> CallRecord:
    return CallRecord(
        controller="widgets",
        callback="grow",
        role="reconciler",
        kind="widgets.v1.example.com",
        namespace="red",
        name=name,
        **more,
    )


def a_write(name: str = "web") -> RequestRecord:
    return RequestRecord(
        method="PATCH",
        verb="patch",
        resource="widgets.example.com/status",
        namespace="red",
        name=name,
        host="[::1]:6443",
    )


class Reason:
    """As an EventReason."""

    def __init__(self, name: str) -> None:
        self.kind = Kind(group="example.com", version="v1", kind="Widget")
        self.namespace, self.name = "red", name

    def __str__(self) -> str:
        return f"{self.name} updated"


def made(tracing: Tracing, call: CallRecord, *requests: RequestRecord) -> None:
    """A whole call with requests, as the engine makes it."""
    tracing.call_began(call)
    for request in requests:
        tracing.request_began(request)
        request.status = request.status or 200
        tracing.request_ended(request)
    if call.outcome == "running":
        call.outcome = "done"
    tracing.call_ended(call)


def test_a_call_is_a_span_that_says_who_was_called_for_what_and_what_came_of_it(spans):
    tracing = Tracing(spans.provider)
    call = a_call(attempt=2, reasons=(Reason("web"), "a timer"))
    call.outcome, call.next_in = "requeued", 5.0
    made(tracing, call)
    span = spans.only("grow")
    assert span.kind is SpanKind.CONSUMER
    assert attributes(span) == {
        "appsdk.controller": "widgets",
        "appsdk.role": "reconciler",
        "appsdk.kind": "widgets.v1.example.com",
        "k8s.namespace.name": "red",
        "appsdk.object.name": "web",
        "appsdk.action": "",
        "appsdk.attempt": 2,
        "appsdk.reasons": ("web updated", "a timer"),
        "appsdk.outcome": "requeued",
        "appsdk.next_in": 5.0,
        "code.function.name": "grow",
    }
    assert span.status.status_code is StatusCode.UNSET


def test_a_failure_is_an_event_of_the_span_with_its_cause(spans):
    tracing = Tracing(spans.provider)
    call = a_call()
    call.outcome, call.cause = "retrying", FailureCause(ConnectionError("no route"))
    made(tracing, call)
    span = spans.only("grow")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "ConnectionError: no route"
    (event,) = span.events
    assert event.name == "exception"
    assert dict(event.attributes or {})["exception.message"] == "no route"


def test_a_request_is_a_client_span_of_its_call_and_carries_the_traceparent(spans):
    tracing = Tracing(spans.provider)
    request = a_write()
    request.tries = 1
    made(tracing, a_call(), request)
    call, sent = spans.only("grow"), spans.only("patch widgets.example.com/status")
    assert sent.parent is not None
    assert (sent.parent.trace_id, sent.parent.span_id) == identity(call)
    assert sent.kind is SpanKind.CLIENT
    found = attributes(sent)
    assert found["server.address"], found["server.port"] == ("[::1]", 6443)
    assert found["http.response.status_code"] == 200
    assert found["http.request.resend_count"] == 1
    trace_id, span_id = identity(sent)
    assert request.headers["traceparent"].startswith(f"00-{trace_id:032x}-{span_id:016x}-0")


def test_a_request_that_fails_is_an_error(spans):
    tracing = Tracing(spans.provider)
    request = a_write()
    request.error = "Conflict: changed meanwhile"
    tracing.request_began(request)
    tracing.request_ended(request)
    span = spans.only("patch widgets.example.com/status")
    assert attributes(span)["error.type"] == "Conflict"
    assert span.status.status_code is StatusCode.ERROR


def test_requests_may_be_left_out(spans):
    tracing = Tracing(spans.provider, requests=False)
    request = a_write()
    made(tracing, a_call(), request)
    assert [span.name for span in spans.all()] == ["grow"]
    assert not request.headers


def test_a_call_is_linked_to_the_write_whose_event_led_to_it(spans):
    tracing = Tracing(spans.provider)
    made(tracing, a_call("first"), a_write("web"))
    made(tracing, a_call("second", reasons=(Reason("web"), Reason("web"), Reason("other"))))
    (link,) = spans.named("grow")[1].links
    written = spans.only("patch widgets.example.com/status")
    assert (link.context.trace_id, link.context.span_id) == identity(written)
    assert dict(link.attributes or {})["appsdk.reason"] == "web updated"


def test_an_event_may_come_before_the_answer_to_the_write(spans):
    tracing = Tracing(spans.provider)
    request = a_write("web")
    tracing.request_began(request)
    made(tracing, a_call(reasons=(Reason("web"),)))
    assert len(spans.only("grow").links) == 1
    tracing.request_ended(request)


def test_a_write_that_failed_or_is_long_past_leads_to_nothing(spans):
    clock = ManualClock()
    tracing = Tracing(spans.provider, clock=clock)
    failed = a_write("failed")
    failed.error = "Conflict: changed meanwhile"
    made(tracing, a_call(), failed, a_write("old"))
    clock.advance(61)
    made(tracing, a_call(reasons=(Reason("failed"), Reason("old"))))
    assert not spans.named("grow")[1].links


def test_a_retry_is_linked_to_the_call_that_failed_and_the_next_one_to_none(spans):
    tracing = Tracing(spans.provider)
    for outcome in ("retrying", "done", "done"):
        call = a_call()
        call.outcome = outcome
        made(tracing, call)
    first, second, third = spans.named("grow")
    (link,) = second.links
    assert (link.context.trace_id, link.context.span_id) == identity(first)
    assert not third.links


def test_memory_is_bounded(spans, monkeypatch):
    monkeypatch.setattr(_links, "_MOST", 100)
    tracing = Tracing(spans.provider)
    for number in range(150):
        call = a_call(str(number))
        call.outcome = "retrying"
        made(tracing, call, a_write(str(number)))
    links = tracing._links
    assert len(links._writes) == len(links._unfinished) == 100
    assert not tracing._calls
    assert not tracing._requests


def test_an_observer_that_comes_in_the_middle_of_a_call_ignores_its_end(spans):
    tracing = Tracing(spans.provider)
    tracing.call_ended(a_call())
    tracing.request_ended(a_write())
    assert not spans.all()


def test_a_reason_whose_text_fails_is_named(spans):
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    made(Tracing(spans.provider), a_call(reasons=(Broken(),)))
    assert attributes(spans.only("grow"))["appsdk.reasons"] == (
        "<Broken whose text failed: RuntimeError>",
    )


def test_a_text_with_lone_surrogates_loses_no_batch_of_spans(spans):
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    tracing = Tracing(spans.provider)
    call = a_call("\udc80", reasons=("\udc81",))
    call.outcome, call.cause = "retrying", FailureCause(OSError("no file '\udc82'"))
    request = a_write()
    request.error = "OSError: '\udc83'"
    made(tracing, call, request)
    encoded = encoder.encode_spans(spans.all()).SerializeToString()
    for text in (rb"\udc80", rb"\udc81", rb"no file '\udc82'", rb"OSError: '\udc83'"):
        assert text in encoded


def test_log_records_have_the_ids_of_the_span_they_were_written_in(spans):
    tracing = Tracing(spans.provider)
    inside, outside = logging.makeLogRecord({}), logging.makeLogRecord({})
    call = a_call()
    tracing.call_began(call)
    assert TraceFields().filter(inside)
    tracing.call_ended(call)
    assert TraceFields().filter(outside)
    trace_id, span_id = identity(spans.only("grow"))
    assert inside.__dict__["trace_id"] == f"{trace_id:032x}"
    assert inside.__dict__["span_id"] == f"{span_id:016x}"
    assert not hasattr(outside, "trace_id")


def review(webhooks: Webhooks, path: str = "/check", **headers: str) -> int:
    body = (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",'
        b'"operation":"CREATE","namespace":"red","name":"web",'
        b'"kind":{"group":"","version":"v1","kind":"Pod"},'
        b'"resource":{"group":"","version":"v1","resource":"pods"},'
        b'"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}}}'
    )
    request = HTTPRequest(
        method="POST",
        path=path,
        headers={"Content-Type": "application/json", **headers},
        body=body,
    )
    return webhooks.answer(request).status


def test_a_review_is_a_span_of_the_servers_trace(spans):
    def check(request: Any) -> AdmissionResponse:
        with trace.get_tracer("mine", tracer_provider=spans.provider).start_as_current_span("own"):
            return AdmissionResponse.allowed(str(baggage.get_baggage("user") or ""))

    webhooks = Webhooks(metrics=Metrics())
    webhooks.add("/check", Admission(check, name="check"))
    end = webhooks.observe_activity(Tracing(spans.provider))
    assert review(webhooks, traceparent=PARENT, baggage="user=ada") == 200
    span, own = spans.only("check"), spans.only("own")
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == TRACE
    assert own.parent is not None
    assert own.parent.span_id == identity(span)[1]
    found = attributes(span)
    assert span.kind is SpanKind.SERVER
    assert found["k8s.namespace.name"], found["appsdk.object.name"] == ("red", "web")
    assert found["appsdk.outcome"] == "done"
    end()
    review(webhooks)
    assert len(spans.named("check")) == 1


def test_a_review_that_fails_is_an_error_with_its_cause(spans):
    def check(request: Any) -> AdmissionResponse:
        raise KeyError("size")

    def other(request: HTTPRequest) -> Any:
        raise ValueError("no review at all")

    webhooks = Webhooks(metrics=Metrics())
    webhooks.add("/check", Admission(check, name="check"))
    webhooks.add("/other", other)
    webhooks.observe_activity(Tracing(spans.provider))
    assert review(webhooks) == 200
    assert review(webhooks, "/other") == 500
    assert spans.only("check").status.description == "KeyError: 'size'"
    assert spans.only("/other").status.description == "ValueError: no review at all"


# With an operator.


@contextmanager
def running(manager: Manager) -> Iterator[None]:
    stop = StopSignal()
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(manager.run, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def test_an_operators_traces_tell_what_led_to_what(spans):
    app = App("tracing-operator")
    tracer = trace.get_tracer("mine", tracer_provider=spans.provider)
    tries: list[str] = []
    finished = threading.Event()

    @app.on_add(CONFIG_MAP)
    def copy(obj: Any) -> None:
        if obj.name != "origin":
            return
        with tracer.start_as_current_span("own"):
            app.client.create(
                MutableObject.new(CONFIG_MAP, "copy", namespace="default", data={"a": "b"})
            )

    @app.reconciler(CONFIG_MAP)
    async def see(request: Request) -> Result | None:
        if request.name != "copy":
            return None
        tries.append(request.name)
        if len(tries) == 1:
            raise ConnectionError("not yet")
        finished.set()
        return None

    with APIServer() as server, Client(server.client_config()) as client:
        manager = app.manager(
            server.client_config(), metrics=Metrics(), observers=[Tracing(spans.provider)]
        )
        with running(manager):
            client.create(MutableObject.new(CONFIG_MAP, "origin", namespace="default"))
            assert finished.wait(20)
            eventually(lambda: len([s for s in spans.named("see") if of(s) == "copy"]) >= 2)

    (call,) = [span for span in spans.named("copy") if of(span) == "origin"]
    own = spans.only("own")
    create = spans.only("create configmaps")
    assert call.parent is None, "a call is a trace of its own"
    assert own.parent is not None
    assert own.parent.span_id == identity(call)[1]
    assert create.parent is not None
    assert create.parent.span_id == identity(own)[1], "the client sees the user's span"
    assert attributes(create)["http.response.status_code"] == 201
    assert attributes(create)["appsdk.object.name"] == "copy"
    failed, again = [span for span in spans.named("see") if of(span) == "copy"][:2]
    assert failed.status.description == "ConnectionError: not yet"
    # The finalizer may be written before the event of the creation is handled.
    writes = {identity(span) for span in spans.all() if of(span) == "copy" and is_write(span)}
    links = {(link.context.trace_id, link.context.span_id) for link in failed.links}
    assert links
    assert links <= writes
    assert identity(failed) in {
        (link.context.trace_id, link.context.span_id) for link in again.links
    }
    # What is outside of calls has spans, too.
    assert spans.named("list configmaps") or spans.named("watch configmaps")


def is_write(span: ReadableSpan) -> bool:
    return attributes(span).get("http.request.method") in {"POST", "PUT", "PATCH"}


def of(span: ReadableSpan) -> Any:
    return attributes(span).get("appsdk.object.name")


def test_context_variables_of_who_runs_reach_tasks_workers_and_coroutines():
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
    seen: dict[str, str] = {}
    done = threading.Event()
    app = App("context-operator")

    def note(who: str) -> None:
        seen[who] = tenant.get()
        # Nobody else is to see this.
        tenant.set(f"changed by {who}")
        if len(seen) == 4:
            done.set()

    @app.task
    def task(stop: StopSignal) -> None:
        note("task")
        stop.wait()

    @app.on_add(CONFIG_MAP)
    def watcher(obj: Any) -> None:
        note("watcher")

    @app.reconciler(CONFIG_MAP)
    async def coroutine(request: Request) -> None:
        note("coroutine")

    @app.reconciler(kinds.core.v1.Secret)
    def worker(request: Request) -> None:
        note("worker")

    with APIServer() as server, Client(server.client_config()) as client:
        manager = app.manager(server.client_config(), metrics=Metrics())
        token = tenant.set("ada")
        with running(manager):
            tenant.reset(token)
            client.create(MutableObject.new(CONFIG_MAP, "a", namespace="default"))
            client.create(MutableObject.new(kinds.core.v1.Secret, "a", namespace="default"))
            assert done.wait(20), seen
    assert tenant.get() == "nobody"
    assert set(seen) == {"task", "watcher", "coroutine", "worker"}
    assert seen == dict.fromkeys(seen, "ada")


def test_the_span_in_which_a_manager_is_started_is_no_parent_of_its_calls(spans):
    tracer = trace.get_tracer("mine", tracer_provider=spans.provider)
    with tracer.start_as_current_span("main"):
        made(Tracing(spans.provider), a_call())
        assert trace.get_current_span().is_recording(), "the span of before is present again"
    assert spans.only("grow").parent is None


def test_baggage_of_who_runs_stays(spans):
    tracing = Tracing(spans.provider)
    token = otel_context.attach(baggage.set_baggage("team", "red"))
    request = a_write()
    made(tracing, a_call(), request)
    otel_context.detach(token)
    assert request.headers["baggage"] == "team=red"


@pytest.mark.parametrize(
    "observers",
    [[object()], [Tracing], 5, [None]],
    ids=["an object", "a class", "a number", "None"],
)
def test_what_is_no_observer_is_refused(observers: Any):
    app = App("tracing-operator")
    with pytest.raises(TypeError, match="observers"):
        app.manager(None, observers=observers)  # type: ignore[arg-type]


def test_a_terminal_failure_is_told_as_such(spans):
    tracing = Tracing(spans.provider)
    call = a_call()
    call.outcome, call.cause = "terminal", FailureCause(TerminalError("never"))
    made(tracing, call)
    assert attributes(spans.only("grow"))["appsdk.outcome"] == "terminal"
