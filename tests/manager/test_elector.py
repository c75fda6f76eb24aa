"""An elector in a thread, on Leases in memory and a clock moved by hand."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from appsdk_operator.manager import Elector, LeaderElection, LeadershipLost
from appsdk_operator.runtime import ManualClock, StopSignal
from tests.manager.lease_fakes import PATIENCE, FakeLeases, Running, answer
from tests.waiting import eventually


def test_a_candidate_makes_the_lease_and_leads(leases: FakeLeases) -> None:
    running = Running(leases, labels={"app": "mine"}).lead()
    assert running.elector.is_leader
    assert running.elector.may_write()
    assert running.elector.leader == "me"
    assert leases.calls == ["get", "create"]
    lease = leases.leases["lock"]
    assert dict(lease.labels) == {"app": "mine"}
    assert dict(lease.spec) == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2023-11-14T22:13:20.000000Z",
        "renewTime": "2023-11-14T22:13:20.000000Z",
        "leaseTransitions": 0,
    }
    running.stop()
    assert not running.elector.is_leader
    assert leases.holder() == "me", "it runs out by itself"
    assert eventually(lambda: running.leaders == ["me"])
    assert running.events == ["me became leader", "me stopped leading"]


def test_an_identity_is_made_of_the_hosts_name_and_is_never_the_same_twice(
    leases: FakeLeases,
) -> None:
    options = LeaderElection(id="lock", namespace="ops")
    first, second = Elector(leases, options), Elector(leases, options)
    assert first.identity != second.identity
    assert "_" in first.identity


def test_labels_and_fields_of_others_stay_on_the_lease(leases: FakeLeases) -> None:
    leases.put("lock", "", strategy="OldestEmulationVersion")
    leases.touch("lock", theirs="kept")
    running = Running(leases, labels={"app": "mine"}).lead()
    assert running.metrics.value("leader_election_lease_transitions", name="lock") == 1.0
    running.stop()
    lease = leases.leases["lock"]
    assert dict(lease.labels) == {"theirs": "kept", "app": "mine"}
    assert lease.spec["strategy"] == "OldestEmulationVersion"
    assert lease.spec["leaseTransitions"] == 1


def test_a_renewal_is_one_update_each_retry_period(leases: FakeLeases) -> None:
    running = Running(leases).lead()
    running.advance_until(lambda: len(leases.calls) == 7)
    assert running.clock.monotonic() >= 1010.0
    running.stop()
    assert leases.calls == ["get", "create", *["update"] * 5]
    assert running.metrics.value("leader_election_slowpath_total", name="lock") == 0.0


def test_a_lease_that_somebody_labels_is_renewed_by_the_slow_path(leases: FakeLeases) -> None:
    running = Running(leases).lead()
    leases.touch("lock", team="red")
    running.advance_until(lambda: leases.calls[-3:] == ["update", "get", "update"])
    assert eventually(
        lambda: running.metrics.value("leader_election_slowpath_total", name="lock") == 1.0
    )
    assert running.elector.is_leader
    running.stop()
    assert leases.leases["lock"].labels["team"] == "red"


def test_all_series_are_there_at_0_before_it_runs(leases: FakeLeases) -> None:
    running = Running(leases)
    assert running.metrics.value("leader_election_master_status", name="lock") == 0.0
    assert running.metrics.value("leader_election_slowpath_total", name="lock") == 0.0
    assert running.metrics.value("leader_election_lease_transitions", name="lock") is None
    running.lead()
    assert running.metrics.value("leader_election_master_status", name="lock") == 1.0
    running.stop()
    assert running.metrics.value("leader_election_master_status", name="lock") == 0.0


def test_an_elector_that_retires_leaves_what_it_has_counted(leases: FakeLeases) -> None:
    running = Running(leases).lead()
    leases.touch("lock", team="red")
    running.advance_until(lambda: leases.calls[-3:] == ["update", "get", "update"])
    running.stop()
    running.elector.retire()
    assert running.metrics.value("leader_election_slowpath_total", name="lock") == 1.0
    assert running.metrics.value("leader_election_master_status", name="lock") is None


def test_a_second_candidate_waits_while_the_first_one_lives_and_follows_when_it_died(
    leases: FakeLeases,
) -> None:
    clock = ManualClock(start=50.0)
    first = Running(leases, clock, identity="first").lead()
    second = Running(leases, clock, identity="second").start()
    assert eventually(lambda: second.elector.leader == "first")
    second.advance_until(lambda: clock.monotonic() > 150.0)
    assert not second.started.is_set()
    first.stop()  # without a release: as good as dead
    second.advance_until(second.started.is_set)
    assert second.elector.is_leader
    assert eventually(lambda: second.leaders == ["first", "second"])
    assert leases.leases["lock"].spec["leaseTransitions"] == 1
    second.stop()
    assert second.events == ["second became leader", "second stopped leading"]


def test_it_says_who_leads_since_when_and_when_it_is_in_touch_again(
    leases: FakeLeases, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "appsdk_operator.manager"):
        leases.put("lock", "them")
        running = Running(leases, ManualClock(start=50.0), identity="me").start()
        assert eventually(lambda: "me stands by: them leads " in caplog.text)
        running.stop()
        elector = running.elector
        elector._note("read", "no connection")
        elector._note("write", "no connection")
        elector._note("read", "")
        assert "again" not in caplog.text
        elector._note("write", "")
        elector._note("write", "")
    assert caplog.text.count("works again") == 1


def test_a_standby_that_stops_was_never_leader_and_tells_no_event(leases: FakeLeases) -> None:
    leases.put("lock", "them")
    running = Running(leases, release_on_cancel=True).start()
    assert eventually(lambda: running.elector.leader == "them")
    running.stop()
    assert not running.started.is_set()
    assert not running.elector.has_led
    assert (running.events, running.leaders) == ([], ["them"])
    assert leases.holder() == "them"
    running.elector.check_write()  # it has never led


def test_a_stop_gives_the_lease_up_when_told_to(leases: FakeLeases) -> None:
    running = Running(leases, release_on_cancel=True).lead()
    running.stop()
    spec = leases.leases["lock"].spec
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)
    assert running.leaders == ["me", ""]


def test_a_release_goes_on_when_the_lease_was_touched_in_the_middle_of_it(
    leases: FakeLeases,
) -> None:
    running = Running(leases, release_on_cancel=True).lead()
    touches = iter("ab")

    def touch(verb: str) -> None:
        if verb == "update" and (label := next(touches, None)) is not None:
            leases.touch("lock", touched=label)

    leases.fault = touch
    running.stop()
    assert leases.calls[2:] == ["get", "update"] * 3
    assert leases.holder() == ""


def test_a_stop_in_the_middle_of_a_renewal_releases_all_the_same(
    leases: FakeLeases, gate: threading.Event
) -> None:
    running = Running(leases, release_on_cancel=True).lead()
    gate.clear()
    running.advance_until(lambda: leases.calls[-1] == "update")
    running.stop_signal.set()
    leases.wait_for_calls("update", "get")
    gate.set()
    running.end()
    assert leases.holder() == ""
    assert running.error is None


def test_a_stop_in_the_middle_of_an_acquisition_releases_what_is_won_after_the_next_read(
    leases: FakeLeases,
) -> None:
    arrives, is_first = threading.Event(), iter([True])

    def delay(verb: str) -> None:
        if verb == "create" and next(is_first, False):
            assert arrives.wait(PATIENCE)
        elif verb == "create":
            arrives.set()
            assert eventually(lambda: leases.holder() == "me")

    leases.fault = delay
    running = Running(leases, release_on_cancel=True).start()
    leases.wait_for_calls("create")
    running.stop()
    assert leases.calls == ["get", "create", "get", "create", "get", "update"]
    assert leases.holder() == ""
    assert not running.started.is_set()


def test_a_stop_after_a_refused_acquisition_sends_no_other(leases: FakeLeases) -> None:
    def refuse(verb: str) -> None:
        if verb == "create":
            raise answer(403)

    leases.fault = refuse
    running = Running(leases, release_on_cancel=True).start()
    # Until it has heard of the refusal, it has to expect that the Lease is made.
    assert eventually(lambda: len(leases.calls) == 2 and running.is_waiting())
    running.stop()
    assert leases.calls == ["get", "create", "get"]


def test_a_stop_in_the_middle_of_a_first_look_returns_at_once(
    leases: FakeLeases, gate: threading.Event
) -> None:
    gate.clear()
    running = Running(leases).start()
    leases.wait_for_calls("get")
    running.stop_signal.set()
    running.thread.join(5.0)
    assert not running.thread.is_alive()
    assert running.elector.join(0.01) == ["elector/request"]
    gate.set()
    running.end()
    assert leases.calls == ["get"]


def test_the_lead_is_lost_on_time_though_the_request_hangs(
    leases: FakeLeases, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(leases).lead()
    gate.clear()
    running.advance_until(lambda: leases.calls[-1] == "update")
    running.advance_until(lambda: leases.calls[-1] == "get")  # the time for one request is over
    assert running.elector.is_leader
    running.advance_until(lambda: not running.thread.is_alive())
    assert 1012.0 <= running.clock.monotonic() < 1015.0
    assert isinstance(running.error, LeadershipLost)
    assert str(running.error) == ("leader election lost: it could not be renewed in 10 s")
    assert not running.elector.is_leader
    assert not running.elector.health().is_ready
    with pytest.raises(LeadershipLost, match="another replica may write now"):
        running.elector.check_write()
    assert running.events == ["me became leader", "me stopped leading"]
    gate.set()
    running.end()
    assert "no answer from the API server in time" in caplog.text


def test_an_answer_that_comes_too_late_does_not_bring_the_lead_back(
    leases: FakeLeases, gate: threading.Event
) -> None:
    running = Running(leases).lead()
    gate.clear()
    running.advance_until(lambda: leases.calls[-1] == "update")
    running.clock.advance(100.0)
    gate.set()
    running.end()
    assert isinstance(running.error, LeadershipLost)
    assert not running.elector.may_write()


def test_a_lost_answer_is_made_up_for_by_a_look(leases: FakeLeases) -> None:
    def lose(verb: str) -> None:
        if verb == "update":
            leases.after = lambda verb: None
            raise answer(504)

    running = Running(leases).lead()
    leases.after = lose
    running.advance_until(lambda: leases.calls[-3:] == ["update", "get", "update"])
    assert running.elector.is_leader
    running.stop()
    assert leases.leases["lock"].spec["leaseTransitions"] == 0


def test_who_finds_another_in_its_place_has_lost(leases: FakeLeases) -> None:
    running = Running(leases).lead()
    leases.put("lock", "them")
    running.advance_until(lambda: not running.thread.is_alive())
    running.end()
    assert str(running.error) == "leader election lost: the Lease was taken over by 'them'"
    assert leases.holder() == "them", "a release would not have touched it either"


def test_writes_end_a_margin_before_the_lease_does(
    leases: FakeLeases, gate: threading.Event
) -> None:
    running = Running(leases, renew_deadline=14.0, fence_margin=1.0).lead()
    gate.clear()
    running.clock.advance(13.9)
    running.elector.check_write()
    running.clock.advance(0.1)
    assert running.elector.is_leader
    assert not running.elector.may_write()
    with pytest.raises(LeadershipLost, match="fence margin of 1 s"):
        running.elector.check_write()
    running.stop_signal.set()
    gate.set()
    running.end()


def test_what_on_started_raises_ends_the_run_and_gives_the_lead_up(leases: FakeLeases) -> None:
    def fail() -> None:
        raise OSError("no disk")

    running = Running(leases, on_started=fail, release_on_cancel=True).start()
    running.end()
    assert isinstance(running.error, OSError)
    assert leases.holder() == ""


@pytest.mark.parametrize("error", [OSError("no disk"), SystemExit(3)])
def test_callbacks_that_fail_are_logged_and_do_no_harm(
    leases: FakeLeases, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise error

    running = Running(leases, callbacks={"on_new_leader": fail, "on_event": fail}).lead()
    assert eventually(lambda: caplog.text.count("a callback of the leader election") == 2)
    running.stop()


def test_an_elector_runs_once(leases: FakeLeases) -> None:
    running = Running(leases).lead()
    running.stop()
    with pytest.raises(RuntimeError, match="make a new one"):
        running.elector.run(StopSignal(), lambda: None)


def test_missing_permissions_are_logged_once_with_what_to_grant(
    leases: FakeLeases, caplog: pytest.LogCaptureFixture
) -> None:
    def forbid(verb: str) -> None:
        raise answer(403, reason="Forbidden", message="no")

    leases.fault = forbid
    running = Running(leases).start()
    running.advance_until(lambda: len(leases.calls) == 5)
    running.stop()
    (record,) = (r for r in caplog.records if r.levelno == logging.WARNING)
    assert (
        "a Role with the verbs get, create and update on leases of coordination.k8s.io in "
        "namespace 'ops'" in record.getMessage()
    )


@pytest.mark.parametrize("code", [403, 404, 422])
def test_a_lease_that_can_be_read_and_not_be_made_is_told_once_and_is_not_healthy(
    leases: FakeLeases, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    reasons = {403: "Forbidden", 404: "NotFound", 422: "Invalid"}

    def refuse(verb: str) -> None:
        if verb != "get":
            raise answer(code, reason=reasons[code], message="no")

    leases.fault = refuse
    running = Running(leases).start()
    running.advance_until(lambda: not running.elector.health().is_ready)
    assert running.clock.monotonic() > 1020.0
    assert reasons[code] in running.elector.health().text
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1
    leases.fault = lambda verb: None
    running.advance_until(lambda: running.elector.is_leader)
    assert running.elector.health().is_ready
    running.stop()


def test_a_leader_is_healthy_until_the_lease_was_not_renewed_for_too_long(
    leases: FakeLeases,
) -> None:
    hold = threading.Event()

    def block(_: str) -> None:  # a callback that hangs, and holds up the renewals
        hold.wait(20.0)

    running = Running(leases, callbacks={"on_new_leader": block})
    assert running.elector.health().text == "the leader election does not run"
    running.lead()
    running.clock.advance(19.9)
    assert running.elector.health(tolerance=5.0).is_ready
    assert not running.elector.may_write()
    running.clock.advance(0.2)
    assert running.elector.health(tolerance=6.0).is_ready
    health = running.elector.health(tolerance=5.0)
    assert not health.is_ready
    assert health.text == "the Lease ops/lock was out of reach for 20 s"
    hold.set()
    running.end()
    assert isinstance(running.error, LeadershipLost)


def test_a_standby_is_unhealthy_when_it_cannot_read_the_lease(leases: FakeLeases) -> None:
    leases.put("lock", "them")
    running = Running(leases).start()
    assert eventually(lambda: running.elector.health().text == "the leader is 'them'")

    def forbid(verb: str) -> None:
        raise answer(403, reason="Forbidden", message="no")

    leases.fault = forbid
    running.advance_until(lambda: not running.elector.health().is_ready)
    assert running.clock.monotonic() > 1020.0
    assert "403 Forbidden" in running.elector.health().text
    running.stop()
    assert running.elector.health().is_ready
