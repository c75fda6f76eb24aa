"""What an informer says of long lists and of outages."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from appsdk_operator.cache._informer.contact_log import ContactLog
from appsdk_operator.resource import kinds


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[ContactLog]:
    with caplog.at_level(logging.INFO, "appsdk_operator.cache"):
        yield ContactLog(kinds.core.v1.Pod, " in red")


def test_a_long_list_is_told_every_five_seconds(
    log: ContactLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.begins(100.0)
    for second in range(1, 13):
        log.lists(second * 1000, 100.0 + second)
    log.has_synced(12_500, 112.5)
    assert caplog.messages == [
        "pods in red: listed 5,000 objects so far, 1,000 a second",
        "pods in red: listed 10,000 objects so far, 1,000 a second",
        "pods in red: synced, 12,500 objects in 12.5 s",
    ]


def test_a_server_that_cuts_each_watch_is_said_to_be_back_once(
    log: ContactLog, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(100):
        log.has_lost(float(second))
        log.follows(second + 0.5, is_stable=False)
    assert caplog.messages == ["pods in red: in touch with the server again, after 500 ms"]
    log.follows(101.0, is_stable=True)
    log.follows(102.0, is_stable=True)
    log.has_lost(200.0)
    log.follows(235.0, is_stable=True)
    assert caplog.messages[1:] == ["pods in red: in touch with the server again, after 35 s"]
