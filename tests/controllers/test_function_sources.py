from __future__ import annotations

import asyncio
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.controllers import (
    LOW_PRIORITY,
    FunctionSource,
    JoinableSource,
    PollingSource,
    SyncingSource,
    TimerSource,
)
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, WorkQueue
from tests.cache.conftest import PATIENCE, NoJitter
from tests.controllers.event_tools import RecordingQueue


class Bench:
    """Sources on a clock that the test moves."""

    def __init__(self):
        self.clock, self.metrics = ManualClock(), Metrics()
        self.queue, self.stop, self.sources = RecordingQueue(), StopSignal(), []

    def start(self, maker, *arguments, **options):
        options = {"clock": self.clock, "metrics": self.metrics, "rng": NoJitter(), **options}
        source = maker(*arguments, **options)
        source.start(self.queue, self.stop)
        self.sources.append(source)
        return source

    def advance(self, seconds):
        """Move on once the source waits, and until it waits again."""
        self.clock.block_until_waiting(1)
        self.clock.advance(seconds)
        self.clock.block_until_waiting(1)

    def end(self):
        self.stop.set()
        for source in self.sources:
            assert source.join(PATIENCE) == []


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.end()


class Answers:
    """A function that returns or raises one answer after another; the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = 0
        self.condition = threading.Condition()

    def __call__(self):
        with self.condition:
            self.calls += 1
            self.condition.notify_all()
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


# Functions.


def test_a_function_feeds_the_queue_until_the_stop(bench):
    ended = []

    def function(queue, stop):
        queue.add("a", reason="because")
        stop.wait()
        ended.append(True)

    source = bench.start(FunctionSource, function)
    assert bench.queue.wait_for(1) == ["a"]
    assert source.health().is_ready
    bench.end()
    assert ended == [True]
    assert source.health().text.endswith(": stopped")


def test_a_function_that_returns_has_come_to_its_end(bench):
    source = bench.start(FunctionSource, lambda queue, stop: queue.add("a"), name="once")
    assert source.join(PATIENCE) == []
    assert bench.queue.names == ["a"]
    assert str(source) == "once"


def test_a_function_that_raises_is_called_again_and_nothing_is_silent(bench, caplog):
    outcomes = [OSError("gone"), OSError("still gone")]

    def function(queue, stop):
        if outcomes:
            raise outcomes.pop(0)
        queue.add("a")

    source = bench.start(FunctionSource, function, name="bus")
    bench.advance(1.0)
    assert bench.metrics.value("source_errors_total", source="bus") == 2
    health = source.health()
    assert health.is_ready, "a short failure does not count"
    assert "newest: OSError: still gone" in health.text
    bench.clock.advance(2.0)
    assert bench.queue.wait_for(1) == ["a"]
    assert "source bus failed, and is tried again in 1 s: OSError('gone')" in caplog.text


def test_a_function_that_fails_for_long_is_not_ready(bench):
    def function(queue, stop):
        raise OSError("gone")

    source = bench.start(FunctionSource, function, name="bus")
    for delay in (1.0, 2.0, 4.0, 8.0):
        bench.advance(delay)
    health = source.health()
    assert not health.is_ready
    assert health.text == ("source bus: has failed for 15 s, and is retried; newest: OSError: gone")


def test_an_async_function_is_cancelled_at_the_stop(bench):
    entered, cancelled = threading.Event(), threading.Event()

    async def function(queue, stop):
        queue.add("a")
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    bench.start(FunctionSource, function)
    assert entered.wait(PATIENCE)
    bench.end()
    assert cancelled.is_set()


def test_even_system_exit_of_a_function_is_tried_again(bench, caplog):
    outcomes = [SystemExit(1)]

    def function(queue, stop):
        if outcomes:
            raise outcomes.pop()
        queue.add("a")

    bench.start(FunctionSource, function)
    bench.clock.block_until_waiting(1)
    bench.clock.advance(1.0)
    assert bench.queue.wait_for(1) == ["a"]
    assert "SystemExit(1)" in caplog.text


@pytest.mark.parametrize("function", [None, lambda: None, lambda queue: None])
def test_what_is_no_function_of_queue_and_stop_is_refused(function):
    with pytest.raises(TypeError, match=r"give a function of \(queue, stop\)"):
        FunctionSource(function)


# Timers.


def test_a_timer_requests_at_fixed_intervals(bench):
    bench.start(TimerSource, 10.0, ["a", "b"], priority=3)
    bench.advance(9.0)
    assert bench.queue.names == []
    bench.advance(1.0)
    assert bench.queue.names == ["a", "b"]
    bench.advance(10.0)
    assert bench.queue.names == ["a", "b", "a", "b"]
    assert set(bench.queue.priorities) == {3}
    assert set(bench.queue.reasons) == {"every 10 s"}


def test_a_timer_without_a_priority_feeds_a_work_queue_too(bench):
    bench.queue = WorkQueue("requests", clock=bench.clock, metrics=bench.metrics)
    bench.start(TimerSource, 10.0, ["a", "b"])
    bench.queue.add("b", after=99.0)
    bench.advance(10.0)
    assert [bench.queue.try_get().key for _ in range(2)] == ["a", "b"]


def test_a_timer_may_begin_at_once(bench):
    bench.start(TimerSource, 10.0, lambda: ["a"], first_after=0.0)
    assert bench.queue.wait_for(1) == ["a"]


def test_times_that_were_missed_are_not_made_up_for_and_the_beat_is_kept(bench):
    def slow():
        if bench.clock.monotonic() == 10.0:
            bench.clock.advance(25.0)
        return [bench.clock.monotonic()]

    bench.start(TimerSource, 10.0, slow)
    bench.advance(10.0)
    bench.advance(5.0)
    bench.advance(10.0)
    assert bench.queue.requests == [35.0, 40.0, 50.0]


def test_jitter_only_makes_a_time_later_and_by_no_more_than_its_share(bench):
    bench.start(TimerSource, 10.0, lambda: [bench.clock.monotonic()], jitter=0.5, rng=Half())
    bench.advance(12.4)
    assert bench.queue.requests == []
    bench.advance(0.1)
    assert bench.queue.requests == [12.5]
    bench.advance(9.9)
    bench.advance(0.1)
    assert bench.queue.requests == [12.5, 22.5], "jitter does not add up"


class Half(random.Random):
    def random(self):
        return 0.5


def test_a_timer_s_function_that_raises_is_called_again_before_the_next_time(bench):
    answers = Answers(OSError("no"), ["a"])
    source = bench.start(TimerSource, 100.0, answers)
    bench.advance(100.0)
    assert "OSError: no" in source.health().text
    bench.advance(1.0)
    assert bench.queue.names == ["a"]
    bench.advance(99.0)
    assert bench.queue.names == ["a", "a"]


def test_a_timer_s_function_may_be_async(bench):
    async def requests():
        return ["a"]

    bench.start(TimerSource, 1.0, requests, first_after=0.0)
    assert bench.queue.wait_for(1) == ["a"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"interval": 0.0}, "interval=0.0: use more than 0 seconds"),
        ({"interval": float("inf")}, "interval"),
        ({"jitter": -0.1}, "jitter"),
        ({"first_after": -1.0}, "first_after"),
    ],
)
def test_a_timer_s_numbers_are_checked(options, text):
    options = {"interval": 1.0, "requests": [], **options}
    with pytest.raises(ValueError, match=text):
        TimerSource(options.pop("interval"), options.pop("requests"), **options)


@pytest.mark.parametrize("requests", [None, "x/a", lambda now: []])
def test_a_timer_s_requests_are_a_list_or_a_function(requests):
    with pytest.raises(TypeError, match="give a"):
        TimerSource(1.0, requests)


# Polling.


def test_polling_requests_what_is_new_changed_or_gone(bench):
    answers = Answers({"a": 1, "b": 1}, {"a": 1, "b": 1}, {"a": 2, "c": 1})
    source = bench.start(PollingSource, 10.0, answers, name="forge")
    assert source.wait_for_sync(bench.stop, None)
    assert bench.queue.names == ["a", "b"]
    assert bench.queue.priorities == [LOW_PRIORITY] * 2
    bench.advance(10.0)
    assert bench.queue.names == ["a", "b"]
    bench.advance(10.0)
    assert bench.queue.names == ["a", "b", "a", "c", "b"]
    assert bench.queue.priorities[2:] == [0] * 3
    assert bench.queue.reasons[2:] == ["forge: changed", "forge: new", "forge: vanished"]


@given(
    st.lists(
        st.one_of(
            st.none(), st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4)
        ),
        max_size=6,
    )
)
def test_polling_requests_the_difference_to_the_last_answer_whatever_failed_between(answers):
    source = PollingSource(1.0, Answers(None), metrics=Metrics())
    queue, known = RecordingQueue(), {}
    source._queue = queue
    for answer in answers:
        queue.calls.clear()
        source._fetch = Answers(OSError("no") if answer is None else answer)
        if answer is None:
            with pytest.raises(OSError, match="no"):
                source._call(StopSignal())
            assert queue.calls == []
            continue
        source._call(StopSignal())
        keys = known.keys() | answer.keys()
        assert sorted(queue.names) == sorted(
            key for key in keys if known.get(key, "") != answer.get(key, "")
        )
        known = answer


def test_polling_has_synced_with_the_first_answer_and_not_with_an_error(bench):
    source = bench.start(PollingSource, 10.0, Answers(OSError("down"), {"a": 1}))
    bench.clock.block_until_waiting(1)
    assert not source.has_synced
    assert not source.health().is_ready
    assert "OSError: down" in source.health().text
    assert source.wait_for_sync(bench.stop, 0.0) is False
    bench.clock.advance(1.0)
    assert source.wait_for_sync(bench.stop, None)
    assert source.health().is_ready
    assert bench.queue.names == ["a"]


def test_a_failure_after_the_sync_is_not_taken_for_everything_gone(bench):
    answers = Answers({"a": 1}, OSError("down"), OSError("down"), {"a": 1})
    source = bench.start(PollingSource, 10.0, answers, name="forge")
    assert source.wait_for_sync(bench.stop, None)
    bench.advance(10.0)
    bench.advance(1.0)
    bench.advance(2.0)
    assert bench.queue.names == ["a"]
    assert bench.metrics.value("source_errors_total", source="forge") == 2
    assert source.health().text == "source forge: ok"


@pytest.mark.parametrize("answer", [None, ["a"], "a"])
def test_an_answer_that_is_no_mapping_is_an_error_with_a_remedy(bench, answer):
    source = bench.start(PollingSource, 10.0, Answers(answer), name="forge")
    bench.clock.block_until_waiting(1)
    assert "return a mapping from request to value" in source.health().text


def test_the_wait_for_a_first_answer_ends_with_the_source(bench):
    source = bench.start(PollingSource, 10.0, Answers(OSError("down")))
    bench.clock.block_until_waiting(1)
    outcome = []
    waiter = threading.Thread(target=lambda: outcome.append(source.wait_for_sync(StopSignal())))
    waiter.start()
    bench.stop.set()
    waiter.join(PATIENCE)
    assert outcome == [False]


def test_fetch_may_be_async(bench):
    async def fetch():
        return {"a": 1}

    source = bench.start(PollingSource, 10.0, fetch)
    assert source.wait_for_sync(bench.stop, None)
    assert bench.queue.names == ["a"]


def test_polling_may_be_spread_by_jitter(bench):
    answers = Answers({})
    source = bench.start(PollingSource, 10.0, answers, jitter=0.5, rng=Half())
    assert source.wait_for_sync(bench.stop, None)
    bench.advance(12.4)
    assert answers.calls == 1
    bench.advance(0.1)
    assert answers.calls == 2


@pytest.mark.parametrize("fetch", [None, {"a": 1}, lambda stop: {}])
def test_fetch_must_be_a_function(fetch):
    with pytest.raises(TypeError, match="give a function"):
        PollingSource(1.0, fetch)


# All.


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: FunctionSource(lambda queue, stop: None, **o),
        lambda **o: TimerSource(10.0, ["a"], **o),
        lambda **o: PollingSource(10.0, dict, **o),
    ],
)
def test_a_source_belongs_to_one_controller_and_is_not_ready_before(bench, make):
    unused = make()
    assert unused.health().text.endswith("not started")
    assert unused.join(0.0) == []
    assert isinstance(unused, JoinableSource)
    assert isinstance(unused, SyncingSource) is isinstance(unused, PollingSource)
    source = bench.start(make)
    with pytest.raises(RuntimeError, match="make one for each"):
        source.start(bench.queue, bench.stop)


def test_every_series_is_there_at_0_from_the_start(bench):
    bench.start(TimerSource, 10.0, ["a"], name="tick")
    assert bench.metrics.value("source_errors_total", source="tick") == 0


def test_a_second_start_leaves_the_first_queue_in_use() -> None:
    class Sized(RecordingQueue):
        def __len__(self) -> int:
            return 0

    clock, stop = ManualClock(), StopSignal()
    source = TimerSource(1.0, ["a"], clock=clock, metrics=Metrics())
    first, second = Sized(), Sized()
    source.start(first, stop)
    with pytest.raises(RuntimeError, match="started before"):
        source.start(second, stop)
    assert source._queue is first
    stop.set()
    assert source.join(10.0) == []
