"""The end of a run: what it waits for, what it names, and what the metrics keep."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from appsdk_operator.cache import Health
from appsdk_operator.controllers import ChannelSource, Controller, for_object
from appsdk_operator.runtime import Metrics, StillRunning, StopSignal
from tests.controllers.controller_tools import PATIENCE, Gate, Rig, plain_limiter
from tests.controllers.event_tools import created
from tests.waiting import eventually

SERIES_AT_0 = """\
controller_runtime_active_workers{controller="zero"} 0.0
controller_runtime_max_concurrent_reconciles{controller="zero"} 3.0
controller_runtime_reconcile_errors_total{controller="zero"} 0.0
controller_runtime_reconcile_panics_total{controller="zero"} 0.0
controller_runtime_reconcile_time_seconds_bucket{controller="zero",le="+Inf"} 0.0
controller_runtime_reconcile_time_seconds_bucket{controller="zero",le="0.005"} 0.0
controller_runtime_reconcile_time_seconds_bucket{controller="zero",le="60.0"} 0.0
controller_runtime_reconcile_time_seconds_count{controller="zero"} 0.0
controller_runtime_reconcile_time_seconds_sum{controller="zero"} 0.0
controller_runtime_reconcile_timeouts_total{controller="zero"} 0.0
controller_runtime_reconcile_total{controller="zero",result="error"} 0.0
controller_runtime_reconcile_total{controller="zero",result="requeue"} 0.0
controller_runtime_reconcile_total{controller="zero",result="requeue_after"} 0.0
controller_runtime_reconcile_total{controller="zero",result="success"} 0.0
controller_runtime_terminal_reconcile_errors_total{controller="zero"} 0.0
workqueue_adds_total{controller="zero",name="zero"} 0.0
workqueue_depth{controller="zero",name="zero",priority="0"} 0.0
workqueue_longest_running_processor_seconds{controller="zero",name="zero"} 0.0
workqueue_queue_duration_seconds_count{controller="zero",name="zero"} 0.0
workqueue_retries_total{controller="zero",name="zero"} 0.0
workqueue_unfinished_work_seconds{controller="zero",name="zero"} 0.0
workqueue_work_duration_seconds_count{controller="zero",name="zero"} 0.0
"""


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appsdk_operator.controllers._engine.controller._HELPERS_END", 0.05)
    monkeypatch.setattr("appsdk_operator.runtime._threading.workers._CANCEL_TIMEOUT", 0.05)


def running(rig: Rig, *requests: Any) -> Rig:
    rig.tap.requests = requests
    rig.controller.watch(rig.tap)
    rig.start()
    eventually(lambda: rig.controller._works)
    return rig


def test_every_series_exists_at_0_from_the_start() -> None:
    rig = running(Rig(name="zero", max_concurrent_reconciles=3))
    lines = set(rig.metrics.render().splitlines())
    assert set(SERIES_AT_0.splitlines()) <= lines
    assert rig.stop() == []


def test_totals_outlive_the_run_and_gauges_do_not() -> None:
    rig = running(Rig(), "a")
    eventually(lambda: rig.results() == {"success": 1})
    assert rig.stop() == []
    assert rig.results() == {"success": 1}
    assert rig.value("max_concurrent_reconciles") is None
    assert rig.value("active_workers") is None


def test_active_workers_are_the_reconciles_that_run() -> None:
    rig = Rig(max_concurrent_reconciles=3)
    gate = Gate()
    rig.script.during = gate
    running(rig, "a", "b")
    eventually(lambda: len(rig.script.calls) == 2)
    assert rig.value("active_workers") == 2
    gate.open.set()
    assert rig.controller.wait_idle(PATIENCE)
    assert rig.value("active_workers") == 0
    assert rig.stop() == []


def test_no_more_than_the_given_number_run_side_by_side() -> None:
    rig = Rig(max_concurrent_reconciles=2)
    gate = Gate()
    rig.script.during = gate
    running(rig, "a", "b", "c")
    eventually(lambda: len(rig.script.calls) == 2)
    assert len(rig.controller.debug_snapshot()["planned"]) == 1
    gate.open.set()
    assert rig.controller.wait_idle(PATIENCE)
    assert len(rig.script.calls) == 3
    assert rig.stop() == []


def test_a_stop_waits_for_the_reconciles_that_run_and_begins_no_others() -> None:
    rig = Rig()
    gate = Gate()
    ended = threading.Event()

    def during(request: str) -> None:
        gate()
        ended.set()

    rig.script.during = during
    running(rig, "a", "b")
    assert gate.entered.wait(PATIENCE)
    rig.stop_signal.set()
    rig.runs[0].thread.join(0.05)
    assert rig.runs[0].thread.is_alive()
    gate.open.set()
    assert rig.join() == []
    assert ended.is_set()
    assert rig.script.calls == ["a"]


def test_a_reconcile_that_does_not_return_is_named_with_its_thread() -> None:
    rig = Rig(name="stuck", stop_timeout=0.05)
    gate = Gate()
    rig.script.during = gate
    running(rig, "a")
    assert gate.entered.wait(PATIENCE)
    (error,) = rig.stop()
    assert isinstance(error, TimeoutError)
    assert "still running 0.05 s after the stop: stuck/worker/0" in str(error)
    assert "the reconciler does not return from a, begun" in str(error)
    assert "look at reconcile_context().stop" in str(error)
    gate.open.set()


def test_an_async_reconcile_is_cancelled_by_the_stop_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entered, cancelled = threading.Event(), threading.Event()

    async def reconcile(request: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    # Much longer than the test waits.
    rig = Rig(reconciler=reconcile, stop_timeout=100 * PATIENCE)
    running(rig, "a")
    assert entered.wait(PATIENCE)
    assert rig.stop() == []
    assert cancelled.is_set()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_an_async_reconcile_that_begins_after_the_loop_was_closed_leaves_no_warning() -> None:
    async def reconcile(request: Any) -> None:
        """Never awaited."""

    rig = Rig(reconciler=reconcile).begin()
    rig.controller._loop.close()
    rig.add("a")
    rig.controller.process_next()
    assert rig.results() == {"error": 1}
    rig.close()


def test_what_is_asked_for_after_the_stop_is_not_reconciled() -> None:
    rig = running(Rig())
    assert rig.stop() == []
    rig.add("late")
    assert rig.script.calls == []


def test_close_of_a_controller_that_runs_asks_it_to_stop() -> None:
    rig = running(Rig())
    rig.controller.close()
    assert rig.join() == []
    assert rig.controller.health() == Health(False, f"controller {rig.controller.name} has ended")


def test_close_names_what_does_not_end() -> None:
    class Stuck:
        def start(self, queue: Any, stop: StopSignal) -> None:
            """Nothing."""

        def join(self, timeout: float | None = None) -> list[str]:
            return ["stuck/feeder"]

    rig = Rig(stop_timeout=0.0)
    rig.controller.watch(Stuck())
    rig.controller.process_next()
    with pytest.raises(TimeoutError, match=r"stuck/feeder.*a source does not return"):
        rig.controller.close()
    rig.controller.close()


def test_a_bug_and_a_thread_that_does_not_end_are_both_raised() -> None:
    rig = Rig(recover_exceptions=False, max_concurrent_reconciles=2, stop_timeout=0.0)
    gate = Gate()

    def during(request: str) -> None:
        if request == "stuck":
            gate()
        assert gate.entered.wait(PATIENCE)
        raise KeyError(request)

    rig.script.during = during
    running(rig, "stuck", "bug")
    (group,) = rig.join()
    gate.open.set()
    assert isinstance(group, ExceptionGroup)
    assert [type(error) for error in group.exceptions] == [KeyError, StillRunning]


def test_a_worker_that_breaks_ends_the_run_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = running(Rig())
    assert rig.controller._run is not None

    def broken(*_: Any, **__: Any) -> None:
        raise MemoryError("no room for a count")

    monkeypatch.setattr(rig.controller._run.metrics, "count", broken)
    rig.add("a")
    (error,) = rig.join()
    assert isinstance(error, MemoryError)


def test_a_helper_that_breaks_ends_the_run_and_says_why() -> None:
    rig = running(Rig())

    def broken() -> None:
        raise MemoryError("no room")

    rig.controller._helpers.start("stand-by", broken)
    (error,) = rig.join()
    assert isinstance(error, MemoryError)
    assert "no room" in rig.controller.health().text


def test_a_source_whose_thread_breaks_ends_the_run_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    source: ChannelSource[Any] = ChannelSource(for_object(), metrics=Metrics())

    def broken(*_: Any) -> None:
        raise MemoryError("no room for an event")

    monkeypatch.setattr(source._pipeline, "_handle_new", broken)
    rig.controller.watch(source)
    running(rig)
    source.push(created())
    (error,) = rig.join()
    assert isinstance(error, MemoryError)
    assert not rig.controller.health().is_ready


class BrokenFilter(logging.Filter):
    """A filter with a bug."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise ZeroDivisionError("a bug of the program")


