"""One candidate, step by step: what it asks of the server, and what it makes of the answers."""

from __future__ import annotations

import random
from typing import Any

import attrs
import msgspec
import pytest

from appsdk_operator.manager import LeaderElection
from appsdk_operator.manager._election.lease_state import (
    CandidatePhase,
    LeaseRecord,
    LeaseState,
    ObservedLease,
    ReadLease,
    Wait,
    WriteLease,
)

WALL = 1_700_000_000.0
STAMP = "2023-11-14T22:13:20.000000Z"
OLD = "1999-01-01T00:00:00.000000Z"


class Candidate:
    """A state with a clock that is moved by hand, and a server that does as the test says."""

    def __init__(self, **options: Any) -> None:
        self.options = LeaderElection(id="lock", **options)
        self.state = LeaseState(self.options, "me", random.Random(1))
        self.now = 100.0
        self.wall = WALL
        self.versions = 0

    def next(self) -> Any:
        return self.state.next(self.now, self.wall)

    def read(self, seen: ObservedLease | None) -> None:
        assert isinstance(self.next(), ReadLease)
        self.state.on_read(self.now, seen)

    def write(self) -> WriteLease:
        """Have the next write done."""
        action = self.next()
        assert isinstance(action, WriteLease), action
        self.state.on_write(self.now, self.stored(action.record))
        return action

    def stored(self, record: LeaseRecord) -> ObservedLease:
        self.versions += 1
        return ObservedLease(record, f"own-{self.versions}")

    def sleep(self) -> float:
        """Wait as long as it wants to, and return how long that was."""
        action = self.next()
        assert isinstance(action, Wait), action
        slept = action.until - self.now
        assert slept > 0
        self.now = action.until
        return slept

    @property
    def leads(self) -> bool:
        return self.now < self.state.held_until


def theirs(version: str = "1", **fields: Any) -> ObservedLease:
    record = LeaseRecord("them", 15, OLD, OLD, 3)
    return ObservedLease(msgspec.structs.replace(record, **fields), version)


def leader(**options: Any) -> Candidate:
    candidate = Candidate(**options)
    candidate.read(None)
    candidate.write()
    assert candidate.leads
    return candidate


# -- to acquire --------------------------------------------------------------------------------


def test_without_a_lease_it_is_created() -> None:
    candidate = Candidate()
    candidate.read(None)
    write = candidate.write()
    assert write.base is None
    assert write.record == LeaseRecord("me", 15, STAMP, STAMP, 0)
    assert candidate.state.phase is CandidatePhase.LEADING
    assert candidate.leads


def test_a_lease_without_a_record_is_taken_at_once() -> None:
    candidate = Candidate()
    empty = ObservedLease(LeaseRecord("", None, "", "", 0), "7")
    candidate.read(empty)
    write = candidate.write()
    assert write.base is empty
    assert write.record == LeaseRecord("me", 15, STAMP, STAMP, 1)


def test_a_lease_that_was_given_up_is_taken_at_once() -> None:
    candidate = Candidate()
    candidate.read(theirs(holder="", duration=1))
    assert candidate.write().record == LeaseRecord("me", 15, STAMP, STAMP, 4)
    assert candidate.leads


def test_a_lease_held_by_another_is_watched_for_its_whole_duration_however_old_it_says_it_is() -> (
    None
):
    candidate = Candidate()
    first_seen = candidate.now
    candidate.read(theirs())
    while candidate.now < first_seen + 15:
        candidate.sleep()
        assert not candidate.leads
        if candidate.now < first_seen + 15:
            candidate.read(theirs())
    # It looks in the very moment in which it is free.
    assert candidate.now == first_seen + 15
    candidate.read(theirs())
    write = candidate.write()
    assert write.record == LeaseRecord("me", 15, STAMP, STAMP, 4)
    assert candidate.leads


