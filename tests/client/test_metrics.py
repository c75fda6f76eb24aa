from __future__ import annotations

import functools

import pytest

from appsdk_operator import client as c
from appsdk_operator.resource import DecodeError
from appsdk_operator.runtime import Metrics
from tests.client.conftest import CHUNKED, WIDGET, answer, chunk, event, failure, widget


def get(client):
    return client.get(WIDGET, "a", namespace="x")


def test_requests_are_counted_by_code_method_and_host(serve, connect, refusing_port):
    metrics = Metrics()
    server = serve(answer(widget()), failure(404))
    client = connect(server, metrics=metrics)
    get(client)
    with pytest.raises(c.NotFound):
        get(client)
    with pytest.raises(c.ConnectFailed):
        get(connect(f"http://127.0.0.1:{refusing_port}", metrics=metrics, max_retries=0))

    def count(code, port):
        labels = {"code": code, "method": "GET", "host": f"127.0.0.1:{port}"}
        return metrics.registry.get_sample_value("rest_client_requests_total", labels)

    assert count("200", server.port) == 1
    assert count("404", server.port) == 1
    assert count("<error>", refusing_port) == 1
    assert "rest_client_request_duration_seconds" not in metrics.render()


def test_the_other_series_are_there_when_asked_for(serve, connect):
    metrics = Metrics()
    server = serve(failure(503), answer(widget()))
    get(connect(server, metrics=metrics, detailed_metrics=True, qps=100.0))
    labels = {"verb": "GET", "host": f"127.0.0.1:{server.port}"}
    sample = metrics.registry.get_sample_value
    for name in ("request_duration_seconds", "request_size_bytes", "rate_limiter_duration_seconds"):
        assert sample(f"rest_client_{name}_count", labels) == 2
    assert sample("rest_client_response_size_bytes_count", labels) == 2
    assert sample("rest_client_request_retries_total", {**labels, "code": "503"}) == 1


def test_requests_are_counted_by_kind_too_as_grafana_app_sdk_does(serve, connect, refusing_port):
    metrics = Metrics()
    client = connect(serve(answer(widget()), failure(404)), metrics=metrics)
    get(client)
    with pytest.raises(c.NotFound):
        client.subresource("status").get(WIDGET, "a", namespace="x")
    with pytest.raises(c.ConnectFailed):
        get(connect(f"http://127.0.0.1:{refusing_port}", metrics=metrics, max_retries=0))

    def count(name, code, subresource):
        labels = {"verb": "GET", "kind": "widgets", "subresource": subresource}
        return metrics.value(f"kubernetes_client_{name}", status_code=code, **labels)

    for name in ("requests_total", "request_duration_seconds_count"):
        assert count(name, "200", "spec") == 1
        assert count(name, "404", "status") == 1
        assert count(name, "0", "spec") == 1, "no answer"


def test_a_watch_counts_its_events_and_the_lines_that_are_none(serve, connect):
    metrics = Metrics()
    body = CHUNKED + chunk(event("a") + event("a", "DELETED") + b"nonsense\n") + chunk(b"")
    client = connect(serve(body), metrics=metrics)
    with client.watch(WIDGET) as stream, pytest.raises(DecodeError):
        list(stream.events())
    count = functools.partial(metrics.value, "kubernetes_client_watch_events_total", kind="widgets")
    assert [count(event_type=each) for each in ("ADDED", "DELETED", "MODIFIED")] == [1, 1, None]
    labels = {"error_type": "unparseable_object", "kind": "widgets"}
    assert metrics.value("kubernetes_client_watch_errors_total", **labels) == 1
    requested = {"status_code": "200", "verb": "WATCH", "kind": "widgets", "subresource": "spec"}
    assert metrics.value("kubernetes_client_requests_total", **requested) == 1
    duration = "kubernetes_client_request_duration_seconds_count"
    assert metrics.value(duration, **requested) is None, "a watch has none"


def test_an_observer_sees_each_attempt_and_its_headers_are_sent(serve, connect):
    class Seen:
        def __init__(self):
            self.requests = []

        def request_began(self, request):
            request.headers["traceparent"] = "00-1"

        def request_ended(self, request):
            self.requests.append(request)

        def call_began(self, call):
            raise AssertionError(call)

        call_ended = call_began

    seen = Seen()
    server = serve(failure(503), answer(widget()), answer(widget()))
    client = connect(server)
    end = c.ClientWrapper(client).observe_activity(seen)
    get(client)
    end()
    get(client)
    assert [
        (r.verb, r.resource, r.namespace, r.name, r.status, r.tries) for r in seen.requests
    ] == [
        ("get", "widgets.example.com", "x", "a", 503, 0),
        ("get", "widgets.example.com", "x", "a", 200, 1),
    ]
    assert seen.requests[0].error.startswith("ServiceUnavailable: ")
    assert all(request.seconds >= 0 for request in seen.requests)
    assert [r.header("traceparent") for r in server.requests] == ["00-1", "00-1", None]