def test_logging_that_raises_costs_no_retry_and_no_worker() -> None:
    broken, logger = BrokenFilter(), logging.getLogger("appsdk_operator.controllers")
    logger.addFilter(broken)
    try:
        rig = Rig(ConnectionError("one"), KeyError("two"), rate_limiter=plain_limiter)
        running(rig, "a")
        for seconds in (1, 2):
            assert rig.controller.wait_idle(PATIENCE)
            eventually(lambda: rig.controller.next_due is not None)
            rig.clock.advance(seconds)
        eventually(lambda: len(rig.script.calls) == 3)
        assert rig.controller.health().is_ready
        assert rig.stop() == []
    finally:
        logger.removeFilter(broken)


@pytest.mark.parametrize("stop", [None, threading.Event()])
def test_what_is_no_stop_signal_is_refused_before_anything_starts(stop: Any) -> None:
    rig = Rig()
    rig.controller.watch(rig.tap)
    for call in (rig.controller.run, rig.controller.warm_up):
        with pytest.raises(TypeError, match="is not a StopSignal: make one with"):
            call(stop)
    assert rig.tap.starts == 0
    running(rig)
    assert rig.stop() == []


def test_wait_idle_gives_up_at_its_time_out() -> None:
    rig = Rig()
    gate = Gate()
    rig.script.during = gate
    running(rig, "a")
    assert gate.entered.wait(PATIENCE)
    assert not rig.controller.wait_idle(0)
    gate.open.set()
    assert rig.controller.wait_idle(PATIENCE)
    assert rig.stop() == []