def test_each_sign_of_life_starts_the_watching_anew() -> None:
    candidate = Candidate()
    candidate.read(theirs("1"))
    candidate.now += 14.0
    candidate.read(theirs("2"))
    candidate.now += 14.0
    candidate.read(theirs("2"))
    assert isinstance(candidate.next(), Wait)
    candidate.now += 1.0
    candidate.read(theirs("2"))
    assert isinstance(candidate.next(), WriteLease)


def test_the_records_duration_counts_and_not_the_own() -> None:
    short, long = Candidate(), Candidate()
    for candidate, duration in ((short, 3), (long, 60)):
        candidate.read(theirs(duration=duration))
        candidate.now += 16.0
        candidate.read(theirs(duration=duration))
    assert isinstance(short.next(), WriteLease)
    assert isinstance(long.next(), Wait)


def test_a_record_that_does_not_say_for_how_long_counts_as_long_as_an_own() -> None:
    candidate = Candidate()
    candidate.read(theirs(duration=None))
    candidate.now += 14.9
    candidate.read(theirs(duration=None))
    assert isinstance(candidate.next(), Wait)


def test_a_lease_that_was_deleted_counts_on_for_those_who_have_seen_it() -> None:
    candidate = Candidate()
    candidate.read(theirs())
    candidate.now += 10.0
    candidate.read(None)
    assert candidate.next() == Wait(min(candidate.next().until, 115.0))
    candidate.now = 115.0
    candidate.read(None)
    write = candidate.write()
    assert write.base is None
    assert write.record.transitions == 4


def test_an_own_record_from_an_earlier_life_is_renewed_and_not_taken_over() -> None:
    candidate = Candidate()
    candidate.read(theirs(holder="me"))
    assert candidate.write().record == LeaseRecord("me", 15, OLD, STAMP, 3)
    assert candidate.leads


def test_tries_are_one_to_two_point_two_periods_apart() -> None:
    candidate = Candidate(retry_period=2.0)
    pauses = []
    for number in range(200):
        candidate.read(theirs(str(number)))
        pauses.append(candidate.sleep())
    assert 2.0 <= min(pauses) < 2.2
    assert 4.2 < max(pauses) < 4.4


def test_who_comes_second_goes_back_in_line() -> None:
    candidate = Candidate()
    candidate.read(None)
    assert isinstance(candidate.next(), WriteLease)
    candidate.state.on_conflict(candidate.now)
    assert candidate.sleep() >= 2.0
    candidate.read(theirs())
    assert not candidate.leads
    assert not candidate.state.has_led


def test_an_acquisition_whose_answer_was_lost_is_found_by_the_next_look() -> None:
    candidate = Candidate()
    candidate.read(None)
    action = candidate.next()
    assert isinstance(action, WriteLease)
    candidate.state.on_failure(candidate.now)
    assert not candidate.leads, "nobody has told us"
    candidate.sleep()
    candidate.read(candidate.stored(action.record))
    renewal = candidate.write()
    assert renewal.record.acquire_time == action.record.acquire_time
    assert renewal.record.transitions == action.record.transitions
    assert candidate.leads


def test_a_process_that_slept_through_its_own_lease_does_not_begin_to_lead() -> None:
    candidate = Candidate()
    candidate.read(None)
    action = candidate.next()
    candidate.now += 20.0
    candidate.state.on_write(candidate.now, candidate.stored(action.record))
    assert candidate.state.phase is CandidatePhase.ACQUIRING
    assert not candidate.leads
    assert not candidate.state.has_led
    candidate.read(candidate.stored(action.record))
    candidate.write()
    assert candidate.leads


def test_the_lease_is_believed_in_from_before_the_request_was_sent() -> None:
    candidate = Candidate()
    candidate.read(None)
    sent = candidate.now
    action = candidate.next()
    candidate.now += 4.0
    candidate.state.on_write(candidate.now, candidate.stored(action.record))
    assert candidate.state.held_until == sent + 15.0


def test_a_fraction_is_written_rounded_up_and_counted_exactly() -> None:
    candidate = Candidate(lease_duration=1.5, renew_deadline=1.0, retry_period=0.5)
    candidate.read(None)
    assert candidate.write().record.duration == 2
    assert candidate.state.held_until == candidate.now + 1.5


