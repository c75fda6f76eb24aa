"""The machine behind the event recorder: no occurrence is lost, whatever fails and when."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from appsdk_operator.manager import EventOptions
from appsdk_operator.manager._events.correlator import (
    EventCorrelator,
    KeyedOccurrence,
    ObserveResult,
)
from tests.hypothesis_profiles import scaled

RECORDED, FLOODED, FULL = ObserveResult.RECORDED, ObserveResult.FLOODED, ObserveResult.FULL


def a_draft(key="a", source="s", fields=None):
    return KeyedOccurrence(key, source, fields)


def series(**options) -> EventCorrelator:
    return EventCorrelator(EventOptions(**options))


def written(machine, now):
    """Write what is due, as (key, count, is_new)."""
    done = []
    while (write := machine.next_write(now)) is not None:
        done.append((write.first.key, write.count, write.is_new))
        machine.succeeded(write, now)
    return done


def test_the_numbers_are_client_gos():
    assert attrs.asdict(EventOptions()) == {
        "legacy": False,
        "capacity": 4096,
        "burst": 25,
        "refill": 300.0,
        "idle": 360.0,
        "refresh": 1800.0,
        "attempts": 12,
        "retry_pause": 10.0,
    }


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 0},
        {"burst": True},
        {"refill": 0},
        {"idle": float("inf")},
        {"refresh": float("nan")},
        {"attempts": 1.5},
        {"retry_pause": -1},
    ],
)
def test_options_that_cannot_work_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        EventOptions(**options)


def test_the_first_is_written_at_once_the_second_too_and_the_rest_in_half_an_hour():
    machine = series()
    assert machine.next_due() is None
    machine.observe(a_draft(), 0)
    assert written(machine, 0) == [("a", 1, True)]
    machine.observe(a_draft(), 60)
    assert written(machine, 60) == [("a", 2, False)]
    for minute in range(2, 33):
        machine.observe(a_draft(), minute * 60)
        expected = [("a", 32, False)] if minute == 31 else []
        assert written(machine, minute * 60) == expected
    assert not machine.is_clean


def test_a_series_ends_when_it_is_idle_and_its_count_is_written():
    machine = series()
    for second in range(5):
        machine.observe(a_draft(), second)
        written(machine, second)
    assert written(machine, 4 + 359) == []
    assert machine.next_due() is not None
    assert written(machine, 4 + 360) == [("a", 5, False)]
    assert machine.is_clean
    # What comes later is an event of its own.
    machine.observe(a_draft(), 4 + 361)
    assert written(machine, 4 + 361) == [("a", 1, True)]


def test_a_single_event_is_forgotten_when_it_is_idle():
    machine = series()
    machine.observe(a_draft(), 0)
    written(machine, 0)
    machine.observe(a_draft(), 359)
    assert written(machine, 359) == [("a", 2, False)]
    machine.observe(a_draft(), 359 + 360)
    assert written(machine, 359 + 360) == [("a", 1, True)]


def test_what_happens_during_the_first_write_follows_it():
    machine = series()
    machine.observe(a_draft(), 0)
    write = machine.next_write(0)
    assert write is not None
    machine.observe(a_draft(), 1)
    machine.observe(a_draft(), 2)
    assert machine.next_write(2) is None
    machine.succeeded(write, 3)
    assert written(machine, 3) == [("a", 3, False)]


def test_a_flood_of_different_events_about_one_object_is_cut_off_but_repetitions_are_not():
    machine = series(burst=3, refill=10.0)
    verdicts = [machine.observe(a_draft(f"k{i}"), 0) for i in range(5)]
    assert verdicts == [RECORDED] * 3 + [FLOODED] * 2
    assert [machine.observe(a_draft("k0"), 0) for _ in range(50)] == [RECORDED] * 50
    assert machine.observe(a_draft("other", "another object"), 0) is RECORDED
    assert machine.observe(a_draft("k8"), 9.9) is FLOODED
    assert machine.observe(a_draft("k8"), 10) is RECORDED
    assert machine.observe(a_draft("k9"), 10) is FLOODED
    assert (machine.recorded, machine.dropped) == (55, 4)


def test_when_all_that_is_remembered_waits_what_is_new_is_dropped():
    machine = series(capacity=2)
    assert machine.observe(a_draft("a", "1"), 0) is RECORDED
    assert machine.observe(a_draft("b", "2"), 0) is RECORDED
    assert machine.observe(a_draft("c", "3"), 0) is FULL
    assert machine.observe(a_draft("a", "1"), 0) is RECORDED
    written(machine, 0)
    # The one written longest ago makes room.
    assert machine.observe(a_draft("c", "3"), 1) is RECORDED
    assert machine.observe(a_draft("b", "2"), 1) is RECORDED
    assert machine.dropped == 1
    assert written(machine, 1) == [("b", 2, False), ("c", 1, True)]


def test_a_failed_write_is_made_again_after_a_pause_with_what_came_meanwhile():
    machine = series()
    machine.observe(a_draft(), 0)
    write = machine.next_write(0)
    assert write is not None
    assert machine.retry_later(write, 0) is True
    machine.observe(a_draft(), 1)
    assert machine.next_write(9.9) is None
    assert machine.next_due() == 10
    assert written(machine, 10) == [("a", 2, True)]


def test_after_enough_attempts_it_is_given_up_and_counted():
    machine = series(attempts=3)
    machine.observe(a_draft(), 0)
    machine.observe(a_draft(), 0)
    for attempt in range(3):
        write = machine.next_write(attempt * 10)
        assert write is not None
        assert machine.retry_later(write, attempt * 10) is (attempt < 2)
    assert (machine.failed, machine.pending, machine.next_due()) == (2, 0, None)


def test_a_refused_series_counts_only_what_was_not_written():
    machine = series()
    for _ in range(3):
        machine.observe(a_draft(), 0)
    written(machine, 0)
    machine.observe(a_draft(), 0)
    machine.force(retries=True)
    write = machine.next_write(0)
    assert write is not None
    machine.rejected(write)
    assert machine.failed == 1


def test_a_series_whose_event_is_gone_is_made_anew_with_its_count():
    machine = series()
    machine.observe(a_draft(), 0)
    written(machine, 0)
    machine.observe(a_draft(), 1)
    write = machine.next_write(1)
    assert write is not None
    machine.not_found(write)
    assert written(machine, 1) == [("a", 2, True)]


def test_an_event_that_is_there_already_gets_its_count_by_a_patch():
    machine = series()
    machine.observe(a_draft(), 0)
    machine.observe(a_draft(), 0)
    write = machine.next_write(0)
    assert write is not None
    machine.already_exists(write, 0)
    assert written(machine, 0) == [("a", 2, False)]
    machine.observe(a_draft("b"), 0)
    write = machine.next_write(0)
    assert write is not None
    machine.already_exists(write, 0)
    assert machine.is_clean


def test_hurry_makes_everything_due_that_is_not_written():
    machine = series()
    for _ in range(3):
        machine.observe(a_draft(), 0)
        written(machine, 0)
    machine.observe(a_draft("b"), 0)
    write = machine.next_write(0)
    assert write is not None
    machine.retry_later(write, 0)
    machine.force(retries=False)
    assert written(machine, 0) == [("a", 3, False)]
    machine.force(retries=True)
    machine.force(retries=True)
    assert written(machine, 0) == [("b", 1, True)]


def test_what_is_hurried_while_it_is_written_is_written_again():
    machine = series()
    for _ in range(2):
        machine.observe(a_draft(), 0)
        written(machine, 0)
    machine.observe(a_draft(), 0)
    machine.force(retries=True)
    write = machine.next_write(0)
    assert write is not None
    machine.observe(a_draft(), 0)
    machine.force(retries=True)
    machine.succeeded(write, 0)
    assert written(machine, 0) == [("a", 4, False)]


def test_the_end_counts_what_is_left():
    machine = series()
    for _ in range(3):
        machine.observe(a_draft(), 0)
    assert machine.give_up() == 3
    assert (machine.failed, machine.pending, machine.next_due()) == (3, 0, None)


class Recorder(RuleBasedStateMachine):
    """Random occurrences, times and write_faults of writes, against a server that only counts."""

    KEYS = st.sampled_from("abcdef")

    def __init__(self):
        super().__init__()
        self.machine = series(
            capacity=4, burst=3, refill=20.0, idle=30.0, refresh=50.0, attempts=3, retry_pause=5.0
        )
        self.now = 0.0
        self.observed = 0
        self.dropped = 0
        self.names = 0
        self.stored: dict[int, int] = {}  # by the number of the event: its highest count ever
        self.present: set[int] = set()
        self.under_way: list = []

    @rule(key=KEYS, times=st.integers(1, 4))
    def happens(self, key, times):
        for _ in range(times):
            self.names += 1
            verdict = self.machine.observe(a_draft(key, ord(key) % 3, self.names), self.now)
            self.observed += 1
            self.dropped += verdict is not RECORDED

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0, 29.0, 30.0, 50.0]))
    def time_goes_by(self, seconds):
        self.now += seconds

    @precondition(lambda self: not self.under_way)
    @rule()
    def a_write_begins(self):
        write = self.machine.next_write(self.now)
        if write is None:
            due = self.machine.next_due()
            assert due is None or due > self.now
        else:
            self.under_way.append(write)

    @precondition(lambda self: self.under_way)
    @rule(write_fault=st.sampled_from(["done", "done", "lost", "unreached", "refused"]))
    def a_write_ends(self, write_fault):
        write = self.under_way.pop()
        name = write.first.fields
        if write_fault in ("done", "lost"):
            if write.is_new and name in self.present:
                self.machine.already_exists(write, self.now)
                return
            if not write.is_new and name not in self.present:
                self.machine.not_found(write)
                return
            self.present.add(name)
            self.stored[name] = max(write.count, self.stored.get(name, 0))
        if write_fault == "done":
            self.machine.succeeded(write, self.now)
        elif write_fault == "refused":
            self.machine.rejected(write)
        else:
            self.machine.retry_later(write, self.now)

    @rule()
    def the_server_forgets(self):
        self.present.clear()

    @rule(retries=st.booleans())
    def everything_is_hurried(self, retries):
        self.machine.force(retries=retries)

    @invariant()
    def every_occurrence_is_accounted_for(self):
        machine = self.machine
        assert machine.recorded + machine.dropped == self.observed
        assert machine.dropped == self.dropped
        told = sum(self.stored.values())
        # Of a write whose answer was lost the machine counts less than the server has.
        assert told + machine.pending + machine.failed >= machine.recorded

    @invariant()
    def memory_is_bounded(self):
        assert len(self.machine._series) <= 4
        assert len(self.machine._buckets) <= 4

    def teardown(self):
        while self.under_way:
            self.a_write_ends("done")
        # Once everything succeeds all of it is written.
        for _ in range(100):
            self.machine.force(retries=True)
            write = self.machine.next_write(self.now)
            if write is None:
                break
            self.under_way.append(write)
            self.a_write_ends("done")
        assert self.machine.is_clean
        assert self.machine.pending == 0


Recorder.TestCase.settings = settings(
    max_examples=scaled(150), stateful_step_count=60, deadline=None
)
test_no_occurrence_is_lost = Recorder.TestCase


class Reliable(Recorder):
    """The same with a server that never hides what it did: then the counts are equal."""

    @precondition(lambda self: self.under_way)
    @rule(write_fault=st.sampled_from(["done", "unreached", "refused"]))
    def a_write_ends(self, write_fault):
        super().a_write_ends(write_fault)

    @invariant()
    def every_occurrence_is_accounted_for(self):
        super().every_occurrence_is_accounted_for()
        told = sum(self.stored.values())
        assert told + self.machine.pending + self.machine.failed == self.machine.recorded


Reliable.TestCase.settings = settings(
    max_examples=scaled(150), stateful_step_count=60, deadline=None
)
test_counts_are_exact = Reliable.TestCase
