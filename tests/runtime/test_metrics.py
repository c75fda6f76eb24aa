"""Metrics: counted for nothing, merged at the scrape, never falling."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse

from appsdk_operator.runtime import (
    Family,
    LocalHistogram,
    Metrics,
    Sample,
    WorkQueue,
    default_metrics,
)

EVENTS = Family("demo_events_total", "counter", "Events.", ("kind",))
SIZE = Family("demo_size", "gauge", "Size.")
TIME = Family("demo_seconds", "histogram", "Time.", ("kind",))


class Part:
    """What a part of the kit does: plain attributes, handed over at a scrape."""

    def __init__(self, metrics: Metrics, kind: str = "a") -> None:
        self.kind = kind
        self.events = 0
        self.times = LocalHistogram([0.1, 1.0])
        self.retire = metrics.add_source(self.samples)

    def samples(self) -> list[Sample]:
        return [
            Sample(EVENTS, (self.kind,), self.events),
            Sample(SIZE, (), 1),
            Sample(TIME, (self.kind,), self.times.plus(LocalHistogram([0.1, 1.0]))),
        ]


def test_an_observation_goes_into_the_first_bucket_that_holds_it() -> None:
    histogram = LocalHistogram([1.0, 2.0])
    for value in (0.5, 1.0, 1.5, 2.0, 99.0):
        histogram.observe(value)
    assert histogram.cumulative() == [("1.0", 2.0), ("2.0", 4.0), ("+Inf", 5.0)]
    assert histogram.total == 104.0


def test_histograms_add_up_without_changing() -> None:
    one, other = LocalHistogram([1.0]), LocalHistogram([1.0])
    one.observe(0.5)
    other.observe(3.0)
    both = one.plus(other)
    assert (both.counts, both.total) == ([1, 1], 3.5)
    assert (one.counts, other.counts) == ([1, 0], [0, 1])


def test_instruments_are_shared_by_name() -> None:
    metrics = Metrics()
    metrics.counter("x_total", "X.", ["who"]).labels("a").inc()
    metrics.counter("x_total", "X.", ["who"]).labels("a").inc()
    metrics.gauge("y", "Y.").set(3)
    metrics.histogram("z", "Z.", buckets=[1.0]).observe(0.5)
    assert metrics.histogram("z", "Z.", buckets=[1.0]) is metrics.histogram("z", "", buckets=[1.0])
    assert metrics.value("x_total", who="a") == 2
    assert metrics.value("y") == 3
    assert metrics.value("z_bucket", le="1.0") == 1
    assert metrics.value("x_total", who="nobody") is None


def test_a_label_may_be_called_name() -> None:
    metrics = Metrics()
    metrics.gauge("y", "Y.", ["name"]).labels("n").set(3)
    assert metrics.value("y", name="n") == 3


def test_a_name_cannot_be_two_things() -> None:
    metrics = Metrics()
    metrics.counter("x_total", "X.", ["who"])
    with pytest.raises(ValueError, match=r"'x_total' is in use as a counter with labels \['who'\]"):
        metrics.gauge("x_total", "X.", ["who"])
    with pytest.raises(ValueError, match="choose another name"):
        metrics.counter("x_total", "X.")


def test_samples_of_several_parts_are_one_family_and_one_sum() -> None:
    metrics = Metrics()
    one, other, different = Part(metrics), Part(metrics), Part(metrics, "b")
    one.events, other.events, different.events = 1, 2, 4
    one.times.observe(0.05)
    other.times.observe(5.0)
    assert metrics.value("demo_events_total", kind="a") == 3
    assert metrics.value("demo_events_total", kind="b") == 4
    assert metrics.value("demo_size") == 3
    assert metrics.value("demo_seconds_count", kind="a") == 2
    assert metrics.value("demo_seconds_sum", kind="a") == 5.05
    assert metrics.render().count("# TYPE demo_events_total counter") == 1


def test_what_a_retired_part_counted_stays_and_its_gauges_go() -> None:
    metrics = Metrics()
    one, other = Part(metrics), Part(metrics)
    one.events, other.events = 1, 2
    one.times.observe(0.5)
    one.retire()
    one.retire()
    one.events = 100
    other.events = 5
    assert metrics.value("demo_events_total", kind="a") == 6
    assert metrics.value("demo_seconds_count", kind="a") == 1
    assert metrics.value("demo_size") == 1
    assert len(metrics._sources) == 1


def test_what_no_part_keeps_is_counted_at_once_and_added_to_what_parts_tell() -> None:
    metrics = Metrics()
    sizes = Family("demo_sizes", "histogram", "Sizes.", ("kind",), (1.0, 10.0))
    part = Part(metrics)
    part.events = 3
    metrics.count(EVENTS, ("a",))
    metrics.count(EVENTS, ("a",), 2)
    metrics.observe(sizes, ("a",), 5.0)
    before = metrics.render()
    metrics.observe(sizes, ("a",), 50.0)
    assert metrics.value("demo_events_total", kind="a") == 6
    assert metrics.value("demo_sizes_bucket", kind="a", le="10.0") == 1
    assert metrics.value("demo_sizes_count", kind="a") == 2
    assert metrics.value("demo_sizes_sum", kind="a") == 55
    assert 'demo_sizes_count{kind="a"} 1.0' in before


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_a_source_that_fails_hides_no_other_and_ends_without_an_error(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()

    def samples() -> Iterator[Sample]:
        yield Sample(SIZE, (), 5)
        raise error

    part = Part(metrics)
    part.events = 3
    retire = metrics.add_source(samples)
    assert metrics.value("demo_events_total", kind="a") == 3
    assert metrics.value("demo_size") == 1
    assert "a source of metrics failed" in caplog.text
    retire()
    assert metrics.value("demo_events_total", kind="a") == 3


def test_many_threads_count_without_losing_one() -> None:
    metrics = Metrics()
    sizes = Family("demo_sizes", "histogram", "Sizes.", (), (1.0,))

    def count() -> None:
        for _ in range(1000):
            metrics.count(EVENTS, ("a",))
            metrics.observe(sizes, (), 0.5)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.value("demo_events_total", kind="a") == 8000
    assert metrics.value("demo_sizes_count") == 8000


def test_a_scrape_while_a_part_retires_sees_no_counter_fall() -> None:
    metrics = Metrics()
    scraped: list[float | None] = []

    def samples() -> list[Sample]:
        if not scraped:  # a scrape, just when the retiring part hands over its numbers
            scraped.append(None)
            scraped[0] = metrics.value("demo_events_total", kind="a")
        return [Sample(EVENTS, ("a",), 3)]

    metrics.add_source(samples)()
    assert scraped == [3]
    assert metrics.value("demo_events_total", kind="a") == 3


def test_a_part_that_was_dropped_without_a_stop_is_not_kept_alive() -> None:
    metrics = Metrics()
    part = Part(metrics)
    gone = weakref.ref(part)
    del part
    gc.collect()
    assert gone() is None
    assert metrics.value("demo_size") is None


def test_what_is_rendered_is_accepted_by_the_parsers_of_both_formats() -> None:
    metrics = Metrics()
    queue = WorkQueue[str]('odd "name"\n\\', metrics=metrics)
    queue.add("a", priority=-3)
    queue.try_get()
    queue.done("a")
    metrics.histogram("h", "H.", ["x"], buckets=[0.5]).labels("é").observe(1)
    families = {family.name: family for family in parse(metrics.render())}
    adds = families["workqueue_adds"].samples[0]
    assert (adds.labels["name"], adds.value) == ('odd "name"\n\\', 1.0)
    assert families["workqueue_work_duration_seconds"].type == "histogram"
    assert families["workqueue_depth"].type == "gauge"
    text = generate_openmetrics(metrics.registry).decode()
    openmetrics = {family.name: family for family in parse_openmetrics(text)}
    assert {"workqueue_adds", "workqueue_depth", "workqueue_queue_duration_seconds", "h"} <= set(
        openmetrics
    )


def test_bucket_bounds_are_those_of_controller_runtime() -> None:
    metrics = Metrics()
    queue = WorkQueue[str]("q", metrics=metrics)
    [family] = [f for f in parse(metrics.render()) if f.name == "workqueue_queue_duration_seconds"]
    bounds = [s.labels["le"] for s in family.samples if s.name.endswith("_bucket")]
    assert [float(bound) for bound in bounds] == pytest.approx(
        [10e-9 * 10**n for n in range(12)] + [float("inf")]
    )
    queue.shut_down()


def test_two_metrics_in_one_process_do_not_collide() -> None:
    one, other = Metrics(), Metrics()
    one.counter("x_total", "X.").inc()
    other.counter("x_total", "X.")
    assert (one.value("x_total"), other.value("x_total")) == (1, 0)
    assert one.registry is not other.registry
    assert default_metrics() is default_metrics()


def test_a_registry_of_ones_own_carries_everything() -> None:
    registry = CollectorRegistry(auto_describe=True)
    metrics = Metrics(registry)
    part = Part(metrics)
    part.events = 3
    assert metrics.registry is registry
    assert registry.get_sample_value("demo_events_total", {"kind": "a"}) == 3


def test_a_source_may_be_added_under_the_lock_that_it_takes() -> None:
    metrics, lock = Metrics(), threading.Lock()

    def samples() -> list[Sample]:
        with lock:
            return [Sample(SIZE, (), 1)]

    with lock:
        retire = metrics.add_source(samples)
    assert metrics.value("demo_size") == 1
    retire()


@pytest.mark.stress
def test_scraping_adding_and_retiring_from_many_threads_never_lets_a_total_fall() -> None:
    metrics = Metrics()
    stop = threading.Event()
    falls: list[tuple[float, float]] = []

    def work(n: int) -> None:
        for _ in range(60):
            part = Part(metrics, f"k{n % 2}")
            part.events = 1
            metrics.counter("shared_total", "Shared.").inc()
            part.retire()

    def scrape() -> None:
        last = 0.0
        while not stop.is_set():
            total = sum(metrics.value("demo_events_total", kind=f"k{n}") or 0 for n in range(2))
            if total < last:
                falls.append((last, total))
            last = total

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    scraper = threading.Thread(target=scrape)
    for thread in [scraper, *workers]:
        thread.start()
    for thread in workers:
        thread.join()
    stop.set()
    scraper.join()
    assert falls == []
    assert metrics.value("shared_total") == 240
    assert metrics.value("demo_events_total", kind="k0") == 120


def test_prometheus_client_is_imported_for_a_registry_and_not_before() -> None:
    code = """
import sys
from appsdk_operator.runtime import Metrics, WorkQueue, default_metrics
metrics = Metrics()
queue = WorkQueue("q", metrics=metrics)
queue.add("a"); queue.get(); queue.done("a"); queue.shut_down()
default_metrics()
assert "prometheus_client" not in sys.modules, "imported too early"
assert "" != metrics.render()
assert "prometheus_client" not in sys.modules, "imported for the kit's own metrics"
assert metrics.registry is not None and metrics.has_registry
assert "prometheus_client" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_rooms_import_nothing_heavy() -> None:
    code = """
import sys
import appsdk_operator.runtime, appsdk_operator.resource
heavy = {"kubernetes", "prometheus_client", "urllib3"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
