"""The metrics endpoint: its formats, its neighbours, and who may read it."""

from __future__ import annotations

import contextlib
import gzip
import ssl
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse

from appsdk_operator.manager import (
    HTTPHandler,
    HTTPRequest,
    HTTPResponse,
    MetricsServer,
    MetricsServerOptions,
    TLSOptions,
)
from appsdk_operator.runtime import Family, LocalHistogram, Metrics, Sample

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def make(metrics: Metrics | None = None, client: Any = None, **options: Any) -> MetricsServer:
    return MetricsServer(
        MetricsServerOptions(address="127.0.0.1:0", **options),
        metrics=metrics or Metrics(),
        client=client,
    )


def filled() -> Metrics:
    """One of each type; counters that never counted, too."""
    metrics = Metrics()
    metrics.counter("backups_total", "Backups made.", ["result"]).labels('o"k\n').inc(3)
    metrics.counter("never_total", "What never happened.")
    histogram = LocalHistogram((0.1, 1.0))
    histogram.observe(0.5)
    families = [
        Family("depth", "gauge", "How deep: ü\nand so on.", ("name",)),
        Family("seconds", "histogram", "How long."),
        Family("zero_total", "counter", "Nothing yet.", ("kind",)),
    ]

    def source() -> list[Sample]:
        return [
            Sample(families[0], ("a",), 2.0),
            Sample(families[1], (), histogram),
            Sample(families[2], ("pods.v1",), 0.0),
        ]

    metrics.add_source(source)
    return metrics


def samples(families: Any) -> dict[str, float]:
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_prometheus_own_parsers_accept_both_formats(serve: Any) -> None:
    served = serve(make(filled()))
    plain = served.get("/metrics")
    assert plain.status == 200
    assert plain.headers["content-type"].startswith("text/plain; version=")
    found = samples(parse(plain.body.decode()))
    assert found["backups_total"] == 3.0
    assert (found["depth"], found["seconds_count"], found["seconds_sum"]) == (2.0, 1.0, 0.5)
    modern = served.get("/metrics", Accept=OPENMETRICS)
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert modern.text.endswith("# EOF\n")
    assert samples(parse_openmetrics(modern.body.decode()))["backups_total"] == 3.0
    assert modern.headers["vary"] == "Accept, Accept-Encoding"


def test_series_exist_at_0(serve: Any) -> None:
    found = samples(parse(serve(make(filled())).get("/metrics").body.decode()))
    assert (found["never_total"], found["zero_total"]) == (0.0, 0.0)


def test_answers_are_compressed_for_those_who_ask(serve: Any) -> None:
    served = serve(make(filled()))
    for accepted in ("gzip", "deflate, GZIP;q=0.5", "*"):
        answer = served.get("/metrics", Accept_Encoding=accepted)
        assert answer.headers["content-encoding"] == "gzip"
        assert b"backups_total" in gzip.decompress(answer.body)
    for accepted in ("identity", "gzip;q=0", "br"):
        assert "content-encoding" not in served.get("/metrics", Accept_Encoding=accepted).headers
    small = serve(make(process_metrics=False))
    assert small.get("/metrics", Accept_Encoding="gzip").body == b""


def test_the_process_is_measured_and_nothing_twice(serve: Any) -> None:
    found = samples(parse(serve(make()).get("/metrics").body.decode()))
    assert found["process_resident_memory_bytes"] > 0
    assert "python_gc_collections_total" in found
    assert "python_info" in found
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    text = serve(make(Metrics(registry))).get("/metrics").text
    assert text.count("# TYPE process_open_fds gauge") == 1
    assert serve(make(process_metrics=False)).get("/metrics").text == ""


def test_a_source_with_metrics_of_the_process_replaces_the_kits(serve: Any) -> None:
    server = make()
    family = Family("process_open_fds", "gauge", "Mine.")
    server._metrics.add_source(lambda: [Sample(family, (), 7)])
    lines = serve(server).get("/metrics").text.splitlines()
    assert [each for each in lines if each.startswith("process_open_fds")] == [
        "process_open_fds 7.0"
    ]


def test_it_serves_nothing_but_metrics_and_added_handlers(serve: Any) -> None:
    def extra(request: HTTPRequest) -> HTTPResponse:
        return HTTPResponse(body=b"extra")

    server = make(extra_handlers={"/extra": extra})
    served = serve(server)
    server.add_handler("/late", extra)
    assert served.get("/extra").text == served.get("/late").text == "extra"
    for path in ("/", "/metrics/", "/metrics/x", "/healthz", "/debug/threads", "/extra/x"):
        assert served.get(path).status == 404
    assert served.get("/metrics", "HEAD").text == ""
    assert served.get("/metrics", "POST", b"").status == 405
    for path in ("/extra", "/late"):
        with pytest.raises(ValueError, match="has a handler already"):
            server.add_handler(path, extra)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