# -- to renew ----------------------------------------------------------------------------------


def test_a_renewal_is_one_request() -> None:
    candidate = leader()
    for number in range(1, 4):
        assert candidate.sleep() == 2.0
        write = candidate.write()
        assert write.base is not None
        assert write.base.version == f"own-{number}"
        assert (write.record.acquire_time, write.record.transitions) == (STAMP, 0)
    assert candidate.state.slow_paths == 0


def test_a_renewal_that_is_refused_looks_and_renews_what_it_finds() -> None:
    candidate = leader()
    candidate.sleep()
    action = candidate.next()
    candidate.state.on_conflict(candidate.now)
    assert candidate.state.slow_paths == 1
    labelled = attrs.evolve(action.base, version="labelled")
    candidate.read(labelled)
    write = candidate.write()
    assert write.base is labelled
    assert (write.record.acquire_time, write.record.transitions) == (STAMP, 0)
    assert candidate.leads


def test_a_renewal_whose_answer_was_lost_looks_at_once_and_goes_on() -> None:
    candidate = leader()
    candidate.sleep()
    action = candidate.next()
    candidate.state.on_failure(candidate.now)
    candidate.read(candidate.stored(action.record))
    candidate.write()
    assert candidate.leads
    assert candidate.state.slow_paths == 1


def test_a_clock_that_stands_still_writes_something_new_each_time() -> None:
    candidate = leader()
    stamps = []
    for _ in range(3):
        candidate.sleep()
        write = candidate.write()
        assert write.base is not None
        assert write.record.renew_time != write.base.record.renew_time
        stamps.append(write.record.renew_time)
    assert stamps[0] == "2023-11-14T22:13:20.000001Z"


def test_a_leader_whose_lease_was_deleted_makes_it_anew_and_goes_on() -> None:
    candidate = leader()
    candidate.sleep()
    assert isinstance(candidate.next(), WriteLease)
    candidate.state.on_conflict(candidate.now)
    candidate.read(None)
    write = candidate.write()
    assert write.base is None
    assert (write.record.acquire_time, write.record.transitions) == (STAMP, 0)
    assert candidate.leads


def test_a_leader_that_sees_another_in_its_place_has_lost_at_once() -> None:
    candidate = leader()
    candidate.sleep()
    assert isinstance(candidate.next(), WriteLease)
    candidate.state.on_conflict(candidate.now)
    candidate.read(theirs())
    assert candidate.state.phase is CandidatePhase.LOST
    assert not candidate.leads
    assert candidate.next() is None
    assert "'them'" in candidate.state.reason


def test_a_leader_that_cannot_renew_gives_up_at_the_deadline_and_before_the_lease_ends() -> None:
    candidate = leader()
    renewed = candidate.now
    while (action := candidate.next()) is not None:
        if isinstance(action, Wait):
            candidate.now = action.until
        else:
            assert action.deadline <= renewed + 12.0
            candidate.now = min(candidate.now + 5.0, action.deadline)
            candidate.state.on_failure(candidate.now)
    assert candidate.now == renewed + 12.0
    assert candidate.state.phase is CandidatePhase.LOST
    assert not candidate.leads
    assert candidate.state.reason == "it could not be renewed in 10 s"


def test_a_leader_gives_up_when_its_lease_ends_even_if_the_deadline_is_later() -> None:
    candidate = leader(renew_deadline=14.0, retry_period=5.0)
    assert candidate.sleep() == 5.0
    action = candidate.next()
    candidate.now += 7.0
    candidate.state.on_failure(candidate.now)
    assert isinstance(candidate.next(), ReadLease)
    candidate.now = 115.0
    assert candidate.next() is None
    assert candidate.state.phase is CandidatePhase.LOST
    assert isinstance(action, WriteLease)


def test_a_leader_that_slept_beyond_its_lease_writes_nothing_any_more() -> None:
    candidate = leader()
    candidate.now += 60.0
    assert not candidate.leads
    assert candidate.next() is None
    assert candidate.state.phase is CandidatePhase.LOST


