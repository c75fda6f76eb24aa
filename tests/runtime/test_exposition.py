"""Pages of metrics are those of prometheus-client, byte by byte."""

from __future__ import annotations

import builtins
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import prometheus_client
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics import exposition as openmetrics_exposition
from prometheus_client.registry import CollectorRegistry

from appsdk_operator.runtime import (
    Family,
    LocalHistogram,
    Metrics,
    Sample,
    accepted_format,
    families_of,
    page_of,
    process_samples,
)
from appsdk_operator.runtime import _exposition as exposition

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;"
    "escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""What Prometheus 3 sends."""

_MOVING = ("process_open_fds", "process_cpu_seconds_total")

names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}(_total|_bucket|_created|_info)?", fullmatch=True)
label_names = st.from_regex(r"[a-kA-K_][a-z0-9_]{0,4}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8") | st.sampled_from('\\"\n{}=,'), max_size=12)
numbers = st.floats() | st.integers(-(10**18), 10**18) | st.sampled_from([1e6, 1234567.5, 1e21])
bounds = st.lists(st.floats(-10, 1e9), max_size=4, unique=True).map(sorted)


@st.composite
def families(draw: st.DrawFn) -> list[Sample]:
    name, type_ = draw(names), draw(st.sampled_from(["counter", "gauge", "histogram"]))
    labels = tuple(draw(st.lists(label_names, max_size=3, unique=True)))
    family = Family(name, type_, draw(texts), labels)
    found = []
    limits = draw(bounds)
    for _ in range(draw(st.integers(1, 3))):
        value: Any = draw(numbers)
        if type_ == "histogram":
            value = LocalHistogram(limits)
            for each in draw(st.lists(st.floats(-20, 1e10), max_size=5)):
                value.observe(each)
        found.append(Sample(family, tuple(draw(texts) for _ in labels), value))
    return found