def test_by_hand_sources_start_with_the_first_step_and_later_ones_at_once() -> None:
    before = set(threading.enumerate())
    rig = Rig()
    rig.tap.requests = ("a",)
    rig.controller.watch(rig.tap)
    assert rig.tap.starts == 0
    assert rig.work() == ["a"]
    late = Rig().tap
    late.requests = ("b",)
    rig.controller.watch(late)
    assert rig.work() == ["b"]
    assert set(threading.enumerate()) <= before
    rig.close()


def test_a_late_source_that_fails_by_hand_raises_and_is_no_part_of_the_controller() -> None:
    class Broken:
        def start(self, queue: Any, stop: StopSignal) -> None:
            raise ConnectionError

        def join(self, timeout: float | None = None) -> list[str]:
            raise AssertionError("never started")

    rig = Rig().begin()
    with pytest.raises(ConnectionError):
        rig.controller.watch(Broken())
    assert rig.controller.health().is_ready
    rig.close()


def test_a_source_whose_join_exits_does_not_keep_the_controller_from_its_end() -> None:
    class Exits:
        def start(self, queue: Any, stop: StopSignal) -> None: ...

        def join(self, timeout: float | None = None) -> list[str]:
            raise SystemExit(3)

    controller = Controller("exits", lambda request: None, metrics=Metrics())
    controller.watch(Exits())
    stop = StopSignal()
    stop.set()
    controller._begin()
    controller.run(stop)
    assert controller.health().text == "controller exits has ended"
    Controller("exits", lambda request: None, metrics=Metrics()).close()
