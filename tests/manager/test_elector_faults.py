"""An elector whose client hangs, whose Lease is nonsense, and which gets no threads."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from appsdk_operator.manager import LeadershipLost
from appsdk_operator.runtime import ThreadGroup
from tests.manager.lease_fakes import FakeLeases, Running
from tests.waiting import eventually


def requests_that_hang() -> int:
    return sum(thread.name == "elector/request" for thread in threading.enumerate())


def test_a_client_that_hangs_for_ever_does_not_get_a_thread_for_each_try(
    leases: FakeLeases, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    gate.clear()
    running = Running(leases).start()
    running.advance_until(lambda: "8 requests hang" in caplog.text)
    said = len(caplog.records)
    for _ in range(300):
        running.clock.advance(1.0)
        running.pause.wait(0.001)
    assert requests_that_hang() == 8
    assert len(caplog.records) == said, "it is said once"
    assert not running.elector.health().is_ready
    gate.set()
    running.advance_until(running.started.is_set)
    running.stop()


@pytest.mark.parametrize("releases", [False, True])
def test_a_stop_does_not_wait_for_requests_that_hang(
    leases: FakeLeases, gate: threading.Event, releases: bool
) -> None:
    running = Running(leases, release_on_cancel=releases).lead()
    gate.clear()
    running.advance_until(lambda: requests_that_hang() == 1)
    running.stop_signal.set()
    running.advance_until(lambda: not running.thread.is_alive())
    assert requests_that_hang() >= 1
    gate.set()
    running.end()


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_a_lack_of_threads_is_a_request_that_failed(
    leases: FakeLeases,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
) -> None:
    running = Running(leases).lead()
    start = ThreadGroup.start
    refused: list[str] = []

    def refuse(group: ThreadGroup, name: str, target: Any) -> Any:
        if name == "request" and len(refused) < 2:
            refused.append(name)
            raise error("can't start new thread")
        return start(group, name, target)

    before = len(leases.calls)
    monkeypatch.setattr(ThreadGroup, "start", refuse)
    running.advance_until(lambda: len(leases.calls) > before)
    assert running.elector.is_leader
    assert "no thread for a request: can't start new thread" in caplog.text
    running.stop()


def test_the_term_of_who_has_lost_stays_its_own(leases: FakeLeases) -> None:
    # Or its late writes to another system would carry the number of its successor.
    running = Running(leases).lead()
    assert running.elector.term == 0
    leases.put("lock", "them", leaseTransitions=7)
    running.advance_until(lambda: not running.thread.is_alive())
    running.end()
    assert isinstance(running.error, LeadershipLost)
    assert running.elector.leader == "them"
    assert running.elector.term == 0


def test_the_term_of_a_standby_is_that_of_the_leader(leases: FakeLeases) -> None:
    leases.put("lock", "them", leaseTransitions=7)
    running = Running(leases).start()
    assert eventually(lambda: running.elector.leader == "them")
    assert running.elector.term == 7
    running.advance_until(running.started.is_set)
    assert running.elector.term == 8
    running.stop()


@pytest.mark.parametrize(
    "spec",
    [
        {"leaseDurationSeconds": "15s"},
        {"leaseDurationSeconds": None, "renewTime": None, "leaseTransitions": None},
        {"leaseTransitions": "many", "renewTime": 5, "acquireTime": ["x"]},
        {"holderIdentity": 17},
    ],
)
def test_nonsense_in_a_lease_ends_no_election(
    leases: FakeLeases, spec: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    leases.put("lock", "them", **spec)
    running = Running(leases).start()
    assert eventually(lambda: running.elector.leader)
    since = running.clock.monotonic()
    running.advance_until(lambda: running.started.is_set() or running.error)
    assert running.error is None
    assert running.clock.monotonic() - since >= 14.5, "it counts as long as an own"
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    running.stop()


def test_a_lease_that_counts_for_no_time_is_taken_at_once(leases: FakeLeases) -> None:
    leases.put("lock", "them", leaseDurationSeconds=0)
    running = Running(leases).lead()
    assert leases.calls == ["get", "update"]
    running.stop()


def test_whatever_ends_the_run_ends_the_lead_too(
    leases: FakeLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody would renew the Lease any more, and another would take it over.
    running = Running(leases).lead()

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(running.elector, "_step", interrupt)
    running.advance_until(lambda: not running.thread.is_alive())
    assert isinstance(running.error, KeyboardInterrupt)
    assert not running.elector.is_leader
    with pytest.raises(LeadershipLost):
        running.elector.check_write()