def test_a_lost_lead_is_lost_for_good() -> None:
    candidate = leader()
    candidate.now += 60.0
    candidate.next()
    candidate.state.on_write(candidate.now, theirs(holder="me"))
    candidate.state.on_read(candidate.now, theirs(holder="me"))
    candidate.state.stop(candidate.now)
    assert candidate.state.phase is CandidatePhase.LOST
    assert not candidate.leads


# -- to stop -----------------------------------------------------------------------------------


def test_a_stop_leaves_the_lease_as_it_is_unless_told_otherwise() -> None:
    candidate = leader()
    candidate.state.stop(candidate.now)
    assert candidate.next() is None
    assert not candidate.leads


def test_a_standby_has_nothing_to_release() -> None:
    candidate = Candidate(release_on_cancel=True)
    candidate.read(theirs())
    candidate.state.stop(candidate.now)
    assert candidate.next() is None


@pytest.mark.parametrize("releases", [False, True])
def test_a_candidate_that_stops_before_it_leads_gives_back_what_it_may_have_won(
    releases: bool,
) -> None:
    candidate = Candidate(release_on_cancel=releases)
    candidate.read(None)
    won = candidate.next()
    assert isinstance(won, WriteLease)
    candidate.state.on_failure(candidate.now)  # without an answer: the server may have done it
    candidate.state.stop(candidate.now)
    candidate.read(candidate.stored(won.record))
    assert candidate.write().record.holder == ""
    assert candidate.next() is None


def test_a_leader_under_which_nothing_was_started_gives_the_lease_back() -> None:
    candidate = leader(release_on_cancel=False)
    candidate.state.stop(candidate.now, releases=True)
    candidate.read(candidate.state.observed)
    assert candidate.write().record.holder == ""
    assert candidate.next() is None


def test_a_release_empties_the_lease_for_a_second_and_keeps_the_count() -> None:
    candidate = leader(release_on_cancel=True)
    held = candidate.state.observed
    candidate.wall += 5.0
    candidate.state.stop(candidate.now)
    assert not candidate.leads, "from before the others can know"
    candidate.read(held)
    record = candidate.write().record
    assert (record.holder, record.duration, record.transitions) == ("", 1, 0)
    assert candidate.next() is None


def test_a_release_is_tried_again_when_the_lease_has_changed_meanwhile() -> None:
    candidate = leader(release_on_cancel=True)
    held = candidate.state.observed
    assert held is not None
    candidate.state.stop(candidate.now)
    for number in range(3):
        candidate.read(attrs.evolve(held, version=f"touched-{number}"))
        assert isinstance(candidate.next(), WriteLease)
        candidate.state.on_conflict(candidate.now)
    candidate.read(held)
    assert candidate.write().record.holder == ""
    assert candidate.next() is None


def test_a_release_takes_no_longer_than_the_renew_deadline() -> None:
    candidate = leader(release_on_cancel=True)
    held = candidate.state.observed
    began = candidate.now
    candidate.state.stop(candidate.now)
    while (action := candidate.next()) is not None:
        match action:
            case Wait(until):
                candidate.now = until
            case ReadLease(deadline):
                assert deadline <= began + 10.0
                candidate.state.on_read(candidate.now, held)
            case WriteLease():
                candidate.state.on_conflict(candidate.now)
    assert candidate.now == began + 10.0


def test_a_release_does_not_touch_a_lease_that_another_holds_now() -> None:
    candidate = leader(release_on_cancel=True)
    candidate.state.stop(candidate.now)
    candidate.read(theirs())
    assert candidate.next() is None


def test_a_release_finds_no_lease_and_is_done() -> None:
    candidate = leader(release_on_cancel=True)
    candidate.state.stop(candidate.now)
    candidate.read(None)
    assert candidate.next() is None


