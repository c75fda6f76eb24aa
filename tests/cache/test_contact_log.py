"""What an informer says of long lists and of outages."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

import pytest

from appsdk_operator.cache import Informer
from appsdk_operator.cache._informer.contact_log import ContactLog
from appsdk_operator.resource import Kind, MutableObject, kinds
from appsdk_operator.runtime import ManualClock, StopSignal
from appsdk_operator.testing import MemoryServer


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[ContactLog]:
    with caplog.at_level(logging.INFO, "appsdk_operator.cache"):
        yield ContactLog(kinds.core.v1.Pod, " in red")


def test_a_long_list_is_a_line_after_two_seconds_and_then_every_five(
    log: ContactLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.begins(100.0)
    for second in range(1, 13):
        log.lists(second * 1000, 100.0 + second)
    log.has_synced(12_500, 112.5)
    assert caplog.messages == [
        "pods in red: listed 2,000 objects so far, 1,000 a second",
        "pods in red: listed 7,000 objects so far, 1,000 a second",
        "pods in red: listed 12,000 objects so far, 1,000 a second",
        "pods in red: synced, 12,500 objects in 12.5 s",
    ]


def test_a_line_about_a_list_in_pages_has_the_number_that_the_server_gives(
    log: ContactLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.begins(0.0)
    log.lists(500, 1.0, 49_500)
    log.lists(12_000, 3.0, 38_000)
    log.lists(50_000, 10.0, 0)
    assert caplog.messages == [
        "pods in red: listed 12,000 of about 50,000 objects, 4,000 a second",
        "pods in red: listed 50,000 objects so far, 5,000 a second",
    ]


def test_an_informer_tells_how_many_objects_its_first_list_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "appsdk_operator.cache")
    clock = ManualClock()
    with MemoryServer(clock=clock) as server:
        client = server.client()
        for number in range(5):
            client.create(
                MutableObject.new(kinds.core.v1.ConfigMap, f"c{number}", namespace="default")
            )
        informer = Informer(
            kinds.core.v1.ConfigMap, client, page_size=2, stream_first_sync=False, clock=clock
        )
        stop = StopSignal(clock=clock)
        while not informer.has_synced:
            informer.step(stop)
            clock.advance(3.0)
    assert caplog.messages == [
        "configmaps: listed 4 of about 5 objects, 1 a second",
        "configmaps: synced, 5 objects in 6 s",
    ]


def test_a_missing_crd_is_a_line_at_once_and_each_minute_with_the_command_that_installs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "appsdk_operator.cache")
    clock = ManualClock()
    with MemoryServer(clock=clock) as server:
        missing = Kind(group="example.com", version="v1", kind="Missing")
        informer = Informer(missing, server.client(), clock=clock)
        stop = StopSignal(clock=clock)
        times: list[float] = []
        while clock.monotonic() < 300.0:
            informer.step(stop)
            times += [clock.monotonic()] * (len(caplog.messages) - len(times))
            clock.advance(1.0)
    assert times[0] <= 2.0
    # A minute, and what is left of the pause between two tries.
    assert all(60.0 <= after - before <= 95.0 for before, after in itertools.pairwise(times))
    assert 4 <= len(times) <= 5
    for line in caplog.messages:
        assert line.startswith("the informer of missings.example.com: ")
        assert "appsdk-operator crds MODULE:APP -o - | kubectl apply -f -" in line


def test_a_server_that_cuts_each_watch_is_said_to_be_back_once(
    log: ContactLog, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(100):
        log.has_lost(float(second))
        log.follows(second + 0.5, is_stable=False)
    assert caplog.messages == ["pods in red: watches again, after an outage of 500 ms"]
    log.follows(101.0, is_stable=True)
    log.follows(102.0, is_stable=True)
    log.has_lost(200.0)
    log.follows(235.0, is_stable=True)
    assert caplog.messages[1:] == ["pods in red: watches again, after an outage of 35 s"]
