"""Spans on their way to a collector, and programs that send none."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from appsdk_operator import App, MutableObject, kinds
from appsdk_operator.app import ExitStatus, RunOptions, run_program
from appsdk_operator.client import Client
from appsdk_operator.runtime import RequestRecord, StopSignal
from appsdk_operator.testing import APIServer
from appsdk_operator.tracing import otlp_tracing


class Collector:
    """A collector that keeps what it gets, as OTLP over HTTP has it."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.services: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                collector.keep(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def keep(self, request: ExportTraceServiceRequest) -> None:
        for group in request.resource_spans:
            for attribute in group.resource.attributes:
                if attribute.key == "service.name":
                    self.services.add(attribute.value.string_value)
            for scope in group.scope_spans:
                self.names += [span.name for span in scope.spans]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
    yield made
    made.close()


def a_request() -> RequestRecord:
    return RequestRecord(method="GET", verb="get", resource="pods", name="web")


def test_what_was_recorded_has_arrived_at_the_end(collector):
    with otlp_tracing("tracing-operator") as tracing:
        request = a_request()
        tracing.request_began(request)
        tracing.request_ended(request)
        assert request.headers["traceparent"]
    assert collector.names == ["get pods"]
    assert collector.services == {"tracing-operator"}


_EARLY = trace.get_tracer("imported before")


@_EARLY.start_as_current_span("early")
def early() -> None: ...


@pytest.mark.parametrize("run", ["first", "second"])
def test_spans_of_the_programs_own_functions_arrive_in_each_block(collector, run):
    with otlp_tracing(run):
        tracer = trace.get_tracer("mine")

        @tracer.start_as_current_span("sync")
        def plain() -> None:
            tracer.start_span("within").end()

        @tracer.start_as_current_span("async")
        async def coroutine() -> bool:
            return trace.get_current_span().is_recording()

        early()
        plain()
        assert asyncio.run(coroutine())
    early()
    assert collector.names == ["early", "within", "sync", "async"]
    assert collector.services == {run}


def test_of_two_blocks_at_a_time_the_later_one_gets_the_programs_spans(collector):
    with contextlib.ExitStack() as first:
        first.enter_context(otlp_tracing("first"))
        with otlp_tracing("second"):
            first.close()
            early()
        assert collector.services == {"second"}


def test_the_environment_may_name_the_service(collector, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with otlp_tracing("tracing-operator") as tracing:
        request = a_request()
        tracing.request_began(request)
        tracing.request_ended(request)
    assert collector.services == {"mine"}


def test_log_records_name_their_span_within_the_block(collector, monkeypatch):
    handler = logging.Handler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    with otlp_tracing("tracing-operator"):
        assert len(handler.filters) == 1
    assert not handler.filters


def test_a_program_with_the_option_sends_its_spans(collector):
    app = App("tracing-operator")
    stop = StopSignal()

    @app.on_add(kinds.core.v1.ConfigMap)
    def seen(obj: object) -> None:
        stop.set()

    with APIServer() as server, Client(server.client_config()) as client:
        client.create(MutableObject.new(kinds.core.v1.ConfigMap, "a", namespace="default"))
        options = RunOptions.from_environment({"APPSDK_TRACING": "true"})
        status = run_program(app, options, config=server.client_config(), stop=stop)
    assert status is ExitStatus.STOPPED
    assert any(name.endswith(".seen") for name in collector.names), collector.names


def test_a_program_without_the_option_imports_nothing_of_it():
    program = """
import sys
from appsdk_operator import App, kinds
from appsdk_operator.app import RunOptions, run_program
from appsdk_operator.runtime import StopSignal
from appsdk_operator.testing import APIServer

app, stop = App("plain-operator"), StopSignal()

@app.task
def end(_):
    stop.set()

with APIServer() as server:
    run_program(app, RunOptions(), config=server.client_config(), stop=stop)
sys.exit(any(name.startswith("opentelemetry") for name in sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_program_without_the_packages_says_what_to_install(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("appsdk_operator.tracing")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("appsdk_operator.app")
    logger.addHandler(handler)
    try:
        with APIServer() as server:
            status = run_program(
                App("plain-operator"), RunOptions(tracing=True), config=server.client_config()
            )
    finally:
        logger.removeHandler(handler)
    assert status is ExitStatus.NOT_STARTED
    assert "pip install 'appsdk-operator[tracing]'" in records[-1].getMessage()