def test_the_metrics_own_path_is_refused_for_others(path: str) -> None:
    with pytest.raises(ValueError, match="is where the metrics are: choose another path"):
        make(extra_handlers={path: lambda request: HTTPResponse()})
    server = make()
    with contextlib.closing(server), pytest.raises(ValueError, match="is where the metrics are"):
        server.add_handler(path, lambda request: HTTPResponse())
    with pytest.raises(ValueError, match="does not begin with a slash"):
        make(extra_handlers={"x": lambda request: HTTPResponse()})


def test_an_extra_handler_that_cannot_be_called_leaves_no_port_open() -> None:
    with pytest.raises(TypeError, match="cannot be called"):
        make(extra_handlers={"/x": None})  # the leak check looks for the socket


def test_a_taken_port_is_an_error_at_construction_plain_and_with_tls() -> None:
    server = make()
    with contextlib.closing(server):
        for tls in (None, TLSOptions()):
            with pytest.raises(OSError, match="the metrics server cannot listen on"):
                MetricsServer(MetricsServerOptions(address=server.address, tls=tls))
    assert repr(server) == f"<metrics server on {server.address}>"


@pytest.mark.parametrize("address", ["", "0"])
def test_an_address_may_switch_it_off(address: str) -> None:
    options = MetricsServerOptions(address=address)
    assert not options.is_enabled
    with pytest.raises(ValueError, match="means no server"):
        MetricsServer(options)


def test_it_listens_on_loopback_unless_told_otherwise() -> None:
    assert MetricsServerOptions().address == "127.0.0.1:8080"
    assert MetricsServerOptions().is_enabled
    with pytest.raises(ValueError, match="is not an address"):
        MetricsServerOptions(address="8080")


def test_it_is_served_with_tls(serve: Any) -> None:
    server = make(filled(), tls=TLSOptions(), only_serve_when_leader=True)
    assert server.needs_leader_election
    assert server.url.startswith("https://")
    authority = server.certificates.pem.decode()  # type: ignore[union-attr]
    context = ssl.create_default_context(cadata=authority)
    assert "backups_total" in serve(server).get("/metrics", context=context).text


def test_a_filter_stands_before_every_handler_and_is_closed_with_the_server(serve: Any) -> None:
    class Door:
        is_closed = False

        def __init__(self, client: object) -> None:
            self.client = client

        def __call__(self, handler: HTTPHandler | None) -> HTTPHandler | None:
            if handler is None:
                return None

            def guarded(request: HTTPRequest) -> HTTPResponse:
                known = request.headers.get("authorization") == "Bearer x"
                return handler(request) if known else HTTPResponse(status=401)

            return guarded

        def close(self) -> None:
            self.is_closed = True

    doors: list[Door] = []

    def provider(client: Any) -> Any:
        doors.append(Door(client))
        return doors[-1]

    extra = {"/extra": lambda request: HTTPResponse(body=b"extra")}
    client: Any = object()
    served = serve(make(client=client, filter_provider=provider, extra_handlers=extra))
    for path in ("/metrics", "/extra"):
        assert served.get(path).status == 401
        assert served.get(path, Authorization="Bearer x").status == 200
    served.end()
    assert (doors[0].client, doors[0].is_closed) == (client, True)
    with pytest.raises(ValueError, match="needs a client of the cluster: give client="):
        make(filter_provider=provider)
    with pytest.raises(TypeError, match="cannot be called"):  # closed all the same
        make(client=client, filter_provider=provider, extra_handlers={"/extra": None})
    assert doors[1].is_closed


def test_a_source_that_fails_hides_no_other_from_the_scrape(serve: Any) -> None:
    metrics = Metrics()
    forget = metrics.add_source(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    metrics.add_source(lambda: [Sample(Family("alive", "gauge", "Whether it is."), (), 1.0)])
    served = serve(make(metrics))
    page = served.get("/metrics")
    assert page.status == 200
    assert "alive 1.0" in page.text
    forget()
    assert served.get("/metrics").status == 200


@pytest.mark.parametrize(
    "accepted",
    [
        "application/openmetrics-text;version=a.b.c",
        "application/openmetrics-text;version=",
        "application/openmetrics-text;version=" + "9" * 5000,
        "text/plain;version=a.b.c",
        "text/plain;version=1.x, text/plain;version=²",
        "application/openmetrics-text; version=1.0.0; escaping=nothing-known",
    ],
)
def test_whatever_version_a_scraper_asks_for_it_gets_a_page(serve: Any, accepted: str) -> None:
    served = serve(MetricsServer(MetricsServerOptions(address="127.0.0.1:0"), metrics=Metrics()))
    answer = served.get("/metrics", Accept=accepted)
    assert answer.status == 200
    assert "python_info" in answer.text


def test_malformed_entries_of_accept_are_skipped(serve: Any) -> None:
    served = serve(MetricsServer(MetricsServerOptions(address="127.0.0.1:0"), metrics=Metrics()))
    accepted = "text/plain;version=a.b.c, application/openmetrics-text;version=1.0.0"
    assert served.get("/metrics", Accept=accepted).text.endswith("# EOF\n")
