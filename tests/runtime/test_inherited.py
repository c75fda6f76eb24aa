"""Clocks and metrics that whoever runs a part may still decide."""

from __future__ import annotations

import gc
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.runtime import (
    Clock,
    Family,
    ManualClock,
    Metrics,
    Sample,
    StopSignal,
    WorkQueue,
    default_metrics,
    random_of,
    system_clock,
)
from appsdk_operator.runtime._clock import InheritedClock
from appsdk_operator.runtime._environment import Environment
from appsdk_operator.runtime._metrics import InheritedMetrics

_TOTAL = Family("inherited_demo_total", "counter", "How often.")
_NOW = Family("inherited_demo", "gauge", "How much.")


class Part:
    """Something that counts."""

    def __init__(self, metrics: Metrics) -> None:
        self.count = 0
        self.retire = metrics.add_source(self.samples)

    def samples(self) -> list[Sample]:
        return [Sample(_TOTAL, (), self.count), Sample(_NOW, (), self.count)]


def test_without_anybody_else_it_is_the_machines_clock_and_the_default_metrics():
    environment = Environment(None, None)
    assert isinstance(environment.clock, Clock)
    before = system_clock.monotonic()
    assert before <= environment.clock.monotonic() <= system_clock.monotonic()
    assert environment.metrics.registry is default_metrics().registry


def test_what_was_given_stays():
    clock, metrics = ManualClock(), Metrics()
    environment = Environment(clock, metrics)
    environment.inherit(ManualClock(start=5.0), Metrics())
    assert environment.clock is clock
    assert environment.metrics is metrics


def test_a_part_hands_down_only_what_it_has_inherited():
    class Below:
        told: tuple[object, ...] = ()

        def inherit_environment(self, *told: object) -> None:
            self.told = told

    clock, metrics, below = ManualClock(), Metrics(), Below()
    environment = Environment(ManualClock(), None)
    environment.hand_down(below)
    assert below.told == ()
    environment.inherit(clock, metrics)
    environment.hand_down(below)
    environment.hand_down(object())
    assert below.told == (clock, metrics)


@given(
    starts=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=3),
    delays=st.lists(st.just(0.0) | st.floats(0.01, 1000.0), max_size=8),
)
def test_what_is_due_in_some_seconds_stays_due_in_as_many(starts, delays):
    clocks = [ManualClock(start=start) for start in starts]
    inherited = InheritedClock()
    inherited.follow(ManualClock())
    queue = WorkQueue[int]("demo", clock=inherited)
    for number, delay in enumerate(delays):
        queue.add(number, after=delay)
    for clock in clocks:
        inherited.follow(clock)
    if queue.waiting:
        assert queue.next_due == pytest.approx(
            clocks[-1].monotonic() + min(d for d in delays if d > 0), abs=1e-5
        )
    clocks[-1].advance(1000.1)
    handed_out = []
    while (item := queue.try_get()) is not None:
        assert item.waited <= 1000.2
        handed_out.append(item.key)
    assert sorted(handed_out) == list(range(len(delays)))
    run_sync = [n for n, delay in enumerate(delays) if not delay]
    assert handed_out[: len(run_sync)] == run_sync


def test_what_is_worked_on_and_was_moved_keeps_its_duration():
    inherited, metrics, clock = InheritedClock(), Metrics(), ManualClock(start=1e6)
    inherited.follow(ManualClock())
    queue = WorkQueue[str]("demo", clock=inherited, metrics=metrics)
    queue.add("a")
    assert queue.try_get() is not None
    inherited.follow(clock)
    clock.advance(2.0)
    queue.done("a")
    labels = {"name": "demo", "controller": "demo"}
    assert metrics.value("workqueue_work_duration_seconds_sum", **labels) == 2.0


def test_who_waits_for_a_key_waits_on_the_new_clock():
    first, second, inherited = ManualClock(), ManualClock(start=50.0), InheritedClock()
    inherited.follow(first)
    queue = WorkQueue[str]("demo", clock=inherited)
    queue.add("a", after=10.0)
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(queue.get()))
    thread.start()
    first.block_until_waiting(1)
    inherited.follow(second)
    second.block_until_waiting(1)
    second.advance(10.0)
    thread.join(10.0)
    assert not thread.is_alive()
    assert len(got) == 1


def test_a_wait_with_a_deadline_ends_on_the_clock_on_which_it_began():
    first, second, inherited = ManualClock(start=100.0), ManualClock(), InheritedClock()
    inherited.follow(first)
    signal = StopSignal(clock=inherited)
    thread = threading.Thread(target=signal.wait, args=(10.0,))
    thread.start()
    first.block_until_waiting(1)
    inherited.follow(second)
    first.advance(10.0)
    thread.join(10.0)
    assert not thread.is_alive()


def test_a_queue_that_is_gone_is_not_kept_by_its_clock():
    inherited = InheritedClock()
    queue = WorkQueue[str]("demo", clock=inherited)
    assert len(inherited._keepers) == 1
    del queue
    gc.collect()
    assert len(inherited._keepers) == 0


def test_jitter_is_that_of_a_manual_clock_that_is_followed():
    inherited = InheritedClock()
    random = random_of(inherited)
    assert 0.9 <= random.uniform(0.9, 1.1) <= 1.1
    inherited.follow(ManualClock(seed=7))
    assert random.uniform(0, 1) == ManualClock(seed=7).rng.uniform(0, 1)


def test_series_move_with_what_they_counted_and_leave_nothing_behind():
    metrics, other = InheritedMetrics(), Metrics()
    part = Part(metrics)
    part.count = 3
    assert default_metrics().value("inherited_demo_total") == 3.0
    metrics.follow(other)
    assert default_metrics().value("inherited_demo_total") is None
    assert other.value("inherited_demo_total") == metrics.value("inherited_demo_total") == 3.0
    late = Part(metrics)
    late.count = 1
    assert other.value("inherited_demo_total") == 4.0
    part.retire()
    part.retire()
    late.retire()
    assert other.value("inherited_demo_total") == 4.0
    assert other.value("inherited_demo") is None
    metrics.follow(Metrics())
    assert other.value("inherited_demo_total") == 4.0, "what has ended has counted there"


def test_what_counts_without_a_source_counts_in_the_new_ones():
    metrics, other = InheritedMetrics(), Metrics()
    metrics.follow(other)
    metrics.count(_TOTAL, ())
    metrics.counter("inherited_other_total", "Others.").inc()
    assert other.value("inherited_demo_total") == 1.0
    assert other.value("inherited_other_total") == 1.0
    assert metrics.render() == other.render()


def test_a_source_that_is_gone_is_not_kept():
    metrics, other = InheritedMetrics(), Metrics()
    part = Part(metrics)
    del part
    gc.collect()
    metrics.follow(other)
    assert other.value("inherited_demo") is None
    assert not metrics._published