class Registry:
    """What prometheus-client's encoders read."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Any:
        return families_of(self._samples)


HISTOGRAM = Sample(Family("x_total", "histogram", ""), (), LocalHistogram([]))
COUNTER, GAUGE = (Sample(Family("x_total", each, ""), (), 1.0) for each in ("counter", "gauge"))


@given(st.lists(families(), max_size=4, unique_by=lambda found: found[0].family.bare_name))
@example([[HISTOGRAM], [COUNTER]])
@example([[COUNTER], [HISTOGRAM]])
@example([[COUNTER], [GAUGE]])
def test_pages_are_those_of_prometheus_client(groups: list[list[Sample]]) -> None:
    samples = [sample for group in groups for sample in group]
    registry: Any = Registry(samples)
    assert page_of(samples) == prometheus_client.generate_latest(registry)
    modern = openmetrics_exposition.generate_latest(registry)
    assert page_of(samples, is_openmetrics=True) == modern


accepted_headers = st.lists(
    st.tuples(
        st.sampled_from(
            ["application/openmetrics-text", "text/plain", " text/plain ", "*/*", "text/html", ""]
        ),
        st.lists(
            st.sampled_from(
                [
                    *("version=1.0.0", "version=0.0.4", "version=0.0.1", " version=2.0.0"),
                    *("version=1", "version=1.0", "version=", "q=0.5", "charset=utf-8"),
                    *("escaping=allow-utf-8", "escaping=underscores", "escaping=other", "x"),
                ]
            ),
            max_size=3,
        ),
    ).map(lambda entry: ";".join([entry[0], *entry[1]])),
    max_size=4,
).map(",".join)


@given(accepted_headers)
def test_formats_are_chosen_as_by_prometheus_client(accepted: str) -> None:
    samples = [Sample(Family("demo_total", "counter", 'A "demo".', ("who",)), ("me",), 2)]
    registry: Any = Registry(samples)
    encode, content_type = choose_encoder(accepted)
    found = accepted_format(accepted)
    assert found is not None
    is_openmetrics, own_type = found
    assert own_type == content_type
    assert page_of(samples, is_openmetrics=is_openmetrics) == encode(registry)


@pytest.mark.parametrize(
    ("accepted", "is_openmetrics"),
    [
        (PROMETHEUS, True),
        ("application/openmetrics-text;version=a.b, text/plain;version=1.0.0", False),
        ("text/plain;version=" + "9" * 5000, False),
        ("text/plain;version=²", False),
    ],
)
def test_versions_that_cannot_be_read_are_skipped(accepted: str, is_openmetrics: bool) -> None:
    found = accepted_format(accepted)
    assert found is not None
    assert found[0] is is_openmetrics


@pytest.mark.parametrize("escaping", ["dots", "values"])
def test_escaping_that_changes_plain_names_is_left_to_prometheus_client(escaping: str) -> None:
    assert accepted_format(f"text/plain;version=1.0.0;escaping={escaping}") is None


@pytest.mark.parametrize("family", [Family("a:b", "gauge", ""), Family("a", "gauge", "", ("é",))])
def test_names_that_need_escaping_are_left_to_prometheus_client(family: Family) -> None:
    assert page_of([Sample(family, ("x",) * len(family.labels), 1)]) is None


def test_metrics_with_such_names_are_rendered_all_the_same() -> None:
    metrics = Metrics()
    metrics.count(Family("a:b_total", "counter", "Colons."), ())
    assert "a:b_total 1.0" in metrics.render()
    assert metrics.has_registry


def test_the_process_is_told_as_by_prometheus_client() -> None:
    registry = CollectorRegistry()
    prometheus_client.GCCollector(registry=registry)
    prometheus_client.PlatformCollector(registry=registry)
    prometheus_client.ProcessCollector(registry=registry)
    theirs = list(registry.collect())
    own = families_of(process_samples())
    assert [(each.name, each.type, each.documentation) for each in own] == [
        (each.name, each.type, each.documentation) for each in theirs
    ]
    for mine, other in zip(own, theirs, strict=True):
        assert [(s.name, s.labels) for s in mine.samples] == [
            (s.name, s.labels) for s in other.samples
        ]
    values = {sample.name: sample.value for each in theirs for sample in each.samples}
    for each in own:
        for sample in each.samples:
            if sample.name.startswith("process_") and sample.name not in _MOVING:
                assert sample.value == pytest.approx(values[sample.name], rel=0.5)


@pytest.mark.parametrize("absent", ["/proc/stat", "/proc/self/stat", "/proc/self/limits"])
def test_what_the_system_does_not_tell_is_left_out(
    absent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = builtins.open

    def refuse(path: Any, *args: Any, **options: Any) -> Any:
        if path == absent:
            raise FileNotFoundError(path)
        return opened(path, *args, **options)

    monkeypatch.setattr(builtins, "open", refuse)
    found = {sample.family.name for sample in process_samples()}
    assert "python_info" in found
    assert ("process_cpu_seconds_total" in found) is (absent == "/proc/self/limits")
    assert "process_max_fds" not in found


def test_no_limit_on_files_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    read = exposition._read

    def unlimited(path: str) -> str:
        if path.endswith("limits"):
            return "Max open files            unlimited            unlimited            files\n"
        return read(path)

    monkeypatch.setattr(exposition, "_read", unlimited)
    found = {sample.family.name for sample in process_samples()}
    assert "process_cpu_seconds_total" in found
    assert "process_max_fds" not in found


def test_other_interpreters_tell_nothing_of_their_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "python_implementation", lambda: "PyPy")
    assert not any(each.family.name.startswith("python_gc") for each in process_samples())


def test_a_system_without_these_numbers_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sysconf")
    assert not any(each.family.name.startswith("process_") for each in process_samples())


def test_a_scrape_loads_no_http_client_and_no_mail() -> None:
    code = """
import sys
from appsdk_operator.manager import MetricsServer, MetricsServerOptions
from appsdk_operator.serving import HTTPRequest
server = MetricsServer(MetricsServerOptions(address="127.0.0.1:0"))
headers = {"accept": sys.argv[1], "accept-encoding": "gzip"}
answer = server._serve(HTTPRequest(method="GET", path="/metrics", headers=headers))
server.close()
assert answer.status == 200 and answer.body[:2] == b"\\x1f\\x8b"
heavy = {"prometheus_client", "http.client", "http.server", "email", "urllib.request", "gzip"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, PROMETHEUS], check=True, timeout=60)