def test_a_stop_in_the_middle_of_an_acquisition_releases_what_may_have_been_won() -> None:
    candidate = Candidate(release_on_cancel=True)
    candidate.read(None)
    action = candidate.next()
    assert isinstance(action, WriteLease)
    candidate.state.on_failure(candidate.now)
    candidate.state.stop(candidate.now)
    candidate.read(candidate.stored(action.record))
    assert candidate.write().record.holder == ""
    assert candidate.next() is None


@pytest.mark.parametrize(
    "before", [None, theirs(), theirs(holder="")], ids=["none", "expired", "released"]
)
@pytest.mark.parametrize("comes", [True, False])
def test_a_release_whose_read_overtakes_the_acquisition_leaves_no_holder(
    before: ObservedLease | None, comes: bool
) -> None:
    candidate = Candidate(release_on_cancel=True)
    candidate.read(before)
    while not isinstance(action := candidate.next(), WriteLease):
        if isinstance(action, Wait):
            candidate.now = action.until
        else:
            candidate.state.on_read(candidate.now, before)
    candidate.state.stop(candidate.now)
    candidate.read(before)
    again = candidate.next()
    assert isinstance(again, WriteLease)
    assert again.base == before
    assert (again.record.holder, again.record.transitions) == ("me", action.record.transitions)
    if comes:  # in the meantime, so this one is refused
        candidate.state.on_conflict(candidate.now)
        candidate.read(candidate.stored(action.record))
    else:
        candidate.state.on_write(candidate.now, candidate.stored(again.record))
    assert not candidate.leads
    assert not candidate.state.has_led
    assert candidate.write().record.holder == ""
    assert candidate.next() is None


def test_a_release_leaves_the_lease_to_another_who_has_it_instead() -> None:
    candidate = Candidate(release_on_cancel=True)
    candidate.read(theirs(holder=""))
    assert isinstance(candidate.next(), WriteLease)
    candidate.state.stop(candidate.now)
    candidate.read(theirs("2"))
    assert candidate.next() is None


def test_an_acquisition_without_an_answer_is_released_though_a_read_did_not_show_it() -> None:
    candidate = Candidate(release_on_cancel=True)
    free = theirs(holder="")
    candidate.read(free)
    assert isinstance(candidate.next(), WriteLease)
    candidate.state.on_failure(candidate.now)
    candidate.sleep()
    candidate.read(free)
    candidate.state.stop(candidate.now)
    candidate.read(free)
    assert candidate.write().record.holder == "me"
    assert candidate.write().record.holder == ""
    assert candidate.next() is None


def test_an_acquisition_that_was_refused_is_not_repeated_for_the_release() -> None:
    candidate = Candidate(release_on_cancel=True)
    candidate.read(None)
    assert isinstance(candidate.next(), WriteLease)
    candidate.state.on_failure(candidate.now, is_refused=True)
    candidate.state.stop(candidate.now)
    candidate.read(None)
    assert candidate.next() is None


def test_a_stop_in_the_middle_of_a_read_ends_the_renewal_and_releases() -> None:
    candidate = leader(release_on_cancel=True)
    held = candidate.state.observed
    candidate.sleep()
    candidate.next()
    candidate.state.on_conflict(candidate.now)
    assert isinstance(candidate.next(), ReadLease)
    candidate.state.on_failure(candidate.now)  # cut short by the stop
    candidate.state.stop(candidate.now)
    candidate.read(held)
    assert candidate.write().record.holder == ""


def test_a_release_whose_answer_was_lost_looks_whether_it_was_done() -> None:
    candidate = leader(release_on_cancel=True)
    held = candidate.state.observed
    candidate.state.stop(candidate.now)
    candidate.read(held)
    action = candidate.next()
    assert isinstance(action, WriteLease)
    candidate.state.on_failure(candidate.now)
    candidate.sleep()
    candidate.read(candidate.stored(action.record))
    assert candidate.next() is None


def test_stopping_twice_is_harmless() -> None:
    candidate = leader(release_on_cancel=True)
    candidate.state.stop(candidate.now)
    candidate.state.stop(candidate.now + 5.0)
    assert isinstance(candidate.next(), ReadLease)
