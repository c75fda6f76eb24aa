"""The clock and the metrics of the parts that are made in a block of code."""

from __future__ import annotations

import contextvars
import threading

import pytest

from appsdk_operator.runtime import (
    Clock,
    ManualClock,
    Metrics,
    RealClock,
    StopSignal,
    ThreadGroup,
    TokenBucket,
    WorkQueue,
    default_metrics,
    environment,
    present_clock,
    present_metrics,
    system_clock,
    thread_clock,
)


def test_outside_of_all_blocks_it_is_the_machines_clock_and_the_metrics_of_the_process():
    assert present_clock() is system_clock
    assert present_metrics() is default_metrics()


def test_a_block_changes_what_it_names_and_blocks_nest():
    clock, inner, metrics = ManualClock(), ManualClock(), Metrics()
    with environment(clock=clock, metrics=metrics):
        with environment(clock=inner):
            assert (present_clock(), present_metrics()) == (inner, metrics)
        with pytest.raises(KeyError), environment(metrics=Metrics()):
            raise KeyError
        assert (present_clock(), present_metrics()) == (clock, metrics)
    assert present_clock() is system_clock
    assert present_metrics() is default_metrics()


def test_one_environment_may_be_entered_by_several_threads_at_once_and_again_within_itself():
    shared = environment(metrics=Metrics())
    clocks = [ManualClock(), ManualClock()]
    contexts = [contextvars.copy_context() for _ in clocks]
    outer = [environment(clock=clock) for clock in clocks]
    for context, each in zip(contexts, outer, strict=True):
        context.run(each.__enter__)
        context.run(shared.__enter__)
    for context, clock, each in zip(contexts, clocks, outer, strict=True):
        context.run(shared.__enter__)
        context.run(shared.__exit__)
        assert context.run(present_clock) is clock
        context.run(shared.__exit__)
        assert context.run(present_clock) is clock
        assert context.run(present_metrics) is default_metrics()
        context.run(each.__exit__)
        assert context.run(present_clock) is system_clock


def test_leaving_it_in_a_context_that_has_not_entered_changes_nothing_there():
    entered = environment(clock=ManualClock())
    contextvars.copy_context().run(entered.__enter__)
    clock = ManualClock()
    with environment(clock=clock):
        entered.__exit__()
        assert present_clock() is clock


def test_what_was_given_stays():
    clock, metrics = ManualClock(), Metrics()
    with environment(clock=ManualClock(), metrics=Metrics()):
        assert present_clock(clock) is clock
        assert present_metrics(metrics) is metrics


def test_parts_have_the_clock_of_where_they_were_made():
    clock = ManualClock()
    with environment(clock=clock):
        queue, stop = WorkQueue[str]("demo"), StopSignal()
    queue.add("a", after=5.0)
    assert queue.next_due == 5.0
    ended = threading.Thread(target=stop.wait, args=(10.0,))
    ended.start()
    clock.block_until_waiting(1)
    clock.advance(10.0)
    ended.join(10.0)
    assert not ended.is_alive()


def test_threads_of_the_kit_have_the_environment_of_who_starts_them():
    clock, found = ManualClock(), list[Clock]()
    group = ThreadGroup("demo")

    def note() -> None:
        found.append(present_clock())

    def start_another() -> None:
        note()
        group.start("inner", note)

    with environment(clock=clock):
        group.start("outer", start_another)
        own = threading.Thread(target=note)
        own.start()
        own.join()
    group.start("outside", note)
    assert group.join(10.0) == []
    assert found.count(clock) == 2
    assert found.count(system_clock) == 2


def test_threads_end_by_the_machines_clock_unless_a_simulation_runs_them():
    clock = ManualClock()
    with environment(clock=clock):
        assert isinstance(thread_clock(), RealClock)
        clock.runs_threads = True
        assert thread_clock() is clock
    assert isinstance(thread_clock(), RealClock)


def test_a_token_bucket_of_several_simulated_processes_counts_by_the_clock_of_each():
    bucket = TokenBucket(rate=1.0, burst=1)
    for start in (1e6, 0.0):
        clock = ManualClock(start=start)
        with environment(clock=clock):
            clock.advance(10.0)
            bucket.reserve()
            assert bucket.reserve() > 0.0
            clock.advance(10.0)
            assert bucket.reserve() == 0.0
